//! How near `dwell response` comes to what the clients of loads know, beside the goals.
use std::process::{Command, Stdio};

use super::stop::Stop;
use anyhow::{Context, Result};
use serde_json::Value;

/// A load, and what its estimates should come to. Shares in percent.
struct Row {
    name: &'static str,
    load: &'static str,
    goals: &'static [Goal],
}

#[derive(Clone, Copy)]
enum Goal {
    /// The median of the errors without sign is at most this.
    Median(f64),
    /// So many percent of epochs are within so many percent.
    Within(u32, f64),
    /// From p10 to p99 the distributions of truth and estimate differ by at most this.
    Distribution(f64),
}

/// The page loads are the issue's own; the paper's figures are in docs/method/response.md.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { name: "page, 1 outstanding", load: "--depth 1", goals: &[Goal::Within(10, 99.0)] },
    Row { name: "page, 4 outstanding", load: "--depth 4", goals: &[Goal::Median(0.6), Goal::Within(10, 90.0), Goal::Within(15, 95.0)] },
    Row { name: "page, 16 outstanding", load: "--depth 16", goals: &[Goal::Median(5.0)] },
    Row { name: "page, 4, like a shared machine", load: "--depth 4 --service trace", goals: &[Goal::Median(0.6), Goal::Within(10, 90.0), Goal::Within(15, 95.0)] },
    Row { name: "page, 4, several at once", load: "--depth 4 --discipline concurrent", goals: &[] },
    Row { name: "batch of 4", load: "--mode batch --depth 4", goals: &[] },
    Row { name: "batch of 4, several at once", load: "--mode batch --depth 4 --discipline concurrent", goals: &[] },
    Row { name: "batch of 16", load: "--mode batch --depth 16", goals: &[] },
    Row { name: "window of 4", load: "--mode window --depth 4 --rate max", goals: &[] },
    Row { name: "window of 16", load: "--mode window --depth 16 --rate max", goals: &[] },
    Row { name: "page, 4, thinks 20 ms", load: "--depth 4 --think exp:20ms", goals: &[] },
    Row { name: "page, 4, 1 % lost, 25 % reordered", load: "--depth 4 --rtt 10ms --loss 0.01 --reorder 0.25", goals: &[Goal::Median(2.6), Goal::Within(10, 88.0), Goal::Within(15, 93.0)] },
    Row { name: "batch of 4, the same", load: "--mode batch --depth 4 --rtt 10ms --loss 0.01 --reorder 0.25", goals: &[Goal::Within(10, 88.0), Goal::Within(15, 93.0)] },
    Row { name: "page, 4, 70 ms, 100 Mbit/s", load: "--depth 4 --rtt 70ms --bottleneck 100M --rate max", goals: &[Goal::Within(5, 95.0)] },
    Row { name: "the same, 40 % other traffic", load: "--depth 4 --rtt 70ms --bottleneck 100M --cross 0.4 --rate max", goals: &[Goal::Within(5, 95.0)] },
    Row { name: "the same, 80 % other traffic", load: "--depth 4 --rtt 70ms --bottleneck 100M --cross 0.8 --rate max", goals: &[Goal::Within(5, 95.0)] },
    Row { name: "memcached, 1, 2 ms away", load: "memcached --rate max --rtt 2ms", goals: &[Goal::Distribution(5.0)] },
    Row { name: "memcached, 1, saturated", load: "memcached --rate max", goals: &[Goal::Distribution(5.0)] },
    Row { name: "memcached, 4, saturated", load: "memcached --rate max --depth 4", goals: &[Goal::Distribution(5.0)] },
    Row { name: "HTTP/3, 1, 20 ms away", load: "http3 --connections 8 --depth 1 --rate 200 --rtt 20ms", goals: &[] },
    Row { name: "one client in WireGuard, 1", load: "web --connections 1 --depth 1 --rate max --tunnel wireguard", goals: &[] },
];

const ESTIMATORS: &str = "auto,pirate";

