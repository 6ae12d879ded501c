//! `--fail-if`: conditions on the rows of a table.

use dwell_engine::{
    histogram::Figure,
    top::{Metric, Row},
};
use dwell_records::Verdict;

use crate::fail_if::{self, Conditions, Latencies, Vocabulary};

/// The metrics that conditions can be about: those that are times.
const TIMES: [Metric; 3] = [Metric::Rtt, Metric::Response, Metric::SendBuffer];

/// Parses conditions on the rows' times.
pub fn conditions(text: &str) -> Result<Conditions, String> {
    let names = TIMES.map(|metric| metric.name().to_owned()).into();
    fail_if::parse(text, &Vocabulary { kind: "metric", names, figures: &Figure::ALL })
}

/// Compares the distributions of the rows' times with conditions; `None` without conditions.
pub fn of(conditions: &[Conditions], rows: &[Row]) -> Option<Verdict> {
    let mut latencies = Latencies::new(conditions);
    for metric in TIMES {
        let times = rows.iter().filter_map(|row| row.figures.value(metric));
        latencies.add(metric.name(), |histogram| times.for_each(|ns| histogram.record(ns)));
    }
    let find = |name: Option<&str>| {
        let metric = TIMES.into_iter().find(|metric| Some(metric.name()) == name).unwrap_or(Metric::Rtt);
        vec![(Some(metric.name().to_owned()), vec![metric.name()])]
    };
    latencies.judge(find).cloned()
}

#[cfg(test)]
mod tests {
    use dwell_engine::top::{Figures, RowKey};

    use super::*;

    #[test]
    fn a_condition_is_about_the_times_of_all_rows() {
        let row = |rtt_ns, send_buffer_ns| Row {
            key: RowKey::Process(None),
            flows: 1,
            pid: None,
            figures: Figures { rtt_ns, send_buffer_ns, ..Figures::default() },
            last_rtt_ns: None,
            role: None,
        };
        let rows = [row(Some(30_000_000), Some(5)), row(Some(20_000_000), None), row(None, None)];
        let failed = |text: &str| {
            let verdict = of(&[conditions(text).unwrap()], &rows).unwrap();
            (verdict.failed, verdict.conditions[0].count, verdict.conditions[0].holds)
        };
        assert_eq!(failed("max>29ms"), (true, 2, Some(true)));
        assert_eq!(failed("rtt min<20ms"), (false, 2, Some(false)));
        assert_eq!(failed("send-buffer max>1ms"), (false, 1, Some(false)));
        assert_eq!(failed("response max>1s"), (true, 0, None), "nobody knows");
        assert_eq!(failed("count<3"), (true, 2, Some(true)));
        assert!(of(&[], &rows).is_none());
        assert!(conditions("rate max>1s").unwrap_err().contains("'rate' is not a metric"));
    }
}
