//! Charts of time to the first byte and CPU time, by number of clients and by policy.

use std::time::Duration;

use dwell_chart::{Axis, Chart, Line, Scale, drawing};

use super::{HandshakeResult, Mode, Policy, PolicyResult};

/// Colours that people with any colour vision can distinguish (Okabe and Ito).
const COLOURS: [&str; 4] = ["#d55e00", "#0072b2", "#009e73", "#cc79a7"];

/// A title and the runs of all modes.
pub type Titled<'a> = (String, &'a [HandshakeResult]);

/// Charts as Figures 6 and 7 of the paper: time to the first byte and the server's CPU time, by number of clients.
pub fn by_clients(heading: &str, all: &[Titled<'_>]) -> String {
    let charts: Vec<Chart> = all
        .iter()
        .flat_map(|(title, runs)| {
            [
                chart(format!("Time to the first byte, p50: {title}"), runs, |run| run.quantile(0.5)),
                chart(format!("Server's CPU time per connection: {title}"), runs, HandshakeResult::cpu_each),
            ]
        })
        .collect();
    drawing(heading, &charts)
}

fn chart(title: String, runs: &[HandshakeResult], value: impl Fn(&HandshakeResult) -> Option<Duration>) -> Chart {
    let of = |mode: Mode, colour| Line {
        label: mode.name().to_owned(),
        colour,
        broad: false,
        dashed: false,
        dotted: true,
        pieces: vec![
            runs.iter()
                .filter(|run| run.mode == mode)
                .filter_map(|run| Some((run.simultaneous as f64, ms(value(run)?))))
                .collect(),
        ],
    };
    let lines: Vec<Line> = Mode::ALL.into_iter().zip(COLOURS).map(|(mode, colour)| of(mode, colour)).collect();
    let most = runs.iter().map(|run| run.simultaneous).max().unwrap_or(1).max(2) as f64;
    Chart {
        title,
        x: Axis { label: "simultaneous clients".to_owned(), scale: Scale::Log, range: (1.0, most) },
        y: Axis { label: "ms".to_owned(), scale: Scale::Log, range: range(&lines) },
        lines,
    }
}

/// A chart of the distribution of times to the first byte of returning clients, by policy.
pub fn by_policy(heading: &str, all: &[(Policy, PolicyResult)]) -> String {
    let lines: Vec<Line> = Policy::ALL
        .into_iter()
        .zip(COLOURS)
        .map(|(policy, colour)| Line {
            label: policy.name().to_owned(),
            colour,
            broad: false,
            dashed: false,
            dotted: false,
            pieces: all.iter().filter(|(of, _)| *of == policy).map(|(_, run)| distribution(run)).collect(),
        })
        .collect();
    let (low, high) = lines
        .iter()
        .flat_map(|line| line.pieces.iter().flatten())
        .fold((f64::INFINITY, 0.001), |(low, high), (x, _)| (x.min(low), x.max(high)));
    let chart = Chart {
        title: "Time to the first byte, returning clients".to_owned(),
        x: Axis {
            label: "time to the first byte, ms".to_owned(),
            scale: Scale::Log,
            range: (low.min(high) * 0.8, high * 1.25),
        },
        y: Axis { label: "share of connections".to_owned(), scale: Scale::Linear, range: (0.0, 1.0) },
        lines,
    };
    drawing(heading, &[chart])
}

fn distribution(run: &PolicyResult) -> Vec<(f64, f64)> {
    let count = run.first_byte.len() as f64;
    let points = run.first_byte.iter().enumerate();
    points.map(|(at, time)| (ms(*time), (at + 1) as f64 / count)).collect()
}

fn range(lines: &[Line]) -> (f64, f64) {
    let values = || lines.iter().flat_map(|line| line.pieces.iter().flatten()).map(|(_, y)| *y);
    let low = values().fold(f64::INFINITY, f64::min);
    let high = values().fold(0.001, f64::max);
    (low.min(high) * 0.8, high * 1.25)
}

fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e3).max(0.001)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_has_one_line_per_mode_and_one_dot_per_number_of_clients() {
        let run = |mode, simultaneous| HandshakeResult {
            mode,
            simultaneous,
            first_byte: vec![Duration::from_millis(2)],
            resumed: 0,
            early: 0,
            cpu: Duration::from_millis(1),
        };
        let runs: Vec<HandshakeResult> = Mode::ALL.iter().flat_map(|mode| [run(*mode, 1), run(*mode, 50)]).collect();
        let svg = by_clients("a heading", &[("ecdsa".to_owned(), &runs)]);
        assert_eq!(svg.matches(">0rtt</text>").count(), 2);
        // in both charts, six dots and three in the legend
        assert_eq!(svg.matches("<circle").count(), 18);
    }

    #[test]
    fn a_distribution_ends_at_one() {
        let run = PolicyResult { first_byte: [1, 2, 4].map(Duration::from_millis).into(), ..PolicyResult::default() };
        let points = distribution(&run);
        assert_eq!(points[0], (1.0, 1.0 / 3.0));
        assert_eq!(points[2], (4.0, 1.0));
        assert!(by_policy("a heading", &[(Policy::Source, run)]).contains(">source</text>"));
    }
}
