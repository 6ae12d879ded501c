//! The demonstration: dwell watches a network whose delays are known, and its results are compared with the truth.

mod samples;
mod table;

use std::{
    io::Write,
    path::PathBuf,
    process::Stdio,
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use dwell_testbed::{
    BitsPerSecond, Bytes, Emulation, Error, Guarded, Lab, LabOptions, Nanos, Report, Result, Topology,
    signals::Signals,
    workload::{Bulk, Dns, Ends, Ping, PingPong},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use samples::{Collected, Collector};

use crate::{loads::quic::Quic, usage::attaches};

pub use table::{Row, Scope};

/// The methods of the demonstration: those of TCP one by one, so that each has a row.
const METHODS: &str = "tcp-timestamp,tcp-seq,icmp,icmpv6,dns,quic-spin,quic-spin-loop,quic-handshake";

/// Options of the demonstration.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// The dwell executable.
    pub dwell: PathBuf,
    /// Its arguments. With these it must write samples of the interface `server0` as JSON Lines until it is
    /// interrupted.
    pub arguments: Vec<String>,
    /// Round trip between vantage point and client.
    pub client_rtt: Nanos,
    /// Round trip between vantage point and server.
    pub server_rtt: Nanos,
    /// Random seed of the traffic.
    pub seed: u64,
}

impl DemoOptions {
    /// Options with a round trip of 20 ms on the client's side and of 5 ms on the server's.
    pub fn new(dwell: impl Into<PathBuf>) -> Self {
        Self {
            dwell: dwell.into(),
            arguments: ["rtt", "-i", "server0", "--format", "jsonl", "--methods", METHODS].map(str::to_owned).to_vec(),
            client_rtt: Nanos::from_millis(20),
            server_rtt: Nanos::from_millis(5),
            seed: 1,
        }
    }
}

/// The results of a demonstration.
#[derive(Debug, Clone, PartialEq)]
pub struct DemoReport {
    /// One row per method and side.
    pub rows: Vec<Row>,
    /// The number of lines that could not be read.
    pub unreadable: u64,
    /// The number of samples of hosts that are neither client nor server.
    pub elsewhere: u64,
    /// The link emulator's own figures.
    pub emulator: Report,
    /// Traffic that could not be generated, and why.
    pub skipped: Vec<String>,
    /// Traffic of which dwell reported no sample.
    pub missing: Vec<&'static str>,
}

/// Makes the lab, runs traffic through it for about twelve seconds while dwell watches, and writes dwell's figures next
/// to the true ones to `results`. Reports what it does to `progress`. Everything is removed at the end, also after
/// SIGINT and SIGTERM, which cause [`Error::Interrupted`].
pub fn demo(options: &DemoOptions, results: &mut dyn Write, progress: &mut dyn Write) -> Result<DemoReport> {
    let signals = Signals::watch()?;
    let mut say = |words: &str| writeln!(progress, "{words}").map_err(Error::io("report progress"));
    let topology = Topology::line(options.client_rtt, options.server_rtt);
    say(&format!("network: client -- {} -- vantage -- {} -- server", options.client_rtt, options.server_rtt))?;
    let lab =
        Lab::start(&LabOptions { name: "demo".to_owned(), topology: topology.clone(), emulation: Emulation::Thread })?;
    let mut dwell = Watcher::start(&lab, options)?;
    if !attaches(dwell.process.id(), ATTACH_TIMEOUT, &signals, || dwell.check())? {
        say(&format!("dwell has not attached within {ATTACH_TIMEOUT:?}: samples may be missing"))?;
    }

    let (mut skipped, mut expected) = (Vec::new(), Vec::new());
    for (name, protocol, run) in traffic(&lab, &signals.stop, options.seed) {
        say(&format!("traffic: {name}"))?;
        match run() {
            Ok(()) => expected.push((name, protocol)),
            Err(Error::Host { fact, remedy, .. }) => {
                say(&format!("  skipped: {fact}. {remedy}"))?;
                skipped.push(format!("{name}: {fact}"));
            }
            Err(error) => return Err(error),
        }
        dwell.check()?;
    }
    // The last samples may still be on their way.
    signals.pause(Duration::from_millis(300))?;
    let collected = dwell.finish()?;
    let emulator = lab.stop()?.ok_or_else(|| Error::invalid("link emulator", "it did not run"))?;

    let is_missing = |(_, protocol): &(_, &str)| {
        let mut methods = collected.values.keys().map(|(method, _)| method);
        !methods.any(|method| method.split('-').next() == Some(protocol))
    };
    let report = DemoReport {
        missing: expected.into_iter().filter(is_missing).map(|(name, _)| name).collect(),
        rows: rows(&collected, &topology, &emulator),
        unreadable: collected.unreadable,
        elsewhere: collected.elsewhere,
        emulator,
        skipped,
    };
    table::write(&report, &collected, results).map_err(Error::io("write the results"))?;
    Ok(report)
}

/// How long to wait until dwell watches.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(10);

type Run<'a> = Box<dyn Fn() -> Result<()> + 'a>;

/// Returns the kinds of traffic: the name, the first word of the methods that measure it, and a function that generates
/// it. They run one after another, so that none delays another.
fn traffic<'a>(lab: &'a Lab, stop: &'a AtomicBool, seed: u64) -> Vec<(&'static str, &'static str, Run<'a>)> {
    let (v4, v6) = (Ends::v4(lab), Ends::v6(lab));
    let ping = Ping { count: 40, interval: Duration::from_millis(25) };
    let dns = Dns { queries: 50, seed };
    let ping_pong = PingPong { duration: Duration::from_millis(2_500), longest: Bytes(1_000), seed };
    let bulk = Bulk { seconds: 2, rate: BitsPerSecond::new(20_000_000), download: false, congestion: None };
    let quic = Quic { connections: 8, duration: Duration::from_secs(3), longest: Bytes(1_000), seed };
    vec![
        ("ICMP, ping", "icmp", Box::new(move || ping.run(v4, stop).map(drop)) as Run<'a>),
        ("ICMPv6, ping", "icmpv6", Box::new(move || ping.run(v6, stop).map(drop))),
        ("DNS, dig and dnsmasq", "dns", Box::new(move || dns.run(v4, stop).map(drop))),
        ("TCP requests and responses", "tcp", Box::new(move || ping_pong.run(v4, stop).map(drop))),
        ("TCP bulk, iperf3 at 20 Mbit/s", "tcp", Box::new(move || bulk.run(v4, stop).map(drop))),
        ("QUIC requests and responses", "quic", Box::new(move || quic.run(v4, stop).map(drop))),
    ]
}

fn rows(collected: &Collected, lab: &Topology, emulator: &Report) -> Vec<Row> {
    let row = |((method, scope), values): (&(String, Scope), &Vec<Nanos>)| {
        Row::new(method, *scope, values, scope.truth(lab, emulator))
    };
    collected.values.iter().map(row).collect()
}

/// dwell at the vantage point.
struct Watcher {
    process: Guarded,
    collector: Collector,
    name: String,
}

impl Watcher {
    fn start(lab: &Lab, options: &DemoOptions) -> Result<Self> {
        let mut process = lab.vantage().spawn(&options.dwell, |command| {
            command.args(&options.arguments);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        })?;
        let collector = Collector::start(&mut process);
        let name = format!("{} {}", options.dwell.display(), options.arguments.join(" "));
        Ok(Self { process, collector, name })
    }

    /// Fails if dwell has ended before it was interrupted.
    fn check(&mut self) -> Result<()> {
        match self.process.try_wait().map_err(Error::io(format!("wait for `{}`", self.name)))? {
            None => Ok(()),
            Some(status) => Err(Error::Command {
                command: self.name.clone(),
                status: format!("it ended before it was interrupted, {status}"),
                stderr: self.collector.stderr(),
            }),
        }
    }

    fn finish(mut self) -> Result<Collected> {
        self.check()?;
        let pid = i32::try_from(self.process.id()).expect("process numbers fit");
        // Not collected yet, so the number is still that of the child.
        kill(Pid::from_raw(pid), Signal::SIGINT).map_err(Error::os(format!("interrupt `{}`", self.name)))?;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3) {
            if self.process.try_wait().map_err(Error::io(format!("wait for `{}`", self.name)))?.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // Its outputs end with it.
        drop(self.process);
        Ok(self.collector.finish())
    }
}
