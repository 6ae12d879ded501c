//! Keeping to `--cpu-budget`.

use std::{
    os::fd::OwnedFd,
    thread::available_parallelism,
    time::{Duration, Instant},
};

use anyhow::anyhow;
use dwell_engine::layers::{Budget, Cost};
use dwell_probes::{count_run_times, stack::Probe};

use crate::{
    args::nanos,
    exit::{Exit, Failure},
};

/// The kernel's own accounting costs about as much as a program that does nothing, so it
/// is on for a part of the time only.
const WINDOW: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(400);

pub struct Keeper {
    share: f64,
    budget: Budget,
    cpus: usize,
    window: Option<Window>,
    /// When the window ends, or the next one begins.
    due: Instant,
    /// In the last window.
    cost: f64,
    thin: u32,
}

struct Window {
    _accounting: OwnedFd,
    begun: Instant,
    run_ns: u64,
}

impl Keeper {
    pub fn new(share: f64, sample_bytes: u32) -> Keeper {
        Keeper {
            share,
            budget: Budget::new(share, sample_bytes),
            cpus: available_parallelism().map_or(1, usize::from),
            window: None,
            due: Instant::now(),
            cost: 0.0,
            thin: 0,
        }
    }

    /// To be called often: begins and ends windows, and says what follows from them.
    pub fn look(&mut self, probe: &mut Probe) -> Result<(), Failure> {
        if Instant::now() < self.due {
            return Ok(());
        }
        let run_ns = run_ns(probe);
        let Some(window) = self.window.take() else {
            let accounting = count_run_times().ok_or_else(|| {
                Failure::new(
                    Exit::Host,
                    anyhow!(
                        "the kernel does not count what programs cost (BPF_ENABLE_STATS, Linux \
                         5.8, needs CAP_SYS_ADMIN): leave --cpu-budget away, and take a larger \
                         --sample-bytes"
                    ),
                )
            })?;
            self.window = Some(Window {
                _accounting: accounting,
                begun: Instant::now(),
                run_ns,
            });
            self.due = Instant::now() + WINDOW;
            return Ok(());
        };
        let cost = Cost {
            run_ns: run_ns.saturating_sub(window.run_ns),
            window_ns: nanos(window.begun.elapsed()),
            cpus: self.cpus,
        };
        drop(window);
        self.due = Instant::now() + PAUSE;
        self.cost = cost.share();
        let thin = self.budget.next(cost);
        if thin != self.thin {
            probe.thin(thin)?;
            self.thin = thin;
        }
        Ok(())
    }

    /// One byte in so many more is not stamped.
    pub fn thin(&self) -> u32 {
        self.thin
    }

    /// What to say where the budget could not be kept.
    pub fn excess(&self) -> Option<String> {
        (self.budget.is_exhausted() && self.cost > self.share).then(|| {
            format!(
                "the programs took {:.2} % of the processor time at last, more than --cpu-budget, \
                 although as few bytes as possible were stamped: what each packet costs remains",
                self.cost * 100.0
            )
        })
    }
}

fn run_ns(probe: &Probe) -> u64 {
    probe.run_times().iter().map(|(_, _, ns)| ns).sum()
}
