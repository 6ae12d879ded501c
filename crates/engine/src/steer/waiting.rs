//! Estimates the waiting time of new requests at a server, from what the server itself observes.

use std::{collections::VecDeque, time::Duration};

/// Estimates the waiting time from the intervals between the last requests and their service times.
///
/// With a load ρ between 0.5 and 1, the mean wait in a queue is given by Kingman's formula ρ / (1 - ρ) · (c_a² + c_s²)
/// / 2 · T_s, where T_s is the mean service time and c² the variance of a time over the square of its mean. Below, the
/// formula yields little more than noise, and above there is no such mean: there the estimate is L · T_s, by Little's
/// law, where L is the number of requests that are present.
///
/// For a server with c workers, Kingman's formula becomes that of Lee and Longton, C / (c (1 - ρ)) · (c_a² + c_s²) / 2 · T_s,
/// where C is the share of requests that have to wait by Erlang's formula C. The other estimate becomes
/// (L - c + 1) · T_s / c: a new request waits until L - c + 1 of those present have left, one every T_s / c, and not at
/// all while a worker is idle. With c = 1, both are the above.
#[derive(Debug, Clone)]
pub struct WaitingEstimator {
    workers: f64,
    gaps: Window,
    services: Window,
    last_arrival_ns: Option<u64>,
    present: u64,
}

/// The formula of an estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Formula {
    /// Kingman's formula.
    Kingman,
    /// Little's law.
    Little,
}

/// An estimate of the waiting time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waiting {
    /// The mean time until service starts.
    pub wait: Duration,
    /// The formula that was used.
    pub formula: Formula,
    /// The load ρ: the part of the time in which a worker is busy; above 1 if more requests arrive than can be served.
    pub load: f64,
}

impl WaitingEstimator {
    /// Creates an estimator with a window of this number of requests, for a server with this number of workers.
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
            present: 0,
        }
    }

    /// Records the arrival of a request. Times must not decrease.
    pub fn arrived(&mut self, now_ns: u64) {
        if let Some(last) = self.last_arrival_ns {
            self.gaps.add(now_ns.saturating_sub(last));
        }
        self.last_arrival_ns = Some(now_ns);
        self.present += 1;
    }

    /// Records that a request is done, after this service time.
    pub fn served(&mut self, service_ns: u64) {
        self.services.add(service_ns);
        self.present = self.present.saturating_sub(1);
    }

    /// Records that a request left without service.
    pub fn left(&mut self) {
        self.present = self.present.saturating_sub(1);
    }

    /// Returns the number of requests that are present.
    pub fn present(&self) -> u64 {
        self.present
    }

    /// Returns the estimate, or `None` until something has been served.
    pub fn waiting(&self, now_ns: u64) -> Option<Waiting> {
        let service = self.services.mean()?;
        let departures = (self.present as f64 - self.workers + 1.0).max(0.0);
        let little =
            Waiting { wait: to_duration(departures * service / self.workers), formula: Formula::Little, load: 0.0 };
        let Some(gap) = self.gap(now_ns).filter(|gap| *gap > 0.0) else {
            return Some(little);
        };
        let load = service / gap / self.workers;
        if load <= 0.5 || load >= 1.0 {
            return Some(Waiting { load, ..little });
        }
        let queue = self.erlang_c(load) / (self.workers * (1.0 - load));
        let variation = (self.gaps.variation()? + self.services.variation()?) / 2.0;
        Some(Waiting { wait: to_duration(queue * variation * service), formula: Formula::Kingman, load })
    }

    /// Returns the part of requests that find no idle worker, if nothing but chance decides when they come and end.
    fn erlang_c(&self, load: f64) -> f64 {
        let offered = self.workers * load;
        let refused = (1..=self.workers as u32).fold(1.0, |b, n| offered * b / (f64::from(n) + offered * b));
        refused / (1.0 - load * (1.0 - refused))
    }

    /// Returns the mean time between requests. The current gap counts if it is longer, because requests may have
    /// stopped.
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

/// The last times, with integer sums, which never drift.
#[derive(Debug, Clone)]
struct Window {
    values: VecDeque<u64>,
    most: usize,
    sum: u128,
    squares: u128,
}

/// Longer times count as this, 73 minutes, so that their squares fit.
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

    /// Returns (σ / T)²; `None` with fewer than two values.
    fn variation(&self) -> Option<f64> {
        let count = self.values.len() as u128;
        if count < 2 || self.sum == 0 {
            return None;
        }
        let scaled = count * self.squares - self.sum * self.sum;
        Some(scaled as f64 / (self.sum as f64 * self.sum as f64))
    }
}
