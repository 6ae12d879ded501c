//! Studies: many runs, and their summaries.

use std::sync::atomic::AtomicBool;

use dwell_engine::steer::OutOfRange;

use crate::{
    Distribution, Estimate, Job, LoadSample, Outcome, Policy, Progress, ResumptionCounts, Scenario, ScenarioError,
    run_all,
    trace::{Trace, TraceError},
};

/// The quantiles of ratios that a summary holds.
pub const QUANTILES: [f64; 8] = [0.05, 0.25, 0.5, 0.6, 0.75, 0.9, 0.95, 0.99];

/// The figures of a policy with a number of servers, over all completed runs.
#[derive(Debug, Clone)]
pub struct Summary {
    /// The policy.
    pub policy: Policy,
    /// Number of servers.
    pub servers: usize,
    /// Number of completed runs.
    pub runs: usize,
    /// Number of requested runs.
    pub requested: usize,
    /// Normalised time to the first byte, at each of [`QUANTILES`].
    pub first_byte: Vec<Option<Estimate>>,
    /// Normalised time to completion, at each of [`QUANTILES`].
    pub completion: Vec<Option<Estimate>>,
    /// Short connections of all runs.
    pub short: ResumptionCounts,
    /// Long connections of all runs.
    pub long: ResumptionCounts,
    /// Share of possible 0-RTT that short connections used.
    pub short_used_share: Option<Estimate>,
    /// Share of possible 0-RTT that long connections used.
    pub long_used_share: Option<Estimate>,
    /// Share of possible 0-RTT that all connections used.
    pub used_share: Option<Estimate>,
    /// Fraction of time in which servers are busy.
    pub busy: Option<Estimate>,
    /// Service time that the requests at a server still need, averaged over servers and samples.
    pub load_ms: Option<Estimate>,
    /// Load of the most loaded server relative to the mean, averaged over samples.
    pub imbalance: Option<Estimate>,
    /// Mean number of packets at a server.
    pub present: Option<Estimate>,
    /// Share of connections that were diverted to the least loaded server.
    pub diverted: Option<Estimate>,
    /// Time that the simulation of a run took.
    pub elapsed_s: Option<Estimate>,
    /// Normalised times to the first byte of all runs.
    pub all_first_byte: Distribution,
    /// Normalised times to completion of all runs.
    pub all_completion: Distribution,
    /// Load and imbalance over time, in the first run.
    pub samples: Vec<LoadSample>,
}

/// Why a scenario cannot be studied.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// The scenario is invalid.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The scenario's trace cannot be loaded.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A parameter of a policy is out of its range.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
}

/// Checks a scenario, loads its trace and runs its jobs until `stop` is set. Returns a summary of each policy and number
/// of servers that completed at least one run. Before the runs, `note` receives what a user has to know about the
/// trace's file, one sentence each.
///
/// # Errors
///
/// [`StudyError`], if the scenario, its trace or a parameter of a policy is invalid.
pub fn study(
    scenario: &Scenario,
    stop: &AtomicBool,
    progress: &dyn Progress,
    note: &dyn Fn(&str),
) -> Result<Vec<Summary>, StudyError> {
    scenario.check()?;
    let trace = Trace::load(scenario)?;
    trace.notes().iter().for_each(|text| note(text));
    let mut summaries = run(scenario, &trace, stop, progress)?;
    summaries.retain(|summary| summary.runs > 0);
    Ok(summaries)
}

/// Lists the jobs of a scenario: in each run, each policy with each number of servers. So a study that is stopped has
/// results of all of them.
pub fn jobs(scenario: &Scenario) -> Vec<Job> {
    let mut jobs = Vec::new();
    for run in 0..scenario.runs {
        for servers in scenario.servers.iter().copied() {
            jobs.extend(scenario.policies.iter().map(|policy| Job {
                policy: *policy,
                servers,
                seed: scenario.seed.wrapping_add(run.into()),
                speedup: scenario.load_of_servers.map_or(1.0, |reference| servers as f64 / reference as f64),
            }));
        }
    }
    jobs
}

