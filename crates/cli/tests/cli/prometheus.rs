//! What ships for Prometheus and Grafana, in a real Prometheus.

use std::{fs, path::PathBuf};

use dwell_testbed::{Namespace, pages::root, skip::lacks_program};
use serde_json::Value;

use crate::{
    live_traffic::{GO_ON, ping},
    support::{Pair, eventually, run, skipped, spawn, watch},
};

const DWELL_AT: &str = "127.0.0.1:9469";
const PROMETHEUS_AT: &str = "127.0.0.1:9090";

fn shipped(folder: &str, extension: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(root().join("dist").join(folder)).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = files.filter(|file| file.extension().is_some_and(|own| own == extension)).collect();
    files.sort();
    assert!(files.len() >= 3, "{files:?}");
    files
}

/// The expressions of all dashboards, with Grafana's variables as it fills them in.
fn expressions() -> Vec<String> {
    let dashboards = shipped("grafana", "json").into_iter().map(|file| {
        let dashboard: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        dashboard
    });
    let panels = dashboards.flat_map(|dashboard| dashboard["panels"].as_array().unwrap().clone());
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap().clone());
    targets
        .map(|target| {
            target["expr"]
                .as_str()
                .unwrap()
                .replace("$__rate_interval", "1m")
                .replace("$instance", ".*")
                .replace("$vip", ".*")
        })
        .collect()
}

/// Asks Prometheus's API, and returns what it answers; None unless it is a success.
fn ask(namespace: &Namespace, path: &str, query: &str) -> Option<Value> {
    let url = format!("http://{PROMETHEUS_AT}/api/v1/{path}");
    let query = format!("query={query}");
    let mut curl = namespace.command("curl");
    let answer = run(curl.args(["-sS", "-G", "--data-urlencode", &query, &url]), b"").stdout;
    let answer: Value = serde_json::from_str(&answer).ok()?;
    (answer["status"] == "success").then(|| answer["data"].clone())
}

#[test]
fn root_prometheus_takes_the_metrics_the_rules_and_each_expression_of_the_dashboards() {
    if skipped() || lacks_program("prometheus") || lacks_program("promtool") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let rules: Vec<_> = shipped("prometheus", "yml").iter().map(|file| format!("  - {}", file.display())).collect();
    let configuration = folder.path().join("prometheus.yml");
    let text = format!(
        "global:\n  scrape_interval: 200ms\n  scrape_timeout: 200ms\n  evaluation_interval: 200ms\nrule_files:\n{}\n\
         scrape_configs:\n  - job_name: dwell\n    static_configs:\n      - targets: [\"{DWELL_AT}\"]\n",
        rules.join("\n")
    );
    fs::write(&configuration, text).unwrap();
    let checked = run(std::process::Command::new("promtool").args(["check", "config"]).arg(&configuration), b"");
    assert_eq!(checked.status, Some(0), "{checked}");

    let pair = Pair::start("prometheus");
    let dwell = watch(&pair.left, &["-i", "left0", "--metrics", DWELL_AT]);
    let arguments = [
        format!("--config.file={}", configuration.display()),
        format!("--storage.tsdb.path={}", folder.path().join("data").display()),
        format!("--web.listen-address={PROMETHEUS_AT}"),
    ];
    let prometheus = spawn(&pair.left, "prometheus", &arguments.each_ref().map(String::as_str));
    ping(20).run(pair.ends(), &GO_ON).unwrap();
    eventually("the pings are in Prometheus", || {
        let count = ask(&pair.left, "query", "dwell_rtt_seconds_count{method=\"icmp\"}");
        count.is_some_and(|count| count["result"][0]["value"][1] == "20")
    });
    eventually("all rules are evaluated", || {
        let rules = ask(&pair.left, "rules", "").unwrap();
        let groups = rules["groups"].as_array().unwrap();
        let rules: Vec<_> = groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).collect();
        assert!(rules.iter().all(|rule| rule["health"] != "err"), "{rules:?}");
        groups.len() == shipped("prometheus", "yml").len() && rules.iter().all(|rule| rule["health"] == "ok")
    });
    let expressions = expressions();
    assert!(expressions.len() > 50);
    for expression in &expressions {
        assert!(ask(&pair.left, "query", expression).is_some(), "Prometheus refuses {expression}");
    }
    assert_eq!(prometheus.interrupt().status, Some(0));
    assert_eq!(dwell.interrupt().status, Some(0));
}
