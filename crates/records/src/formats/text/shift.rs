//! Tables of `--baseline`.

use dwell_engine::{
    baseline::{Comparison, Figure, LEAST_RECENT},
    labels::harmless,
};

use super::{Colour, UNKNOWN, cell, counted, put};
use crate::{
    Shift,
    shift::{ShiftKey, figure_name},
};

/// Writes how many segments or groups have shifted, then one line for each that has.
pub(super) fn comparison(shift: &Shift<'_>, colour: Colour, out: &mut Vec<u8>) {
    let ((one, many), samples) = Shift::nouns(shift.verb);
    let known = || shift.compared.iter().filter(|one| one.shifted.is_some());
    let shifted = || shift.compared.iter().filter(|one| one.shifted == Some(true));
    let intervals = |side: usize| shift.compared.iter().map(|one| one.intervals[side]).max().unwrap_or(0);
    if known().next().is_none() {
        return put(
            out,
            format_args!(
                "  compared with the baseline: unknown before {LEAST_RECENT} intervals with {samples}; so far {}\n\n",
                intervals(1)
            ),
        );
    }
    put(
        out,
        format_args!(
            "  compared with the baseline: {} of {} shifted (its {}, and the last {})\n",
            shifted().count(),
            counted(known().count() as u64, one, many),
            counted(intervals(0) as u64, "interval", "intervals"),
            intervals(1),
        ),
    );
    let names: Vec<_> = shifted().map(|one| name(&one.key)).collect();
    let width = names.iter().map(|name| name.chars().count() + 1).fold(17, usize::max);
    if !names.is_empty() {
        put(out, format_args!("{:<width$}", "shifted"));
        for figure in Figure::ALL {
            put(out, format_args!("{:>9} was{:>9}", figure_name(figure), "is"));
        }
        put(out, format_args!("{:>14}{:>12}\n", "most", "by chance"));
    }
    for (one, name) in shifted().zip(&names) {
        put(out, format_args!("{name:<width$}"));
        line(one, colour, out);
    }
    out.push(b'\n');
}

/// Returns the name of a line. Segments that are part of another are indented.
fn name(key: &ShiftKey) -> String {
    match key {
        ShiftKey::Segment(segment) if segment.part_of().is_some() => {
            format!("{}   {}", segment.direction().name(), segment.name())
        }
        key => harmless(&key.to_string()),
    }
}

fn line(one: &Comparison<ShiftKey>, colour: Colour, out: &mut Vec<u8>) {
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
    put(out, format_args!("{}{chance:>12}\n", colour.alarm(format_args!("{most:>14}"))));
}

#[cfg(test)]
mod tests {
    use dwell_engine::{
        baseline::{Figures, Interval, compare},
        layers::Segment,
    };

    use super::*;
    use crate::{Format, Jsonl, Record, ResponseKey, RoundTripKey, Text, Verb, formats::samples};

    /// Of two segments, of which one takes `factor` times as long.
    fn intervals(count: u64, factor: u64) -> Vec<Interval<ShiftKey>> {
        let interval = |n: u64| {
            let ns = |base: u64| Some(base + (n * 7 % 10) * base / 100);
            let figures = |base: u64| Figures { count: 50 * factor, ns: [ns(base), None, ns(base + 1_000)] };
            let [ip, queue] = [Segment::TcpIp, Segment::Queueing].map(ShiftKey::Segment);
            Interval::from([(ip, figures(3_000)), (queue, figures(12_000_000 * factor))])
        };
        (0..count).map(interval).collect()
    }

    fn written(format: &mut dyn Format, compared: &[Comparison<ShiftKey>]) -> String {
        let shift = Shift { verb: Verb::Stack, end_ns: 1_000_000_000, interval_ns: 1_000_000_000, compared };
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
        assert_eq!(shifted["samples"], serde_json::json!([50, 150]));
        assert_eq!(shifted["p50_ns"], serde_json::json!([12_480_000, 37_440_000]));
        assert!(shifted["p99_ns"].is_null());
    }

    /// The key of a group or server is written as names, in the text and in the object.
    #[test]
    fn round_trips_and_responses_are_compared_by_group_and_server() {
        let group = RoundTripKey {
            prefix: "192.0.2.0/24".to_owned(),
            name: Some("office".to_owned()),
            method: "tcp-timestamp".to_owned(),
            interface: Some("eth\u{1b}0".to_owned()),
            tunnel: Some("vlan 7".to_owned()),
        };
        let server = ResponseKey {
            server: Some("2001:db8::1".parse().unwrap()),
            port: Some(443),
            proto: Some("TCP".to_owned()),
            prefix: None,
            method: "turns".to_owned(),
        };
        for (key, name, kind) in [
            (
                ShiftKey::RoundTrips(group),
                "192.0.2.0/24 office tcp-timestamp on eth\u{fffd}0 vlan 7  12.0 ms",
                "rtt.shift",
            ),
            (ShiftKey::Responses(server), "TCP [2001:db8::1]:443 turns  12.0 ms", "response.shift"),
        ] {
            let times =
                |count, ns| vec![Interval::from([(key.clone(), Figures { count: 50, ns: [Some(ns); 3] })]); count];
            let compared = compare(&times(40, 12_000_000), &times(30, 36_000_000));
            let lines = written(&mut Jsonl::default(), &compared);
            let object: serde_json::Value = serde_json::from_str(&lines).unwrap();
            assert_eq!((&object["type"], &object["samples"]), (&kind.into(), &serde_json::json!([50, 50])));
            assert!(object["method"].is_string() && object["prefix"].is_string() != object["server"].is_string());
            let text = written(&mut Text::default(), &compared);
            let line = text.lines().nth(2).unwrap();
            assert!(
                line.split_whitespace().collect::<Vec<_>>().join(" ").starts_with(&name.replace("  ", " ")),
                "{line}"
            );
        }
    }
}
