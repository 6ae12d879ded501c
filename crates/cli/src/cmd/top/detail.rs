//! The page of one row: its figures, where its time goes, and what `dwell why` says.

use std::iter;

use dwell_engine::{
    names::EndNames,
    top::{Limits, Metric, RowKey},
};
use dwell_records::counted;

use super::{
    app::{App, Page},
    columns::{latency, sparkline, value},
    draw::{Canvas, wrapped},
    label::{line, names_of, protocol},
    shown::Screenful,
};

/// The height of a screen that has no room for the figures and the verdict.
const LOW: usize = 20;

/// Draws the page below the title.
pub fn draw(app: &mut App, shown: &Screenful, canvas: &mut Canvas<'_>) {
    let Page::Detail { row, look, scroll } = &mut app.page else {
        return;
    };
    let names = names_of(row, shown);
    let mut lines = vec![line(row, &names)];
    if let Some(protocol) = protocol(&row.key) {
        lines.push(format!("{protocol}, as packets show it"));
    }
    match &row.key {
        RowKey::Flow(flow) => {
            lines.push(format!("from {} to {}", flow.ends.src, flow.ends.dst));
            let process = row.pid.map(|pid| {
                let EndNames { process, unit, pod, .. } = &names.src;
                let names = [process, unit].into_iter().flatten();
                let line = names.fold(format!("process {pid}"), |line, name| line + " " + name);
                pod.as_ref().map_or(line.clone(), |pod| format!("{line} {pod}"))
            });
            lines.extend(process);
        }
        _ => lines.push(counted(row.flows, "flow", "flows")),
    }
    if shown.row(&row.key).is_none() {
        lines.push("It has ended: these are its last figures.".into());
    }
    let mut figures = vec![String::new()];
    for metric in Metric::ALL {
        let figure = value(&row.figures, metric).unwrap_or_else(|| "-".into());
        let past = shown.past(&row.key).map(|past| past.of(metric));
        let trend = sparkline(past.into_iter().flatten(), canvas.width().saturating_sub(30));
        figures.push(format!("  {:<16} {figure:>9}  {trend}", metric.name()));
        if let (Metric::Rtt, RowKey::Flow(flow)) = (metric, &row.key)
            && let Some(ns) = shown.table.shortest_rtt_ns(flow)
        {
            figures.push(format!("  {:<16} {:>9}", "shortest rtt", latency(ns)));
        }
    }
    if let RowKey::Flow(flow) = &row.key
        && let Some(limits) = shown.limits(flow)
    {
        figures.push(String::new());
        figures.push("Where its time went since dwell saw it, by the kernel's clocks".into());
        figures.extend(bar(&limits, canvas.width().saturating_sub(2).min(60)));
    }
    let mut why = vec![String::new()];
    why.extend(look.text(row, &names, shown).lines().map(|line| narrowed(line, canvas.width())));
    // A screen without room for both has the verdict first.
    let blocks = if canvas.height() < LOW { [why, figures] } else { [figures, why] };
    lines.extend(blocks.into_iter().flatten());
    let indent = |line: &str| line.len() - line.trim_start().len() + 2;
    let lines: Vec<String> = lines
        .iter()
        .flat_map(|line| match line.is_empty() {
            true => vec![String::new()],
            false => wrapped(line, canvas.width(), indent(line)),
        })
        .collect();
    let room = canvas.height().saturating_sub(3);
    *scroll = (*scroll).min(lines.len().saturating_sub(room));
    for (at, text) in lines.iter().skip(*scroll).take(room).enumerate() {
        match at + *scroll {
            0 => canvas.heading(at + 2, text),
            _ => canvas.line(at + 2, text),
        }
    }
}

/// Draws a bar of `dwell why` again, as wide as the screen; other lines stay as they are.
fn narrowed(line: &str, width: usize) -> String {
    let marks: Vec<char> = line.trim().chars().collect();
    let room = width.saturating_sub(2);
    if marks.len() <= room || marks.iter().any(|mark| !matches!(mark, '\u{2580}'..='\u{259f}')) {
        return line.to_owned();
    }
    iter::repeat_n(' ', 2).chain((0..room).map(|at| marks[at * marks.len() / room])).collect()
}

/// One bar, and what its marks stand for.
fn bar(limits: &Limits, width: usize) -> [String; 2] {
    let idle = (1.0 - limits.network - limits.receiver - limits.buffer).max(0.0);
    let parts = [
        ('█', "network", limits.network),
        ('▒', "receive window", limits.receiver),
        ('▓', "send buffer", limits.buffer),
        ('░', "idle", idle),
    ];
    let (mut bar, mut spent) = (String::from("  "), 0.0);
    let mut legend = Vec::new();
    for (mark, name, share) in parts {
        let before = (spent * width as f64).round() as usize;
        spent += share;
        let after = (spent * width as f64).round() as usize;
        bar.extend(iter::repeat_n(mark, after - before));
        legend.push(format!("{mark} {name} {:.0} %", share * 100.0));
    }
    [bar, format!("  {}", legend.join("  "))]
}
