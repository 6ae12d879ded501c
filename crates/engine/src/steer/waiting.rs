//! How long what comes to a server now will wait, as the server can tell of itself.

use std::{collections::VecDeque, time::Duration};

/// Of the last requests: how far apart they came and how long they were served.
///
/// With load ρ between 0.5 and 1 the mean wait in a queue is by Kingman's formula
/// ρ / (1 - ρ) · (c_a² + c_s²) / 2 · T_s, with T_s the mean service time, and c² the
/// variance of a time over the square of its mean. Below, the formula says little more
/// than noise, and beyond there is no such mean: there it is L · T_s, by Little's law,
/// with L the requests that are there.
///
/// A server that works at several at once divides the work: then it is the formula of
/// Allen and Cunneen, ρ^(√(2 (c + 1)) - 1) / (c (1 - ρ)) · (c_a² + c_s²) / 2 · T_s, which
/// is Kingman's for c = 1.
#[derive(Debug, Clone)]
pub struct WaitingEstimator {
    workers: f64,
    gaps: Window,
    services: Window,
    last_arrival_ns: Option<u64>,
    here: u64,
}

/// Which formula an estimate is by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Formula {
    /// Kingman's.
    Kingman,
    /// Little's law.
    Little,
}

/// What is estimated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waiting {
    /// Before service begins, on average.
    pub wait: Duration,
    /// By this.
    pub formula: Formula,
    /// ρ: the part of the time in which a worker is busy; above 1 if more comes than
    /// can be served.
    pub load: f64,
}

impl WaitingEstimator {
    /// Over a window of so many requests, of a server with so many workers.
    ///
    /// # Panics
    ///
    /// If the window has fewer than two requests or more than 2^20, or there is no worker.
    pub fn new(requests: usize, workers: u32) -> WaitingEstimator {
        assert!((2..=1 << 20).contains(&requests), "2 to 2^20 requests");
        assert!(workers > 0, "somebody has to work");
        WaitingEstimator {
            workers: workers.into(),
            gaps: Window::new(requests),
            services: Window::new(requests),
            last_arrival_ns: None,
            here: 0,
        }
    }

    /// A request came. Times do not go back.
    pub fn arrived(&mut self, now_ns: u64) {
        if let Some(last) = self.last_arrival_ns {
            self.gaps.add(now_ns.saturating_sub(last));
        }
        self.last_arrival_ns = Some(now_ns);
        self.here += 1;
    }

    /// A request that came is done, after service that took so long.
    pub fn served(&mut self, service_ns: u64) {
        self.services.add(service_ns);
        self.here = self.here.saturating_sub(1);
    }

    /// A request that came is gone without service.
    pub fn left(&mut self) {
        self.here = self.here.saturating_sub(1);
    }

    /// Requests that came and are not done.
    pub fn here(&self) -> u64 {
        self.here
    }

    /// None until something has been served.
    pub fn waiting(&self, now_ns: u64) -> Option<Waiting> {
        let service = self.services.mean()?;
        let little = Waiting {
            wait: to_duration(self.here as f64 * service / self.workers),
            formula: Formula::Little,
            load: 0.0,
        };
        let Some(gap) = self.gap(now_ns).filter(|gap| *gap > 0.0) else {
            return Some(little);
        };
        let load = service / gap / self.workers;
        if load <= 0.5 || load >= 1.0 {
            return Some(Waiting { load, ..little });
        }
        let power = (2.0 * (self.workers + 1.0)).sqrt() - 1.0;
        let queue = load.powf(power) / (self.workers * (1.0 - load));
        let variation = (self.gaps.variation()? + self.services.variation()?) / 2.0;
        Some(Waiting { wait: to_duration(queue * variation * service), formula: Formula::Kingman, load })
    }

    /// The mean time between requests. One that is not over counts if it is longer:
    /// nothing comes any more.
    fn gap(&self, now_ns: u64) -> Option<f64> {
        let mean = self.gaps.mean()?;
        let open = now_ns.saturating_sub(self.last_arrival_ns?) as f64;
        let count = self.gaps.values.len() as f64;
        Some(match open > mean {
            true => (mean * count + open) / (count + 1.0),
            false => mean,
        })
    }
}

fn to_duration(ns: f64) -> Duration {
    Duration::from_nanos(ns.round() as u64)
}

/// The last times, with sums that never drift.
#[derive(Debug, Clone)]
struct Window {
    values: VecDeque<u64>,
    most: usize,
    sum: u128,
    squares: u128,
}

/// Longer times count as this, 73 minutes: so squares have room.
const LONGEST_NS: u64 = 1 << 42;

impl Window {
    fn new(most: usize) -> Window {
        Window { values: VecDeque::with_capacity(most), most, sum: 0, squares: 0 }
    }

    fn add(&mut self, ns: u64) {
        if self.values.len() == self.most
            && let Some(oldest) = self.values.pop_front()
        {
            self.sum -= u128::from(oldest);
            self.squares -= u128::from(oldest).pow(2);
        }
        let ns = ns.min(LONGEST_NS);
        self.values.push_back(ns);
        self.sum += u128::from(ns);
        self.squares += u128::from(ns).pow(2);
    }

    fn mean(&self) -> Option<f64> {
        let count = self.values.len();
        (count > 0).then(|| self.sum as f64 / count as f64)
    }

    /// (σ / T)², of at least two.
    fn variation(&self) -> Option<f64> {
        let count = self.values.len() as u128;
        if count < 2 || self.sum == 0 {
            return None;
        }
        let scaled = count * self.squares - self.sum * self.sum;
        Some(scaled as f64 / (self.sum as f64 * self.sum as f64))
    }
}
