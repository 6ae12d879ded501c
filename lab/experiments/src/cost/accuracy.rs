//! The accuracy of `dwell response` on loads whose clients know the true latencies, compared with the goals.
use std::process::{Command, Stdio};

use super::{
    goals::{self, Accuracy},
    stop::Stop,
};
use anyhow::{Context, Result};
use serde_json::Value;

use crate::goal::Goal;

/// A load, and the goals for its estimates.
struct Row {
    name: &'static str,
    load: &'static str,
    goals: &'static [Accuracy],
}

/// The loads, with their goals for `auto`. The paper's figures are in docs/method/response.md.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { name: "page, 1 outstanding", load: "--depth 1", goals: goals::PAGE_1 },
    Row { name: "page, 4 outstanding", load: "--depth 4", goals: goals::PAGE_4 },
    Row { name: "page, 16 outstanding", load: "--depth 16", goals: goals::PAGE_16 },
    Row { name: "page, 4, like a shared machine", load: "--depth 4 --service trace", goals: goals::PAGE_4 },
    Row { name: "page, 4, several at once", load: "--depth 4 --discipline concurrent", goals: &[] },
    Row { name: "batch of 4", load: "--mode batch --depth 4", goals: &[] },
    Row { name: "batch of 4, several at once", load: "--mode batch --depth 4 --discipline concurrent", goals: &[] },
    Row { name: "batch of 16", load: "--mode batch --depth 16", goals: &[] },
    Row { name: "window of 4", load: "--mode window --depth 4 --rate max", goals: &[] },
    Row { name: "window of 16", load: "--mode window --depth 16 --rate max", goals: &[] },
    Row { name: "page, 4, thinks 20 ms", load: "--depth 4 --think exp:20ms", goals: &[] },
    Row { name: "page, 4, 1 % lost, 25 % reordered", load: "--depth 4 --rtt 10ms --loss 0.01 --reorder 0.25", goals: goals::PAGE_4_LOSSY },
    Row { name: "batch of 4, the same", load: "--mode batch --depth 4 --rtt 10ms --loss 0.01 --reorder 0.25", goals: goals::BATCH_4_LOSSY },
    Row { name: "page, 4, 70 ms, 100 Mbit/s", load: "--depth 4 --rtt 70ms --bottleneck 100M --rate max", goals: goals::PAGE_4_FAR },
    Row { name: "the same, 40 % other traffic", load: "--depth 4 --rtt 70ms --bottleneck 100M --cross 0.4 --rate max", goals: goals::PAGE_4_FAR },
    Row { name: "the same, 80 % other traffic", load: "--depth 4 --rtt 70ms --bottleneck 100M --cross 0.8 --rate max", goals: goals::PAGE_4_FAR },
    Row { name: "memcached, 1, 2 ms away", load: "memcached --rate max --rtt 2ms", goals: goals::MEMCACHED },
    Row { name: "memcached, 1, saturated", load: "memcached --rate max", goals: goals::MEMCACHED },
    Row { name: "memcached, 4, saturated", load: "memcached --rate max --depth 4", goals: goals::MEMCACHED },
    Row { name: "HTTP/3, 1, 20 ms away", load: "http3 --connections 8 --depth 1 --rate 200 --rtt 20ms", goals: &[] },
    Row { name: "one client in WireGuard, 1", load: "web --connections 1 --depth 1 --rate max --tunnel wireguard", goals: &[] },
];

const ESTIMATORS: &str = "auto,pirate";

pub fn run(options: &super::Options, stop: &Stop) -> Result<Vec<Goal>> {
    let seconds = if options.quick { "5s" } else { "12s" };
    println!(
        "\
Relative error of the estimates per epoch (1 s) and connection, compared with the mean that each
estimator estimates, in runs of {seconds}; epochs: share with an estimate. p10-p99: greatest difference
of the distributions. All in percent. Each row: dwell-lab response LOAD --estimator {ESTIMATORS}

{:<36}{:<10}{:>6}{:>8}{:>8}{:>6}{:>6}{:>6}{:>9}",
        "load", "estimator", "n", "epochs", "|p50|", "≤ 5", "≤ 10", "≤ 15", "p10-p99"
    );
    let mut goals = Vec::new();
    for row in ROWS {
        stop.check()?;
        let objects = measure(row, seconds, stop)?;
        for object in objects.iter().flatten() {
            println!("{}", line(row, object));
        }
        goals.extend(judge(row, objects.as_deref()));
    }
    Ok(goals)
}

/// Returns the arguments of `dwell-lab response`. A load that is options alone is `web`.
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

/// Returns an object of type `lab.response` per estimator; `None` if the load did not run.
fn measure(row: &Row, seconds: &str, stop: &Stop) -> Result<Option<Vec<Value>>> {
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
        println!("{:<36}not run: {}", row.name, run.status);
        return Ok(None);
    }
    let objects: Vec<Value> = String::from_utf8_lossy(&run.stdout)
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .context("read what dwell-lab response printed")?;
    let is_own = |object: &Value| object["type"] == "lab.response" && object["truth"] == "own";
    Ok(Some(objects.into_iter().filter(is_own).collect()))
}

/// The goals of a load, which are those of `auto`. They are undecided if it did not run.
fn judge(row: &Row, objects: Option<&[Value]>) -> Vec<Goal> {
    let auto = objects.into_iter().flatten().find(|object| object["estimator"] == "auto");
    row.goals.iter().map(|goal| goal.judge(row.name, auto.unwrap_or(&Value::Null))).collect()
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
    format!(
        "{:<36}{name:<10}{estimates:>6}{:>8.0}{:>8}{:>6}{:>6}{:>6}{:>9}",
        row.name,
        100.0 * estimates / (estimates + without).max(1.0),
        shown(&error["size_p50"], 2),
        shown(&error["within_5"], 0),
        shown(&error["within_10"], 0),
        shown(&error["within_15"], 0),
        shown(&object["greatest_difference"], 1),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ROW: Row = Row { name: "page", load: "--depth 1", goals: goals::PAGE_1 };

    fn holds(objects: Option<&[Value]>) -> Vec<Option<bool>> {
        judge(&ROW, objects).into_iter().map(|goal| goal.holds).collect()
    }

    #[test]
    fn goals_judge_auto_and_are_undecided_without_a_run() {
        let object = |estimator: &str, within: f64| json!({"estimator": estimator, "error": {"within_10": within}});
        assert_eq!(holds(Some(&[object("pirate", 0.1), object("auto", 0.995)])), [Some(true)]);
        assert_eq!(holds(Some(&[object("auto", 0.98)])), [Some(false)]);
        assert_eq!(holds(None), [None]);
    }
}
