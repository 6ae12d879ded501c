//! What round-trip times of the same connections say. They end with the kernel's answer, not with the server's.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use dwell_engine::stats::{mean, quantile, sorted};
use dwell_testbed::{Error, Lab, Nanos, Result, Role, error::find_program, signals::Signals, workload::require};
use serde::{Deserialize, Serialize};

use super::{
    super::capture::Capture,
    log::{Epoch, Log, Request},
    tcptrace,
};

/// Latencies of one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Latencies {
    /// What they are of: `truth`, `syn-ack`, `smoothed-rtt`, `tcptrace`, `dwell-rtt`.
    pub of: &'static str,
    /// How many there are.
    pub samples: usize,
    /// Their mean.
    pub mean_ns: Option<Nanos>,
    /// Their median. Unknown of tcptrace, which tells a mean a connection.
    pub p50_ns: Option<Nanos>,
    /// The 99th percentile; unknown as the median is.
    pub p99_ns: Option<Nanos>,
}

impl Latencies {
    fn new(of: &'static str, ns: impl IntoIterator<Item = f64>) -> Self {
        let ns = sorted(ns);
        Self {
            of,
            samples: ns.len(),
            mean_ns: mean(ns.iter().copied()).map(rounded),
            p50_ns: quantile(&ns, 0.5).map(rounded),
            p99_ns: quantile(&ns, 0.99).map(rounded),
        }
    }

    /// What the client waited for its answers.
    pub(super) fn truth(log: &Log) -> Self {
        let requests = log.requests.values().flatten();
        Self::new("truth", requests.map(Request::latency_ns))
    }

    /// From the records of a run with the estimator `syn-ack`.
    pub(super) fn handshakes(epochs: &[Epoch]) -> Self {
        let estimates = epochs.iter().filter_map(|epoch| epoch.estimate.as_ref());
        Self::new("syn-ack", estimates.map(|estimate| estimate.ns as f64))
    }

    /// From the output of `dwell rtt --format jsonl`.
    pub(super) fn dwell_rtt(records: &Path) -> Result<Self> {
        let text = fs::read_to_string(records).map_err(Error::file("read", records))?;
        let lines: Vec<Line> = text
            .lines()
            .map(serde_json::from_str)
            .collect::<serde_json::Result<_>>()
            .map_err(|why| Error::invalid(records.display().to_string(), why))?;
        let samples = lines.iter().filter_map(|line| line.rtt_ns);
        Ok(Self::new("dwell-rtt", samples))
    }
}

fn rounded(ns: f64) -> Nanos {
    Nanos(ns.round() as u64)
}

/// Of samples; other lines have no such field.
#[derive(Deserialize)]
struct Line {
    rtt_ns: Option<f64>,
}

/// What is noted at the client while the load runs.
pub(super) struct AtClient {
    /// The round-trip time that TCP goes by, of each connection, once a second.
    smoothed: JoinHandle<Result<Result<Vec<f64>>>>,
    stop: Arc<AtomicBool>,
    capture: Option<(Capture, PathBuf)>,
}

impl AtClient {
    /// The capture is for tcptrace, and is left out where there is none.
    pub(super) fn start(lab: &Lab, capture: PathBuf) -> Result<Self> {
        require("ss")?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let server = Lab::address_v4(Role::Server).to_string();
        let capture = match find_program("tcptrace") {
            Some(_) => Some((Capture::at_client(lab.client(), &capture)?, capture)),
            None => None,
        };
        let client = lab.client();
        Ok(Self { smoothed: client.spawn_thread(move || read_each_second(&server, &stopped)), stop, capture })
    }

    pub(super) fn finish(self, signals: &Signals) -> Result<Vec<Latencies>> {
        self.stop.store(true, Ordering::Relaxed);
        let smoothed = self.smoothed.join();
        let smoothed = smoothed.unwrap_or_else(|panic| std::panic::resume_unwind(panic))??;
        let mut found = vec![Latencies::new("smoothed-rtt", smoothed)];
        if let Some((capture, file)) = self.capture {
            capture.finish(signals)?;
            found.extend(tcptrace::round_trips(&file)?.map(|(mean_ns, samples)| Latencies {
                of: "tcptrace",
                samples,
                mean_ns: (samples > 0).then_some(rounded(mean_ns)),
                p50_ns: None,
                p99_ns: None,
            }));
        }
        Ok(found)
    }
}

fn read_each_second(server: &str, stop: &AtomicBool) -> Result<Vec<f64>> {
    let mut found = Vec::new();
    let mut begun = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if begun.elapsed() < Duration::from_secs(1) {
            thread::sleep(Duration::from_millis(10));
            continue;
        }
        begun = Instant::now();
        let output = Command::new("ss")
            .args(["-tinH", "dst", server])
            .stdin(Stdio::null())
            .output()
            .map_err(Error::io("run `ss -tinH`"))?;
        found.extend(smoothed_ns(&String::from_utf8_lossy(&output.stdout)));
    }
    Ok(found)
}

/// From `rtt:MEAN/DEVIATION`, in milliseconds.
fn smoothed_ns(text: &str) -> impl Iterator<Item = f64> {
    text.split_ascii_whitespace().filter_map(|word| {
        let (mean, _) = word.strip_prefix("rtt:")?.split_once('/')?;
        mean.parse::<f64>().ok().map(|ms| ms * 1e6)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn the_kernel_tells_the_mean_before_the_deviation_in_ms() {
        let text = "ESTAB 0 284 10.77.1.1:58962 10.77.4.2:80\n\t bbr rto:212 rtt:10.195/6.62 mss:1448 rcv_rtt:6.125 \
                    minrtt:0.009\nESTAB 0 0 10.77.1.1:5 10.77.4.2:80\n\t bbr rtt:0.25/0.1\n";
        assert_eq!(smoothed_ns(text).collect::<Vec<_>>(), [10_195_000.0, 250_000.0]);
    }

    #[test]
    fn the_truth_is_over_all_connections() {
        let request = |sent_ns, done_ns| Request { id: 0, sent_ns, done_ns, triggers: None };
        let log = Log {
            requests: HashMap::from([(1, vec![request(0, 10), request(5, 25)]), (2, vec![request(0, 90)])]),
            ..Log::default()
        };
        let truth = Latencies::truth(&log);
        assert_eq!((truth.samples, truth.mean_ns, truth.p50_ns), (3, Some(Nanos(40)), Some(Nanos(20))));
    }
}
