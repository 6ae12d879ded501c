//! The page of one row: its figures, where its time goes, and what `dwell why` says.

use dwell_engine::{
    names::EndNames,
    top::{Limits, Metric, RowKey},
};
use dwell_records::counted;

use super::{
    app::{App, Page},
    columns::{sparkline, value},
    draw::Canvas,
    label::{line, names_of, protocol},
    shown::Shown,
};

/// Draws the page below the title.
pub fn draw(app: &mut App, shown: &Shown, canvas: &mut Canvas<'_>) {
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
    lines.push(String::new());
    for metric in Metric::ALL {
        let figure = value(&row.figures, metric).unwrap_or_else(|| "-".into());
        let past = shown.past(&row.key).map(|past| past.of(metric));
        let trend = sparkline(past.into_iter().flatten(), canvas.width().saturating_sub(30));
        lines.push(format!("  {:<16} {figure:>9}  {trend}", metric.name()));
    }
    if let RowKey::Flow(flow) = &row.key
        && let Some(limits) = shown.limits(flow)
    {
        lines.push(String::new());
        lines.push("Where its time went since dwell saw it, by the kernel's clocks".into());
        lines.extend(bar(&limits, canvas.width().saturating_sub(2).min(60)));
    }
    lines.push(String::new());
    lines.extend(look.text(row, &names, shown).lines().map(str::to_owned));
    let room = canvas.height().saturating_sub(3);
    *scroll = (*scroll).min(lines.len().saturating_sub(room));
    for (at, text) in lines.iter().skip(*scroll).take(room).enumerate() {
        match at + *scroll {
            0 => canvas.heading(at + 2, text),
            _ => canvas.line(at + 2, text),
        }
    }
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
        bar.extend(std::iter::repeat_n(mark, after - before));
        legend.push(format!("{mark} {name} {:.0} %", share * 100.0));
    }
    [bar, format!("  {}", legend.join("  "))]
}
