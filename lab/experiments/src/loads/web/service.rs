//! How long the server works on a request.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use clap::ValueEnum;
use dwell_testbed::Nanos;
use rand::{RngExt, rngs::Xoshiro256PlusPlus};
use serde::{Deserialize, Serialize};

use crate::{
    loads::{exponential, generator, normal},
    usage::compute,
};

/// A model of service times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum ServiceModel {
    /// Always 5 ms
    Constant,
    /// 1 to 20 ms, uniform
    Uniform,
    /// Log-normal, median 4 ms, slowed down by a load that varies as that of a machine in a cluster does
    Trace,
    /// 0.25 ms of processor time; the server works on one request at a time
    Compute,
    /// The same, in a cgroup whose CPU limit changes every second
    Limited,
}

/// With it, a server of one thread takes all of a processor at 4,000 requests per second, as that of arXiv 2505.14358.
const COMPUTE: Duration = Duration::from_micros(250);
const CONSTANT: Nanos = Nanos::from_millis(5);
/// Median and width of the log-normal that the trace slows down.
const TRACE_MEDIAN_NS: f64 = 4e6;
const TRACE_WIDTH: f64 = 0.5;

/// Service times: that of a request follows from the seed and the request's number, and in the trace from the time.
#[derive(Debug)]
pub(in crate::loads) struct Service {
    model: ServiceModel,
    seed: u64,
    load: Option<Utilisation>,
    worker: Mutex<()>,
}

impl Service {
    pub(in crate::loads) fn new(model: ServiceModel, seed: u64) -> Self {
        let load = (model == ServiceModel::Trace).then(|| Utilisation::new(seed));
        Self { model, seed, load, worker: Mutex::new(()) }
    }

    /// The time to wait for the request with that number, when the server has run for `elapsed`. A server that computes
    /// does so here, and waits no longer.
    pub(in crate::loads) fn time(&self, request: u64, elapsed: Nanos) -> Nanos {
        let mut random = generator(self.seed, 2, request);
        match self.model {
            ServiceModel::Constant => CONSTANT,
            ServiceModel::Uniform => Nanos(random.random_range(1_000_000..=20_000_000)),
            ServiceModel::Trace => {
                let alone = TRACE_MEDIAN_NS * (TRACE_WIDTH * normal(&mut random)).exp();
                let load = self.load.as_ref().map_or(0.0, |load| load.at(elapsed));
                Nanos((alone / (1.0 - load)) as u64)
            }
            ServiceModel::Compute | ServiceModel::Limited => {
                let _turn = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
                compute(COMPUTE);
                Nanos::ZERO
            }
        }
    }
}

/// Steps of the trace, and how many there are: ten minutes. Then it repeats.
const STEP: Nanos = Nanos::from_millis(50);
const STEPS: usize = 12_000;

/// Utilisation of a machine by others, 0.05 to 0.9, a value each 50 ms. Two processes are added:
///
/// - a level about 0.35 that wanders (first-order autoregressive, time constant 10 s, deviation 0.12);
/// - bursts that come at random, one in 4 s on average; each lifts it at once by 0.1 to 0.5 and decays with a time
///   constant of 0.2 to 2 s.
///
/// A request takes 1 / (1 - utilisation) times as long as alone, as in a server shared by turns.
#[derive(Debug)]
pub(crate) struct Utilisation(Vec<f64>);

impl Utilisation {
    pub(crate) fn new(seed: u64) -> Self {
        Self(utilisation(seed))
    }

    /// The value at a time since the start.
    pub(crate) fn at(&self, elapsed: Nanos) -> f64 {
        let step = elapsed.0 / STEP.0;
        self.0[(step % self.0.len() as u64) as usize]
    }
}

fn utilisation(seed: u64) -> Vec<f64> {
    let mut random = generator(seed, 3, 0);
    let step_s = STEP.as_millis_f64() / 1e3;
    let keep = (-step_s / 10.0).exp();
    let noise = 0.12 * (1.0 - keep * keep).sqrt();
    let mut wander = 0.12 * normal(&mut random);
    let mut bursts: Vec<(f64, f64)> = Vec::new();
    let mut next_burst_s = exponential(&mut random, 4.0);
    let value = |step: usize| {
        wander = keep * wander + noise * normal(&mut random);
        for (height, decay) in &mut bursts {
            *height *= *decay;
        }
        bursts.retain(|(height, _)| *height > 0.001);
        while next_burst_s <= step as f64 * step_s {
            bursts.push(burst(&mut random, step_s));
            next_burst_s += exponential(&mut random, 4.0);
        }
        let burst: f64 = bursts.iter().map(|(height, _)| height).sum();
        (0.35 + wander + burst).clamp(0.05, 0.9)
    };
    (0..STEPS).map(value).collect()
}

/// Its height, and what is left of it after a step.
fn burst(random: &mut Xoshiro256PlusPlus, step_s: f64) -> (f64, f64) {
    let height = random.random_range(0.1..0.5);
    let lasts_s = random.random_range(0.2..2.0_f64);
    (height, (-step_s / lasts_s).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(model: ServiceModel) -> Vec<f64> {
        let service = Service::new(model, 1);
        let time = |n| service.time(n, Nanos::from_millis(n * 10)).as_millis_f64();
        (0..10_000).map(time).collect()
    }

    #[test]
    fn uniform_times_are_within_1_and_20_ms() {
        let times = times(ServiceModel::Uniform);
        assert!(times.iter().all(|time| (1.0..=20.0).contains(time)));
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        assert!((mean - 10.5).abs() < 0.2, "{mean}");
    }

    #[test]
    fn a_time_follows_from_seed_and_request() {
        let time = |seed, n| Service::new(ServiceModel::Uniform, seed).time(n, Nanos::ZERO);
        assert_eq!(time(1, 5), time(1, 5));
        assert_ne!(time(1, 5), time(1, 6));
        assert_ne!(time(1, 5), time(2, 5));
        let constant = Service::new(ServiceModel::Constant, 1);
        assert_eq!(constant.time(9, Nanos::ZERO), Nanos::from_millis(5));
    }

    #[test]
    fn the_trace_varies_slowly_and_bursts() {
        let load = utilisation(1);
        assert_eq!(load.len(), STEPS);
        assert!(load.iter().all(|value| (0.05..=0.9).contains(value)));
        let steps: Vec<f64> = load.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let jumps = steps.iter().filter(|step| **step > 0.08).count();
        // 600 s, a burst in 4 s.
        assert!((100..200).contains(&jumps), "{jumps}");
        let small = steps.iter().filter(|step| step.abs() < 0.05).count();
        assert!(small > STEPS * 9 / 10, "{small}");
        let mean = load.iter().sum::<f64>() / STEPS as f64;
        assert!((0.35..0.6).contains(&mean), "{mean}");
    }

    #[test]
    fn the_trace_slows_requests_down() {
        let mut times = times(ServiceModel::Trace);
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        assert!((5.0..12.0).contains(&median), "{median}");
    }
}
