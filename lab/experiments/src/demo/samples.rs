//! The samples that dwell writes, sorted by what they measure.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read},
    net::IpAddr,
    process::Child,
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
};

use dwell_testbed::{Lab, Nanos, Role, Side};
use serde::Deserialize;

use super::Scope;

/// Samples by method and scope, and the numbers of lines that belong to none.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) values: BTreeMap<(String, Scope), Vec<Nanos>>,
    pub(super) unreadable: u64,
    pub(super) elsewhere: u64,
}

/// The fields of a line of `dwell rtt --format jsonl` that are used here. The latency is the round trip from the
/// vantage point to `dst`.
#[derive(Debug, Deserialize)]
struct Sample {
    flow: Flow,
    method: String,
    /// `null` if dwell does not know it.
    rtt_ns: Option<Nanos>,
}

#[derive(Debug, Deserialize)]
struct Flow {
    dst: IpAddr,
}

#[derive(Debug, Deserialize)]
struct Kind {
    r#type: String,
}

impl Collected {
    fn take(&mut self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        // Lines of other types are ignored, but they must be JSON with a type.
        let kind = serde_json::from_str::<Kind>(line).map(|kind| kind.r#type);
        let sample = match kind.as_deref() {
            Ok("rtt.sample") => serde_json::from_str::<Sample>(line),
            Ok(_) => return,
            Err(_) => return self.unreadable += 1,
        };
        match sample {
            Ok(Sample { rtt_ns: None, .. }) => {}
            Ok(Sample { flow, method, rtt_ns: Some(rtt) }) => match scope(flow.dst, &method) {
                Some(scope) => self.values.entry((method, scope)).or_default().push(rtt),
                None => self.elsewhere += 1,
            },
            Err(_) => self.unreadable += 1,
        }
    }
}

fn scope(dst: IpAddr, method: &str) -> Option<Scope> {
    let is = |role| dst == IpAddr::from(Lab::address_v4(role)) || dst == IpAddr::from(Lab::address_v6(role));
    match (is(Role::Client), is(Role::Server)) {
        (false, false) => None,
        _ if method == "quic-spin-loop" => Some(Scope::EndToEnd),
        (true, _) => Some(Scope::Side(Side::Client)),
        (_, true) => Some(Scope::Side(Side::Server)),
    }
}

/// Reads both outputs of dwell while it runs.
#[derive(Debug)]
pub(super) struct Collector {
    lines: Option<JoinHandle<Collected>>,
    stderr: Arc<Mutex<String>>,
}

impl Collector {
    pub(super) fn start(process: &mut Child) -> Self {
        let lines = process.stdout.take().map(|stdout| {
            std::thread::spawn(move || {
                let mut collected = Collected::default();
                for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                    collected.take(&String::from_utf8_lossy(&line));
                }
                collected
            })
        });
        let stderr = Arc::new(Mutex::new(String::new()));
        if let Some(mut pipe) = process.stderr.take() {
            let text = Arc::clone(&stderr);
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(length @ 1..) = pipe.read(&mut buffer) {
                    let mut text = text.lock().unwrap_or_else(PoisonError::into_inner);
                    // The beginning says what is wrong.
                    if text.len() < 16 << 10 {
                        text.push_str(&String::from_utf8_lossy(&buffer[..length]));
                    }
                }
            });
        }
        Self { lines, stderr }
    }

    pub(super) fn stderr(&self) -> String {
        // The output of a program that has just ended may not have been read yet.
        std::thread::sleep(std::time::Duration::from_millis(50));
        self.stderr.lock().unwrap_or_else(PoisonError::into_inner).trim().to_owned()
    }

    /// Returns the samples. Must be called only after dwell has ended.
    pub(super) fn finish(self) -> Collected {
        self.lines
            .map(|lines| lines.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(lines: &[&str]) -> Collected {
        let mut collected = Collected::default();
        lines.iter().for_each(|line| collected.take(line));
        collected
    }

    #[test]
    fn samples_go_to_the_side_they_measure() {
        let collected = collect(&[
            r#"{"type":"rtt.sample","flow":{"src":"10.77.1.1","sport":1,"dst":"10.77.4.2","dport":2,"proto":"TCP"},"method":"tcp-seq","rtt_ns":5000000}"#,
            r#"{"type":"rtt.sample","flow":{"src":"fd00:77:4::2","dst":"fd00:77:1::1"},"method":"icmpv6","rtt_ns":20000000}"#,
            r#"{"type":"rtt.sample","flow":{"dst":"10.77.4.2"},"method":"quic-spin-loop","rtt_ns":25000000}"#,
        ]);
        let expected = [
            (("icmpv6".to_owned(), Scope::Side(Side::Client)), vec![Nanos::from_millis(20)]),
            (("quic-spin-loop".to_owned(), Scope::EndToEnd), vec![Nanos::from_millis(25)]),
            (("tcp-seq".to_owned(), Scope::Side(Side::Server)), vec![Nanos::from_millis(5)]),
        ];
        assert_eq!(collected.values.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn lines_that_are_not_samples_are_counted_or_ignored() {
        let collected = collect(&[
            "",
            "not json",
            r#"{"type":"rtt.sample","flow":{"dst":"10.77.4.2"},"method":"tcp-seq"#,
            r#"{"type":"rtt.sample","flow":{"dst":"10.77.4.2"},"method":"tcp-seq","rtt_ns":-1}"#,
            r#"{"type":"rtt.sample","flow":{"dst":"10.77.4.2"},"method":"tcp-seq","rtt_ns":null}"#,
            r#"{"type":"summary","rtt_ns":"anything"}"#,
            r#"{"type":"rtt.sample","flow":{"dst":"192.0.2.1"},"method":"tcp-seq","rtt_ns":1}"#,
        ]);
        assert!(collected.values.is_empty());
        assert_eq!((collected.unreadable, collected.elsewhere), (3, 1));
    }
}
