//! What dwell may cost, and what was measured of it.

use std::{fmt, slice::from_ref};

use super::Benchmark::{self, Balancer, BalancerQuic, Build, Control, Kernel, Live, Memory, Replay, Socket, Stack};
use crate::{
    figures::{median, median_within},
    goal::Goal,
};

/// The most, or the least, that a figure may be.
#[derive(Debug)]
pub struct Limit {
    pub what: &'static str,
    bound: Bound,
    unit: &'static str,
}

#[derive(Debug)]
enum Bound {
    Most(f64),
    Least(f64),
}

/// A figure of a benchmark.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    value: f64,
    /// How far it may be from the true one with a probability of 95 %, where that is known.
    pub within: Option<f64>,
}

impl Figure {
    /// The median of the rounds. Too few of them say nothing.
    pub fn of(rounds: &[f64]) -> Figure {
        Figure { value: median(rounds), within: Some(median_within(rounds).unwrap_or(f64::INFINITY)) }
    }
}

impl From<f64> for Figure {
    fn from(value: f64) -> Figure {
        Figure { value, within: None }
    }
}

/// What a benchmark found about a limit in one of its cases: a figure, or why there is none.
#[derive(Debug)]
pub struct Finding {
    pub limit: &'static Limit,
    pub case: String,
    figure: Result<Figure, String>,
}

/// Findings of a benchmark that cannot tell how these limits are kept.
pub fn unknown<const N: usize>(limits: [&'static Limit; N], why: &str) -> Vec<Finding> {
    println!("left out: {why}");
    limits.map(|limit| limit.judge("", Err::<f64, _>(why))).into()
}

impl Limit {
    /// Compares a figure with the limit. `case` says which it is, where there are several.
    pub fn judge(&'static self, case: impl Into<String>, figure: Result<impl Into<Figure>, &str>) -> Finding {
        Finding { limit: self, case: case.into(), figure: figure.map(Into::into).map_err(str::to_owned) }
    }

    /// By how much a figure is beyond the limit; negative if it is within.
    fn excess(&self, value: f64) -> f64 {
        match self.bound {
            Bound::Most(most) => value - most,
            Bound::Least(least) => least - value,
        }
    }

    /// A figure, with the digits that say something next to the limit.
    fn show(&self, value: f64) -> String {
        let (Bound::Most(limit) | Bound::Least(limit)) = self.bound;
        let digits = match limit {
            ..=0.0 | 1_000.0.. => 0,
            10.0.. => 1,
            _ => 2,
        };
        format!("{value:.digits$}")
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.bound, self.unit)
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::Most(most) => write!(f, "at most {most}"),
            Bound::Least(least) => write!(f, "at least {least}"),
        }
    }
}

impl Finding {
    /// Whether the figure keeps the limit. `None` where there is no figure, or the limit is within its uncertainty.
    pub fn holds(&self) -> Option<bool> {
        let figure = self.figure.as_ref().ok()?;
        let excess = self.limit.excess(figure.value);
        (excess.abs() >= figure.within.unwrap_or_default()).then_some(excess <= 0.0)
    }

    /// By how much the figure is beyond the limit; negative if it is within.
    pub fn excess(&self) -> Option<f64> {
        self.figure.as_ref().ok().map(|figure| self.limit.excess(figure.value))
    }

    /// The figure without its unit, with its uncertainty.
    pub fn shown(&self) -> String {
        self.figure.as_ref().map_or("-".to_owned(), |figure| {
            let within = figure
                .within
                .filter(|within| within.is_finite())
                .map(|within| format!(" ± {}", self.limit.show(within)));
            self.limit.show(figure.value) + &within.unwrap_or_default()
        })
    }

    /// The verdict in words.
    pub fn verdict(&self) -> String {
        match (self.holds(), &self.figure) {
            (Some(true), _) => "met".to_owned(),
            (Some(false), Ok(figure)) => format!("missed by {}", self.limit.show(self.limit.excess(figure.value))),
            (_, Ok(_)) => "not decided: too uncertain".to_owned(),
            (_, Err(why)) => format!("not decided: {why}"),
        }
    }

    pub fn goal(&self) -> Goal {
        let case = if self.case.is_empty() { String::new() } else { format!(" ({})", self.case) };
        let unknown = self.figure.as_ref().err().map(|why| format!(", {why}"));
        let Limit { what, bound, unit } = self.limit;
        let (figure, unknown) = (self.shown(), unknown.unwrap_or_default());
        Goal { holds: self.holds(), what: format!("{what}{case}: {figure} {unit}{unknown}, wanted: {bound}") }
    }
}

const fn most(most: f64, unit: &'static str, what: &'static str) -> Limit {
    Limit { what, bound: Bound::Most(most), unit }
}

const fn least(least: f64, unit: &'static str, what: &'static str) -> Limit {
    Limit { what, bound: Bound::Least(least), unit }
}

