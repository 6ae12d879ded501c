//! Estimation of waiting times from what an application reports about its requests.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use dwell_engine::steer::waiting::WaitingEstimator;

/// The waiting times of a server's requests. [`Cids::new`](crate::Cids::new) needs [`WaitingTimes::wait`].
///
/// All endpoints and tasks of a server share one instance by cloning it.
#[derive(Clone)]
pub struct WaitingTimes(Arc<Shared>);

struct Shared {
    start: Instant,
    estimator: Mutex<WaitingEstimator>,
}

/// Number of requests over which waiting times are estimated.
const WINDOW: usize = 100;

impl WaitingTimes {
    /// Creates the estimator of a server that works on `workers` requests at once.
    ///
    /// # Panics
    ///
    /// If `workers` is 0.
    pub fn new(workers: u32) -> WaitingTimes {
        WaitingTimes(Arc::new(Shared {
            start: Instant::now(),
            estimator: Mutex::new(WaitingEstimator::new(WINDOW, workers)),
        }))
    }

    /// Records a request that has arrived and waits. If the returned value is dropped, the request has left unanswered.
    pub fn arrived(&self) -> Request {
        let (mut estimator, now_ns) = self.now();
        estimator.arrived(now_ns);
        drop(estimator);
        Request { times: self.clone(), is_in_service: false }
    }

    /// Estimates how long a request that arrives now will wait; `None` if nothing is known yet.
    pub fn wait(&self) -> Option<Duration> {
        let (estimator, now_ns) = self.now();
        estimator.waiting(now_ns).map(|waiting| waiting.wait)
    }

    /// Returns the locked estimator and the time. The lock precedes the clock, so that times never go backwards.
    fn now(&self) -> (MutexGuard<'_, WaitingEstimator>, u64) {
        let estimator = self.0.estimator.lock().unwrap_or_else(PoisonError::into_inner);
        let ns = self.0.start.elapsed().as_nanos();
        (estimator, ns.try_into().unwrap_or(u64::MAX))
    }
}

impl fmt::Debug for WaitingTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingTimes").field("wait", &self.wait()).finish_non_exhaustive()
    }
}

/// A waiting request.
#[derive(Debug)]
pub struct Request {
    times: WaitingTimes,
    is_in_service: bool,
}

impl Request {
    /// Records that work on the request begins. It ends when the returned value is dropped.
    pub fn begin(mut self) -> Service {
        self.is_in_service = true;
        Service { times: self.times.clone(), start: Instant::now() }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.is_in_service {
            self.times.now().0.left();
        }
    }
}

/// A request in service.
#[derive(Debug)]
pub struct Service {
    times: WaitingTimes,
    start: Instant,
}

impl Drop for Service {
    fn drop(&mut self) {
        let service_ns = self.start.elapsed().as_nanos();
        let service_ns = service_ns.try_into().unwrap_or(u64::MAX);
        self.times.now().0.served(service_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_requests_determine_the_wait() {
        let times = WaitingTimes::new(1);
        assert_eq!(times.wait(), None);
        let first = times.arrived().begin();
        std::thread::sleep(Duration::from_millis(200));
        drop(first);
        let service = times.wait();
        let waiting: Vec<Request> = (0..5).map(|_| times.arrived()).collect();
        let long = times.wait().unwrap();
        // Five service times, by Little's law: the requests arrived at once, so the load is far above 1.
        assert!(long >= Duration::from_millis(5 * 200), "{long:?}");
        assert_eq!(service, Some(Duration::ZERO));
        drop(waiting);
        assert_eq!(times.wait(), Some(Duration::ZERO));
    }
}
