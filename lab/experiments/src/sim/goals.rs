//! The results that the TrafficGrinder paper reports, as goals of the simulation.

use dwell_sim::{Estimate, Policy, report, study::Summary};

/// A figure of the policy `zero-rtt`, and the paper's figure.
struct PaperGoal {
    name: &'static str,
    /// `None` if it was not simulated.
    value: Option<f64>,
    bound: Bound,
}

enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

use Bound::{AtLeast, AtMost};

/// The table of goals for the trace that is like the paper's DNS over HTTPS.
pub fn doh(summaries: &[Summary]) -> String {
    let used = of(summaries, Policy::ZeroRtt).and_then(|zero| mean(zero.used_share));
    table([PaperGoal { name: "0-RTT of all that could", value: used, bound: AtLeast(0.9) }])
}

/// The table of goals for the paper's synthetic trace.
pub fn synthetic(summaries: &[Summary]) -> String {
    let [Some(zero), Some(least)] = [Policy::ZeroRtt, Policy::LeastLoaded].map(|policy| of(summaries, policy)) else {
        return String::new();
    };
    let over = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
    let completion = over(least.completion_at(0.6), zero.completion_at(0.6));
    let load = over(mean(zero.load), mean(least.load));
    let imbalance = over(mean(zero.imbalance), mean(least.imbalance));
    table([
        PaperGoal { name: "0-RTT of all that could", value: mean(zero.used_share), bound: AtLeast(0.997) },
        PaperGoal { name: "0-RTT of short ones", value: mean(zero.short_used_share), bound: AtLeast(0.999) },
        PaperGoal { name: "TTFB p60", value: zero.first_byte_at(0.6), bound: AtMost(1.2) },
        PaperGoal { name: "TTFB p90", value: zero.first_byte_at(0.9), bound: AtMost(1.75) },
        PaperGoal { name: "FCT p60 of least-loaded over its own", value: completion, bound: AtLeast(1.58) },
        PaperGoal { name: "load over that of least-loaded", value: load, bound: AtMost(1.05) },
        PaperGoal { name: "imbalance over that of least-loaded", value: imbalance, bound: AtMost(1.1) },
    ])
}

/// The summary of a policy.
pub fn of(summaries: &[Summary], policy: Policy) -> Option<&Summary> {
    summaries.iter().find(|summary| summary.policy == policy)
}

/// The mean of an estimate.
pub fn mean(estimate: Option<Estimate>) -> Option<f64> {
    estimate.map(|estimate| estimate.mean)
}

fn table<const N: usize>(goals: [PaperGoal; N]) -> String {
    let rows = goals.map(|PaperGoal { name, value, bound }| {
        let (bound, is_met) = match bound {
            AtLeast(goal) => (format!("at least {goal}"), value.map(|value| value >= goal)),
            AtMost(goal) => (format!("at most {goal}"), value.map(|value| value <= goal)),
        };
        let verdict = match is_met {
            None => "not run",
            Some(true) => "met",
            Some(false) => "missed",
        };
        vec![name.to_owned(), value.map_or("-".to_owned(), |value| format!("{value:.4}")), bound, verdict.to_owned()]
    });
    report::table(&["zero-rtt", "is", "goal", ""], &rows)
}
