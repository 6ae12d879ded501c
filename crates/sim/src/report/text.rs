//! Tables for people.

use std::fmt::Write;

use crate::{
    Estimate,
    study::{QUANTILES, Summary},
};

/// A mean with what it may be off by.
fn with(estimate: Option<Estimate>, times: f64, digits: usize) -> String {
    match estimate {
        None => "-".to_owned(),
        Some(Estimate { mean, margin: None }) => format!("{:.digits$}", mean * times),
        Some(Estimate { mean, margin: Some(margin) }) => {
            format!("{:.digits$} ±{:.digits$}", mean * times, margin * times)
        }
    }
}

/// Rows below a heading; the first column to the left, others to the right.
pub fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let widths = cells.map(|cell| cell.chars().count());
        widths.chain([heading[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let mut text = String::new();
    let mut put = |cells: &mut dyn Iterator<Item = &str>| {
        for (column, cell) in cells.enumerate() {
            let width = widths[column];
            let _ = match column {
                0 => write!(text, "{cell:width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    };
    put(&mut heading.iter().copied());
    for row in rows {
        put(&mut row.iter().map(String::as_str));
    }
    text
}

/// A row a policy and number of servers: latency, and load.
pub fn policies(summaries: &[Summary]) -> String {
    let [p60, p90] = [0.6, 0.9].map(|part| QUANTILES.iter().position(|known| *known == part).unwrap_or(0));
    let latency = summaries.iter().map(|summary| {
        vec![
            summary.policy.to_string(),
            summary.servers.to_string(),
            summary.runs.to_string(),
            with(summary.first_byte[p60], 1.0, 2),
            with(summary.first_byte[p90], 1.0, 2),
            with(summary.completion[p60], 1.0, 2),
            with(summary.completion[p90], 1.0, 2),
            with(summary.used_share, 100.0, 2),
        ]
    });
    let load = summaries.iter().map(|summary| {
        vec![
            summary.policy.to_string(),
            summary.servers.to_string(),
            with(summary.busy, 100.0, 2),
            with(summary.load_ms, 1.0, 2),
            with(summary.imbalance, 1.0, 2),
            with(summary.present, 1.0, 2),
            with(summary.diverted, 100.0, 3),
            with(summary.elapsed_s, 1.0, 2),
        ]
    });
    let heading = ["policy", "servers", "runs", "TTFB p60", "TTFB p90", "FCT p60", "FCT p90", "0-RTT %"];
    let mut text = table(&heading, &latency.collect::<Vec<_>>());
    text.push('\n');
    let heading = ["policy", "servers", "busy %", "load ms", "imbalance", "packets there", "diverted %", "run s"];
    text += &table(&heading, &load.collect::<Vec<_>>());
    text += "\nTTFB, FCT: time to the first and the last byte over what it would be with 0-RTT and without waiting.\n\
             0-RTT: share of the connections that are not their client's first. Load: service time that the requests\n\
             at a server still need. Imbalance: load of the most loaded server over the mean. ±: 95 % confidence.\n";
    text
}

/// Successful 0-RTT of short and long connections, compared with what is possible: the paper's Table III.
pub fn resumed(summaries: &[Summary]) -> String {
    let rows = summaries.iter().map(|summary| {
        let runs = summary.runs as u64;
        let counts = [summary.short, summary.long].into_iter().flat_map(|counts| {
            [counts.connections, counts.possible, counts.used].map(|count| (count / runs).to_string())
        });
        let mut row = vec![summary.policy.to_string()];
        row.extend(counts);
        row.insert(4, with(summary.short_used_share, 100.0, 2));
        row.push(with(summary.long_used_share, 100.0, 2));
        row
    });
    let heading = ["policy", "short", "possible", "0-RTT", "%", "long", "possible", "0-RTT", "%"];
    table(&heading, &rows.collect::<Vec<_>>())
}
