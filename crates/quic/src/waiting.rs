//! How long a request waits, of what an application tells of its requests.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use dwell_engine::steer::waiting::WaitingEstimator;

/// A server's requests: [`WaitingTimes::wait`] is what [`Cids::new`](crate::Cids::new) asks for.
///
/// All endpoints and tasks of a server share one, by clones.
#[derive(Clone)]
pub struct WaitingTimes(Arc<Shared>);

struct Shared {
    begun: Instant,
    estimator: Mutex<WaitingEstimator>,
}

/// Requests that an estimate is of.
const WINDOW: usize = 100;

impl WaitingTimes {
    /// Of a server that works on so many requests at once.
    ///
    /// # Panics
    ///
    /// If it works on none.
    pub fn new(workers: u32) -> WaitingTimes {
        WaitingTimes(Arc::new(Shared {
            begun: Instant::now(),
            estimator: Mutex::new(WaitingEstimator::new(WINDOW, workers)),
        }))
    }

    /// A request has come, and waits. One that is dropped has gone without an answer.
    pub fn arrived(&self) -> Request {
        let (mut estimator, now_ns) = self.now();
        estimator.arrived(now_ns);
        drop(estimator);
        Request { times: self.clone(), is_begun: false }
    }

    /// What a request that comes now will wait, if anything is known.
    pub fn wait(&self) -> Option<Duration> {
        let (estimator, now_ns) = self.now();
        estimator.waiting(now_ns).map(|waiting| waiting.wait)
    }

    /// Locked first, as times must not go back.
    fn now(&self) -> (MutexGuard<'_, WaitingEstimator>, u64) {
        let estimator = self.0.estimator.lock().unwrap_or_else(PoisonError::into_inner);
        let ns = self.0.begun.elapsed().as_nanos();
        (estimator, ns.try_into().unwrap_or(u64::MAX))
    }
}

impl fmt::Debug for WaitingTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingTimes").field("wait", &self.wait()).finish_non_exhaustive()
    }
}

/// A request that waits.
#[derive(Debug)]
pub struct Request {
    times: WaitingTimes,
    is_begun: bool,
}

impl Request {
    /// Somebody works on it, until what this returns is dropped.
    pub fn begin(mut self) -> Service {
        self.is_begun = true;
        Service { times: self.times.clone(), begun: Instant::now() }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.is_begun {
            self.times.now().0.left();
        }
    }
}

/// A request that is worked on.
#[derive(Debug)]
pub struct Service {
    times: WaitingTimes,
    begun: Instant,
}

impl Drop for Service {
    fn drop(&mut self) {
        let took_ns = self.begun.elapsed().as_nanos();
        let took_ns = took_ns.try_into().unwrap_or(u64::MAX);
        self.times.now().0.served(took_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_and_not_done_has_to_be_waited_for() {
        let times = WaitingTimes::new(1);
        assert_eq!(times.wait(), None);
        let first = times.arrived().begin();
        std::thread::sleep(Duration::from_millis(200));
        drop(first);
        let service = times.wait();
        let waiting: Vec<Request> = (0..5).map(|_| times.arrived()).collect();
        let long = times.wait().unwrap();
        // Five times what one took, by Little's law: they came at once, so that the load is far above 1.
        assert!(long >= Duration::from_millis(5 * 200), "{long:?}");
        assert_eq!(service, Some(Duration::ZERO));
        drop(waiting);
        assert_eq!(times.wait(), Some(Duration::ZERO));
    }
}
