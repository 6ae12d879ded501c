//! The figures of the TrafficGrinder paper, compared with those of the simulation.
//!
//! A goal has two sides: a simulation that is better than the paper's does not reproduce it. Tolerances are the same for
//! all figures of a kind, and are not derived from results.

use std::ops::RangeInclusive;

use dwell_sim::{Estimate, Policy, report, study::Summary};

use crate::goal::Goal;

/// Tolerance of a ratio, relative to the paper's.
const RATIO_TOLERANCE: f64 = 0.1;
/// Tolerance of a share of connections: one percentage point.
const SHARE_TOLERANCE: f64 = 0.01;
/// What the paper calls similar or close, as a ratio: within the tolerance of ratios.
const SIMILAR: RangeInclusive<f64> = 1.0 - RATIO_TOLERANCE..=1.0 + RATIO_TOLERANCE;
/// What the paper calls considerably larger, as a ratio: more than the tolerance.
const LARGER: RangeInclusive<f64> = 1.0 + RATIO_TOLERANCE..=f64::INFINITY;
/// The least change that is one: the width of a bucket of the distributions.
const CHANGE: f64 = 0.002;
/// What the paper calls a slight increase or decrease.
const SLIGHTLY_MORE: RangeInclusive<f64> = 1.0 + CHANGE..=1.0 + RATIO_TOLERANCE;
const SLIGHTLY_LESS: RangeInclusive<f64> = 1.0 - RATIO_TOLERANCE..=1.0 - CHANGE;
const MORE: RangeInclusive<f64> = 1.0 + CHANGE..=f64::INFINITY;
const LESS: RangeInclusive<f64> = 0.0..=1.0 - CHANGE;

/// A result of the paper.
enum Paper {
    /// A ratio.
    Ratio(f64),
    /// A share of connections: of Table III, the number that succeeded and the maximum.
    Share(f64, f64),
    /// A ratio that the paper describes without a number, and the range that these words stand for here.
    Words(&'static str, RangeInclusive<f64>),
}

use Paper::{Ratio, Share, Words};

/// A result of the paper, and the simulation's.
pub struct Comparison {
    name: &'static str,
    paper: Paper,
    /// `None` if it was not simulated.
    here: Option<f64>,
}

fn compare(name: &'static str, paper: Paper, here: Option<f64>) -> Comparison {
    Comparison { name, paper, here }
}

impl Comparison {
    /// The range of values that reproduce the paper's.
    fn range(&self) -> RangeInclusive<f64> {
        match &self.paper {
            Ratio(ratio) => ratio * (1.0 - RATIO_TOLERANCE)..=ratio * (1.0 + RATIO_TOLERANCE),
            Share(of, all) => of / all - SHARE_TOLERANCE..=of / all + SHARE_TOLERANCE,
            Words(_, range) => range.clone(),
        }
    }

    /// The goal that the figure is within its range.
    pub fn goal(&self) -> Goal {
        Goal { holds: self.here.map(|here| self.range().contains(&here)), what: self.name.to_owned() }
    }

    fn row(&self) -> Vec<String> {
        let show = |value: f64| match self.paper {
            Share(..) => format!("{:.2} %", value * 100.0),
            _ => format!("{value:.3}"),
        };
        let (paper, difference) = match (&self.paper, self.here) {
            (Words(words, _), _) => ((*words).to_owned(), None),
            (Ratio(ratio), here) => (show(*ratio), here.map(|here| format!("{:+.1} %", (here / ratio - 1.0) * 100.0))),
            (Share(of, all), here) => {
                (show(of / all), here.map(|here| format!("{:+.2} points", (here - of / all) * 100.0)))
            }
        };
        let range = self.range();
        let goal = match range.end().is_finite() {
            true => format!("{} to {}", show(*range.start()), show(range.end().min(self.most()))),
            false => format!("{} or more", show(*range.start())),
        };
        let verdict = match self.goal().holds {
            None => "not run",
            Some(true) => "met",
            Some(false) => "missed",
        };
        let unknown = || "-".to_owned();
        let here = self.here.map_or_else(unknown, show);
        vec![self.name.to_owned(), paper, here, difference.unwrap_or_else(unknown), goal, verdict.to_owned()]
    }

