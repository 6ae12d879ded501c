//! Reads what dwell prints as JSON Lines.

use std::collections::BTreeMap;

use dwell_testbed::Nanos;
use serde_json::Value;

pub use crate::support::object;

/// Each line an object that matches the schema; all else is a failure.
pub fn objects(text: &str) -> Vec<Value> {
    text.lines().map(object).collect()
}

/// The objects of one type.
pub fn of_type(text: &str, kind: &str) -> Vec<Value> {
    let mut objects = objects(text);
    objects.retain(|object| object["type"] == kind);
    objects
}

/// The lines without processor times, which differ from run to run.
pub fn without_cost(text: &str) -> String {
    let lines = text.lines().map(|line| match (line.find(r#""cost":{"#), line.find(r#""counters":{"#)) {
        (Some(from), Some(to)) => format!("{}{}\n", &line[..from], &line[to..]),
        _ => format!("{line}\n"),
    });
    lines.collect()
}

/// The value of a key of an object, or of the flow, the latency or the counters in it.
pub fn field<'a>(object: &'a Value, key: &str) -> &'a Value {
    let parts = ["flow", "latency", "counters"].map(|part| &object[part]);
    let found = parts.into_iter().find_map(|part| part.get(key));
    object.get(key).or(found).unwrap_or_else(|| panic!("{object} has no {key}"))
}

pub fn number(object: &Value, key: &str) -> u64 {
    field(object, key).as_u64().unwrap_or_else(|| panic!("{key} of {object} is no number"))
}

pub fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    field(object, key).as_str().unwrap_or_else(|| panic!("{key} of {object} is no text"))
}

/// Scope time was measured, and how.
pub type Key = (String, String);

/// Round trips in nanoseconds by method and who answered, each in the order of their lines.
pub fn round_trips(samples: &[Value]) -> BTreeMap<Key, Vec<u64>> {
    let mut trips = BTreeMap::<Key, Vec<u64>>::new();
    for sample in samples {
        let key = (text(sample, "method").into(), text(sample, "dst").into());
        trips.entry(key).or_default().push(number(sample, "rtt_ns"));
    }
    trips
}

/// How many of each.
pub fn counts(trips: &BTreeMap<Key, Vec<u64>>) -> BTreeMap<Key, usize> {
    let count = |(key, values): (&Key, &Vec<u64>)| (key.clone(), values.len());
    trips.iter().map(count).collect()
}

/// The middle one of the sorted values; the lower of two.
pub fn median(values: &[u64]) -> Nanos {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    Nanos(sorted[(sorted.len() - 1) / 2])
}

/// Returns the names and numbers of the counter line at the end of a run's standard error.
pub fn counters(stderr: &str) -> BTreeMap<String, u64> {
    let line = stderr
        .lines()
        .find_map(|line| line.strip_prefix("dwell: ").filter(|rest| is_counters(rest)))
        .unwrap_or_else(|| panic!("no counter line in: {stderr}"));
    line.split(", ")
        .map(|part| {
            let (number, name) = part.split_once(' ').unwrap();
            (plural(name), number.parse().unwrap())
        })
        .collect()
}

fn is_counters(line: &str) -> bool {
    line.contains(" packet") && (line.contains(" lost, ") || line.ends_with(" lost"))
}

/// The name of a counter, however many there are.
fn plural(name: &str) -> String {
    let (noun, rest) = name.split_once(' ').unwrap_or((name, ""));
    let noun = match noun {
        "byte" | "event" | "flow" | "packet" | "sample" | "stamp" => format!("{noun}s"),
        _ => noun.to_owned(),
    };
    format!("{noun} {rest}").trim_end().to_owned()
}
