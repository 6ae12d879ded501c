//! wrk with pipelining, against nginx.
//!
//! wrk takes one time a batch: from before its first write to the end of its last answer. What it prints of these
//! times cannot be used where batches are of several requests: it "corrects" for requests that were held back, by the
//! time that a connection takes a request on average, which is a fraction of that of a batch; so each batch adds several
//! shorter latencies that nobody saw. A script of ours has wrk print its whole histogram and what it corrected by, and
//! the correction is taken back here, exactly.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::Path,
    process::Command,
};

use dwell_testbed::{
    Error, Guarded, Nanos, Result,
    workload::{output, require, serve},
};

use super::{super::stage::Stage, Distribution, Program, ThirdPartyOptions, ThirdPartyReport};

/// The batch, and at the end what wrk knows, for machines.
const SCRIPT: &str = r#"
function init(arguments)
  local requests = {}
  for n = 1, tonumber(arguments[1]) do requests[n] = wrk.format("GET", "/object") end
  batch = table.concat(requests)
end

function request() return batch end

function done(summary, latency)
  local errors = summary.errors
  print("summary", summary.requests, summary.duration,
    errors.connect + errors.read + errors.write + errors.timeout, errors.status)
  for n = 1, #latency do print("latency", latency(n)) end
end
"#;

/// What `begin` gives is of the load alone.
pub(super) fn run<T>(
    stage: &Stage<'_>,
    options: &ThirdPartyOptions,
    begin: impl FnOnce() -> Result<T>,
) -> Result<(ThirdPartyReport, T)> {
    let (connections, threads) = (options.connections, options.threads);
    if !connections.is_multiple_of(threads) {
        let reason = format!("{connections} is not a multiple of {threads} threads; wrk gives each as many");
        return Err(Error::invalid("connections", reason));
    }
    require("wrk")?;
    let folder = stage.lab.state().folder();
    let server = SocketAddr::from((stage.server(), 80));
    let _nginx = start_nginx(stage, &folder, server, options.size)?;
    let script = folder.join("wrk.lua");
    fs::write(&script, SCRIPT).map_err(Error::file("write", &script))?;
    let begun = begin()?;
    let arguments = [
        format!("--connections={connections}"),
        format!("--threads={threads}"),
        format!("--duration={}s", options.duration.as_secs_f64().ceil()),
        "--timeout=10s".to_owned(),
        format!("--script={}", script.display()),
        format!("http://{server}/"),
        "--".to_owned(),
        options.depth.to_string(),
    ];
    let said = output(stage.lab.client(), "wrk", &arguments, &stage.signals.stop)?;
    let report = read(&said, options)?;
    Ok((report, begun))
}

/// One object of that size, and no file outside of the lab's folder.
fn start_nginx(stage: &Stage<'_>, folder: &Path, address: SocketAddr, size: u64) -> Result<Guarded> {
    let object = folder.join("object");
    let made = File::create(&object).and_then(|file| file.set_len(size));
    made.map_err(Error::file("write", &object))?;
    let here = folder.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {here}/{kind}; "))
        .concat();
    // As root, who may read the folder.
    let config = format!(
        "user root; daemon off; pid {here}/nginx.pid; events {{ worker_connections 10000; }}\n\
         http {{ access_log off; {temporary}\n\
         server {{ listen {address}; root {here}; keepalive_requests 4000000000; }} }}\n"
    );
    let file = folder.join("nginx.conf");
    fs::write(&file, config).map_err(Error::file("write", &file))?;
    let configure = |command: &mut Command| {
        command.args(["-e", "stderr", "-c"]).arg(&file);
    };
    serve(stage.lab.server(), "nginx", configure, "tcp", address.port())
}

/// What the script printed: times in microseconds.
fn read(said: &str, options: &ThirdPartyOptions) -> Result<ThirdPartyReport> {
    let wrong = |why: &str| Error::invalid("what wrk says", format!("{why}: {}", said.trim()));
    let mut summary = None;
    let mut histogram = Vec::new();
    for line in said.lines() {
        let mut words = line.split('\t');
        let name = words.next();
        let numbers: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
        match (name, numbers.as_deref()) {
            (Some("summary"), Some(&[requests, lasted_us, broken, refused])) => {
                summary = Some((requests, lasted_us, broken, refused));
            }
            (Some("latency"), Some(&[value_us, count])) => histogram.push((value_us, count)),
            _ => {}
        }
    }
    let (requests, lasted_us, broken, refused) = summary.ok_or_else(|| wrong("there is no summary"))?;
    if broken > 0 || refused > 0 {
        let reason = format!("{broken} failures of connections, {refused} answers with errors");
        return Err(Error::invalid("load by wrk", reason));
    }
    let each = requests / options.connections as u64;
    // Without a request of each connection, wrk corrects nothing.
    let expected_us = lasted_us.checked_div(each).unwrap_or(u64::MAX / 2);
    let histogram = take_back(&histogram, expected_us).ok_or_else(|| wrong("the histogram is another"))?;
    let latency = distribution(&histogram).ok_or_else(|| wrong("no batch was answered"))?;
    // Of each connection one batch may be answered in part.
    let depth = options.depth as u64;
    let rest = requests.checked_sub(latency.batches * depth);
    if rest.is_none_or(|rest| rest > options.connections as u64 * (depth - 1)) {
        return Err(wrong("batches and requests do not agree"));
    }
    Ok(ThirdPartyReport {
        program: Program::Wrk,
        depth: options.depth,
        requests,
        lasted_ns: Nanos(lasted_us * 1_000),
        latency,
        capture: None,
    })
}