    /// The largest possible value.
    fn most(&self) -> f64 {
        if matches!(self.paper, Share(..)) { 1.0 } else { f64::INFINITY }
    }
}

/// The table of comparisons.
pub fn table(comparisons: &[Comparison]) -> String {
    let rows: Vec<_> = comparisons.iter().map(Comparison::row).collect();
    report::table(&["", "paper", "here", "difference", "goal", ""], &rows)
}

/// Figure 8a and 8b, and Table III of the synthetic trace.
pub fn synthetic(summaries: &[Summary]) -> Vec<Comparison> {
    let [zero, least, sticky, two] =
        [Policy::ZeroRtt, Policy::LeastLoaded, Policy::SessionAffinity, Policy::PowerOfTwo]
            .map(|policy| of(summaries, policy));
    let load = |summary: Option<&Summary>| mean(summary?.load_ms);
    let imbalance = |summary: Option<&Summary>| mean(summary?.imbalance);
    let first_byte = |summary: Option<&Summary>, quantile| summary?.first_byte_at(quantile);
    let completion = |summary: Option<&Summary>| summary?.completion_at(0.6);
    let similar = || Words("similar", SIMILAR);
    let larger = || Words("considerably larger", LARGER);
    vec![
        compare("short among possible connections", Share(86_234.0, 91_124.0), zero.and_then(Summary::short_part)),
        compare("zero-rtt: TTFB p60", Ratio(1.2), first_byte(zero, 0.6)),
        compare("least-loaded: TTFB p60", Ratio(1.97), first_byte(least, 0.6)),
        compare("zero-rtt: TTFB p90", Ratio(1.74), first_byte(zero, 0.9)),
        compare("least-loaded: TTFB p90", Ratio(2.12), first_byte(least, 0.9)),
        compare(
            "power-of-two: TTFB p60 over least-loaded's",
            similar(),
            over(first_byte(two, 0.6), first_byte(least, 0.6)),
        ),
        compare("least-loaded: FCT p60 over zero-rtt's", Ratio(1.58), over(completion(least), completion(zero))),
        compare("zero-rtt: 0-RTT", Share(90_873.0, 91_124.0), used(zero)),
        compare("zero-rtt: 0-RTT of short ones", Share(86_148.0, 86_234.0), used_short(zero)),
        compare("zero-rtt: 0-RTT of long ones", Share(4_725.0, 4_890.0), used_long(zero)),
        compare("session-affinity: 0-RTT of short ones", Share(86_099.0, 86_234.0), used_short(sticky)),
        compare("session-affinity: 0-RTT of long ones", Share(4_890.0, 4_890.0), used_long(sticky)),
        compare("least-loaded: 0-RTT", Share(1_421.0, 91_124.0), used(least)),
        compare("zero-rtt: load over least-loaded's", similar(), over(load(zero), load(least))),
        compare("session-affinity: load over least-loaded's", larger(), over(load(sticky), load(least))),
        compare("zero-rtt: imbalance over least-loaded's", similar(), over(imbalance(zero), imbalance(least))),
        compare("session-affinity: imbalance over least-loaded's", larger(), over(imbalance(sticky), imbalance(least))),
    ]
}

/// Table III of the DNS over HTTPS trace.
pub fn doh(summaries: &[Summary]) -> Vec<Comparison> {
    let [zero, least, sticky] =
        [Policy::ZeroRtt, Policy::LeastLoaded, Policy::SessionAffinity].map(|policy| of(summaries, policy));
    vec![
        compare("short among possible connections", Share(16_630.0, 42_866.0), zero.and_then(Summary::short_part)),
        compare("zero-rtt: 0-RTT", Share(38_971.0, 42_866.0), used(zero)),
        compare("zero-rtt: 0-RTT of short ones", Share(15_533.0, 16_630.0), used_short(zero)),
        compare("zero-rtt: 0-RTT of long ones", Share(23_438.0, 26_236.0), used_long(zero)),
        compare("session-affinity: 0-RTT of short ones", Share(16_539.0, 16_630.0), used_short(sticky)),
        compare("session-affinity: 0-RTT of long ones", Share(26_010.0, 26_236.0), used_long(sticky)),
        compare("least-loaded: 0-RTT", Share(649.0, 42_866.0), used(least)),
    ]
}

/// Figure 9a: the same trace on 24 to 88 servers.
pub fn fixed_load(summaries: &[Summary]) -> Vec<Comparison> {
    let grown = |policy, quantile| growth(summaries, policy, quantile);
    let minimum = last(summaries, Policy::ZeroRtt).and_then(|most| most.completion_at(0.5));
    vec![
        compare(
            "session-affinity: FCT p50, most servers over fewest",
            Words("falls", LESS),
            grown(Policy::SessionAffinity, 0.5),
        ),
        compare(
            "session-affinity: FCT p95, most servers over fewest",
            Words("falls", LESS),
            grown(Policy::SessionAffinity, 0.95),
        ),
        compare(
            "least-loaded: FCT p50, most servers over fewest",
            Words("falls a little", SLIGHTLY_LESS),
            grown(Policy::LeastLoaded, 0.5),
        ),
        compare("zero-rtt: FCT p50, most servers over fewest", Words("falls", LESS), grown(Policy::ZeroRtt, 0.5)),
        compare("zero-rtt: FCT p50 with most servers", Ratio(1.0), minimum),
    ]
}

/// Figure 9b: 24 to 88 servers with the same load per server.
pub fn fixed_load_per_server(summaries: &[Summary]) -> Vec<Comparison> {
    let grown = |policy, quantile| growth(summaries, policy, quantile);
    let slightly = || Words("rises a little", SLIGHTLY_MORE);
    vec![
        compare("session-affinity: FCT p50, most servers over fewest", slightly(), grown(Policy::SessionAffinity, 0.5)),
        compare(
            "session-affinity: FCT p95, most servers over fewest",
            Words("rises more", MORE),
            grown(Policy::SessionAffinity, 0.95),
        ),
        compare("least-loaded: FCT p50, most servers over fewest", slightly(), grown(Policy::LeastLoaded, 0.5)),
        compare("zero-rtt: FCT p75, most servers over fewest", slightly(), grown(Policy::ZeroRtt, 0.75)),
        compare("zero-rtt: FCT p95, most servers over fewest", slightly(), grown(Policy::ZeroRtt, 0.95)),
    ]
}

/// The completion time of a policy with the most servers, over that with the fewest.
fn growth(summaries: &[Summary], policy: Policy, quantile: f64) -> Option<f64> {
    let completion = |summary: Option<&Summary>| summary?.completion_at(quantile);
    over(completion(last(summaries, policy)), completion(of(summaries, policy)))
}

/// The first summary of a policy: with several numbers of servers, that with the fewest.
pub fn of(summaries: &[Summary], policy: Policy) -> Option<&Summary> {
    summaries.iter().find(|summary| summary.policy == policy)
}

/// The last summary of a policy: with several numbers of servers, that with the most.
fn last(summaries: &[Summary], policy: Policy) -> Option<&Summary> {
    summaries.iter().rfind(|summary| summary.policy == policy)
}

/// The mean of an estimate.
pub fn mean(estimate: Option<Estimate>) -> Option<f64> {
    estimate.map(|estimate| estimate.mean)
}

fn over(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? / b?)
}

