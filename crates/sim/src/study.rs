//! Many runs, and what they say together.

use std::sync::atomic::AtomicBool;

use dwell_engine::steer::OutOfRange;

use crate::{Distribution, Estimate, Job, Outcome, Policy, Progress, Resumed, Sample, Scenario, run_all, trace::Trace};

/// The parts of connections at which ratios are told.
pub const PARTS: [f64; 5] = [0.5, 0.6, 0.75, 0.9, 0.99];

/// A policy with a number of servers, over all runs that were done.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Who decided.
    pub policy: Policy,
    /// How many there were.
    pub servers: usize,
    /// Runs that were done.
    pub runs: usize,
    /// Those that were asked for.
    pub asked: usize,
    /// Of times to the first byte, normalised: by [`PARTS`].
    pub first_byte: Vec<Option<Estimate>>,
    /// Of times to completion, likewise.
    pub completion: Vec<Option<Estimate>>,
    /// Connections of all runs.
    pub short: Resumed,
    /// Connections of all runs.
    pub long: Resumed,
    /// The part of short ones that used 0-RTT, of those that could.
    pub short_part: Option<Estimate>,
    /// Likewise of long ones.
    pub long_part: Option<Estimate>,
    /// Likewise of all.
    pub part: Option<Estimate>,
    /// The part of time in which servers are busy.
    pub load: Option<Estimate>,
    /// Load of the busiest over the mean.
    pub imbalance: Option<Estimate>,
    /// Packets at a server.
    pub present: Option<Estimate>,
    /// The part of connections that went to the least loaded server instead of their own.
    pub diverted: Option<Estimate>,
    /// What a run took.
    pub elapsed_s: Option<Estimate>,
    /// All runs' times to the first byte together.
    pub all_first_byte: Distribution,
    /// All runs' times to completion together.
    pub all_completion: Distribution,
    /// Load and imbalance over time, in the first run.
    pub samples: Vec<Sample>,
}

/// Jobs of a scenario: all policies at all numbers of servers, in all runs.
pub fn jobs(scenario: &Scenario) -> Vec<Job> {
    let mut jobs = Vec::new();
    for servers in scenario.servers.iter().copied() {
        for policy in scenario.policies.iter().copied() {
            jobs.extend((0..scenario.runs).map(|run| Job {
                policy,
                servers,
                seed: scenario.seed.wrapping_add(run.into()),
                times_faster: scenario.load_of_servers.map_or(1.0, |of| servers as f64 / of as f64),
            }));
        }
    }
    jobs
}

/// Runs all jobs of a scenario; a summary a policy and number of servers, of those runs that were done
/// before `stop` was set.
///
/// # Errors
///
/// A constant of a policy is out of its range.
pub fn run(
    scenario: &Scenario,
    trace: &Trace,
    stop: &AtomicBool,
    progress: &dyn Progress,
) -> Result<Vec<Summary>, OutOfRange> {
    let jobs = jobs(scenario);
    let outcomes = run_all(scenario, trace, &jobs, stop, progress)?;
    let of_one = scenario.runs as usize;
    let pairs = jobs.chunks(of_one).zip(outcomes.chunks(of_one));
    Ok(pairs.map(|(jobs, outcomes)| Summary::of(jobs[0], outcomes)).collect())
}

impl Summary {
    fn of(job: Job, outcomes: &[Option<Outcome>]) -> Summary {
        let done: Vec<&Outcome> = outcomes.iter().flatten().collect();
        let over =
            |value: &dyn Fn(&Outcome) -> Option<f64>| Estimate::of(done.iter().filter_map(|outcome| value(outcome)));
        let quantiles = |of: fn(&Outcome) -> &Distribution| {
            let each = PARTS.iter().map(|part| over(&|outcome| of(outcome).quantile(*part)));
            each.collect()
        };
        let merged = |of: fn(&Outcome) -> &Distribution| {
            let mut all = Distribution::default();
            done.iter().for_each(|outcome| all.merge(of(outcome)));
            all
        };
        let sum =
            |of: fn(&Outcome) -> Resumed| done.iter().map(|outcome| of(outcome)).fold(Resumed::default(), |a, b| a + b);
        Summary {
            policy: job.policy,
            servers: job.servers,
            runs: done.len(),
            asked: outcomes.len(),
            first_byte: quantiles(|outcome| &outcome.first_byte),
            completion: quantiles(|outcome| &outcome.completion),
            short: sum(|outcome| outcome.short),
            long: sum(|outcome| outcome.long),
            short_part: over(&|outcome| outcome.short.part()),
            long_part: over(&|outcome| outcome.long.part()),
            part: over(&|outcome| outcome.all().part()),
            load: over(&Outcome::load),
            imbalance: over(&Outcome::imbalance),
            present: over(&|outcome| Some(outcome.present)),
            diverted: over(&|outcome| {
                let connections = outcome.all().connections as f64;
                (connections > 0.0).then(|| outcome.diverted as f64 / connections)
            }),
            elapsed_s: over(&|outcome| Some(outcome.elapsed.as_secs_f64())),
            all_first_byte: merged(|outcome| &outcome.first_byte),
            all_completion: merged(|outcome| &outcome.completion),
            samples: done.first().map_or(Vec::new(), |outcome| outcome.samples.clone()),
        }
    }

    /// At one of [`PARTS`].
    pub fn first_byte_at(&self, part: f64) -> Option<f64> {
        at(&self.first_byte, part)
    }

    /// At one of [`PARTS`].
    pub fn completion_at(&self, part: f64) -> Option<f64> {
        at(&self.completion, part)
    }

    /// Connections of all runs.
    pub fn all(&self) -> Resumed {
        self.short + self.long
    }

    /// An object for output.
    pub fn line(&self) -> serde_json::Value {
        let named = |values: &[Option<Estimate>]| -> serde_json::Map<String, serde_json::Value> {
            let pairs = PARTS.iter().zip(values);
            pairs.map(|(part, value)| (format!("p{}", part * 100.0), serde_json::json!(value))).collect()
        };
        serde_json::json!({
            "type": "simulation",
            "schema": 1,
            "policy": self.policy,
            "servers": self.servers,
            "runs": self.runs,
            "runs_asked": self.asked,
            "first_byte_ratio": named(&self.first_byte),
            "completion_ratio": named(&self.completion),
            "zero_rtt": {
                "short": self.short,
                "long": self.long,
                "short_part": self.short_part,
                "long_part": self.long_part,
                "part": self.part,
            },
            "load": self.load,
            "imbalance": self.imbalance,
            "packets_present": self.present,
            "diverted_part": self.diverted,
            "elapsed_s": self.elapsed_s,
        })
    }
}

fn at(values: &[Option<Estimate>], part: f64) -> Option<f64> {
    let n = PARTS.iter().position(|known| *known == part)?;
    values.get(n)?.map(|estimate| estimate.mean)
}
