//! The table of `dwell top --once`.

use dwell_engine::{labels::harmless, top::View};

use super::{UNKNOWN, cell, counted, put, table, trimmed};
use crate::{Rate, Top};

const FIGURES: [&str; 5] = ["rtt", "response", "send buffer", "resent", "rate"];

/// Writes one line per row.
pub(super) fn rows(top: &Top<'_>, out: &mut Vec<u8>) {
    let rows = counted((top.rows.len() + top.cut) as u64, one(top.view), top.view.name());
    put(out, format_args!("  {rows} in {}, by {}\n", trimmed(top.length_ns), top.by.name()));
    let mut heads = vec![one(top.view)];
    if top.view != View::Flows {
        heads.push("flows");
    }
    heads.extend(FIGURES);
    let lines: Vec<Vec<String>> = top
        .rows
        .iter()
        .map(|named| {
            let (row, figures) = (&named.row, &named.row.figures);
            let mut line = vec![harmless(&named.line)];
            if top.view != View::Flows {
                line.push(row.flows.to_string());
            }
            let doubted = figures.doubted_response_ns.map(|ns| format!("~{}", trimmed(ns)));
            line.push(cell(figures.rtt_ns));
            line.push(doubted.unwrap_or_else(|| cell(figures.response_ns)));
            line.push(cell(figures.send_buffer_ns));
            line.push(figures.retransmissions.map_or(UNKNOWN.into(), |number| number.to_string()));
            line.push(figures.rate_bps.map_or(UNKNOWN.into(), |bps| Rate(bps).to_string()));
            line
        })
        .collect();
    table::columns(&heads, 1, &lines, out, |_, _, cell| cell);
    if top.cut > 0 {
        put(out, format_args!("{} not shown, because of --top.\n", counted(top.cut as u64, "row", "rows")));
    }
    if top.omitted > 0 {
        put(out, format_args!("{} beyond --max-flows not shown.\n", counted(top.omitted, "flow", "flows")));
    }
}

fn one(view: View) -> &'static str {
    match view {
        View::Flows => "flow",
        View::Peers => "peer",
        View::Prefixes => "prefix",
        View::Processes => "process",
        View::Units => "unit",
    }
}
