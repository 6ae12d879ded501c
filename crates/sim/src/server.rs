//! A server: a queue, a worker, and its load reports.

use std::{collections::VecDeque, time::Duration};

use dwell_engine::{
    quic_lb::{Load, Stamp},
    steer::waiting::WaitingEstimator,
};

/// Unix time at which simulations start.
pub(crate) const EPOCH: Duration = Duration::from_secs(1_700_000_000);

pub(crate) fn unix(now_ns: u64) -> Duration {
    EPOCH + Duration::from_nanos(now_ns)
}

/// A server with one worker that serves requests in the order of their arrival. So the end of a request is known when it
/// arrives.
#[derive(Debug)]
pub(crate) struct Server {
    /// When all present requests are done.
    pub(crate) free_at_ns: u64,
    /// Total service time of all requests so far, including the present ones.
    service_ns: u64,
    /// Busy time that [`Server::take_busy`] has returned already.
    reported_busy_ns: u64,
    reporter: Option<LoadReporter>,
}

/// Estimates the waiting time of a server's requests.
#[derive(Debug)]
struct LoadReporter {
    /// For each present request, when it will be done and its service time.
    present: VecDeque<(u64, u64)>,
    estimator: WaitingEstimator,
    freshness: u64,
}

impl Server {
    /// Creates a server. With a window, it estimates waiting times over that many requests.
    pub(crate) fn new(window: Option<usize>) -> Server {
        Server {
            free_at_ns: 0,
            service_ns: 0,
            reported_busy_ns: 0,
            reporter: window.map(|requests| LoadReporter {
                present: VecDeque::new(),
                estimator: WaitingEstimator::new(requests, 1),
                freshness: 0,
            }),
        }
    }

    /// Adds a request that takes `service_ns`. Returns when it is done.
    pub(crate) fn serve(&mut self, now_ns: u64, service_ns: u64) -> u64 {
        self.free_at_ns = self.free_at_ns.max(now_ns) + service_ns;
        self.service_ns += service_ns;
        if let Some(reporter) = &mut self.reporter
            && service_ns > 0
        {
            reporter.complete_until(now_ns);
            reporter.estimator.arrived(now_ns);
            reporter.present.push_back((self.free_at_ns, service_ns));
        }
        self.free_at_ns
    }

    /// Returns the load report that the server puts into a connection ID now.
    pub(crate) fn stamp(&mut self, now_ns: u64) -> Option<Stamp> {
        let reporter = self.reporter.as_mut()?;
        reporter.complete_until(now_ns);
        let waiting = reporter.estimator.waiting(now_ns);
        reporter.freshness = (reporter.freshness + 1).max(unix(now_ns).as_secs() << 16);
        Some(Stamp {
            freshness: reporter.freshness,
            load: waiting.map_or(Load::UNKNOWN, |waiting| Load::from_wait(waiting.wait)),
        })
    }

    /// Returns the service time that the waiting and present requests still need.
    pub(crate) fn load_ns(&self, now_ns: u64) -> u64 {
        self.free_at_ns.saturating_sub(now_ns)
    }

    /// Returns the busy time since the last call.
    pub(crate) fn take_busy(&mut self, now_ns: u64) -> u64 {
        let busy_ns = self.service_ns - self.load_ns(now_ns);
        let since_ns = busy_ns - self.reported_busy_ns;
        self.reported_busy_ns = busy_ns;
        since_ns
    }
}

impl LoadReporter {
    /// Removes the requests that are done.
    fn complete_until(&mut self, now_ns: u64) {
        while let Some((done_ns, service_ns)) = self.present.front().copied()
            && done_ns <= now_ns
        {
            self.estimator.served(service_ns);
            self.present.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn waits_agree_with_theory() {
        // At a load of 0.8, M/M/1 waits for 4 service times and M/D/1 for half of that.
        for (is_constant, expected) in [(false, 4.0), (true, 2.0)] {
            let mut random = Random::new(5);
            let mut server = Server::new(None);
            let (mut now, mut waits) = (0, 0);
            let requests = 1_000_000;
            for _ in 0..requests {
                now += random.exponential(1000.0 / 0.8);
                let service = if is_constant { 1000 } else { random.exponential(1000.0) };
                waits += server.serve(now, service) - service - now;
            }
            let mean = waits as f64 / f64::from(requests) / 1000.0;
            assert!((mean / expected - 1.0).abs() < 0.05, "{mean}");
            assert!((server.take_busy(now) as f64 / now as f64 - 0.8).abs() < 0.01);
        }
    }

    #[test]
    fn busy_time_is_counted_per_interval() {
        let mut server = Server::new(None);
        server.serve(100, 50);
        server.serve(120, 200);
        assert_eq!([200, 300, 400, 500].map(|now| server.take_busy(now)), [100, 100, 50, 0]);
        assert_eq!([200, 300, 349, 350, 500].map(|now| server.load_ns(now)), [150, 50, 1, 0, 0]);
    }

    #[test]
    fn a_stamp_holds_the_wait_and_is_newer_than_all_before() {
        let mut server = Server::new(Some(100));
        assert_eq!(server.stamp(0).unwrap().load, Load::UNKNOWN);
        for _ in 0..4 {
            server.serve(1000, 1_000_000);
        }
        // One request is done, and three of equal length are present.
        let stamp = server.stamp(1_500_000).unwrap();
        let wait = Load::from_wait(Duration::from_millis(3));
        assert_eq!(stamp.load, wait);
        let next = server.stamp(1_500_000).unwrap();
        assert!(next.freshness > stamp.freshness);
        assert_eq!(next.freshness >> 16, EPOCH.as_secs());
        let later = server.stamp(7_000_000_000).unwrap();
        assert_eq!(later.freshness, (EPOCH.as_secs() + 7) << 16);
        assert_eq!(later.load.wait(), Some(Duration::ZERO));
    }
}
