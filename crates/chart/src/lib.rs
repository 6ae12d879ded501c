//! Charts of lines, as SVG that needs nothing else.

use std::fmt::Write;

/// A chart: lines over two axes, with their names next to it.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// Across.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// The last one lies on top.
    pub lines: Vec<Line>,
}

/// What one direction means.
#[derive(Debug, Clone)]
pub struct Axis {
    /// With the unit.
    pub label: String,
    /// How values are spread.
    pub scale: Scale,
    /// The least and the greatest value that is shown.
    pub range: (f64, f64),
}

/// How values are spread over an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// Values are above zero.
    Log,
}

/// A line of a chart.
#[derive(Debug, Clone)]
pub struct Line {
    /// Beside it.
    pub label: String,
    /// As CSS has it.
    pub colour: &'static str,
    /// Under the others, which must not hide it.
    pub broad: bool,
    /// Broken.
    pub dashed: bool,
    /// With a dot at each point.
    pub dotted: bool,
    /// In pieces, with gaps between them.
    pub pieces: Vec<Vec<(f64, f64)>>,
}

const WIDTH: f64 = 960.0;
/// Of a chart with its title and labels.
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 70.0;
/// Room for the names of lines.
const RIGHT: f64 = 220.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 52.0;
/// The height of the heading above all charts.
const HEADING: f64 = 40.0;
/// The maximum number of points of a line: more could not be distinguished.
const POINTS: usize = 1_000;

/// Draws charts one below another, under a heading.
pub fn drawing(heading: &str, charts: &[Chart]) -> String {
    let height = HEADING + HEIGHT * charts.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" \
         fill=\"white\"/>\n"
    );
    text(&mut svg, (LEFT, 26.0), "font-size=\"15\"", heading);
    for (n, chart) in charts.iter().enumerate() {
        let down = HEADING + HEIGHT * n as f64;
        let _ = writeln!(svg, "<g transform=\"translate(0 {down})\">");
        chart.draw(n, &mut svg);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

impl Chart {
    fn draw(&self, n: usize, svg: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let place = |(x, y): (f64, f64)| {
            let (x, y) = (self.x.share(x), self.y.share(y));
            (LEFT + x * (right - LEFT), bottom - y * (bottom - TOP))
        };
        text(svg, (LEFT, 26.0), "font-weight=\"bold\"", &self.title);
        for (value, label) in self.x.ticks() {
            let (x, _) = place((value, self.y.range.0));
            segment(svg, (x, TOP), (x, bottom));
            text(svg, (x, bottom + 18.0), "text-anchor=\"middle\"", &label);
        }
        for (value, label) in self.y.ticks() {
            let (_, y) = place((self.x.range.0, value));
            segment(svg, (LEFT, y), (right, y));
            text(svg, (LEFT - 8.0, y + 4.5), "text-anchor=\"end\"", &label);
        }
        let middle = (LEFT + right) / 2.0;
        text(svg, (middle, bottom + 38.0), "text-anchor=\"middle\"", &self.x.label);
        let middle = (TOP + bottom) / 2.0;
        let turned = format!("text-anchor=\"middle\" transform=\"rotate(-90 18 {middle})\"");
        text(svg, (18.0, middle), &turned, &self.y.label);
        let (width, height) = (right - LEFT, bottom - TOP);
        let _ = writeln!(
            svg,
            "<rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{width}\" height=\"{height}\" fill=\"none\" stroke=\"#444\"/>\n\
             <clipPath id=\"inside{n}\"><rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{width}\" height=\"{height}\"/>\
             </clipPath>\n<g clip-path=\"url(#inside{n})\">"
        );
        for line in &self.lines {
            line.draw(&place, svg);
        }
        svg.push_str("</g>\n");
        for (row, line) in self.lines.iter().enumerate() {
            let y = TOP + 12.0 + 22.0 * row as f64;
            line.name((right + 16.0, y), svg);
        }
    }
}

impl Line {
    fn style(&self) -> String {
        let dashes = match self.dashed {
            true => " stroke-dasharray=\"7 4\"",
            false => "",
        };
        let width = if self.broad { 4.5 } else { 1.8 };
        format!("fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\"{dashes}", self.colour)
    }

    fn draw(&self, place: &dyn Fn((f64, f64)) -> (f64, f64), svg: &mut String) {
        for piece in &self.pieces {
            let _ = write!(svg, "<polyline {} points=\"", self.style());
            let step = piece.len().div_ceil(POINTS).max(1);
            let last = piece.last().filter(|_| (piece.len() - 1) % step != 0);
            for &point in piece.iter().step_by(step).chain(last) {
                let (x, y) = place(point);
                let _ = write!(svg, "{x:.1},{y:.1} ");
            }
            svg.push_str("\"/>\n");
            for &point in piece.iter().filter(|_| self.dotted) {
                self.dot(place(point), svg);
            }
        }
    }

    fn dot(&self, (x, y): (f64, f64), svg: &mut String) {
        let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.2\" fill=\"{}\"/>", self.colour);
    }

    fn name(&self, (x, y): (f64, f64), svg: &mut String) {
        let (style, end) = (self.style(), x + 30.0);
        let _ = writeln!(svg, "<line x1=\"{x}\" y1=\"{y}\" x2=\"{end}\" y2=\"{y}\" {style}/>");
        if self.dotted {
            self.dot((x + 15.0, y), svg);
        }
        text(svg, (x + 38.0, y + 4.5), "", &self.label);
    }
}

