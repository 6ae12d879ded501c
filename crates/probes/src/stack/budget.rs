//! Keeps what the stack programs cost below a share of the host's processor time.

use std::{
    fs,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use dwell_engine::layers::{Budget, Cost, Effort};

use super::Probe;
use crate::{Error, count_run_times};

/// How long the cost is measured. The kernel's own accounting costs about as much as a program that does nothing,
/// so it is on for a part of the time only.
const MEASURE: Duration = Duration::from_millis(100);

/// The time between two measurements, or before a rest.
const WORK: Duration = Duration::from_millis(400);

/// Measures what the programs cost, and thins out or detaches them to stay within the budget.
pub(super) struct BudgetControl {
    budget: Budget,
    cpus: usize,
    phase: Phase,
    /// When the phase ends.
    due: Instant,
    effort: Effort,
    /// The smallest part of the time in which programs were attached.
    min_duty: f64,
}

enum Phase {
    Measure {
        _accounting: OwnedFd,
        start: Instant,
        run_ns: u64,
    },
    Work,
    /// Nothing is attached.
    Rest,
}

impl BudgetControl {
    /// Starts with one byte in `sample_bytes`; `share` is a part of the time of all processors, from 0 to 1.
    pub(super) fn new(share: f64, sample_bytes: u32) -> BudgetControl {
        BudgetControl {
            budget: Budget::new(share, sample_bytes),
            cpus: online_cpus(),
            phase: Phase::Work,
            due: Instant::now(),
            effort: Effort { thin: 0, duty: 1.0 },
            min_duty: 1.0,
        }
    }

    /// Does what is due; to be called several times per [`MEASURE`].
    pub(super) fn poll(&mut self, probe: &mut Probe) -> Result<(), Error> {
        if Instant::now() < self.due {
            return Ok(());
        }
        let (phase, time) = match &self.phase {
            Phase::Measure { start, run_ns, .. } => {
                let cost = Cost {
                    run_ns: total_ns(probe).saturating_sub(*run_ns),
                    window_ns: start.elapsed().as_nanos() as u64,
                    cpus: self.cpus,
                };
                let effort = self.budget.next(cost);
                if effort.thin != self.effort.thin {
                    probe.thin(effort.thin)?;
                }
                self.min_duty = self.min_duty.min(effort.duty);
                self.effort = effort;
                (Phase::Work, WORK)
            }
            Phase::Work if self.effort.duty < 1.0 => {
                probe.detach();
                let rest = (MEASURE + WORK).mul_f64(1.0 / self.effort.duty - 1.0);
                (Phase::Rest, rest)
            }
            Phase::Work => (measure(probe)?, MEASURE),
            Phase::Rest => {
                probe.attach()?;
                (measure(probe)?, MEASURE)
            }
        };
        self.phase = phase;
        self.due = Instant::now() + time;
        Ok(())
    }

    /// The current thinning: one byte in 2^thin of the sampling grid is stamped.
    pub(super) fn thin(&self) -> u32 {
        self.effort.thin
    }

    /// A sentence for people, if stamping fewer bytes was not enough to keep to the budget.
    pub(super) fn pauses(&self) -> Option<String> {
        (self.min_duty < 1.0).then(|| {
            format!(
                "to keep to --cpu-budget, bytes were at times stamped for {:.0} % of the time, {:?} in a row: \
                 delays longer than that are underrepresented",
                self.min_duty * 100.0,
                MEASURE + WORK
            )
        })
    }
}

fn measure(probe: &Probe) -> Result<Phase, Error> {
    let accounting = count_run_times().ok_or(Error::RunTimes)?;
    Ok(Phase::Measure { _accounting: accounting, start: Instant::now(), run_ns: total_ns(probe) })
}

fn total_ns(probe: &Probe) -> u64 {
    probe.run_times().iter().map(|(_, _, ns)| ns).sum()
}

/// Counts the host's processors: this process may be bound to some of them, but the measured traffic is not.
fn online_cpus() -> usize {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let is_cpu = |line: &&str| {
        let number = line.strip_prefix("cpu");
        number.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    stat.lines().filter(is_cpu).count().max(1)
}
