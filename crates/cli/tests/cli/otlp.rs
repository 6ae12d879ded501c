//! `--otlp`: what a receiver of OTLP makes of it, against what Prometheus reads.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use dwell_testbed::{Namespace, pages::root, skip::required};
use serde_json::Value;

use crate::{
    live_traffic::{GO_ON, ping, ping_pong},
    metrics::get,
    records::of_type,
    support::{DWELL, Pair, Process, dwell, eventually, links, run, skipped, spawn, start, tool_here},
};

const PROMETHEUS_AT: &str = "127.0.0.1:9469";
const OTLP_AT: &str = "http://127.0.0.1:4318";
/// What `make test` makes.
const RECEIVERS: &str = "otlp";

/// The folder of the receivers; None if the test is skipped because there are none.
fn receivers() -> Option<PathBuf> {
    let target = Path::new(DWELL).ancestors().nth(2).unwrap();
    let folder = target.join(RECEIVERS);
    let is_there = folder.join("venv/bin/python").exists();
    (is_there || !required("tests/otlp/setup has not run")).then_some(folder)
}

/// A receiver, and the file of what it received: the OpenTelemetry collector if it was built, else OpenTelemetry's messages in
/// Python.
struct Receiver {
    process: Process,
    lines: PathBuf,
}

impl Receiver {
    fn start(namespace: &Namespace, receivers: &Path, folder: &Path) -> Receiver {
        let (lines, source) = (folder.join("lines"), root().join("tests/otlp"));
        let collector = receivers.join("otelcol");
        let (receiver, source) = (receivers.display(), source.display());
        let command = match collector.exists() {
            true => format!("{receiver}/otelcol --config file:{source}/collector/config.yaml"),
            false => format!("{receiver}/venv/bin/python {source}/receiver.py 127.0.0.1 4318"),
        };
        let process = spawn(namespace, "sh", &["-c", &format!("exec {command} > {}", lines.display())]);
        let is_open = || namespace.enter(|| std::net::TcpStream::connect("127.0.0.1:4318")).unwrap().is_ok();
        eventually("the receiver listens", is_open);
        Receiver { process, lines }
    }

    /// What arrived last; None if nothing did yet.
    fn last(&self) -> Option<Value> {
        let text = fs::read_to_string(&self.lines).unwrap();
        let (whole, _) = text.rsplit_once('\n')?;
        Some(serde_json::from_str(whole.lines().last()?).unwrap())
    }
}

/// A number of OTLP's JSON, where 64 bits are a string and 0 is left out.
fn number(value: &Value) -> f64 {
    match value {
        Value::Null => 0.0,
        Value::String(text) => text.parse().unwrap(),
        other => other.as_f64().unwrap(),
    }
}

/// Names and values of attributes.
fn attributes(of: &Value) -> Vec<(&str, &str)> {
    let list = of["attributes"].as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().map(|one| (one["key"].as_str().unwrap(), one["value"]["stringValue"].as_str().unwrap())).collect()
}

/// A page of Prometheus as OTLP says the same: comments, and series with their values.
fn page_of(message: &Value) -> BTreeSet<String> {
    let resources = message["resourceMetrics"].as_array().unwrap();
    let metrics = resources.iter().flat_map(|of| of["scopeMetrics"].as_array().unwrap());
    let metrics = metrics.flat_map(|scope| scope["metrics"].as_array().unwrap());
    metrics.flat_map(lines_of).collect()
}

fn lines_of(metric: &Value) -> Vec<String> {
    let name = metric["name"].as_str().unwrap();
    let kinds = [("gauge", "gauge"), ("sum", "counter"), ("histogram", "histogram")];
    let (key, kind) = kinds.into_iter().find(|(key, _)| metric.get(key).is_some()).unwrap();
    let data = &metric[key];
    if key != "gauge" {
        let temporality = &data["aggregationTemporality"];
        assert!(*temporality == 2 || *temporality == "AGGREGATION_TEMPORALITY_CUMULATIVE", "{metric}");
    }
    assert_eq!(data["isMonotonic"] == true, key == "sum", "{metric}");
    let unit = metric["unit"].as_str().unwrap_or_default();
    assert_eq!(unit == "s", name.contains("_seconds"), "{metric}");
    let mut lines =
        vec![format!("# HELP {name} {}", metric["description"].as_str().unwrap()), format!("# TYPE {name} {kind}")];
    for point in data["dataPoints"].as_array().unwrap() {
        if key != "gauge" {
            assert!(number(&point["startTimeUnixNano"]) <= number(&point["timeUnixNano"]), "{point}");
        }
        let labels: Vec<_> = attributes(point).iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
        lines.extend(lines_of_point(name, &labels, key, point));
    }
    lines
}

