//! Reads what dwell prints as JSON Lines.

use std::collections::BTreeMap;

use dwell_testbed::Nanos;
use serde_json::Value;

/// Each line an object with a type and the schema; all else is a failure.
pub fn objects(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| {
            let object: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert_eq!(object["schema"], "dwell.rtt/1", "{line}");
            assert!(object["type"].is_string(), "{line}");
            object
        })
        .collect()
}

/// The objects of one type.
pub fn of_type(text: &str, kind: &str) -> Vec<Value> {
    let mut objects = objects(text);
    objects.retain(|object| object["type"] == kind);
    objects
}

pub fn number(object: &Value, key: &str) -> u64 {
    object[key].as_u64().unwrap_or_else(|| panic!("{key} of {object} is no number"))
}

pub fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object[key].as_str().unwrap_or_else(|| panic!("{key} of {object} is no text"))
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

/// The counter line at the end of what is told to a person: its names and numbers.
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
