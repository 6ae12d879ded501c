//! `dwell schema`, and the page of the documentation that it generates. All that verbs print as JSON is held to it by
//! [`object`](crate::support::object), through which the tests read it.

use std::fs;

use serde_json::{Value, json};

use crate::{
    records::objects,
    support::dwell,
    wire::{capture, everyday},
};

fn schema() -> Value {
    serde_json::from_str(&dwell(&["schema"]).stdout).unwrap()
}

#[test]
fn each_type_is_an_area_and_a_kind_with_the_same_header() {
    let schema = schema();
    let kinds: Vec<&str> =
        schema["oneOf"].as_array().unwrap().iter().map(|one| one["$ref"].as_str().unwrap()).collect();
    assert!(kinds.len() > 25, "{kinds:?}");
    for kind in kinds {
        let kind = kind.strip_prefix("#/$defs/").unwrap();
        let (area, rest) = kind.split_once('.').unwrap();
        let is_kebab = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        assert!(is_kebab(area) && is_kebab(rest), "{kind}");
        let object = &schema["$defs"][kind];
        assert_eq!(object["properties"]["type"]["const"], kind);
        let required = object["required"].as_array().unwrap();
        assert_eq!(required[..4], ["type", "schema", "time", "host"], "{kind}");
        for (key, value) in object["properties"].as_object().unwrap() {
            let is_described =
                value["description"].is_string() || value["$ref"].is_string() || value["anyOf"].is_array();
            assert!(is_described, "{kind}: {key} {value}");
        }
    }
}

/// Keys of which all values are known say them, so that a program can be checked against them.
#[test]
fn keys_with_known_values_list_them() {
    let schema = schema();
    let values = |kind: &str, key: &str| schema["$defs"][kind]["properties"][key]["enum"].clone();
    let closes = json!(["fin", "rst", "idle", "answered", "evicted", "end", "reused", null]);
    for (kind, key, known) in [
        ("rtt.flow", "event", json!(["open", "first-rtt", "close"])),
        ("rtt.flow", "reason", closes),
        ("response.epoch", "key", json!(["5tuple", "ip-pair", "esp", "wireguard", "quic-cid", "outer"])),
        ("stack.segment", "direction", json!(["tx", "rx"])),
        ("stack.byte", "direction", json!(["tx", "rx"])),
        ("stack.shift", "direction", json!(["tx", "rx"])),
        ("collect.segment", "direction", json!(["tx", "rx", null])),
        ("why.verdict", "outcome", json!(["slow", "healthy", "no-traffic", "not-enough"])),
        ("why.verdict", "certainty", json!(["sure", "likely", "possible", null])),
    ] {
        assert_eq!(values(kind, key), known, "{kind}: {key}");
    }
    // No other key of one of these names is just any string.
    for (kind, object) in schema["$defs"].as_object().unwrap() {
        for key in ["event", "key", "direction", "outcome", "seen", "fate"] {
            let value = &object["properties"][key];
            assert!(value.is_null() || value["type"] != "string" || value["enum"].is_array(), "{kind}: {key} {value}");
        }
    }
}

#[test]
fn the_page_of_the_documentation_has_its_tables() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema.md");
    let page = fs::read_to_string(path).unwrap();
    let (_, tables) = page.split_once("<!-- dwell schema --markdown -->\n").unwrap();
    assert_eq!(tables, dwell(&["schema", "--markdown"]).stdout, "replace what follows the mark in docs/schema.md");
}

#[test]
fn one_flow_has_one_id_in_rtt_and_response() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), capture(&everyday())).unwrap();
    let ids = |verb: &str| {
        let run = dwell(&[verb, "--format", "jsonl", "-r", file.path().to_str().unwrap()]);
        let flows = objects(&run.stdout).into_iter().map(|object| object["flow"].clone());
        let mut ids: Vec<String> = flows
            .filter(|flow| flow["proto"] == "TCP" && [&flow["sport"], &flow["dport"]].contains(&&40_000.into()))
            .map(|flow| flow["id"].as_str().unwrap().to_owned())
            .collect();
        assert!(!ids.is_empty(), "{run}");
        ids.dedup();
        ids
    };
    assert_eq!(ids("rtt"), ids("response"));
    assert_eq!(ids("rtt").len(), 1);
}

#[test]
fn response_says_in_its_last_object_what_was_lost() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), capture(&everyday())).unwrap();
    let run = dwell(&["response", "--format", "jsonl", "-r", file.path().to_str().unwrap()]);
    let status = objects(&run.stdout).pop().unwrap();
    assert_eq!((&status["type"], &status["last"]), (&"response.status".into(), &true.into()), "{run}");
    assert_eq!((&status["lost"], &status["counters"]["packets"]), (&0.into(), &everyday().len().into()), "{run}");
}

/// Words for one thing: the one that keys, columns and metrics have, and those that they do not have.
const WORDS: [(&str, &[&str]); 4] = [
    ("retransmitted", &["retransmission", "retransmissions", "resent", "again"]),
    ("interval", &["length", "window"]),
    ("native", &["driver"]),
    ("proto", &["protocol"]),
];

/// Of the columns, `why` is left, which says what became of rows.
#[test]
fn one_thing_has_one_word_in_keys_columns_and_metrics() {
    let schema = schema();
    let objects = schema["$defs"].as_object().unwrap();
    let keys =
        objects.values().filter_map(|object| object["properties"].as_object()).flatten().map(|(key, _)| key.clone());
    let folder = |path: &str| format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
    let columns = ["schema", "latency", "backend", "gray"]
        .map(|name| fs::read_to_string(folder(&format!("crates/store/src/{name}.sql"))).unwrap());
    let columns = columns.iter().flat_map(|text| text.lines()).filter(|line| line.starts_with('\t'));
    let columns = columns.filter_map(|line| line.split_whitespace().next()).map(str::to_owned);
    let dashboards = ["fleet", "host", "lb"]
        .map(|name| fs::read_to_string(folder(&format!("dist/grafana/dwell-{name}.json"))).unwrap());
    let is_of_name = |letter: char| letter.is_ascii_lowercase() || letter == '_' || letter.is_ascii_digit();
    let metrics = dashboards.iter().flat_map(|text| text.split(|letter| !is_of_name(letter)));
    let metrics = metrics.filter(|word| word.starts_with("dwell_")).map(str::to_owned);
    let names: std::collections::BTreeSet<String> = keys.chain(columns).chain(metrics).collect();
    assert!(names.len() > 300, "{names:?}");
    let other =
        |name: &&String| name.split(['_', '-']).any(|word| WORDS.iter().any(|(_, others)| others.contains(&word)));
    let others: Vec<_> = names.iter().filter(other).collect();
    assert!(others.is_empty(), "{others:?}");
}
