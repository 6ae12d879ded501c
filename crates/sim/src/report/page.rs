//! One page of HTML with tables and charts, which needs nothing else.

use dwell_chart::{Axis, Chart, Line, Scale, drawing};

use super::Part;
use crate::{Distribution, Policy, study::Summary};

/// The tables, and below them charts of each part.
pub fn page(text: &str, parts: &[Part]) -> String {
    let mut charts = Vec::new();
    for part in parts {
        let servers = part.summaries.first().map_or(0, |first| first.servers);
        if part.summaries.iter().any(|summary| summary.servers != servers) {
            charts.extend(by_servers(part));
        } else if part.name != part.title {
            charts.extend(distributions(part));
            charts.extend(over_time(part));
        }
    }
    let svg = drawing("", &charts);
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>dwell sim</title>\n\
         <pre style=\"font-size: 13px\">{text}</pre>\n{svg}</html>\n"
    )
}

/// Told apart by people with any kind of sight for colours (Okabe and Ito).
fn colour(policy: Policy) -> &'static str {
    match policy {
        Policy::ZeroRtt => "#d55e00",
        Policy::ZeroRttOff => "#e69f00",
        Policy::LeastLoaded => "#0072b2",
        Policy::LeastReported => "#999999",
        Policy::PowerOfTwo => "#56b4e9",
        Policy::SessionAffinity => "#009e73",
        Policy::Latency => "#cc79a7",
        Policy::Maglev => "#000000",
    }
}

fn line(policy: Policy, points: Vec<(f64, f64)>) -> Line {
    Line {
        label: policy.name().to_owned(),
        colour: colour(policy),
        broad: false,
        dashed: policy == Policy::ZeroRttOff,
        dotted: false,
        pieces: vec![points],
    }
}

fn axis(label: &str, range: (f64, f64)) -> Axis {
    Axis { label: label.to_owned(), scale: Scale::Linear, range }
}

fn distributions(part: &Part) -> Vec<Chart> {
    let chart = |what: &str, of: fn(&Summary) -> &Distribution| Chart {
        title: format!("{what}: {}", part.title),
        x: axis("over what it would be with 0-RTT and without waiting", (1.0, 4.0)),
        y: axis("part of connections", (0.0, 1.0)),
        lines: part
            .summaries
            .iter()
            .map(|summary| {
                let distribution = of(summary);
                let count = distribution.count().max(1) as f64;
                let points = distribution.points().map(|(ratio, up_to)| (ratio, up_to as f64 / count));
                line(summary.policy, points.collect())
            })
            .collect(),
    };
    vec![
        chart("Time to first byte", |summary| &summary.all_first_byte),
        chart("Flow completion time", |summary| &summary.all_completion),
    ]
}

fn over_time(part: &Part) -> Vec<Chart> {
    let samples = |summary: &Summary| summary.samples.clone();
    let all = || part.summaries.iter().flat_map(samples);
    let end = all().map(|sample| sample.time_s).fold(0.0, f64::max);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.01, f64::max) * 1.1;
    let busy = most(&mut all().map(|sample| sample.busy));
    let load = most(&mut all().map(|sample| sample.load_ms));
    let imbalance = most(&mut all().filter_map(|sample| sample.imbalance));
    if end == 0.0 {
        return Vec::new();
    }
    let chart = |title: &str, y: Axis, of: &dyn Fn(&crate::LoadSample) -> Option<f64>| Chart {
        title: format!("{title}, first run: {}", part.title),
        x: axis("time, s", (0.0, end)),
        y,
        lines: part
            .summaries
            .iter()
            .map(|summary| {
                let points = summary.samples.iter().filter_map(|sample| Some((sample.time_s, of(sample)?)));
                line(summary.policy, points.collect())
            })
            .collect(),
    };
    vec![
        chart("Busy servers", axis("part of time that servers are busy", (0.0, busy)), &|sample| Some(sample.busy)),
        chart("Mean load", axis("service time present at a server, ms", (0.0, load)), &|sample| Some(sample.load_ms)),
        chart("Imbalance", axis("most loaded server over mean", (0.0, imbalance)), &|sample| sample.imbalance),
    ]
}

fn by_servers(part: &Part) -> Vec<Chart> {
    let servers = part.summaries.iter().map(|summary| summary.servers as f64);
    let range = servers.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), n| (low.min(n), high.max(n)));
    let mut policies: Vec<Policy> = part.summaries.iter().map(|summary| summary.policy).collect();
    policies.sort_by_key(|policy| policy.name());
    policies.dedup();
    let chart = |title: &str, label: &str, of: &dyn Fn(&Summary) -> Option<f64>| {
        let most = part.summaries.iter().filter_map(of).fold(0.01, f64::max) * 1.1;
        let lines = policies.iter().map(|policy| {
            let own = part.summaries.iter().filter(|summary| summary.policy == *policy);
            let points = own.filter_map(|summary| Some((summary.servers as f64, of(summary)?)));
            Line { dotted: true, ..line(*policy, points.collect()) }
        });
        Chart {
            title: format!("{title}: {}", part.title),
            x: axis("servers", range),
            y: axis(label, (0.0, most)),
            lines: lines.collect(),
        }
    };
    vec![
        chart("Time to first byte, p60", "normalised", &|summary| summary.first_byte_at(0.6)),
        chart("Flow completion time, p60", "normalised", &|summary| summary.completion_at(0.6)),
        chart("Load", "service time present at a server, ms", &|summary| Some(summary.load_ms?.mean)),
        chart("Imbalance", "most loaded server over mean", &|summary| Some(summary.imbalance?.mean)),
        chart("0-RTT", "part of possible connections", &|summary| Some(summary.used_share?.mean)),
    ]
}