fn used(summary: Option<&Summary>) -> Option<f64> {
    mean(summary?.used_share)
}

fn used_short(summary: Option<&Summary>) -> Option<f64> {
    mean(summary?.short_used_share)
}

fn used_long(summary: Option<&Summary>) -> Option<f64> {
    mean(summary?.long_used_share)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(paper: Paper, here: f64) -> Option<bool> {
        compare("", paper, Some(here)).goal().holds
    }

    #[test]
    fn goals_have_two_sides() {
        for (here, expected) in [(1.07, false), (1.09, true), (1.31, true), (1.33, false)] {
            assert_eq!(holds(Ratio(1.2), here), Some(expected), "{here}");
        }
        for (here, expected) in [(0.489, false), (0.491, true), (0.509, true), (0.511, false)] {
            assert_eq!(holds(Share(1.0, 2.0), here), Some(expected), "{here}");
        }
        assert_eq!(holds(Words("considerably larger", LARGER), 1.09), Some(false));
        assert_eq!(compare("", Ratio(1.0), None).goal().holds, None);
    }

    #[test]
    fn a_row_has_the_papers_figure_ours_and_the_difference() {
        let row = compare("TTFB", Ratio(1.2), Some(1.0)).row();
        assert_eq!(row, ["TTFB", "1.200", "1.000", "-16.7 %", "1.080 to 1.320", "missed"]);
        let row = compare("0-RTT", Share(999.0, 1000.0), Some(0.9955)).row();
        assert_eq!(row, ["0-RTT", "99.90 %", "99.55 %", "-0.35 points", "98.90 % to 100.00 %", "met"]);
        let row = compare("load", Words("larger", LARGER), None).row();
        assert_eq!(row, ["load", "larger", "-", "-", "1.100 or more", "not run"]);
    }
}
