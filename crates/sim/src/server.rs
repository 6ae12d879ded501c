//! A server: a queue, a worker, and what it says of itself.

use std::{collections::VecDeque, time::Duration};

use dwell_engine::{
    quic_lb::{Load, Stamp},
    steer::waiting::WaitingEstimator,
};

/// Unix time at which simulations begin.
pub(crate) const EPOCH: Duration = Duration::from_secs(1_700_000_000);

pub(crate) fn unix(now_ns: u64) -> Duration {
    EPOCH + Duration::from_nanos(now_ns)
}

/// First come, first served: when something is done is known as it comes.
#[derive(Debug)]
pub(crate) struct Server {
    /// When all that is here is done.
    pub(crate) free_at_ns: u64,
    /// All service so far, of what is not done yet too.
    given_ns: u64,
    /// Of the time before the last look.
    busy_before_ns: u64,
    said: Option<Said>,
}

/// What a server needs to know of its requests to say how long one waits.
#[derive(Debug)]
struct Said {
    /// Until when each that is here will be, and its service.
    here: VecDeque<(u64, u64)>,
    estimator: WaitingEstimator,
    freshness: u64,
}

impl Server {
    /// One that estimates waiting times has a window of so many requests for it.
    pub(crate) fn new(window: Option<usize>) -> Server {
        Server {
            free_at_ns: 0,
            given_ns: 0,
            busy_before_ns: 0,
            said: window.map(|requests| Said {
                here: VecDeque::new(),
                estimator: WaitingEstimator::new(requests, 1),
                freshness: 0,
            }),
        }
    }

    /// Something comes that takes so long; when it is done.
    pub(crate) fn serve(&mut self, now_ns: u64, service_ns: u64) -> u64 {
        self.free_at_ns = self.free_at_ns.max(now_ns) + service_ns;
        self.given_ns += service_ns;
        if let Some(said) = &mut self.said
            && service_ns > 0
        {
            said.look(now_ns);
            said.estimator.arrived(now_ns);
            said.here.push_back((self.free_at_ns, service_ns));
        }
        self.free_at_ns
    }

    /// What it writes into a connection ID now.
    pub(crate) fn stamp(&mut self, now_ns: u64) -> Option<Stamp> {
        let said = self.said.as_mut()?;
        said.look(now_ns);
        let waiting = said.estimator.waiting(now_ns);
        said.freshness = (said.freshness + 1).max(unix(now_ns).as_secs() << 16);
        Some(Stamp {
            freshness: said.freshness,
            load: waiting.map_or(Load::UNKNOWN, |waiting| Load::from_wait(waiting.wait)),
        })
    }

    /// How long it was busy since the last look.
    pub(crate) fn busy(&mut self, now_ns: u64) -> u64 {
        let busy_ns = self.given_ns - self.free_at_ns.saturating_sub(now_ns);
        let since_ns = busy_ns - self.busy_before_ns;
        self.busy_before_ns = busy_ns;
        since_ns
    }
}

impl Said {
    /// What is done by now has been.
    fn look(&mut self, now_ns: u64) {
        while let Some((done_ns, service_ns)) = self.here.front().copied()
            && done_ns <= now_ns
        {
            self.estimator.served(service_ns);
            self.here.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn waits_are_those_of_theory() {
        // M/M/1 at load 0.8 waits 4 services; M/D/1 half of that
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
            assert!((server.busy(now) as f64 / now as f64 - 0.8).abs() < 0.01);
        }
    }

    #[test]
    fn busy_time_is_that_of_the_interval() {
        let mut server = Server::new(None);
        server.serve(100, 50);
        server.serve(120, 200);
        assert_eq!([200, 300, 400, 500].map(|now| server.busy(now)), [100, 100, 50, 0]);
    }

    #[test]
    fn a_stamp_tells_the_wait_and_is_newer_than_all_before() {
        let mut server = Server::new(Some(100));
        assert_eq!(server.stamp(0).unwrap().load, Load::UNKNOWN);
        for _ in 0..4 {
            server.serve(1000, 1_000_000);
        }
        // one is done, three are here, all of them alike
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