fn lines_of_point(name: &str, labels: &[String], key: &str, point: &Value) -> Vec<String> {
    let series = |ending: &str, labels: &[String], value: f64| match labels.is_empty() {
        true => format!("{name}{ending} {value}"),
        false => format!("{name}{ending}{{{}}} {value}", labels.join(",")),
    };
    if key != "histogram" {
        let value = point.get("asInt").or(point.get("asDouble")).unwrap();
        return vec![series("", labels, number(value))];
    }
    let bounds = point["explicitBounds"].as_array().unwrap().iter().map(|bound| number(bound).to_string());
    let mut below = 0.0;
    let counts = point["bucketCounts"].as_array().unwrap();
    assert_eq!(counts.len(), bounds.len() + 1, "{point}");
    let buckets = bounds.chain(["+Inf".to_owned()]).zip(counts).map(|(bound, count)| {
        below += number(count);
        series("_bucket", &[labels, &[format!("le=\"{bound}\"")]].concat(), below)
    });
    let mut lines: Vec<_> = buckets.collect();
    lines.push(series("_sum", labels, number(&point["sum"])));
    lines.push(series("_count", labels, number(&point["count"])));
    lines
}

/// The lines of an answer of Prometheus's endpoint, without how many pushes there were: each push makes them more. A family
/// without series is not in OTLP.
fn lines_of_page(answer: &str) -> BTreeSet<String> {
    let (_, page) = answer.split_once("\r\n\r\n").unwrap();
    page.lines().map(str::to_owned).collect()
}

/// Nor what the process has cost, which each push and each answer makes more.
fn without_pushes(lines: BTreeSet<String>) -> BTreeSet<String> {
    let grows = |line: &String| line.starts_with("dwell_otlp_pushes_total{") || line.starts_with("process_");
    lines.into_iter().filter(|line| !grows(line)).collect()
}

#[test]
fn root_otlp_says_what_prometheus_reads_and_the_end_is_pushed() {
    if skipped() {
        return;
    }
    let Some(receivers) = receivers() else { return };
    let folder = tempfile::tempdir().unwrap();
    let pair = Pair::start("otlp");
    let receiver = Receiver::start(&pair.left, &receivers, folder.path());
    let arguments =
        ["rtt", "-i", "left0", "--format", "jsonl", "--interval", "100ms", "--methods", "tcp-timestamp,icmp"];
    let exported = ["--metrics", PROMETHEUS_AT, "--otlp", OTLP_AT];
    let command = [&["OTEL_METRIC_EXPORT_INTERVAL=100", DWELL], &arguments[..], &exported].concat();
    let dwell = spawn(&pair.left, "env", &command);
    eventually("it watches", || links(dwell.id()) == 2);
    ping(20).run(pair.ends(), &GO_ON).unwrap();
    ping_pong(300).run(pair.ends(), &GO_ON).unwrap();

    let mut last = (BTreeSet::new(), BTreeSet::new());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) {
        let pushed = receiver.last().map(|message| page_of(&message)).unwrap_or_default();
        last = (without_pushes(pushed), without_pushes(lines_of_page(&get(&pair.left, "/metrics"))));
        if last.0 == last.1 && last.0.iter().any(|line| line.starts_with("dwell_rtt_seconds_count")) {
            break;
        }
    }
    let differ: Vec<_> = last.0.symmetric_difference(&last.1).collect();
    assert!(differ.is_empty(), "pushed {}, served {}: {differ:#?}", last.0.len(), last.1.len());
    assert!(last.0.len() > 100, "{}", last.0.len());

    let run = dwell.interrupt();
    assert_eq!(run.status, Some(0), "{run}");
    assert!(run.stderr.contains(&format!("dwell: metrics to {OTLP_AT}/v1/metrics every 100ms\n")), "{run}");
    assert!(!run.stderr.contains("do not reach"), "{run}");
    let message = receiver.last().unwrap();
    let resource: BTreeMap<_, _> = attributes(&message["resourceMetrics"][0]["resource"]).into_iter().collect();
    let keys: Vec<_> = resource.keys().copied().collect();
    assert_eq!(keys, ["host.name", "service.instance.id", "service.name", "service.version"]);
    assert_eq!(resource["service.name"], "dwell");
    let samples = of_type(&run.stdout, "rtt.sample").len();
    let pushed = page_of(&message);
    assert!(pushed.contains(&format!("dwell_rtt_samples_total {samples}")), "{samples} in {pushed:#?}");
    assert!(pushed.contains("dwell_otlp_pushes_total{outcome=\"failed\"} 0"), "{pushed:#?}");
    receiver.process.interrupt();
}

