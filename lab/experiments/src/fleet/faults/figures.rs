//! What was sent, and what of it is in the store.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use dwell_testbed::Result;

use super::super::{
    agents::{Sent, name, unix_ns},
    oracle::Rows,
};
use crate::goal::Goal;

/// How much earlier or later than a measurement the times of its loss may be: batches are made a little later, and on the way.
const SLACK_NS: i64 = 3_000_000_000;
/// Resident memory of a collector at most.
const MAX_MEMORY_BYTES: u64 = 512 << 20;
/// How long after its end an interval of an agent with which nothing is wrong may come, while others do what they should not.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// What a host has sent.
#[derive(Debug, Clone, Default)]
pub(super) struct Truth {
    pub(super) host: String,
    /// Rows of each interval.
    pub(super) rows: u64,
    /// By number.
    pub(super) intervals: BTreeMap<u64, Interval>,
}

/// An interval that a host has sent, or was about to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interval {
    pub(super) at_unix_ns: i64,
    /// Whether it has to be stored, unless its loss is reported.
    pub(super) is_promised: bool,
}

/// What a fault has done, in rows.
#[derive(Debug, Clone, Default)]
pub(super) struct Figures {
    pub(super) fault: &'static str,
    /// How often it was done.
    pub(super) times: u64,
    /// What agents have measured.
    pub(super) sent: u64,
    /// What of it was acknowledged, or written down by an agent that was killed.
    pub(super) acknowledged: u64,
    /// What is in the store of what was acknowledged.
    pub(super) stored: u64,
    /// What is missing, and a row says so.
    pub(super) told: u64,
    /// What is missing, and no row says so.
    pub(super) untold: u64,
    pub(super) doubled: u64,
    /// Rows that nobody has sent.
    pub(super) foreign: u64,
    /// Batches that were not acknowledged at the end.
    pub(super) left: u64,
    /// The most resident memory of a collector.
    pub(super) memory_bytes: u64,
    /// The longest time until an interval of an agent with which nothing is wrong was in the store, where that is a goal; none if
    /// one of them never was.
    pub(super) slowest: Option<Option<Duration>>,
}

impl Truth {
    /// What the agents in this process have sent.
    pub(super) fn of(sent: &Sent) -> Vec<Truth> {
        let (now, now_ns) = (Instant::now(), unix_ns());
        let at = |reported: &Instant| Interval {
            at_unix_ns: now_ns - now.saturating_duration_since(*reported).as_nanos() as i64,
            is_promised: true,
        };
        let host = |(agent, (reported, rows)): (usize, (&Vec<Instant>, &u64))| Truth {
            host: name(agent),
            rows: *rows,
            intervals: (0..).zip(reported.iter().map(at)).collect(),
        };
        sent.reported.iter().zip(&sent.rows).enumerate().map(host).collect()
    }
}

impl Figures {
    /// Counts rows of intervals of this length.
    pub(super) fn count(&mut self, rows: &Rows, truths: &[Truth], interval_ns: u64) -> Result<()> {
        let mut found: HashMap<(String, u64), [u64; 2]> = HashMap::new();
        let mut foreign = 0;
        rows.each_interval(|host, [length_ns, different, all]| match length_ns.checked_sub(interval_ns) {
            Some(number) => _ = found.insert((host.to_owned(), number), [different, all]),
            None => foreign += all,
        })?;
        let losses = rows.losses()?;
        for truth in truths {
            for (number, interval) in &truth.intervals {
                let [different, all] = found.remove(&(truth.host.clone(), *number)).unwrap_or_default();
                let stored = different.min(truth.rows);
                let missing = truth.rows - stored;
                self.doubled += all - different;
                self.foreign += different - stored;
                self.sent += truth.rows;
                let is_told = losses.iter().any(|(host, from_ns, to_ns)| {
                    *host == truth.host
                        && from_ns.is_none_or(|from_ns| from_ns - SLACK_NS <= interval.at_unix_ns)
                        && to_ns.is_none_or(|to_ns| interval.at_unix_ns <= to_ns + SLACK_NS)
                });
                *(if is_told { &mut self.told } else { &mut self.untold }) += missing;
                if interval.is_promised {
                    self.acknowledged += truth.rows;
                    self.stored += stored;
                }
            }
        }
        self.foreign += foreign + found.values().map(|[_, all]| all).sum::<u64>();
        Ok(())
    }

    /// What must hold.
    pub(super) fn goals(&self) -> Vec<Goal> {
        let Figures { fault, times, sent, acknowledged, stored, untold, doubled, foreign, left, .. } = self;
        let mut goals = vec![
            Goal::decided(*times > 0, format!("{fault}: it was done {times} times, wanted: once at least")),
            Goal::decided(
                (acknowledged.saturating_sub(*stored), *left) == (0, 0),
                format!(
                    "{fault}: of {acknowledged} rows that were acknowledged {stored} are stored, and {left} batches \
                     are not acknowledged; wanted: all, and none"
                ),
            ),
            Goal::decided(
                *untold == 0,
                format!("{fault}: {untold} of {sent} rows are missing and no row says so; wanted: none"),
            ),
            Goal::decided(
                (*doubled, *foreign) == (0, 0),
                format!("{fault}: {doubled} rows are there twice, and {foreign} that nobody sent; wanted: none"),
            ),
            Goal::decided(
                self.memory_bytes <= MAX_MEMORY_BYTES,
                format!(
                    "{fault}: the collector has at most {} MiB of memory, wanted: at most {} MiB",
                    self.memory_bytes >> 20,
                    MAX_MEMORY_BYTES >> 20
                ),
            ),
        ];
        if let Some(slowest) = self.slowest {
            goals.push(Goal::decided(
                slowest.is_some_and(|slowest| slowest <= MAX_DELAY),
                match slowest {
                    Some(slowest) => format!(
                        "{fault}: the slowest interval of another agent is in the store after {:.1} s, wanted: at most {} s",
                        slowest.as_secs_f64(),
                        MAX_DELAY.as_secs()
                    ),
                    None => format!("{fault}: an interval of another agent was not seen in the store, wanted: all"),
                },
            ));
        }
        goals
    }
}
