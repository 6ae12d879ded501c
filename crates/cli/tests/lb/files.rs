//! The files that ship with the binary match it.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use dwell_balancer::{config::Config, metrics};
use dwell_metrics::Kind;
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

#[test]
fn the_example_shows_the_defaults() {
    let text = read("examples/lb.toml");
    let path = Path::new("lb.toml");
    let config = Config::parse(&text, path).unwrap();
    // Uncomments all keys, except those without a default.
    let is_key = |line: &str| {
        line.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '))
            && !["chain", "hash_seed", "heavy_share", "otlp"].iter().any(|key| line.starts_with(key))
    };
    let lines = text.lines().map(|line| match line.strip_prefix("# ") {
        Some(key) if is_key(key) => key,
        _ => line,
    });
    let written: Vec<_> = lines.collect();
    assert!(written.len() > 90 && written.iter().any(|line| line.starts_with("steady = ")));
    let same = Config::parse(&written.join("\n"), path).unwrap();
    assert_eq!(same, config);
}

#[test]
fn every_expression_of_the_dashboard_names_an_existing_metric() {
    let dashboard: Value = serde_json::from_str(&read("dist/grafana/dwell-lb.json")).unwrap();
    let mut expressions = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            expressions.push(target["expr"].as_str().unwrap().to_owned());
        }
    }
    expressions.push(dashboard["templating"]["list"][1]["query"].as_str().unwrap().to_owned());
    assert!(expressions.len() > 15);
    let known: BTreeSet<_> = metrics::ALL.iter().map(|metric| metric.name).collect();
    let mut used = BTreeSet::new();
    for expression in &expressions {
        let names = expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let names: Vec<_> = names.filter(|name| name.starts_with("dwell_")).collect();
        assert!(!names.is_empty(), "{expression}");
        for name in names {
            // Of every verb.
            if ["dwell_build_info", "dwell_otlp_pushes_total"].contains(&name) {
                continue;
            }
            assert!(known.contains(name), "there is no {name}: {expression}");
            let metric = metrics::ALL.iter().find(|metric| metric.name == name).unwrap();
            let is_counted = expression.contains("rate(") || expression.contains("increase(");
            let is_query = expression.starts_with("label_values");
            assert_eq!(metric.kind == Kind::Counter, is_counted || is_query, "{expression}");
            used.insert(name);
        }
    }
    assert_eq!(used, known, "without a panel");
}

#[test]
fn every_alert_names_an_existing_metric_and_losses_of_the_table_have_one() {
    let rules = read("dist/prometheus/dwell-lb.rules.yml");
    let mut used = BTreeSet::new();
    for expression in rules.lines().filter_map(|line| line.trim().strip_prefix("expr: ")) {
        let names = expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let names: Vec<_> = names.filter(|name| name.starts_with("dwell_")).collect();
        assert!(!names.is_empty(), "{expression}");
        for name in names {
            assert!(metrics::ALL.iter().any(|metric| metric.name == name), "there is no {name}: {expression}");
            used.insert(name.to_owned());
        }
    }
    assert!(used.contains("dwell_lb_table_events_total") && used.contains("dwell_lb_vip_blind"), "{used:?}");
}

#[test]
fn the_guide_lists_each_metric_and_its_configuration_is_valid() {
    let guide = read("docs/guide/lb.md");
    for metric in metrics::ALL {
        let row = format!("| `{}` | {} | {} |", metric.name, metric.labels.join(", "), metric.help);
        assert!(guide.contains(&row), "{row}");
    }
    let start = guide.find("```toml").unwrap() + 7;
    let text = &guide[start..start + guide[start..].find("```").unwrap()];
    let config = Config::parse(text, Path::new("lb.md")).unwrap();
    assert_eq!(config.backends(), 2);
}
