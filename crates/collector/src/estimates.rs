//! Estimates of the time in the network that wait until it is known whether both hosts report the flow. A collector that
//! is killed loses them, so nothing is estimated for its last seconds.

use std::collections::HashMap;

use dwell_fleet::wire::FlowRtt;

/// Estimates that wait at most, some 150 bytes each.
const MAX: usize = 1 << 18;
/// Estimates of one host that wait at most.
const MAX_OF_HOST: usize = 1 << 15;

/// A round trip, from which the time in the network may be estimated.
#[derive(Debug, Clone, Copy)]
pub struct Estimate {
    pub host: u32,
    pub trip: FlowRtt,
    /// When its interval ended, on the common clock and in Unix time.
    pub end_ns: u64,
    pub time_ns: i64,
    pub length_ns: u64,
}

/// The estimates that wait, in a bounded number.
#[derive(Debug, Default)]
pub struct Estimates {
    by_host: HashMap<u32, Vec<Estimate>>,
    count: usize,
    omitted: u64,
}

impl Estimates {
    /// Adds an estimate, or counts it if too many wait.
    pub fn push(&mut self, estimate: Estimate) {
        let of_host = self.by_host.entry(estimate.host).or_default();
        if self.count >= MAX || of_host.len() >= MAX_OF_HOST {
            self.omitted += 1;
            return;
        }
        of_host.push(estimate);
        self.count += 1;
    }

    /// Removes and returns those that are due.
    pub fn take(&mut self, is_due: impl Fn(&Estimate) -> bool) -> Vec<Estimate> {
        let mut due = Vec::new();
        self.by_host.retain(|_, of_host| {
            due.extend(of_host.extract_if(.., |estimate| is_due(estimate)));
            !of_host.is_empty()
        });
        self.count -= due.len();
        due
    }

    /// Returns how many were left out so far.
    pub fn omitted(&self) -> u64 {
        self.omitted
    }
}

#[cfg(test)]
mod tests {
    use dwell_engine::{layers::Ends, measure::Endpoint};

    use super::*;

    #[test]
    fn one_host_cannot_take_the_room_of_others() {
        let end = Endpoint { address: [192, 0, 2, 1].into(), port: 1 };
        let trip = FlowRtt { ends: Ends { src: end, dst: end }, is_received: false, min_ns: 1, smoothed_ns: 1 };
        let estimate = |host, end_ns| Estimate { host, trip, end_ns, time_ns: 0, length_ns: 1 };
        let mut estimates = Estimates::default();
        (0..MAX_OF_HOST + 5).for_each(|_| estimates.push(estimate(1, 10)));
        estimates.push(estimate(2, 20));
        assert_eq!((estimates.count, estimates.omitted()), (MAX_OF_HOST + 1, 5));
        assert_eq!(estimates.take(|estimate| estimate.end_ns <= 10).len(), MAX_OF_HOST);
        assert_eq!((estimates.count, estimates.by_host.len()), (1, 1));
    }
}
