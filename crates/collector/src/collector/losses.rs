//! What is counted and logged of batches that will never be stored.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use dwell_app::log::log;
use dwell_records::counted;
use dwell_store::Loss;

use super::rows::Losses;

/// Time between two messages about losses; all of them are in the store.
const PAUSE: Duration = Duration::from_secs(10);

/// Batches that are known to be lost, by reason.
#[derive(Debug, Default)]
pub(super) struct LossCounts {
    batches: BTreeMap<Loss, u64>,
    killed_runs: u64,
    logged: Option<Instant>,
}

impl LossCounts {
    /// Adds losses of a host, and logs the first one unless another was logged just before.
    pub(super) fn add(&mut self, host: &str, losses: &Losses) {
        for (why, batches) in losses {
            match batches {
                Some(batches) => {
                    let counted = self.batches.entry(*why).or_default();
                    *counted = counted.saturating_add(*batches);
                }
                None => self.killed_runs += 1,
            }
        }
        let Some((why, batches)) = losses.first() else {
            return;
        };
        if self.logged.is_some_and(|logged| logged.elapsed() < PAUSE) {
            return;
        }
        self.logged = Some(Instant::now());
        match batches {
            Some(batches) => {
                let batches = counted(*batches, "batch is", "batches are");
                log(format_args!("{batches} lost of {host}: {} (table 'lost')", why.name()));
            }
            None => log(format_args!(
                "an earlier agent on {host} was killed: what it had not written down is lost (table 'lost')"
            )),
        }
    }

    /// Batches by reason, all reasons.
    pub(super) fn batches(&self) -> Vec<(&'static str, u64)> {
        let known = Loss::ALL.into_iter().filter(|why| *why != Loss::Killed);
        known.map(|why| (why.name(), self.batches.get(&why).copied().unwrap_or(0))).collect()
    }

    /// Runs of agents that took no leave.
    pub(super) fn killed_runs(&self) -> u64 {
        self.killed_runs
    }
}