/// At up to 10,000 flows, and beyond.
pub static RTT: [Limit; 2] = [
    least(3.0, "times", "rtt: the cost of a peer, up to 10,000 flows"),
    least(2.5, "times", "rtt: the cost of a peer, 100,000 flows and more"),
];
/// With one connection, and beyond.
pub static MEASURING: [Limit; 2] = [
    most(30.0, "ns", "lb: what measuring adds to a packet, 1 connection"),
    most(40.0, "ns", "lb: what measuring adds to a packet, 10,000 and more"),
];
pub static HIT: Limit = least(2.0, "times", "lb: the cost of a peer, connection known");
pub static MEASURED_HIT: Limit = least(1.3, "times", "lb: the cost of a peer, known and measured here");
pub static NEW: Limit = least(1.5, "times", "lb: the cost of a peer, connection new");
/// Measured, and not.
pub static CONNECTION: [Limit; 2] = [
    most(256.0, "bytes", "lb: memory of a connection that is measured"),
    most(64.0, "bytes", "lb: memory of a connection that is not measured"),
];
/// At up to 1,000 flows, and beyond.
pub static RESPONSE: [Limit; 2] = [
    most(60.0, "ns", "response: a request, up to 1,000 flows"),
    most(100.0, "ns", "response: a request, 100,000 flows"),
];
/// From the cache, and opened.
pub static CID: [Limit; 2] = [
    most(40.0, "ns", "lb: a packet of QUIC, connection ID known"),
    most(120.0, "ns", "lb: a packet of QUIC, connection ID opened"),
];
pub static REPLAY: Limit = least(5.0, "times", "replay: packets per CPU second, of tcptrace's");
pub static FORMAT: Limit = most(1.3, "times", "replay: the CPU time of pcapng or gzip, of pcap's");
pub static STAMPED: Limit = least(95.0, "%", "stack: throughput left, both ends stamped");
pub static BUDGET: Limit = least(98.0, "%", "stack: throughput left, --cpu-budget 1%");
pub static UNSELECTED: Limit = most(10.0, "ns", "stack: a packet that is not selected");
pub static RUN: Limit = least(98.0, "%", "run: throughput left, flat out");
pub static OUTSIDE: Limit = most(3.0, "% of a core", "run: 10,000 sockets watched from outside");
/// With 10 backends per VIP, and with 100.
pub static RELOAD: [Limit; 2] = [
    most(500.0, "ms", "lb: a reload of 1,000 VIPs, 10 backends each"),
    most(1_000.0, "ms", "lb: a reload of 1,000 VIPs, 100 backends each"),
];
pub static INTERVAL: Limit = most(20.0, "ms", "lb: an interval of 1,000 VIPs, 10 backends each");
pub static START: Limit = most(300.0, "ms", "lb: until a new balancer answers");
pub static TAKEOVER: Limit = most(100.0, "ms", "lb: until one that takes over answers");
pub static FIRST_SAMPLE: Limit = most(300.0, "ms", "rtt: until the first sample");
pub static DOCTOR: Limit = most(1_000.0, "ms", "doctor: until its end");
pub static EVERY_SAMPLE: Limit = least(97.0, "%", "rtt, live: of an empty program's throughput, every sample");
pub static FEW_SAMPLES: Limit = least(98.5, "%", "rtt, live: the same, a sample per 100 ms, or aggregated");
pub static MISSED: Limit = most(0.0, "packets", "rtt, live: packets missed");
pub static BUILD: Limit = most(180.0, "s", "build: the product from clean");
pub static TESTS: Limit = most(20.0, "s", "build: tests of one crate after a change");

/// The lines of the table of all benchmarks: the number of the goal, and what measures it.
pub static ALL: [(u8, Benchmark, &[Limit]); 26] = [
    (1, Kernel, &RTT),
    (2, Balancer, &MEASURING),
    (2, Balancer, from_ref(&HIT)),
    (2, Balancer, from_ref(&MEASURED_HIT)),
    (2, Balancer, from_ref(&NEW)),
    (2, Memory, &CONNECTION),
    (3, Kernel, &RESPONSE),
    (4, BalancerQuic, &CID),
    (5, Replay, from_ref(&REPLAY)),
    (5, Replay, from_ref(&FORMAT)),
    (6, Stack, from_ref(&STAMPED)),
    (6, Stack, from_ref(&BUDGET)),
    (6, Stack, from_ref(&UNSELECTED)),
    (7, Socket, from_ref(&RUN)),
    (7, Socket, from_ref(&OUTSIDE)),
    (8, Control, &RELOAD),
    (8, Control, from_ref(&INTERVAL)),
    (8, Control, from_ref(&START)),
    (8, Control, from_ref(&TAKEOVER)),
    (8, Control, from_ref(&FIRST_SAMPLE)),
    (8, Control, from_ref(&DOCTOR)),
    (9, Live, from_ref(&EVERY_SAMPLE)),
    (9, Live, from_ref(&FEW_SAMPLES)),
    (9, Live, from_ref(&MISSED)),
    (10, Build, from_ref(&BUILD)),
    (10, Build, from_ref(&TESTS)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_at_its_limit_is_good_and_without_a_figure_nothing_is_decided() {
        let holds = |figure: Result<f64, _>| [&OUTSIDE, &RTT[0]].map(|limit| limit.judge("", figure).holds());
        assert_eq!(holds(Ok(3.0)), [Some(true); 2]);
        assert_eq!(holds(Ok(3.1)), [Some(false), Some(true)]);
        assert_eq!(holds(Err("no --peer")), [None; 2]);
        let goal = HIT.judge("1 flow", Err::<f64, _>("no --peer")).goal();
        let line = "-     lb: the cost of a peer, connection known (1 flow): - times, no --peer, wanted: at least 2";
        assert_eq!(goal.line(), line);
    }

    #[test]
    fn a_limit_within_the_uncertainty_is_not_decided() {
        let finding = |value, within| RUN.judge("", Ok(Figure { value, within: Some(within) }));
        let of = |value, within| (finding(value, within).holds(), finding(value, within).shown());
        assert_eq!(of(98.4, 0.5), (None, "98.4 ± 0.5".to_owned()));
        assert_eq!(of(98.6, 0.5).0, Some(true));
        assert_eq!(finding(97.0, 0.5).verdict(), "missed by 1.0");
    }
}
