//! redis-benchmark with pipelining, against redis-server.
//!
//! redis-benchmark takes one time a batch: from before its first write to the first bytes of its answers, and counts it
//! once for each request of the batch. Where answers come in several pieces, what comes after the first is not in it.
//! With several threads it looks each quarter of a second whether it is done, so that its rate is too low by up to that.

use std::{net::SocketAddr, process::Command};

use dwell_testbed::{
    Error, Guarded, Nanos, Result,
    workload::{output, require, serve},
};

use super::{super::stage::Stage, Distribution, Program, ThirdPartyOptions, ThirdPartyReport};

/// What `begin` gives is of the load alone.
pub(super) fn run<T>(
    stage: &Stage<'_>,
    options: &ThirdPartyOptions,
    begin: impl FnOnce() -> Result<T>,
) -> Result<(ThirdPartyReport, T)> {
    require("redis-benchmark")?;
    let server = SocketAddr::from((stage.server(), 6379));
    let _redis = start_server(stage, server)?;
    let (connections, depth) = (options.connections as u64, options.depth as u64);
    let benchmark = |test: &str, connections: u64, depth: u64, requests: u64| {
        let arguments: Vec<String> = [
            ("-h", server.ip().to_string()),
            ("-p", server.port().to_string()),
            ("-t", test.to_owned()),
            ("-d", options.size.to_string()),
            ("-c", connections.to_string()),
            ("-P", depth.to_string()),
            ("-n", requests.to_string()),
            ("--threads", options.threads.to_string()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .chain(["--csv".to_owned()])
        .collect();
        output(stage.lab.client(), "redis-benchmark", &arguments, &stage.signals.stop)
    };
    // What is read must be there.
    benchmark("set", 1, 1, 1)?;
    // It knows no duration. Each connection has a batch under way all the time.
    let trial = connections * depth * 20;
    let trial = read(&benchmark("get", connections, depth, trial)?, trial)?;
    let batches = Nanos::from(options.duration).0 / trial.latency.mean_ns.0.max(1);
    let requests = batches.max(1) * connections * depth;
    let begun = begin()?;
    let row = read(&benchmark("get", connections, depth, requests)?, requests)?;
    let report = ThirdPartyReport {
        program: Program::Redis,
        depth: options.depth,
        requests,
        lasted_ns: row.lasted_ns,
        latency: Distribution { batches: requests / depth, ..row.latency },
        capture: None,
    };
    Ok((report, begun))
}

fn start_server(stage: &Stage<'_>, address: SocketAddr) -> Result<Guarded> {
    let folder = stage.lab.state().folder();
    let configure = |command: &mut Command| {
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        command
            .args(["--bind", &host, "--port", &port])
            .args(["--save", "", "--appendonly", "no", "--protected-mode", "no"])
            .arg("--dir")
            .arg(folder);
    };
    serve(stage.lab.server(), "redis-server", configure, "tcp", address.port())
}

/// A row of its table.
#[derive(Debug, PartialEq)]
struct Row {
    lasted_ns: Nanos,
    latency: Distribution,
}

/// From its table of comma-separated values: rate, and latencies in milliseconds.
fn read(said: &str, requests: u64) -> Result<Row> {
    let wrong = || Error::invalid("what redis-benchmark says", said.trim());
    let parsed = || {
        let cells = |line: &str| -> Vec<String> {
            let cells = line.split(',');
            cells.map(|cell| cell.trim_matches('"').to_owned()).collect()
        };
        let mut lines = said.lines().map(cells);
        let heads = lines.find(|cells| cells.first().is_some_and(|head| head == "test"))?;
        let values = lines.next()?;
        let number = |name: &str| -> Option<f64> {
            let column = heads.iter().position(|head| head == name)?;
            let number = values.get(column)?.parse().ok()?;
            (number >= 0.0).then_some(number)
        };
        let latency = |name: &str| {
            let millis = number(&format!("{name}_latency_ms"))?;
            Some(Nanos((millis * 1e6).round() as u64))
        };
        // A run of no time has an infinite rate.
        let seconds = requests as f64 / number("rps")?;
        Some(Row {
            lasted_ns: Nanos((seconds * 1e9).round() as u64),
            latency: Distribution {
                batches: 0,
                mean_ns: latency("avg")?,
                deviation_ns: None,
                p50_ns: latency("p50")?,
                p95_ns: latency("p95")?,
                p99_ns: latency("p99")?,
                max_ns: latency("max")?,
            },
        })
    };
    parsed().ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As redis-benchmark 7.0.15 prints it.
    const SAID: &str = r#""test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
"GET","198019.80","0.056","0.024","0.055","0.079","0.119","4.199"
"#;

    #[test]
    fn latencies_are_found_by_the_names_of_their_columns() {
        let row = read(SAID, 20_000).unwrap();
        assert_eq!(row.lasted_ns.0 / 1_000, 101_000);
        let expected = Distribution {
            batches: 0,
            mean_ns: Nanos(56_000),
            deviation_ns: None,
            p50_ns: Nanos(55_000),
            p95_ns: Nanos(79_000),
            p99_ns: Nanos(119_000),
            max_ns: Nanos(4_199_000),
        };
        assert_eq!(row.latency, expected);
    }

    #[test]
    fn one_request_has_an_infinite_rate_and_a_latency() {
        let said = SAID.replace("198019.80", "inf");
        let row = read(&said, 1).unwrap();
        assert_eq!((row.lasted_ns, row.latency.p50_ns), (Nanos(0), Nanos(55_000)));
    }

    #[test]
    fn a_table_that_lacks_something_is_no_answer() {
        assert!(read("", 1).is_err());
        assert!(read(&SAID.replace("p95_latency_ms", "p95"), 1).is_err());
        assert!(read(&SAID.replace("0.056", "-"), 1).is_err());
        assert!(read(SAID.lines().next().unwrap(), 1).is_err());
    }
}
