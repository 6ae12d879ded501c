//! Tables of `dwell stack --baseline`.

use dwell_engine::layers::baseline::{Figure, LEAST_RECENT, SegmentComparison};

use super::{UNKNOWN, cell, counted, put};
use crate::{StackShift, record::figure_name};

/// Writes how many segments have shifted, then one line for each that has.
pub(super) fn comparison(shift: &StackShift<'_>, out: &mut Vec<u8>) {
    let known = || shift.compared.iter().filter(|one| one.shifted.is_some());
    let shifted = || shift.compared.iter().filter(|one| one.shifted == Some(true));
    let Some(first) = known().next() else {
        let most = shift.compared.iter().map(|one| one.intervals[1]).max();
        return put(
            out,
            format_args!(
                "  compared with the baseline: unknown before {LEAST_RECENT} intervals with bytes; so far {}\n\n",
                most.unwrap_or(0)
            ),
        );
    };
    put(
        out,
        format_args!(
            "  compared with the baseline: {} of {} shifted (its {}, and the last {})\n",
            shifted().count(),
            counted(known().count() as u64, "segment", "segments"),
            counted(first.intervals[0] as u64, "interval", "intervals"),
            first.intervals[1],
        ),
    );
    if shifted().next().is_some() {
        put(out, format_args!("{:<17}", "shifted"));
        for figure in Figure::ALL {
            put(out, format_args!("{:>9} was{:>9}", figure_name(figure), "is"));
        }
        put(out, format_args!("{:>14}{:>12}\n", "most", "by chance"));
    }
    for one in shifted() {
        line(one, out);
    }
    out.push(b'\n');
}

fn line(one: &SegmentComparison, out: &mut Vec<u8>) {
    let indent = if one.segment.part_of().is_some() { "  " } else { "" };
    let (direction, segment) = (one.segment.direction().name(), one.segment.name());
    put(out, format_args!("{:<17}", format!("{direction} {indent}{segment}")));
    for figure in Figure::ALL {
        let change = one.changes.get(&figure);
        let was = cell(change.map(|change| change.was_ns));
        let is = cell(change.map(|change| change.is_ns));
        put(out, format_args!("{was:>13}{is:>9}"));
    }
    let most = match (one.by, one.change()) {
        (Some(by), Some(change)) => format!("{} × {:.2}", figure_name(by), change.ratio()),
        _ => UNKNOWN.to_owned(),
    };
    let chance = one.chance.map_or(UNKNOWN.to_owned(), |chance| {
        // The approximation does not hold below this.
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
    use dwell_engine::layers::{
        Segment,
        baseline::{Figures, Interval, compare},
    };

    use super::*;
    use crate::{Format, Jsonl, Record, Text, formats::samples};

    /// Of two segments, of which one takes `factor` times as long.
    fn intervals(count: u64, factor: u64) -> Vec<Interval> {
        let interval = |n: u64| {
            let ns = |base: u64| Some(base + (n * 7 % 10) * base / 100);
            let figures = |base: u64| Figures { count: 50 * factor, ns: [ns(base), None, ns(base + 1_000)] };
            Interval::from([(Segment::TcpIp, figures(3_000)), (Segment::Queueing, figures(12_000_000 * factor))])
        };
        (0..count).map(interval).collect()
    }

    fn written(format: &mut dyn Format, compared: &[SegmentComparison]) -> String {
        let shift = StackShift { end_ns: 1_000_000_000, compared };
        let mut out = Vec::new();
        format.write(&Record::Shift(&shift), &samples::source(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_table_has_a_line_for_each_segment_that_has_shifted() {
        let text = written(&mut Text::default(), &compare(&intervals(40, 1), &intervals(30, 3)));
        let (table, chance) = text.rsplit_once("p50 × 3.00").unwrap();
        assert_eq!(
            table,
            "\
05:10:01.000000Z  compared with the baseline: 1 of 2 segments shifted (its 40 intervals, and the last 30)
shifted                p50 was       is      p99 was       is     mean was       is          most   by chance
tx   queueing          12.5 ms  37.4 ms            -        -      12.5 ms  37.4 ms    "
        );
        assert!(chance.ends_with(" %\n\n"), "{chance}");
    }

    #[test]
    fn a_comparison_that_is_not_possible_yet_says_so() {
        let compared = compare(&intervals(40, 1), &intervals(9, 3));
        let text = written(&mut Text::default(), &compared);
        assert!(text.ends_with("unknown before 10 intervals with bytes; so far 9\n\n"), "{text}");
        for line in written(&mut Jsonl::default(), &compared).lines() {
            let object: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(object["shifted"].is_null() && object["chance"].is_null());
            assert_eq!(object["intervals"], serde_json::json!([40, 9]));
        }
    }

    #[test]
    fn there_is_one_object_per_segment() {
        let compared = compare(&intervals(40, 1), &intervals(30, 3));
        let lines = written(&mut Jsonl::default(), &compared);
        let objects: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(objects.len(), 2);
        let [same, shifted] = [&objects[0], &objects[1]];
        assert_eq!(same["type"], "stack.shift");
        assert_eq!(same["schema"], "dwell/2");
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
