//! Which columns a screen of a width has, and what stands in their cells.

use dwell_engine::top::{Figures, Metric, Row, View};
use dwell_records::{Latency, Rate};
use ratatui_core::text::Span;

/// A column, but for the name, which takes the rest of the width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// The number of flows.
    Flows,
    /// A figure.
    Metric(Metric),
    /// The last intervals of the metric by which rows are ranked.
    Trend,
}

/// Columns of a screen in their order, and the width of the name before them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    pub name: usize,
    pub others: Vec<Column>,
}

/// Names are not cut below a width for the sake of another column: on screens that are narrower than the first number, the
/// second.
const NAME: [(usize, usize); 3] = [(30, 6), (60, 16), (usize::MAX, 26)];
/// Which columns are given up last, after the one by which rows are ranked.
const PRIORITY: [Column; 7] = [
    Column::Metric(Metric::Rtt),
    Column::Metric(Metric::Rate),
    Column::Metric(Metric::Retransmissions),
    Column::Flows,
    Column::Metric(Metric::SendBuffer),
    Column::Trend,
    Column::Metric(Metric::Response),
];

impl Column {
    /// The width, including the space before it.
    pub fn width(self) -> usize {
        match self {
            Column::Flows => 7,
            Column::Metric(Metric::Retransmissions) => 6,
            Column::Metric(Metric::Rate) => 7,
            Column::Metric(_) => 8,
            Column::Trend => 13,
        }
    }

    /// The heading.
    pub fn heading(self) -> &'static str {
        match self {
            Column::Flows => "FLOWS",
            Column::Metric(Metric::Rtt) => "RTT",
            Column::Metric(Metric::Response) => "RESP",
            Column::Metric(Metric::SendBuffer) => "SNDBUF",
            Column::Metric(Metric::Retransmissions) => "RETR",
            Column::Metric(Metric::Rate) => "BIT/S",
            Column::Trend => "TREND",
        }
    }

    fn order(self) -> usize {
        match self {
            Column::Flows => 0,
            Column::Metric(metric) => 1 + metric as usize,
            Column::Trend => 10,
        }
    }
}

impl Columns {
    /// Chooses the columns of a screen.
    pub fn of(width: usize, view: View, by: Metric) -> Columns {
        let least = NAME.iter().find(|(below, _)| width < *below).map_or(0, |(_, least)| *least);
        let mut name = width;
        let mut others: Vec<Column> = Vec::new();
        for column in [Column::Metric(by)].into_iter().chain(PRIORITY) {
            let is_wanted = !others.contains(&column) && (column != Column::Flows || view != View::Flows);
            if is_wanted && name >= least + column.width() {
                name -= column.width();
                others.push(column);
            }
        }
        others.sort_by_key(|column| column.order());
        Columns { name, others }
    }
}

/// The text of a cell, without the spaces that align it, and whether it is of an earlier interval or in doubt.
pub fn cell(row: &Row, metric: Metric) -> (String, bool) {
    let other_ns = match metric {
        Metric::Rtt => row.last_rtt_ns,
        Metric::Response => row.figures.doubted_response_ns,
        _ => None,
    };
    match (value(&row.figures, metric), other_ns) {
        (Some(text), _) => (text, false),
        (None, Some(ns)) => (latency(ns), true),
        (None, None) => ("-".into(), false),
    }
}

/// Writes a figure; `None` if it is not known.
pub fn value(figures: &Figures, metric: Metric) -> Option<String> {
    let value = figures.value(metric)?;
    Some(match metric {
        Metric::Rtt | Metric::Response | Metric::SendBuffer => latency(value),
        Metric::Retransmissions => value.to_string(),
        Metric::Rate => Rate(value).to_string().replace("bit/s", "").trim().to_owned(),
    })
}

/// Writes a latency without the spaces that align it.
pub fn latency(ns: u64) -> String {
    Latency(ns).to_string().trim().to_owned()
}

/// Draws values as bars of the height of a character, the greatest as the highest; what is unknown is a gap.
pub fn sparkline(values: impl Iterator<Item = Option<f64>>, width: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let values: Vec<_> = values.collect();
    let shown = &values[values.len().saturating_sub(width)..];
    let most = shown.iter().flatten().copied().fold(0.0, f64::max);
    let bar = |value: &Option<f64>| match value {
        None => ' ',
        Some(_) if most <= 0.0 => BARS[0],
        Some(value) => BARS[((value / most * 8.0) as usize).min(7)],
    };
    shown.iter().map(bar).collect()
}

/// Cuts a text to a width in columns, with an ellipsis where it was longer.
pub fn fit(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut room = width.saturating_sub(1);
    let kept = text.chars().take_while(|character| {
        let taken = columns(character.encode_utf8(&mut [0; 4]));
        room.checked_sub(taken).map(|left| room = left).is_some()
    });
    kept.chain(['…']).take(if width == 0 { 0 } else { usize::MAX }).collect()
}

/// Returns how many columns of a terminal a text takes.
pub fn columns(text: &str) -> usize {
    Span::raw(text).width()
}
