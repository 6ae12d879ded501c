//! Prometheus text exposition format 0.0.4
//! (prometheus.io/docs/instrumenting/exposition_formats).

use std::fmt::{Arguments, Display, Write};

use dwell_engine::histogram::Histogram;

/// The text, as far as it is written.
#[derive(Debug, Default)]
pub(super) struct Exposition(String);

impl Exposition {
    /// Begins a family. All its samples must follow before the next begins.
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.put(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels = escaped(labels);
        match labels.as_str() {
            "" => self.put(format_args!("{name} {value}\n")),
            _ => self.put(format_args!("{name}{{{labels}}} {value}\n")),
        }
    }

    /// One histogram. A bucket of ours counts below the first bound that is not
    /// less than its greatest value, so that no value shows below a bound
    /// that it exceeds. `labels` must not be empty.
    pub(super) fn histogram(&mut self, name: &str, labels: &[(&str, &str)], bounds_ns: &[u64], histogram: &Histogram) {
        let labels = escaped(labels);
        let mut ours = histogram.buckets().peekable();
        let mut below = 0;
        for bound_ns in bounds_ns {
            while let Some((_, _, count)) = ours.next_if(|(_, high, _)| high - 1 <= *bound_ns) {
                below += count;
            }
            let le = seconds((*bound_ns).into());
            self.put(format_args!("{name}_bucket{{{labels},le=\"{le}\"}} {below}\n"));
        }
        let (count, sum) = (histogram.count(), seconds(histogram.sum_ns()));
        self.put(format_args!(
            "{name}_bucket{{{labels},le=\"+Inf\"}} {count}\n\
             {name}_sum{{{labels}}} {sum}\n\
             {name}_count{{{labels}}} {count}\n"
        ));
    }

    pub(super) fn finish(self) -> String {
        self.0
    }

    fn put(&mut self, text: Arguments<'_>) {
        self.0.write_fmt(text).expect("a String takes all");
    }
}

/// What stands between the braces.
fn escaped(labels: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let comma = if text.is_empty() { "" } else { "," };
        text += &format!("{comma}{name}=\"{value}\"");
    }
    text
}

/// The base unit of metrics.
pub(super) fn seconds(ns: u128) -> f64 {
    ns as f64 / 1e9
}
