//! Parallel execution of runs, one thread per processor.

use std::{
    num::NonZero,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use dwell_engine::steer::OutOfRange;

use crate::{Outcome, Policy, Scenario, simulate, trace::Trace};

/// The parameters of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Job {
    /// The balancer's policy.
    pub policy: Policy,
    /// Number of servers.
    pub servers: usize,
    /// Random seed of the trace, the service times and the policy.
    pub seed: u64,
    /// Factor by which packets arrive faster than in the trace.
    pub speedup: f64,
}

/// Receives the progress of a batch, from several threads.
pub trait Progress: Sync {
    /// Reports that this many more runs are complete.
    fn completed(&self, runs: u64);
}

impl Progress for () {
    fn completed(&self, _: u64) {}
}

impl<F: Fn(u64) + Sync> Progress for F {
    fn completed(&self, runs: u64) {
        self(runs);
    }
}

/// Runs all jobs. Returns their outcomes in the same order, `None` for a job that was stopped. The outcomes do not
/// depend on the number of processors.
///
/// # Errors
///
/// [`OutOfRange`], if a parameter of a policy is out of its range.
pub fn run_all(
    scenario: &Scenario,
    trace: &Trace,
    jobs: &[Job],
    stop: &AtomicBool,
    progress: &dyn Progress,
) -> Result<Vec<Option<Outcome>>, OutOfRange> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
    let outcomes: Vec<Mutex<Option<Outcome>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let unpoisoned = "no thread panics while it holds the lock";
    thread::scope(|scope| {
        for _ in 0..threads.min(jobs.len()) {
            scope.spawn(|| {
                while let Some(index) = Some(next.fetch_add(1, Ordering::Relaxed))
                    && let Some(job) = jobs.get(index)
                    && !stop.load(Ordering::Relaxed)
                {
                    match simulate(scenario, trace, job, stop) {
                        Ok(outcome) => *outcomes[index].lock().expect(unpoisoned) = outcome,
                        Err(error) => *failure.lock().expect(unpoisoned) = Some(error),
                    }
                    progress.completed(1);
                }
            });
        }
    });
    match failure.into_inner().expect(unpoisoned) {
        Some(error) => Err(error),
        None => Ok(outcomes.into_iter().map(|outcome| outcome.into_inner().expect(unpoisoned)).collect()),
    }
}
