//! Charts of tail latencies by load, and of weights over time.

use std::time::Duration;

use dwell_chart::{Axis, Chart, Line, Scale, drawing};

use super::{Outcome, Policy, SERVERS};

/// Colours that people with any colour vision can distinguish (Okabe and Ito).
const COLOURS: [&str; SERVERS] = ["#d55e00", "#0072b2", "#009e73", "#cc79a7"];

/// A percentile of a policy at a load, averaged over runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Percentile {
    /// The policy of the runs.
    pub policy: Policy,
    /// Request rate as a share of the servers' capacity.
    pub load: f64,
    /// The quantile: 0.5, 0.9 or 0.99.
    pub share: f64,
    /// Mean of the latency over runs, in milliseconds.
    pub latency_ms: f64,
}

/// Percentiles by load, as in Figure 9 of the paper, with one chart per percentile.
pub fn by_load(heading: &str, percentiles: &[Percentile]) -> String {
    let charts = [0.5, 0.9, 0.99].map(|share| {
        let of = |policy: Policy, colour| Line {
            label: policy.name().to_owned(),
            colour,
            broad: false,
            dashed: policy == Policy::Maglev,
            dotted: true,
            pieces: vec![
                percentiles
                    .iter()
                    .filter(|point| point.policy == policy && point.share == share)
                    .map(|point| (point.load, point.latency_ms))
                    .collect(),
            ],
        };
        let values = percentiles.iter().filter(|point| point.share == share);
        let values: Vec<f64> = values.map(|point| point.latency_ms.max(0.001)).collect();
        Chart {
            title: format!("p{}", share * 100.0),
            x: Axis { label: "load, as a share of capacity".to_owned(), scale: Scale::Linear, range: (0.0, 1.0) },
            y: Axis {
                label: "response latency, ms".to_owned(),
                scale: Scale::Log,
                range: (
                    values.iter().copied().fold(f64::INFINITY, f64::min) * 0.8,
                    values.iter().copied().fold(0.001, f64::max) * 1.25,
                ),
            },
            lines: vec![of(Policy::Maglev, COLOURS[0]), of(Policy::Latency, COLOURS[1])],
        }
    });
    drawing(heading, &charts)
}

/// Each server's share of new connections over time, and below it the p99 of each second.
pub fn over_time(heading: &str, outcome: &Outcome, time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let x = || Axis { label: "time, s".to_owned(), scale: Scale::Linear, range: (0.0, seconds) };
    let line = |label: String, colour, points: Vec<(f64, f64)>| Line {
        label,
        colour,
        broad: false,
        dashed: false,
        dotted: false,
        pieces: vec![points],
    };
    let weights = Chart {
        title: "Share of new connections".to_owned(),
        x: x(),
        y: Axis { label: "share".to_owned(), scale: Scale::Linear, range: (0.0, 0.6) },
        lines: (0..SERVERS)
            .map(|server| {
                let name = format!("server{}", server + 1);
                let points = steps(outcome, &name, seconds);
                line(name, COLOURS[server], points)
            })
            .collect(),
    };
    let p99: Vec<(f64, f64)> = (0..time.as_secs())
        .filter_map(|second| {
            let from = Duration::from_secs(second);
            let to = from + Duration::from_secs(1);
            let p99 = outcome.quantile(0.99, from, to)?;
            Some((second as f64 + 0.5, (p99.as_secs_f64() * 1e3).max(0.1)))
        })
        .collect();
    let most = p99.iter().map(|(_, ms)| *ms).fold(1.0, f64::max);
    let tail = Chart {
        title: "p99 of each second".to_owned(),
        x: x(),
        y: Axis { label: "response latency, ms".to_owned(), scale: Scale::Log, range: (1.0, most * 1.25) },
        lines: vec![line("p99".to_owned(), COLOURS[1], p99)],
    };
    drawing(heading, &[weights, tail])
}

/// The shares of a server over time; each holds until the next one.
fn steps(outcome: &Outcome, server: &str, end_s: f64) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for change in &outcome.weight_changes {
        let Some(weight) = change.weights.iter().find(|w| w.server == server) else {
            continue;
        };
        let time_s = change.time_s.max(0.0);
        if let Some((_, before)) = points.last().copied() {
            points.push((time_s, before));
        }
        points.push((time_s, weight.share));
    }
    match points.last().copied() {
        Some((_, share)) => points.push((end_s, share)),
        // Weights never changed.
        None => points.extend([(0.0, 1.0 / SERVERS as f64), (end_s, 1.0 / SERVERS as f64)]),
    }
    points
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Weight, WeightChange},
        *,
    };

    #[test]
    fn shares_hold_until_the_next() {
        let change = |time_s, share| WeightChange {
            time_s,
            disruption: 0.0,
            weights: vec![Weight { server: "server1".to_owned(), share, reason: "slow".to_owned() }],
        };
        let outcome = Outcome { weight_changes: vec![change(-1.0, 0.25), change(4.0, 0.1)], ..Outcome::default() };
        let expected = [(0.0, 0.25), (4.0, 0.25), (4.0, 0.1), (9.0, 0.1)];
        assert_eq!(steps(&outcome, "server1", 9.0), expected);
        let alike = [(0.0, 0.25), (9.0, 0.25)];
        assert_eq!(steps(&outcome, "server2", 9.0), alike);
        let svg = over_time("a heading", &outcome, Duration::from_secs(9));
        assert!(svg.contains(">server4</text>") && svg.contains(">p99 of each second</text>"));
    }

    #[test]
    fn each_percentile_has_a_chart_with_one_line_per_policy() {
        let point = |policy, share| Percentile { policy, load: 0.5, share, latency_ms: 10.0 };
        let all = [0.5, 0.9, 0.99].map(|share| Policy::ALL.map(|policy| point(policy, share)));
        let svg = by_load("a heading", &all.concat());
        for text in [">p50</text>", ">p90</text>", ">p99</text>"] {
            assert_eq!(svg.matches(text).count(), 1, "{svg}");
        }
        assert_eq!(svg.matches(">latency</text>").count(), 3);
    }
}
