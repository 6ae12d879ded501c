//! Segments beside their baseline, as a table and as objects.

use dwell_engine::layers::{
    Segment,
    baseline::{Compared, Figure, LEAST_RECENT},
};
use serde::Serialize;

use super::{
    Latency, counted,
    stack::{SCHEMA, UNKNOWN, put},
};
use crate::{Source, StackShift, Timestamps};

/// `type` "stack-shift": whether a segment has shifted. Pairs are the baseline and
/// now; what is not known is null.
#[derive(Serialize)]
struct Object<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    schema: &'a str,
    time: Option<&'a str>,
    host: &'a str,
    segment: &'a str,
    direction: &'a str,
    part_of: Option<&'a str>,
    shifted: Option<bool>,
    /// The figure that says most.
    by: Option<&'a str>,
    ratio: Option<f64>,
    chance: Option<f64>,
    intervals: [usize; 2],
    bytes: [u64; 2],
    p50_ns: Option<[u64; 2]>,
    p99_ns: Option<[u64; 2]>,
    mean_ns: Option<[u64; 2]>,
}

fn name(figure: Figure) -> &'static str {
    match figure {
        Figure::Median => "p50",
        Figure::P99 => "p99",
        Figure::Mean => "mean",
    }
}

/// Writes an object a segment that the baseline knows.
pub(super) fn jsonl(shift: &StackShift<'_>, times: &mut Timestamps, source: &Source, out: &mut Vec<u8>) {
    let time = times.rfc3339(source.clock.unix_ns(shift.end_ns));
    for one in shift.compared {
        let change = |figure| one.changes.get(&figure);
        let pair = |figure| change(figure).map(|change| [change.was_ns, change.is_ns]);
        let object = Object {
            kind: "stack-shift",
            schema: SCHEMA,
            time,
            host: shift.host,
            segment: one.segment.name(),
            direction: one.segment.direction().name(),
            part_of: one.segment.part_of().map(Segment::name),
            shifted: one.shifted,
            by: one.by.map(name),
            ratio: one.change().map(|change| (change.ratio() * 1e6).round() / 1e6),
            chance: one.chance,
            intervals: one.intervals,
            bytes: one.bytes,
            p50_ns: pair(Figure::Median),
            p99_ns: pair(Figure::P99),
            mean_ns: pair(Figure::Mean),
        };
        serde_json::to_writer(&mut *out, &object).expect("plain data becomes JSON");
        out.push(b'\n');
    }
}

/// Writes the rest of the line that begins with the time, then a line a segment that has
/// shifted.
pub(super) fn text(shift: &StackShift<'_>, out: &mut Vec<u8>) {
    let known = || shift.compared.iter().filter(|one| one.shifted.is_some());
    let shifted = || shift.compared.iter().filter(|one| one.shifted == Some(true));
    let Some(first) = known().next() else {
        let most = shift.compared.iter().map(|one| one.intervals[1]).max();
        return put(
            out,
            format_args!(
                "  beside the baseline: not known before {LEAST_RECENT} intervals with bytes, of \
                 which there are {}\n\n",
                most.unwrap_or(0)
            ),
        );
    };
    put(
        out,
        format_args!(
            "  beside the baseline: {} of {} shifted (its {} beside the last {})\n",
            shifted().count(),
            counted(known().count() as u64, "segments"),
            counted(first.intervals[0] as u64, "intervals"),
            first.intervals[1],
        ),
    );
    if shifted().next().is_some() {
        put(out, format_args!("{:<17}", "shifted"));
        for figure in Figure::ALL {
            put(out, format_args!("{:>9} was{:>9}", name(figure), "is"));
        }
        put(out, format_args!("{:>14}{:>12}\n", "most", "by chance"));
    }
    for one in shifted() {
        line(one, out);
    }
    out.push(b'\n');
}