pub fn run(options: &super::Options, stop: &Stop) -> Result<()> {
    let seconds = if options.quick { "5s" } else { "12s" };
    println!(
        "\
Relative error of the estimates of epochs (1 s) and connections, beside the mean that each estimator says
it is of, in runs of {seconds}; epochs: share with an estimate. p10-p99: greatest difference of the
distributions. All in percent. Each row: dwell-lab response LOAD --estimator {ESTIMATORS}

{:<36}{:<10}{:>6}{:>8}{:>8}{:>6}{:>6}{:>6}{:>9}  goal",
        "load", "estimator", "n", "epochs", "|p50|", "≤ 5", "≤ 10", "≤ 15", "p10-p99"
    );
    for row in ROWS {
        stop.check()?;
        for line in measure(row, seconds, stop)? {
            println!("{line}");
        }
    }
    Ok(())
}

/// Options alone are those of `web`.
fn arguments(load: &str) -> String {
    if !load.starts_with("--") {
        return load.to_owned();
    }
    let rate = match load.contains("--rate") {
        true => "",
        false => "--rate 800",
    };
    format!("web --connections 8 {rate} {load}")
}

fn measure(row: &Row, seconds: &str, stop: &Stop) -> Result<Vec<String>> {
    let arguments = arguments(row.load);
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("response")
        .args(arguments.split_whitespace())
        .args(["--duration", seconds, "--estimator", ESTIMATORS])
        .args(["--format", "jsonl"])
        .stderr(Stdio::null());
    let run = command.output().context("run dwell-lab response")?;
    stop.check()?;
    if !run.status.success() {
        return Ok(vec![format!("{:<36}not run: {}", row.name, run.status)]);
    }
    let objects: Vec<Value> = String::from_utf8_lossy(&run.stdout)
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .context("read what dwell-lab response printed")?;
    Ok(objects
        .iter()
        .filter(|object| object["type"] == "lab_response" && object["truth"] == "own")
        .map(|object| line(row, object))
        .collect())
}

fn line(row: &Row, object: &Value) -> String {
    let error = &object["error"];
    let percent = |value: &Value| value.as_f64().map(|share| share * 100.0);
    let shown =
        |value: &Value, digits: usize| percent(value).map_or("-".to_owned(), |percent| format!("{percent:.digits$}"));
    let estimates = object["estimates"].as_f64().unwrap_or_default();
    let reasons = object["reasons"].as_object();
    let without: f64 = reasons.into_iter().flat_map(|reasons| reasons.values()).filter_map(Value::as_f64).sum();
    let name = object["estimator"].as_str().unwrap_or_default();
    let goals: Vec<_> = match name {
        "auto" => row.goals.iter().map(|goal| goal.verdict(object)).collect(),
        _ => Vec::new(),
    };
    format!(
        "{:<36}{name:<10}{estimates:>6}{:>8.0}{:>8}{:>6}{:>6}{:>6}{:>9}  {}",
        row.name,
        100.0 * estimates / (estimates + without).max(1.0),
        shown(&error["size_p50"], 2),
        shown(&error["within_5"], 0),
        shown(&error["within_10"], 0),
        shown(&error["within_15"], 0),
        shown(&object["greatest_difference"], 1),
        goals.join(", ")
    )
}

impl Goal {
    fn verdict(self, object: &Value) -> String {
        let share = |value: &Value| value.as_f64().map(|share| share * 100.0);
        let error = &object["error"];
        let (text, met) = match self {
            Goal::Median(most) => {
                (format!("|p50| ≤ {most}"), share(&error["size_p50"]).is_some_and(|found| found <= most))
            }
            Goal::Within(near, least) => (
                format!("{least} within {near}"),
                share(&error[format!("within_{near}")]).is_some_and(|found| found >= least),
            ),
            Goal::Distribution(most) => (
                format!("p10-p99 ≤ {most}"),
                share(&object["greatest_difference"]).is_some_and(|found| found.abs() <= most),
            ),
        };
        format!("{text}: {}", if met { "met" } else { "missed" })
    }
}
