//! Gray failures, as they are written, stored and logged.

use std::fmt;

use dwell_engine::gray::{Component, End, Event, Subject};

use crate::{Latency, shift::figure_name};

/// A gray failure that begins or ends.
#[derive(Debug, Clone, Copy)]
pub struct GrayFailure<'a> {
    /// The end of the interval with which that was noticed, on the source's clock.
    pub time_ns: u64,
    /// The length of the intervals.
    pub interval_ns: u64,
    /// What was noticed. Its times are on the source's clock too.
    pub event: Event,
    /// The names of the hosts of its subject: of a path the sending one first.
    pub hosts: [Option<&'a str>; 2],
}

/// The figures of a gray failure, in one unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GrayFigures<T> {
    /// The median of the recent intervals.
    pub value: T,
    /// The median of its own past.
    pub past: T,
    /// What its past would be now, had it changed as its peers have.
    pub expected: T,
    /// The median of its peers' recent intervals.
    pub peers: T,
}

impl<'a> GrayFailure<'a> {
    /// The kinds of subjects.
    pub const KINDS: [&'static str; 3] = ["host", "path", "service"];
    /// Why gray failures end.
    pub const REASONS: [&'static str; 4] = ["recovered", "gone", "usual", "stopped"];

    /// Returns the kind of its subject.
    pub fn kind(&self) -> &'static str {
        GrayFailure::KINDS[match self.event.finding.subject {
            Subject::Host(_) => 0,
            Subject::Path { .. } => 1,
            Subject::Service(_) => 2,
        }]
    }

    /// Returns the name of its host, if it is of one.
    pub fn host(&self) -> Option<&'a str> {
        self.hosts[0].filter(|_| matches!(self.event.finding.subject, Subject::Host(_)))
    }

    /// Returns the names of the sending and the receiving host of its path, if it is of one.
    pub fn path(&self) -> [Option<&'a str>; 2] {
        match self.event.finding.subject {
            Subject::Path { .. } => self.hosts,
            _ => [None; 2],
        }
    }

    /// Returns the port of its service, if it is of one.
    pub fn port(&self) -> Option<u16> {
        match self.event.finding.subject {
            Subject::Service(port) => Some(port),
            _ => None,
        }
    }

    /// Returns the name of its subject: "web-1", "web-1 to db-1" or "5432".
    pub fn name(&self) -> String {
        let host = |at: usize| self.hosts[at].unwrap_or("?");
        match self.event.finding.subject {
            Subject::Host(_) => host(0).to_owned(),
            Subject::Path { .. } => format!("{} to {}", host(0), host(1)),
            Subject::Service(port) => port.to_string(),
        }
    }

    /// Returns the name of the component that differs.
    pub fn component(&self) -> &'static str {
        self.event.finding.measure.component.name()
    }

    /// Returns the direction of that component: "tx" or "rx"; `None` between hosts.
    pub fn direction(&self) -> Option<&'static str> {
        match self.event.finding.measure.component {
            Component::Time(segment) => segment.direction().map(|direction| direction.name()),
            Component::Retransmitted => None,
        }
    }

    /// Returns the name of the figure of its times that differs: "p50" or "p99".
    pub fn figure(&self) -> Option<&'static str> {
        self.event.finding.measure.figure.map(figure_name)
    }

    /// Returns "begin" or "end".
    pub fn event(&self) -> &'static str {
        if self.event.end.is_some() { "end" } else { "begin" }
    }

    /// Returns why it ends.
    pub fn reason(&self) -> Option<&'static str> {
        let end = self.event.end?;
        Some(
            GrayFailure::REASONS[match end {
                End::Recovered => 0,
                End::Gone => 1,
                End::Usual => 2,
                End::Stopped => 3,
            }],
        )
    }

    /// Returns for how long it has lasted since it was noticed.
    pub fn lasted_ns(&self) -> u64 {
        self.time_ns.saturating_sub(self.event.since_ns)
    }

    /// Returns the figures in nanoseconds; `None` of a share.
    pub fn times(&self) -> Option<GrayFigures<u64>> {
        matches!(self.event.finding.measure.component, Component::Time(_)).then(|| self.figures(|ns| ns))
    }

    /// Returns the figures as shares from 0 to 1; `None` of times.
    pub fn shares(&self) -> Option<GrayFigures<f64>> {
        let is_share = self.event.finding.measure.component == Component::Retransmitted;
        is_share.then(|| self.figures(|millionths| millionths as f64 / 1e6))
    }

    fn figures<T>(&self, of: impl Fn(u64) -> T) -> GrayFigures<T> {
        let finding = &self.event.finding;
        GrayFigures {
            value: of(finding.value),
            past: of(finding.past),
            expected: of(finding.expected),
            peers: of(finding.peers_value),
        }
    }
}

/// One sentence without a full stop.
impl fmt::Display for GrayFailure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, finding) = (self.kind(), &self.event.finding);
        let what = [self.direction(), Some(self.component()), self.figure()];
        let what = what.into_iter().flatten().collect::<Vec<_>>().join(" ");
        let show = |value: u64| match self.times() {
            Some(_) => Latency(value).to_string().trim().to_owned(),
            None => format!("{:.1} %", value as f64 / 1e4),
        };
        let (value, expected) = (show(finding.value), show(finding.expected));
        write!(f, "{kind} {} ", self.name())?;
        match self.reason() {
            None => write!(f, "differs from its {} peers: {what} is {value} and not {expected}", finding.peers)?,
            Some(reason) => {
                let seconds = self.lasted_ns() / 1_000_000_000;
                write!(f, "no longer differs, after {seconds} s ({reason}): {what} is {value}, expected {expected}")?;
            }
        }
        match finding.paths {
            Some([differing, compared]) => write!(f, ", on {differing} of its {compared} paths"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use dwell_engine::{
        baseline::Figure,
        gray::{Finding, Measure},
        layers::{PathSegment, Segment},
    };

    use super::*;

    #[test]
    fn a_gray_failure_is_one_sentence() {
        let finding = Finding {
            subject: Subject::Host(1),
            measure: Measure {
                component: Component::Time(PathSegment::Host(Segment::Queueing)),
                figure: Some(Figure::Median),
            },
            value: 21_300_000,
            past: 400_000,
            expected: 410_000,
            peers_value: 380_000,
            peers: 3,
            paths: None,
            per_week: 1e-9,
        };
        let event = Event { finding, since_ns: 1_000_000_000, end: None };
        let failure = GrayFailure { time_ns: 1_000_000_000, interval_ns: 1, event, hosts: [Some("web-1"), None] };
        assert_eq!(
            failure.to_string(),
            "host web-1 differs from its 3 peers: tx queueing p50 is 21.3 ms and not 410 µs"
        );
        let subject = Subject::Path { tx_host: 1, rx_host: 2 };
        let measure = Measure { component: Component::Retransmitted, figure: None };
        let finding = Finding { subject, measure, value: 30_000, expected: 1_000, ..finding };
        let event = Event { finding, end: Some(End::Recovered), ..event };
        let failure = GrayFailure { time_ns: 91_000_000_000, event, hosts: [Some("web-1"), Some("db-1")], ..failure };
        assert_eq!(
            failure.to_string(),
            "path web-1 to db-1 no longer differs, after 90 s (recovered): retransmitted is 3.0 %, expected 0.1 %"
        );
    }
}
