//! Prometheus text exposition format 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats).

use std::fmt::{Arguments, Display, Write};

use dwell_engine::histogram::Histogram;

use crate::{Family, Kind};

/// The text of a scrape while it is written.
#[derive(Debug, Default)]
pub struct Exposition(String);

impl Exposition {
    /// Starts a family. All its samples must follow before the next family starts.
    pub fn family(&mut self, family: &Family) {
        let Family { name, kind, help, .. } = family;
        self.put(format_args!("# HELP {name} {help}\n# TYPE {name} {}\n", kind.name()));
    }

    /// Writes one sample; `values` are those of the family's labels, in their order.
    pub fn sample<L: AsRef<str>>(&mut self, family: &Family, values: &[L], value: impl Display) {
        let (name, labels) = (family.name, labels(family, values));
        match labels.as_str() {
            "" => self.put(format_args!("{name} {value}\n")),
            _ => self.put(format_args!("{name}{{{labels}}} {value}\n")),
        }
    }

    /// Writes one histogram of a histogram family, with bounds and sum in seconds. A bucket of the engine is counted
    /// below the first bound that is not less than its greatest value, so that no value appears below a bound that it
    /// exceeds.
    pub fn histogram<L: AsRef<str>>(&mut self, family: &Family, values: &[L], histogram: &Histogram) {
        let Kind::Histogram(bounds_ns) = family.kind else {
            return debug_assert!(false, "{} is not declared as a histogram", family.name);
        };
        let (name, labels) = (family.name, labels(family, values));
        let mut buckets = histogram.buckets().peekable();
        let mut below = 0;
        for bound_ns in bounds_ns {
            while let Some((_, _, count)) = buckets.next_if(|(_, high, _)| high - 1 <= *bound_ns) {
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

    pub(crate) fn finish(self) -> String {
        self.0
    }

    fn put(&mut self, text: Arguments<'_>) {
        self.0.write_fmt(text).expect("writing to a String cannot fail");
    }
}

/// Formats labels as they stand between the braces.
fn labels<L: AsRef<str>>(family: &Family, values: &[L]) -> String {
    debug_assert_eq!(family.labels.len(), values.len(), "labels of {}", family.name);
    let mut text = String::new();
    for (name, value) in family.labels.iter().zip(values) {
        let value = value.as_ref().replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let comma = if text.is_empty() { "" } else { "," };
        text += &format!("{comma}{name}=\"{value}\"");
    }
    text
}

/// Converts nanoseconds to seconds, the base unit of times in metrics.
pub fn seconds(ns: u128) -> f64 {
    ns as f64 / 1e9
}
