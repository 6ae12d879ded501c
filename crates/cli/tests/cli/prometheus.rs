//! What ships for Prometheus and Grafana, in a real Prometheus.

use std::{
    fs,
    path::{Path, PathBuf},
};

use dwell_testbed::{Namespace, pages::root, skip::lacks_program};
use serde_json::Value;

use crate::{
    live_traffic::{GO_ON, ping},
    metrics::{self, get},
    support::{Pair, Process, eventually, run, skipped, spawn, watch},
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

/// Writes a configuration that scrapes dwell, and returns its path.
fn configure(folder: &Path, rest: &str) -> PathBuf {
    let path = folder.join("prometheus.yml");
    let text = format!(
        "global:\n  scrape_interval: 200ms\n  scrape_timeout: 200ms\n  evaluation_interval: 200ms\n{rest}\
         scrape_configs:\n  - job_name: dwell\n    static_configs:\n      - targets: [\"{DWELL_AT}\"]\n"
    );
    fs::write(&path, text).unwrap();
    path
}

fn start(namespace: &Namespace, folder: &Path, options: &[&str]) -> Process {
    let arguments = [
        format!("--config.file={}", folder.join("prometheus.yml").display()),
        format!("--storage.tsdb.path={}", folder.join("data").display()),
        format!("--web.listen-address={PROMETHEUS_AT}"),
    ];
    spawn(namespace, "prometheus", &[&arguments.each_ref().map(String::as_str), options].concat())
}

#[test]
fn root_prometheus_takes_the_metrics_the_rules_and_each_expression_of_the_dashboards() {
    if skipped() || lacks_program("prometheus") || lacks_program("promtool") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let rules: Vec<_> = shipped("prometheus", "yml").iter().map(|file| format!("  - {}", file.display())).collect();
    let configuration = configure(folder.path(), &format!("rule_files:\n{}\n", rules.join("\n")));
    let checked = run(std::process::Command::new("promtool").args(["check", "config"]).arg(&configuration), b"");
    assert_eq!(checked.status, Some(0), "{checked}");

    let pair = Pair::start("prometheus");
    let dwell = watch(&pair.left, &["-i", "left0", "--metrics", DWELL_AT]);
    let prometheus = start(&pair.left, folder.path(), &[]);
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

#[test]
fn root_prometheus_gets_native_histograms_where_it_asks_for_them() {
    if skipped() || lacks_program("prometheus") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "");
    let pair = Pair::start("native");
    let dwell = watch(&pair.left, &["-i", "left0", "--metrics", DWELL_AT]);
    let prometheus = start(&pair.left, folder.path(), &["--enable-feature=native-histograms"]);
    ping(20).run(pair.ends(), &GO_ON).unwrap();
    let value = |query: &str| {
        let answer = ask(&pair.left, "query", query)?;
        answer["result"][0]["value"][1].as_str()?.parse::<f64>().ok()
    };
    eventually("the pings are in a native histogram", || {
        value("histogram_count(dwell_rtt_seconds{method=\"icmp\"})") == Some(20.0)
    });
    let page = get(&pair.left, "/metrics");
    let labels = r#"{interface="left0",method="icmp",prefix="10.78.0.0/24"}"#;
    let sum = metrics::value(&page, &format!("dwell_rtt_seconds_sum{labels}")).unwrap();
    assert_eq!(value("histogram_sum(dwell_rtt_seconds{method=\"icmp\"})"), Some(sum));
    // The mean lies between the shortest and the longest, within a bucket.
    let quantile = |q: f64| value(&format!("histogram_quantile({q}, dwell_rtt_seconds{{method=\"icmp\"}})")).unwrap();
    let (least, most) = (quantile(0.0), quantile(1.0));
    assert!(0.0 < least && least <= 1.05 * sum / 20.0 && most >= sum / 20.0 / 1.05, "{least} to {most}, {sum}");
    // Other values come by the same format.
    assert_eq!(value("dwell_build_info"), Some(1.0));
    assert_eq!(prometheus.interrupt().status, Some(0));
    assert_eq!(dwell.interrupt().status, Some(0));
}