/// Runs `dwell run` for a moment with these arguments.
fn run_a_while(arguments: &[&str], environment: &[(&str, &str)]) -> crate::support::Run {
    let mut command = Command::new(DWELL);
    command.args(["run", "--outside", "--format", "none", "--interval", "100ms"]).args(arguments);
    command.args(["--", "sleep", "0.5"]).envs(environment.iter().copied());
    run(&mut command, b"")
}

#[test]
fn an_outage_is_told_once_and_does_not_hold_up_the_run() {
    // A port that nobody has: it was just given back.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let begun = Instant::now();
    let url = format!("http://127.0.0.1:{port}");
    let run = run_a_while(&["--otlp", &url], &[("OTEL_METRIC_EXPORT_INTERVAL", "50")]);
    assert_eq!(run.status, Some(0), "{run}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let told = run.stderr.matches(&format!("metrics do not reach {url}/v1/metrics: ")).count();
    assert_eq!(told, 1, "{run}");
}

/// Makes a certificate of 127.0.0.1, which is its own authority, and its private key, as files of these names in a folder.
pub fn certificate(folder: &Path) -> [String; 2] {
    let files = ["certificate", "key"].map(|name| folder.join(name).display().to_string());
    let configuration = folder.join("openssl.cnf");
    fs::write(
        &configuration,
        "[req]\ndistinguished_name = name\nx509_extensions = leaf\n[name]\n\
         [leaf]\nbasicConstraints = critical,CA:FALSE\nsubjectAltName = IP:127.0.0.1\n",
    )
    .unwrap();
    let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=server";
    let paths = ["-config", configuration.to_str().unwrap(), "-out", &files[0], "-keyout", &files[1]];
    tool_here("openssl", &arguments.split(' ').chain(paths).collect::<Vec<_>>());
    files
}

#[test]
fn tls_is_checked_against_the_authorities_of_the_host() {
    let Some(receivers) = receivers() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key] = certificate(folder.path());
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let python = receivers.join("venv/bin/python");
    let script = root().join("tests/otlp/receiver.py");
    let receiver = start(Command::new(python).arg(script).args(["127.0.0.1", &port.to_string(), &certificate, &key]));
    eventually("the receiver listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let url = format!("https://127.0.0.1:{port}");
    let known = run_a_while(&["--otlp", &url], &[("SSL_CERT_FILE", &certificate)]);
    assert!(!known.stderr.contains("do not reach"), "{known}");
    let other = run_a_while(&["--otlp", &url], &[]);
    assert!(other.stderr.contains(&format!("metrics do not reach {url}/v1/metrics: ")), "{other}");
    let none = run_a_while(&["--otlp", &url], &[("SSL_CERT_FILE", "/dev/null"), ("SSL_CERT_DIR", "/nonexistent")]);
    assert_eq!(none.status, Some(2), "{none}");
    assert!(none.stderr.contains("no certificates of authorities"), "{none}");
    let received = receiver.interrupt().stdout;
    assert!(received.contains("\"dwell_otlp_pushes_total\""), "{received}");
}

#[test]
fn what_cannot_be_pushed_to_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let headers = folder.path().join("headers");
    fs::write(&headers, "Authorization: Bearer secret\nno header\n").unwrap();
    let headers = headers.to_str().unwrap();
    let run = |arguments: &[&str]| {
        let run = dwell(&[&["run"], arguments, &["--", "touch", &format!("{headers}.ran")]].concat());
        assert_eq!(run.status, Some(2), "{run}");
        run.stderr
    };
    assert!(run(&["--otlp", "localhost:4318"]).contains("write where OTLP is received over HTTP"));
    assert!(run(&["--otlp", "http://me:secret@localhost:4318"]).contains("--otlp-headers"));
    assert!(run(&["--otlp-headers", headers]).contains("--otlp <URL>"));
    let given = ["--otlp", OTLP_AT, "--otlp-headers", headers];
    assert!(run(&given).contains("every user of this host can reach the headers in"));
    tool_here("chmod", &["600", headers]);
    let told = run(&given);
    assert!(told.contains("line 2 is not a header: write NAME: VALUE") && !told.contains("secret"), "{told}");
    assert!(!Path::new(&format!("{headers}.ran")).exists());
}
