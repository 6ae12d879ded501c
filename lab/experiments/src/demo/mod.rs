//! The demonstration: dwell watches a network whose delays are known, and its answers stand beside the truth.

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
    BitsPerSecond, Bytes, Emulation, Error, Guarded, Lab, LabOptions, Nanos, Report, Result, Side, Topology,
    signals::Signals,
    workload::{Bulk, Dns, Ends, Ping, PingPong},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use samples::{Collected, Collector};

use crate::loads::quic::Quic;

pub use table::{Row, Scope};

/// What to demonstrate.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// The dwell executable.
    pub dwell: PathBuf,
    /// Its arguments: they must make it write samples of the interface `server0` as JSON Lines until it is interrupted.
    pub arguments: Vec<String>,
    /// Round trip between vantage point and client.
    pub client_rtt: Nanos,
    /// Round trip between vantage point and server.
    pub server_rtt: Nanos,
    /// Seed of all that is random in the traffic.
    pub seed: u64,
}

impl DemoOptions {
    /// 20 ms on the client's side, 5 ms on the server's.
    pub fn new(dwell: impl Into<PathBuf>) -> Self {
        Self {
            dwell: dwell.into(),
            arguments: ["rtt", "-i", "server0", "--format", "jsonl"].map(str::to_owned).to_vec(),
            client_rtt: Nanos::from_millis(20),
            server_rtt: Nanos::from_millis(5),
            seed: 1,
        }
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct DemoReport {
    /// A row a method and side.
    pub rows: Vec<Row>,
    /// Lines of dwell that were no readable sample.
    pub unreadable: u64,
    /// Samples of hosts that are neither client nor server.
    pub elsewhere: u64,
    /// What the link emulator did.
    pub emulator: Report,
    /// Traffic that could not be made, and why.
    pub skipped: Vec<String>,
}

/// Makes the lab, runs traffic through it for about twelve seconds while dwell watches, and writes what dwell found
/// beside what is true to `results`. What goes on is told to `progress`. All is removed at the end, and on SIGINT and
/// SIGTERM too, which give [`Error::Interrupted`].
pub fn demo(options: &DemoOptions, results: &mut dyn Write, progress: &mut dyn Write) -> Result<DemoReport> {
    let signals = Signals::watch()?;
    let told = |outcome: std::io::Result<()>| outcome.map_err(Error::io("tell progress"));
    let topology = Topology::line(options.client_rtt, options.server_rtt);
    told(writeln!(
        progress,
        "network: client -- {} -- vantage -- {} -- server",
        options.client_rtt, options.server_rtt
    ))?;
    let lab = Lab::start(&LabOptions { name: "demo".to_owned(), topology, emulation: Emulation::Thread })?;
    let mut dwell = Watcher::start(&lab, options)?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        dwell.check()?;
        if dwell.is_attached() {
            break;
        }
        signals.pause(Duration::from_millis(20))?;
    }

    let mut skipped = Vec::new();
    for (name, run) in traffic(&lab, &signals.stop, options.seed) {
        told(writeln!(progress, "traffic: {name}"))?;
        match run() {
            Ok(()) => {}
            Err(Error::Host { fact, remedy, .. }) => {
                told(writeln!(progress, "  skipped: {fact}. {remedy}"))?;
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

    let report = DemoReport {
        rows: rows(&collected, options, &emulator),
        unreadable: collected.unreadable,
        elsewhere: collected.elsewhere,
        emulator,
        skipped,
    };
    table::write(&report, &collected, results).map_err(Error::io("write the results"))?;
    Ok(report)
}

type Run<'a> = Box<dyn Fn() -> Result<()> + 'a>;

/// One after the other, so that none delays another.
fn traffic<'a>(lab: &'a Lab, stop: &'a AtomicBool, seed: u64) -> Vec<(&'static str, Run<'a>)> {
    let (v4, v6) = (Ends::v4(lab), Ends::v6(lab));
    let ping = Ping { count: 40, interval: Duration::from_millis(25) };
    let dns = Dns { queries: 50, seed };
    let ping_pong = PingPong { duration: Duration::from_millis(2_500), longest: Bytes(1_000), seed };
    let bulk = Bulk { seconds: 2, rate: BitsPerSecond::new(20_000_000), download: false, congestion: None };
    let quic = Quic { connections: 8, duration: Duration::from_secs(3), longest: Bytes(1_000), seed };
    vec![
        ("ICMP, ping", Box::new(move || ping.run(v4, stop).map(drop)) as Run<'a>),
        ("ICMPv6, ping", Box::new(move || ping.run(v6, stop).map(drop))),
        ("DNS, dig and dnsmasq", Box::new(move || dns.run(v4, stop).map(drop))),
        ("TCP requests and responses", Box::new(move || ping_pong.run(v4, stop).map(drop))),
        ("TCP bulk, iperf3 at 20 Mbit/s", Box::new(move || bulk.run(v4, stop).map(drop))),
        ("QUIC requests and responses", Box::new(move || quic.run(v4, stop).map(drop))),
    ]
}

/// The truth is what was configured plus the median of what the emulator found it was late, both ways.
fn rows(collected: &Collected, options: &DemoOptions, emulator: &Report) -> Vec<Row> {
    let late = |name| emulator.direction(name).and_then(|direction| direction.error_p50_ns).unwrap_or_default();
    let client = options.client_rtt + late("client to vantage") + late("vantage to client");
    let server = options.server_rtt + late("server to vantage") + late("vantage to server");
    let row = |(key, values): (&(String, Scope), &Vec<Nanos>)| {
        let truth = match key.1 {
            Scope::Side(Side::Client) => client,
            Scope::Side(Side::Server) => server,
            Scope::EndToEnd => client + server,
        };
        Row::new(&key.0, key.1, values, truth)
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

    /// It must not end before it is told to.
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

    /// True once it holds a BPF link for each direction, as the kernel shows its descriptors.
    fn is_attached(&self) -> bool {
        let folder = format!("/proc/{}/fdinfo", self.process.id());
        let infos = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let links =
            infos.filter(|info| std::fs::read_to_string(info.path()).is_ok_and(|text| text.contains("link_type:")));
        links.count() >= 2
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