/// Runs all jobs of a scenario until `stop` is set. Returns one summary per policy and number of servers, over the runs
/// that were completed.
///
/// # Errors
///
/// [`OutOfRange`], if a parameter of a policy is out of its range.
pub fn run(
    scenario: &Scenario,
    trace: &Trace,
    stop: &AtomicBool,
    progress: &dyn Progress,
) -> Result<Vec<Summary>, OutOfRange> {
    let jobs = jobs(scenario);
    let outcomes = run_all(scenario, trace, &jobs, stop, progress)?;
    let pairs = scenario.servers.len() * scenario.policies.len();
    let summary = |(pair, job): (usize, &Job)| {
        let completed = outcomes.iter().skip(pair).step_by(pairs).flatten();
        Summary::of(*job, scenario.runs, &completed.collect::<Vec<_>>())
    };
    Ok(jobs.iter().take(pairs).enumerate().map(summary).collect())
}

impl Summary {
    fn of(job: Job, requested: u32, completed: &[&Outcome]) -> Summary {
        let estimate = |value: &dyn Fn(&Outcome) -> Option<f64>| {
            Estimate::of(completed.iter().filter_map(|outcome| value(outcome)))
        };
        let quantiles = |of: fn(&Outcome) -> &Distribution| {
            let each = QUANTILES.iter().map(|q| estimate(&|outcome| of(outcome).quantile(*q)));
            each.collect()
        };
        let merged = |of: fn(&Outcome) -> &Distribution| {
            let mut all = Distribution::default();
            completed.iter().for_each(|outcome| all.merge(of(outcome)));
            all
        };
        let sum = |of: fn(&Outcome) -> ResumptionCounts| {
            completed.iter().map(|outcome| of(outcome)).fold(ResumptionCounts::default(), |a, b| a + b)
        };
        Summary {
            policy: job.policy,
            servers: job.servers,
            runs: completed.len(),
            requested: requested as usize,
            first_byte: quantiles(|outcome| &outcome.first_byte),
            completion: quantiles(|outcome| &outcome.completion),
            short: sum(|outcome| outcome.short),
            long: sum(|outcome| outcome.long),
            short_used_share: estimate(&|outcome| outcome.short.used_share()),
            long_used_share: estimate(&|outcome| outcome.long.used_share()),
            used_share: estimate(&|outcome| outcome.all().used_share()),
            busy: estimate(&Outcome::busy),
            load_ms: estimate(&Outcome::load_ms),
            imbalance: estimate(&Outcome::imbalance),
            present: estimate(&|outcome| Some(outcome.present)),
            diverted: estimate(&|outcome| {
                let connections = outcome.all().connections as f64;
                (connections > 0.0).then(|| outcome.diverted as f64 / connections)
            }),
            elapsed_s: estimate(&|outcome| Some(outcome.elapsed.as_secs_f64())),
            all_first_byte: merged(|outcome| &outcome.first_byte),
            all_completion: merged(|outcome| &outcome.completion),
            samples: completed.first().map_or(Vec::new(), |outcome| outcome.samples.clone()),
        }
    }

    /// Normalised time to the first byte at one of [`QUANTILES`].
    pub fn first_byte_at(&self, quantile: f64) -> Option<f64> {
        at(&self.first_byte, quantile)
    }

    /// Normalised time to completion at one of [`QUANTILES`].
    pub fn completion_at(&self, quantile: f64) -> Option<f64> {
        at(&self.completion, quantile)
    }

    /// Share of short connections among those that are not their client's first, over all runs.
    pub fn short_part(&self) -> Option<f64> {
        let all = self.all().possible;
        (all > 0).then(|| self.short.possible as f64 / all as f64)
    }

    /// Short and long connections of all runs.
    pub fn all(&self) -> ResumptionCounts {
        self.short + self.long
    }
}

fn at(values: &[Option<Estimate>], quantile: f64) -> Option<f64> {
    let index = QUANTILES.iter().position(|known| *known == quantile)?;
    values.get(index)?.map(|estimate| estimate.mean)
}
