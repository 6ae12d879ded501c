//! Goals of the benchmarks: what dwell may cost, and how near its figures must come to the truth.

use std::fmt::Display;

use serde_json::Value;

use crate::goal::Goal;

/// The longest that a reload may take which changes the tables of 1,000 VIPs, in milliseconds: with 10 backends each, and
/// with 100.
pub const MAX_RELOAD_MS: [f64; 2] = [500.0, 1_000.0];
/// The longest that an interval of the balancer's control loop may take with 1,000 VIPs, if nothing changes.
pub const MAX_INTERVAL_MS: f64 = 20.0;
/// The longest time from the start of a process until its balancer answers: a new one, and one that takes over.
pub const MAX_START_MS: f64 = 300.0;
pub const MAX_TAKEOVER_MS: f64 = 100.0;
/// The longest time from the start of a process until its first sample of live packets.
pub const MAX_FIRST_SAMPLE_MS: f64 = 300.0;
/// The longest that trying everything that verbs need may take.
pub const MAX_DOCTOR_MS: f64 = 1_000.0;

/// The greatest error at p99 of a time that is converted to another host's clock.
pub const MAX_CLOCK_ERROR_NS: u64 = 2_000;
/// The least share of conversions whose error is within their bound.
pub const MIN_CLOCK_WITHIN: f64 = 0.999;

/// The least throughput, in percent of that without dwell, while every sample goes to user space.
pub const MIN_LEFT_EVERY_SAMPLE: f64 = 97.0;
/// The least throughput, in percent of that without dwell, with one sample per flow every 100 ms, or in aggregate mode.
pub const MIN_LEFT_LIMITED: f64 = 98.5;

/// How many times the cost of `dwell rtt` a peer's must be at least, at up to 10,000 flows and beyond.
pub const RTT_TIMES: [f64; 2] = [3.0, 2.5];
/// The most that a request of `dwell response` may cost, in nanoseconds, at up to 1,000 flows and beyond.
pub const MAX_RESPONSE_NS: [f64; 2] = [60.0, 100.0];

/// The most that measuring may add to a packet of a known connection, in nanoseconds, with one connection and beyond.
pub const MAX_MEASURING_NS: [f64; 2] = [30.0, 40.0];
/// How many times the cost of the balancer a peer's must be at least: unmeasured, measured, of new connections.
pub const HIT_TIMES: f64 = 2.0;
pub const MEASURED_HIT_TIMES: f64 = 1.3;
pub const NEW_TIMES: f64 = 1.5;
/// The most memory of a connection, in bytes: measured, and not.
pub const MAX_CONNECTION_BYTES: [f64; 2] = [256.0, 64.0];

/// The most that a packet of QUIC may cost whose connection ID is known, or is opened, in nanoseconds.
pub const MAX_CID_NS: [f64; 2] = [40.0, 120.0];

/// How many times as many packets per second of CPU time as tcptrace a replay must read.
pub const REPLAY_TIMES: f64 = 5.0;
/// How many times the CPU time of the same packets as pcap another format may take at most.
pub const MAX_FORMAT_TIMES: f64 = 1.3;

/// The least throughput with both ends stamped, in percent of that without, and with a budget of 1 % of the processors.
pub const MIN_LEFT_STAMPED: f64 = 95.0;
pub const MIN_LEFT_BUDGET: f64 = 98.0;
/// The most that the programs may cost a packet that is not selected, in nanoseconds per run.
pub const MAX_UNSELECTED_NS: f64 = 10.0;

/// The least throughput under `dwell run`, in percent of that without.
pub const MIN_LEFT_RUN: f64 = 98.0;
/// The most of a core that watching 10,000 sockets from outside may take, in percent, with a poll each second.
pub const MAX_OUTSIDE_PERCENT: f64 = 3.0;

pub const PAGE_1: &[Accuracy] = &[Accuracy::Within(10, 99.0)];
pub const PAGE_4: &[Accuracy] = &[Accuracy::Median(0.6), Accuracy::Within(10, 90.0), Accuracy::Within(15, 95.0)];
pub const PAGE_16: &[Accuracy] = &[Accuracy::Median(5.0)];
pub const PAGE_4_LOSSY: &[Accuracy] = &[Accuracy::Median(2.6), Accuracy::Within(10, 88.0), Accuracy::Within(15, 93.0)];
pub const BATCH_4_LOSSY: &[Accuracy] = &[Accuracy::Within(10, 88.0), Accuracy::Within(15, 93.0)];
pub const PAGE_4_FAR: &[Accuracy] = &[Accuracy::Within(5, 95.0)];
pub const MEMCACHED: &[Accuracy] = &[Accuracy::Distribution(5.0)];