fn line(one: &Compared, out: &mut Vec<u8>) {
    let indent = if one.segment.part_of().is_some() { "  " } else { "" };
    let (direction, segment) = (one.segment.direction().name(), one.segment.name());
    put(out, format_args!("{:<17}", format!("{direction} {indent}{segment}")));
    for figure in Figure::ALL {
        let change = one.changes.get(&figure);
        let cell = |ns: Option<u64>| ns.map_or(UNKNOWN.into(), |ns| Latency(ns).to_string());
        let was = cell(change.map(|change| change.was_ns));
        let is = cell(change.map(|change| change.is_ns));
        put(out, format_args!("{was:>13}{is:>9}"));
    }
    let most = match (one.by, one.change()) {
        (Some(by), Some(change)) => format!("{} × {:.2}", name(by), change.ratio()),
        _ => UNKNOWN.to_owned(),
    };
    let chance = one.chance.map_or(UNKNOWN.to_owned(), |chance| {
        // Below that, the approximation has nothing to say.
        const LEAST: f64 = 1e-6;
        match chance < LEAST {
            true => "< 0.0001 %".to_owned(),
            false => format!("{:.4} %", chance * 100.0),
        }
    });
    put(out, format_args!("{most:>14}{chance:>12}\n"));
}

#[cfg(test)]
mod tests {
    use dwell_engine::layers::baseline::{Figures, Interval, compare};

    use super::*;
    use crate::{Format, Jsonl, Text, formats::samples};

    /// Of two segments, of which one takes `factor` times as long.
    fn intervals(count: u64, factor: u64) -> Vec<Interval> {
        let interval = |n: u64| {
            let ns = |base: u64| Some(base + (n * 7 % 10) * base / 100);
            let figures = |base: u64| Figures { count: 50 * factor, ns: [ns(base), None, ns(base + 1_000)] };
            Interval::from([(Segment::TcpIp, figures(3_000)), (Segment::Queueing, figures(12_000_000 * factor))])
        };
        (0..count).map(interval).collect()
    }

    fn written(format: &mut dyn Format, compared: &[Compared]) -> String {
        let shift = StackShift { end_ns: 1_000_000_000, host: "here", compared };
        let mut out = Vec::new();
        format.shift(&shift, &samples::source(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_table_has_a_line_a_segment_that_has_shifted() {
        let text = written(&mut Text::default(), &compare(&intervals(40, 1), &intervals(30, 3)));
        let (table, chance) = text.rsplit_once("p50 × 3.00").unwrap();
        assert_eq!(
            table,
            "\
05:10:01.000000Z  beside the baseline: 1 of 2 segments shifted (its 40 intervals beside the last 30)
shifted                p50 was       is      p99 was       is     mean was       is          most   by chance
tx   queueing          12.5 ms  37.4 ms            -        -      12.5 ms  37.4 ms    "
        );
        assert!(chance.ends_with(" %\n\n"), "{chance}");
    }

    #[test]
    fn what_is_not_known_is_said() {
        let compared = compare(&intervals(40, 1), &intervals(9, 3));
        let text = written(&mut Text::default(), &compared);
        assert!(text.ends_with("not known before 10 intervals with bytes, of which there are 9\n\n"), "{text}");
        for line in written(&mut Jsonl::default(), &compared).lines() {
            let object: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(object["shifted"].is_null() && object["chance"].is_null());
            assert_eq!(object["intervals"], serde_json::json!([40, 9]));
        }
    }

    #[test]
    fn an_object_a_segment() {
        let compared = compare(&intervals(40, 1), &intervals(30, 3));
        let lines = written(&mut Jsonl::default(), &compared);
        let objects: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(objects.len(), 2);
        let [same, shifted] = [&objects[0], &objects[1]];
        assert_eq!(same["type"], "stack-shift");
        assert_eq!(same["schema"], "dwell.stack/1");
        assert_eq!((&same["segment"], &same["shifted"]), (&"tcp-ip".into(), &false.into()));
        assert_eq!(shifted["segment"], "queueing");
        assert_eq!((&shifted["direction"], &shifted["part_of"]), (&"tx".into(), &"ip-driver".into()));
        assert_eq!(shifted["shifted"], true);
        assert_eq!(shifted["ratio"], 3.0);
        assert!(shifted["chance"].as_f64().unwrap() < 0.01);
        assert_eq!(shifted["bytes"], serde_json::json!([50, 150]));
        assert_eq!(shifted["p50_ns"], serde_json::json!([12_480_000, 37_440_000]));
        assert!(shifted["p99_ns"].is_null());
    }
}