impl Axis {
    /// Where a value lies between the ends; those outside lie at most a little outside.
    fn share(&self, value: f64) -> f64 {
        let (low, high) = self.range;
        let share = match self.scale {
            Scale::Linear => (value - low) / (high - low),
            Scale::Log => (value.max(low) / low).ln() / (high / low).ln(),
        };
        share.clamp(-0.1, 1.1)
    }

    /// Round values with their labels.
    fn ticks(&self) -> Vec<(f64, String)> {
        let (low, high) = self.range;
        let values: Vec<f64> = match self.scale {
            Scale::Linear => {
                let step = round_step((high - low) / 6.0);
                let first = (low / step - 1e-9).ceil() as i64;
                (first..).map(|n| n as f64 * step).take_while(|value| *value <= high + step * 1e-9).collect()
            }
            Scale::Log => {
                let decades = (high / low).log10();
                let within: &[f64] = if decades < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let first = low.log10().floor() as i32;
                let last = high.log10().ceil() as i32;
                (first..=last)
                    .flat_map(|power| within.iter().map(move |n| n * 10f64.powi(power)))
                    .filter(|value| (low * 0.999..=high * 1.001).contains(value))
                    .collect()
            }
        };
        values.into_iter().map(|value| (value, label(value))).collect()
    }
}

/// The smallest step of 1, 2 or 5 times a power of ten that is at least `least`.
pub fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().find(|step| step * power >= least * 0.999);
    step.unwrap_or(10.0) * power
}

/// Up to six decimals, without zeros at the end.
fn label(value: f64) -> String {
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0" } else { text }.to_owned()
}

fn segment(svg: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let _ = writeln!(svg, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#ddd\"/>");
}

fn text(svg: &mut String, (x, y): (f64, f64), attributes: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{text}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(scale: Scale, range: (f64, f64)) -> Axis {
        Axis { label: String::new(), scale, range }
    }

    #[test]
    fn ticks_are_round() {
        let labels = |scale, range| -> Vec<String> {
            let ticks = axis(scale, range).ticks();
            ticks.into_iter().map(|(_, label)| label).collect()
        };
        assert_eq!(labels(Scale::Linear, (0.0, 1.0)), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(labels(Scale::Linear, (3.0, 42.0)), ["10", "20", "30", "40"]);
        assert_eq!(labels(Scale::Log, (0.01, 1000.0)), ["0.01", "0.1", "1", "10", "100", "1000"]);
        assert_eq!(labels(Scale::Log, (8.0, 60.0)), ["10", "20", "50"]);
    }

    #[test]
    fn values_lie_where_their_axis_puts_them() {
        let linear = axis(Scale::Linear, (10.0, 20.0));
        assert_eq!(linear.share(15.0), 0.5);
        assert_eq!(linear.share(1e9), 1.1);
        let log = axis(Scale::Log, (0.01, 100.0));
        assert!((log.share(1.0) - 0.5).abs() < 1e-9);
        assert_eq!(log.share(0.0), 0.0);
    }

    #[test]
    fn a_chart_names_each_line_and_says_nothing_that_is_markup() {
        let chart = Chart {
            title: "a < b & c".to_owned(),
            x: axis(Scale::Linear, (0.0, 1.0)),
            y: axis(Scale::Linear, (0.0, 1.0)),
            lines: vec![Line {
                label: "one".to_owned(),
                colour: "#000",
                broad: false,
                dashed: false,
                dotted: true,
                pieces: vec![vec![(0.0, 0.0), (0.5, 1.0)], vec![(1.0, 0.0)]],
            }],
        };
        let svg = drawing("heading", &[chart]);
        assert!(svg.contains("a &lt; b &amp; c"), "{svg}");
        assert!(svg.contains(">one</text>"), "{svg}");
        // from the lower left corner to the middle of the upper edge
        assert!(svg.contains("points=\"70.0,308.0 405.0,44.0 \""), "{svg}");
        // One dot per point, and one next to the name.
        assert_eq!(svg.matches("<circle").count(), 4, "{svg}");
        assert_eq!(svg.matches("<g").count(), svg.matches("</g>").count());
    }
}