/// wrk goes through its histogram upwards; for each value of twice the expected time or more, it counts the value less
/// once, twice and so on the expected time too, as long as that is above it. So a count depends only on counts of
/// longer times, and taking it back begins with the longest. None where a count would be below zero.
fn take_back(histogram: &[(u64, u64)], expected_us: u64) -> Option<Vec<(u64, u64)>> {
    let mut added = std::collections::HashMap::new();
    let mut original = Vec::new();
    let mut descending = histogram.to_vec();
    descending.sort_unstable_by_key(|&(value_us, _)| std::cmp::Reverse(value_us));
    for (value_us, count) in descending {
        let count = count.checked_sub(added.get(&value_us).copied().unwrap_or(0))?;
        if count == 0 {
            continue;
        }
        original.push((value_us, count));
        if value_us / 2 >= expected_us {
            let mut shorter_us = value_us - expected_us;
            while shorter_us > expected_us {
                *added.entry(shorter_us).or_default() += count;
                shorter_us -= expected_us;
            }
        }
    }
    original.reverse();
    Some(original)
}

/// Of values in ascending order, and how often each was.
fn distribution(histogram: &[(u64, u64)]) -> Option<Distribution> {
    let count: u64 = histogram.iter().map(|&(_, count)| count).sum();
    let &(max_us, _) = histogram.last()?;
    let nanos = |us: f64| Nanos((us * 1e3).round() as u64);
    let over = |what: &dyn Fn(f64) -> f64| {
        let sum: f64 = histogram.iter().map(|&(value_us, count)| what(value_us as f64) * count as f64).sum();
        sum / count as f64
    };
    let mean_us = over(&|value_us| value_us);
    let variance = over(&|value_us| (value_us - mean_us).powi(2));
    let quantile = |share: f64| {
        let rank = (count as f64 * share).ceil() as u64;
        let mut seen = 0;
        let at = histogram.iter().find(|&&(_, count)| {
            seen += count;
            seen >= rank
        });
        at.map_or(max_us, |&(value_us, _)| value_us) as f64
    };
    Some(Distribution {
        batches: count,
        mean_ns: nanos(mean_us),
        deviation_ns: Some(nanos(variance.sqrt())),
        p50_ns: nanos(quantile(0.5)),
        p95_ns: nanos(quantile(0.95)),
        p99_ns: nanos(quantile(0.99)),
        max_ns: nanos(max_us as f64),
    })
}

#[cfg(test)]
mod tests {
    use dwell_testbed::Topology;

    use super::{super::Network, *};
    use crate::Programs;

    /// As wrk 4.1.0 printed it: two connections, batches of 4, answers of 100 kB at 20 MB/s.
    const SAID: &str = include_str!("wrk_says.txt");

    fn options(connections: usize, depth: usize) -> ThirdPartyOptions {
        ThirdPartyOptions {
            programs: Programs { dwell: "/dwell".into(), lab: "/dwell-lab".into() },
            program: Program::Wrk,
            depth,
            threads: 1,
            connections,
            size: 100_000,
            duration: std::time::Duration::from_secs(1),
            seed: 1,
            network: Network { topology: Topology::triangle(Nanos(0), Nanos(0), Nanos(0)), cross: None, tunnel: None },
            pcap: None,
        }
    }

    #[test]
    fn batches_are_as_many_and_as_long_as_the_run_allows() {
        let report = read(SAID, &options(2, 4)).unwrap();
        assert_eq!(report.requests, 444);
        let latency = report.latency;
        assert_eq!(latency.batches, 110);
        // Batches of a connection follow each other at once. wrk itself tells a mean of 5.51 ms.
        let of_each_connection = report.lasted_ns.0 as f64 * 2.0 / 110.0;
        let ratio = latency.mean_ns.0 as f64 / of_each_connection;
        assert!((0.97..=1.0).contains(&ratio), "{ratio}");
        assert!(latency.p50_ns < latency.p95_ns && latency.p99_ns <= latency.max_ns);
        assert_eq!(latency.max_ns, Nanos(22_448_000));
    }

    #[test]
    fn what_does_not_add_up_is_refused() {
        assert!(read(SAID, &options(2, 5)).is_err());
        assert!(read(SAID, &options(3, 4)).is_err());
        assert!(read("", &options(2, 4)).is_err());
        let broken = SAID.replace("1001676\t0\t0", "1001676\t0\t3");
        let said = read(&broken, &options(2, 4)).unwrap_err().to_string();
        assert!(said.contains("3 answers with errors"), "{said}");
    }

    #[test]
    fn a_correction_is_taken_back() {
        // Of 9 and 12, by 3: 12 adds 9 and 6, 9 adds 6. 3 is not above 3.
        let original = [(5, 1), (9, 2), (12, 1)];
        let corrected = [(5, 1), (6, 3), (9, 3), (12, 1)];
        assert_eq!(take_back(&corrected, 3).unwrap(), original);
        assert_eq!(take_back(&original, 100).unwrap(), original);
        // 9 would have had to add to 6.
        assert_eq!(take_back(&[(6, 1), (9, 2)], 3), None);
    }

    #[test]
    fn figures_are_of_each_batch() {
        let figures = distribution(&[(10, 98), (20, 1), (110, 1)]).unwrap();
        assert_eq!((figures.batches, figures.mean_ns), (100, Nanos(11_100)));
        assert_eq!(figures.deviation_ns, Some(Nanos(9_989)));
        assert_eq!((figures.p50_ns, figures.p99_ns, figures.max_ns), (Nanos(10_000), Nanos(20_000), Nanos(110_000)));
        assert_eq!(distribution(&[]), None);
    }
}
