//! Many runs, as many at a time as there are processors.

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

/// One run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Job {
    /// Who decides.
    pub policy: Policy,
    /// How many there are.
    pub servers: usize,
    /// Of the trace, the service times, and all else that is drawn.
    pub seed: u64,
    /// How much faster connections come than in the trace.
    pub times_faster: f64,
}

/// Told of what is done; from several threads.
pub trait Progress: Sync {
    /// So many runs more.
    fn done(&self, runs: u64);
}

impl Progress for () {
    fn done(&self, _: u64) {}
}

/// Runs all jobs. Their outcomes are in their order, and do not depend on how many processors there are;
/// none where one was stopped.
///
/// # Errors
///
/// A constant of a policy is out of its range.
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
    let keep = "a thread that has the lock does not panic";
    thread::scope(|scope| {
        for _ in 0..threads.min(jobs.len()) {
            scope.spawn(|| {
                while let Some(at) = Some(next.fetch_add(1, Ordering::Relaxed))
                    && let Some(job) = jobs.get(at)
                    && !stop.load(Ordering::Relaxed)
                {
                    match simulate(scenario, trace, job, stop) {
                        Ok(outcome) => *outcomes[at].lock().expect(keep) = outcome,
                        Err(error) => *failure.lock().expect(keep) = Some(error),
                    }
                    progress.done(1);
                }
            });
        }
    });
    match failure.into_inner().expect(keep) {
        Some(error) => Err(error),
        None => Ok(outcomes.into_iter().map(|outcome| outcome.into_inner().expect(keep)).collect()),
    }
}
