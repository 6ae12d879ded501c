//! Keeping to `--cpu-budget`.

use std::{
    fs,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use anyhow::anyhow;
use dwell_engine::layers::{Budget, Cost, Effort};
use dwell_probes::{count_run_times, stack::Probe};

use crate::{
    args::nanos,
    exit::{Exit, Failure},
};

/// The kernel's own accounting costs about as much as a program that does nothing, so it
/// is on for a part of the time only.
const MEASURE: Duration = Duration::from_millis(100);

/// Between two measurements, or before a rest.
const WORK: Duration = Duration::from_millis(400);

pub struct Keeper {
    budget: Budget,
    cpus: usize,
    phase: Phase,
    /// When the phase ends.
    due: Instant,
    effort: Effort,
    /// The least part of the time in which programs were attached.
    least_duty: f64,
}

enum Phase {
    Measure {
        _accounting: OwnedFd,
        begun: Instant,
        run_ns: u64,
    },
    Work,
    /// Nothing is attached.
    Rest,
}

impl Keeper {
    pub fn new(share: f64, sample_bytes: u32) -> Keeper {
        Keeper {
            budget: Budget::new(share, sample_bytes),
            cpus: online_cpus(),
            phase: Phase::Work,
            due: Instant::now(),
            effort: Effort { thin: 0, duty: 1.0 },
            least_duty: 1.0,
        }
    }

    /// To be called often: does what is due.
    pub fn look(&mut self, probe: &mut Probe) -> Result<(), Failure> {
        if Instant::now() < self.due {
            return Ok(());
        }
        let (phase, time) = match &self.phase {
            Phase::Measure { begun, run_ns, .. } => {
                let cost = Cost {
                    run_ns: total_ns(probe).saturating_sub(*run_ns),
                    window_ns: nanos(begun.elapsed()),
                    cpus: self.cpus,
                };
                let effort = self.budget.next(cost);
                if effort.thin != self.effort.thin {
                    probe.thin(effort.thin)?;
                }
                self.least_duty = self.least_duty.min(effort.duty);
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

    /// Of the grid, each 2^thin-th byte is stamped.
    pub fn thin(&self) -> u32 {
        self.effort.thin
    }

    /// What to say of a budget that could not be kept by stamping fewer bytes alone.
    pub fn rests(&self) -> Option<String> {
        (self.least_duty < 1.0).then(|| {
            format!(
                "to keep to --cpu-budget, bytes were stamped for {:.0} % of the time at least, \
                 {:?} at once: of delays longer than that there are too few",
                self.least_duty * 100.0,
                MEASURE + WORK
            )
        })
    }
}

fn measure(probe: &Probe) -> Result<Phase, Failure> {
    let accounting = count_run_times().ok_or_else(|| {
        Failure::new(
            Exit::Host,
            anyhow!(
                "the kernel does not count what programs cost (BPF_ENABLE_STATS, Linux 5.8, needs \
                 CAP_SYS_ADMIN): leave --cpu-budget away, and take a larger --sample-bytes"
            ),
        )
    })?;
    Ok(Phase::Measure { _accounting: accounting, begun: Instant::now(), run_ns: total_ns(probe) })
}

fn total_ns(probe: &Probe) -> u64 {
    probe.run_times().iter().map(|(_, _, ns)| ns).sum()
}

/// Of the host: this process may be bound to some of them, what it measures is not.
fn online_cpus() -> usize {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let is_one = |line: &&str| {
        let number = line.strip_prefix("cpu");
        number.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    stat.lines().filter(is_one).count().max(1)
}
