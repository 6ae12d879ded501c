//! A chart of delays over time.

use dwell_chart::{Axis, Chart, Line, Scale, drawing, round_step};

use super::{MS, accuracy::Series};

/// Colours that colour-blind readers can distinguish (Okabe and Ito).
const COLOURS: [&str; 6] = ["#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
/// Points per line; more would not be visible.
const POINTS: usize = 2000;

/// Draws an SVG with one line per run: its name, its start, and the delays in its send buffer.
pub fn over_time(heading: &str, runs: &[(String, u64, Series)]) -> String {
    let lines: Vec<Line> = runs
        .iter()
        .zip(COLOURS.into_iter().cycle())
        .map(|((name, start_ns, series), colour)| Line {
            label: name.clone(),
            colour,
            broad: false,
            dashed: false,
            dotted: false,
            pieces: vec![points(*start_ns, series)],
        })
        .collect();
    let most = |of: fn(&(f64, f64)) -> f64| {
        let points = lines.iter().flat_map(|line| line.pieces.iter().flatten());
        let most = points.map(of).fold(0.0, f64::max).max(1e-3);
        let step = round_step(most / 6.0);
        (most / step).ceil() * step
    };
    let (last_s, most_ms) = (most(|(s, _)| *s), most(|(_, ms)| *ms));
    let chart = Chart {
        title: "Delay in the send buffer".to_owned(),
        x: Axis { label: "time, s".to_owned(), scale: Scale::Linear, range: (0.0, last_s) },
        y: Axis { label: "delay, ms".to_owned(), scale: Scale::Linear, range: (0.0, most_ms) },
        lines,
    };
    drawing(heading, &[chart])
}

fn points(start_ns: u64, series: &Series) -> Vec<(f64, f64)> {
    let all = series.points();
    let step = all.len().div_ceil(POINTS).max(1);
    let some = all.iter().step_by(step);
    some.map(|(at_ns, delay_ns)| {
        let since = at_ns.saturating_sub(start_ns);
        (since as f64 / 1e9, *delay_ns as f64 / MS as f64)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_starts_with_its_run() {
        let series = Series::new((0..10).map(|n| (5_000_000_000 + n * 100 * MS, n * 10 * MS)));
        let runs = [("plain".to_owned(), 5_000_000_000, series), ("nothing".to_owned(), 0, Series::default())];
        let svg = over_time("a heading", &runs);
        assert!(svg.contains(">plain</text>") && svg.contains(">nothing</text>"));
        // From the lower left corner.
        assert!(svg.contains("points=\"70.0,308.0 "), "{svg}");
    }
}