/// A goal for the estimates of response latency under a load.
#[derive(Debug, Clone, Copy)]
pub enum Accuracy {
    /// The most that the median of the absolute errors may be, in percent.
    Median(f64),
    /// A relative error in percent, and the least share of epochs, in percent, that are within it.
    Within(u32, f64),
    /// The most by which the distributions of truth and estimates may differ from p10 to p99, in percent.
    Distribution(f64),
}

impl Accuracy {
    /// Judges an object of type `lab.response` of a load. Undecided if the object lacks the figure.
    pub fn judge(self, load: &str, object: &Value) -> Goal {
        let percent = |value: &Value| value.as_f64().map(|share| share * 100.0);
        let error = &object["error"];
        let (what, found, holds): (_, _, fn(f64, f64) -> bool) = match self {
            Accuracy::Median(most) => {
                (format!("|p50|, wanted: at most {most}"), percent(&error["size_p50"]), |found, most| found <= most)
            }
            Accuracy::Within(near, least) => (
                format!("of epochs within {near} %, wanted: at least {least}"),
                percent(&error[format!("within_{near}")]),
                |found, least| found >= least,
            ),
            Accuracy::Distribution(most) => (
                format!("greatest difference p10-p99, wanted: at most {most}"),
                percent(&object["greatest_difference"]).map(f64::abs),
                |found, most| found <= most,
            ),
        };
        let (Accuracy::Median(limit) | Accuracy::Within(_, limit) | Accuracy::Distribution(limit)) = self;
        let shown = found.map_or("-".to_owned(), |found| format!("{found:.2}"));
        Goal { holds: found.map(|found| holds(found, limit)), what: format!("{load}: {shown} % {what}") }
    }
}

/// A figure, and the most that it may be. Undecided without a figure.
pub fn at_most(what: impl Display, found: Option<f64>, most: f64, unit: &str) -> Goal {
    let holds = found.map(|found| found <= most);
    Goal { holds, what: format!("{what}: {} {unit}, wanted: at most {most}", shown(found)) }
}

/// A figure, and the least that it must be. Undecided without a figure.
pub fn at_least(what: impl Display, found: Option<f64>, least: f64, unit: &str) -> Goal {
    let holds = found.map(|found| found >= least);
    Goal { holds, what: format!("{what}: {} {unit}, wanted: at least {least}", shown(found)) }
}

fn shown(found: Option<f64>) -> String {
    found.map_or("-".to_owned(), |found| format!("{found:.1}"))
}

/// The errors of times that were converted to another host's clock, and the steps that the comparison believed in.
pub fn clock(condition: &str, error_p99_ns: u64, within: f64, steps: usize) -> Goal {
    let us = |ns: u64| ns as f64 / 1e3;
    Goal::decided(
        error_p99_ns <= MAX_CLOCK_ERROR_NS && within >= MIN_CLOCK_WITHIN && steps == 0,
        format!(
            "{condition}: |error| of {:.3} µs at p99, {:.2} % within the bound, {steps} steps; wanted: at most {} µs, \
             at least {} %, none",
            us(error_p99_ns),
            within * 100.0,
            us(MAX_CLOCK_ERROR_NS),
            MIN_CLOCK_WITHIN * 100.0
        ),
    )
}

/// The throughput that is left while dwell watches, in percent of that without dwell.
pub fn live(what: &str, left: f64, wanted: f64) -> Goal {
    Goal::decided(left >= wanted, format!("{what}: {left:.1} % is left per second, wanted: at least {wanted} %"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_at_its_limit_is_good_and_without_a_figure_nothing_is_decided() {
        let holds = |found| [at_most("x", found, 2.0, "ns"), at_least("x", found, 2.0, "ns")].map(|goal| goal.holds);
        assert_eq!(holds(Some(2.0)), [Some(true); 2]);
        assert_eq!(holds(Some(2.1)), [Some(false), Some(true)]);
        assert_eq!(holds(None), [None; 2]);
        assert_eq!(at_most("a packet", None, 40.0, "ns").line(), "-     a packet: - ns, wanted: at most 40");
    }
}
