//! How long requests were waited for, by what they asked.

use std::{collections::HashMap, sync::Arc};

use super::{Fact, Silences, Value};

/// Labels that are kept apart; requests of others are counted.
const MAX_LABELS: usize = 1024;

/// Requests by their label.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Requests {
    by_label: HashMap<Arc<str>, Silences>,
    omitted: u64,
}

impl Requests {
    /// Adds a request and the wait for its answer.
    pub fn add(&mut self, label: &Arc<str>, wait_ns: u64) {
        if !self.by_label.contains_key(label) && self.by_label.len() >= MAX_LABELS {
            self.omitted += 1;
            return;
        }
        self.by_label.entry(Arc::clone(label)).or_default().add(wait_ns);
    }

    /// Returns the labels whose requests were waited for longest in the mean, the slowest first, at most `most`.
    pub fn slowest(&self, most: usize) -> Vec<(&str, Silences)> {
        let mut all: Vec<_> = self.by_label.iter().map(|(label, waits)| (&**label, *waits)).collect();
        let mean = |waits: &Silences| waits.mean_ns().unwrap_or(0.0);
        all.sort_by(|(a_label, a), (b_label, b)| mean(b).total_cmp(&mean(a)).then_with(|| a_label.cmp(b_label)));
        all.truncate(most);
        all
    }

    /// Whether several may be under way on a connection at the same time: those of gRPC and of HTTP/2, as far as their labels tell
    /// these from others.
    pub(super) fn may_be_parallel(&self) -> bool {
        self.by_label.keys().any(|label| label.starts_with("gRPC ") || label.starts_with("HTTP/2 "))
    }

    /// Returns the number of requests that found no room.
    pub fn omitted(&self) -> u64 {
        self.omitted
    }
}

/// How the requests in a capture ended, and the connections that were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestEnds {
    /// Requests that were answered.
    pub answered: u64,
    /// Requests on whose answer the client waited, until it closed or reset the connection.
    pub given_up: u64,
    /// Requests that the server did not answer, but closed the connection.
    pub closed: u64,
    /// Requests that the server did not answer, but reset the connection.
    pub reset: u64,
    /// Connections that the server refused: it answered their first packet by a reset.
    pub refused: u64,
    /// Connections whose SYNs nothing answered.
    pub unopened: u64,
    /// Requests that had no answer when the capture ended.
    pub pending: u64,
}

impl RequestEnds {
    /// Returns the number of requests without an answer and of refused connections.
    pub(super) fn failed(&self) -> u64 {
        self.given_up + self.closed + self.reset + self.refused + self.unopened + self.pending
    }

    /// Whether most of what was asked failed, so that the connections are not healthy, however quick they are.
    pub(super) fn mostly_fail(&self) -> bool {
        self.failed() > self.answered
    }

    /// Whether most of what failed was a connection that was refused.
    pub(super) fn are_mostly_refused(&self) -> bool {
        self.refused * 2 > self.failed()
    }

    /// Says how much failed.
    pub(super) fn sentence(&self) -> String {
        let (failed, all) = (self.failed(), self.failed() + self.answered);
        match self.refused {
            _ if self.unopened == all => {
                let of = if all == 1 { "SYN of a connection".to_owned() } else { format!("SYNs of {all} connections") };
                format!("Nothing answered the {of}: the host is down, a firewall drops packets, or the route is wrong.")
            }
            1 if all == 1 => "The connection was refused: its host answers, but nothing listens on that port.".into(),
            refused if refused == all => {
                format!("{refused} connections were refused: their host answers, but nothing listens on that port.")
            }
            0 => format!("No wait is long enough to count, but {failed} of {all} requests had no answer."),
            refused => {
                let refused = match refused {
                    1 => "1 connection was".to_owned(),
                    many => format!("{many} connections were"),
                };
                format!(
                    "No wait is long enough to count, but {failed} of {all} requests had no answer: {refused} refused."
                )
            }
        }
    }

    /// Returns what failed.
    pub(super) fn facts(&self) -> Vec<Fact> {
        let counts = [
            ("requests without an answer that clients gave up", self.given_up),
            ("requests without an answer, whose server closed the connection", self.closed),
            ("requests without an answer, whose server reset the connection", self.reset),
            ("connections that the server refused", self.refused),
            ("requests that had no answer when the capture ended", self.pending),
        ];
        let fact = |(what, count)| Fact { what, value: Some(Value::Count(count)), method: "packets", speaks_for: true };
        counts.into_iter().filter(|(_, count)| *count > 0).map(fact).collect()
    }

    pub(super) fn plus(&mut self, other: &RequestEnds) {
        self.answered += other.answered;
        self.given_up += other.given_up;
        self.closed += other.closed;
        self.reset += other.reset;
        self.refused += other.refused;
        self.unopened += other.unopened;
        self.pending += other.pending;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_come_first_and_those_beyond_the_bound_are_counted() {
        let mut requests = Requests::default();
        for (label, wait_ns) in [("GET /a", 10), ("GET /b", 30), ("GET /a", 30), ("GET /c", 1)] {
            requests.add(&label.into(), wait_ns);
        }
        let slowest: Vec<_> = requests.slowest(2).into_iter().map(|(label, waits)| (label, waits.count)).collect();
        assert_eq!(slowest, [("GET /b", 1), ("GET /a", 2)]);
        for number in 0..2000 {
            requests.add(&format!("GET /{number}").into(), 1);
        }
        assert_eq!((requests.by_label.len(), requests.omitted()), (MAX_LABELS, 2003 - MAX_LABELS as u64));
    }
}
