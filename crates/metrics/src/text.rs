//! Prometheus text exposition format 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats).

use std::fmt::{self, Display, Write};

use crate::{
    Family, Kind, Number, Snapshot, seconds,
    snapshot::{Distribution, Series, Value},
};

/// Formats all families of a snapshot.
pub fn text(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for (family, series) in &snapshot.families {
        let Family { name, kind, help, .. } = family;
        let written = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {}", kind.name())
            .and_then(|()| series.iter().try_for_each(|series| write_series(&mut text, family, series)));
        written.expect("writing to a String cannot fail");
    }
    text
}

fn write_series(text: &mut String, family: &Family, series: &Series) -> fmt::Result {
    let (name, labels) = (family.name, labels(family, &series.labels));
    match &series.value {
        Value::Number(value) if labels.is_empty() => writeln!(text, "{name} {value}"),
        Value::Number(value) => writeln!(text, "{name}{{{labels}}} {value}"),
        Value::Distribution(Distribution { up_to, count, sum_seconds, .. }) => {
            let Kind::Histogram(bounds_ns) = family.kind else {
                return Ok(());
            };
            for (bound_ns, below) in bounds_ns.iter().zip(up_to) {
                let le = seconds((*bound_ns).into());
                writeln!(text, "{name}_bucket{{{labels},le=\"{le}\"}} {below}")?;
            }
            writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}")?;
            writeln!(text, "{name}_sum{{{labels}}} {sum_seconds}\n{name}_count{{{labels}}} {count}")
        }
    }
}

impl Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Count(count) => count.fmt(f),
            Number::Real(real) => real.fmt(f),
        }
    }
}

/// Formats labels as they stand between the braces.
fn labels(family: &Family, values: &[String]) -> String {
    let mut text = String::new();
    for (name, value) in family.labels.iter().zip(values) {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let comma = if text.is_empty() { "" } else { "," };
        text += &format!("{comma}{name}=\"{value}\"");
    }
    text
}
