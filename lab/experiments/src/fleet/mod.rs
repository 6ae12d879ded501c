//! Many agents and one collector, or a few: how fast the store has what they send, and what that costs the collector.
//!
//! The collector is `dwell collect`, as it ships. The agents are those of `dwell_fleet`, each with a key, an address, a
//! connection and a clock session of its own, but all in this process, and what they send is made up. What arrives is counted in
//! the store, by SQL, and nothing that the collector says of itself is believed.

mod agents;
mod clickhouse;
mod collector;
mod faults;
mod goals;
mod oracle;
mod strangers;
mod traffic;
pub(crate) mod verb;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use dwell_testbed::{Error, Namespace, Result, signals::Signals};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use self::{
    agents::{Fleet, Sent},
    clickhouse::{ClickHouse, Size},
    collector::Collector,
    oracle::{Oracle, Rows, Seen},
    strangers::Strangers,
};
use crate::Programs;

/// The port at which the collector listens for agents.
const PORT: u16 = 4790;
/// How long the collector may take to get all agents, and to get what they have left at the end.
const LONGEST_WAIT: Duration = Duration::from_secs(120);
/// Time in which the collector comes to rest, before its memory is read.
const SETTLE: Duration = Duration::from_secs(3);
/// Descriptors of the collector and of this process at most, as far as the system allows.
const DESCRIPTORS: u64 = 65_536;

/// One run.
#[derive(Debug, Clone, Copy)]
struct Load {
    /// Number of agents.
    agents: usize,
    /// Flows of which each agent reports in each interval.
    flows: usize,
    /// Length of an agent's interval.
    interval: Duration,
    /// How long agents report.
    duration: Duration,
    /// Number of collectors.
    collectors: usize,
    /// How often a collector is killed in that time; one of several is then away for half of a part of it.
    kills: usize,
    /// Connections that never say anything.
    strangers: usize,
    /// Whether the store is a ClickHouse server.
    has_server: bool,
    /// Whether the server keeps 5 minutes and hours too.
    is_downsampled: bool,
    /// Whether bytes are stamped too. If not, each interval is a batch, and nothing else is.
    is_stamped: bool,
    /// What an agent keeps for its collectors, in bytes.
    buffer: usize,
}

/// What a run found.
#[derive(Debug, Clone)]
struct Outcome {
    load: Load,
    /// How long it took until all agents were connected.
    connected: Duration,
    sent: Sent,
    seen: Seen,
    /// From handing an interval to an agent's queue to its last row in the store, in order.
    delays: Vec<Duration>,
    /// How long agents reported.
    elapsed: Duration,
    /// What the collector used of processors in that time.
    cpu: Duration,
    /// Rows of all tables and batches that were stored in that time.
    rows: u64,
    batches: u64,
    /// Bytes that the network carried in that time, in both directions and with all headers.
    wire_bytes: u64,
    /// The growth of the store's files in that time.
    store_bytes: u64,
    /// The collector's resident memory before the first agent, with all of them connected, and at its greatest.
    memory_bytes: [u64; 3],
    /// Threads of the collector with all agents connected.
    threads: usize,
    /// How long the collector was down after each kill, in order.
    down: Vec<Duration>,
    /// Connections that strangers have opened.
    strange_connections: u64,
    /// The tables of a server at the end.
    tables: Vec<Size>,
}

/// Runs a collector and agents in a network namespace of their own, with their files in an empty folder.
fn measure(load: Load, programs: &Programs, folder: &Path, signals: &Signals) -> Result<Outcome> {
    raise_descriptors();
    let namespace = Arc::new(Namespace::create("fleet")?);
    // Each agent has an address of its own, which the kernel takes as the source of packets to that address.
    namespace.ip(&format!("route add local {} dev lo\n", agents::ADDRESSES))?;
    let fleet = Fleet::enroll(load, folder)?;
    let server = load.has_server.then(|| ClickHouse::start(&namespace, folder)).transpose()?;
    let start = |number| Collector::start(&namespace, &programs.dwell, folder, &load, number);
    let mut collectors = (0..load.collectors).map(start).collect::<Result<Vec<_>>>()?;
    if load.is_downsampled {
        server.iter().try_for_each(ClickHouse::downsample)?;
    }
    let stores: Vec<_> = collectors.iter().map(|collector| collector.store().to_owned()).collect();
    let stored_rows = match server {
        Some(server) => Rows::Server(Arc::new(server), stores[0].clone()),
        None => Rows::Files(stores.clone()),
    };
    let store_bytes = || stores.iter().map(|store| store_bytes(store)).sum::<u64>();
    signals.pause(SETTLE)?;
    let alone = sum(&collectors, Collector::bytes);
    let strangers = (load.strangers > 0).then(|| Strangers::start(&namespace, load.strangers));
    while strangers.as_ref().is_some_and(|strangers| strangers.opened() < load.strangers as u64) {
        signals.pause(Duration::from_millis(10))?;
    }
    let connecting = Instant::now();
    let mut fleet = fleet.connect(&namespace)?;
    while fleet.connected() < load.agents {
        if connecting.elapsed() > LONGEST_WAIT {
            let missing = load.agents - fleet.connected();
            return Err(Error::Timeout(format!("the connection of {missing} of {} agents", load.agents)));
        }
        signals.pause(Duration::from_millis(10))?;
    }
    let connected = connecting.elapsed();
    signals.pause(SETTLE)?;
    let idle = sum(&collectors, Collector::bytes);
    let threads = collectors.iter().map(Collector::threads).sum();

    let oracle = Oracle::start(&stored_rows)?;
    let used = |collectors: &[Collector<'_>]| collectors.iter().map(Collector::cpu).sum::<Duration>();
    let (begun, cpu) = (Instant::now(), used(&collectors));
    let (before, wire, stored) = (stored_rows.so_far()?, wire_bytes(&namespace)?, store_bytes());
    report(&mut fleet, &mut collectors, load, signals)?;
    let elapsed = begun.elapsed();
    let cpu = used(&collectors).saturating_sub(cpu);
    let after = stored_rows.so_far()?;
    let (wire_bytes, store_bytes) =
        (wire_bytes(&namespace)?.saturating_sub(wire), store_bytes().saturating_sub(stored));
    let sent = fleet.finish(LONGEST_WAIT);
    stored_rows.wait_for(sent.rows(), LONGEST_WAIT, signals)?;
    let most = sum(&collectors, Collector::most_bytes);
    let times = oracle.stop()?;
    let strange_connections = strangers.map_or(Ok(0), Strangers::end)?;
    let down = collectors.into_iter().map(Collector::end).collect::<Result<Vec<_>>>()?;
    let mut down = down.concat();
    down.sort_unstable();
    let delays = sent.delays(&times);
    let seen = stored_rows.count(&sent)?;
    let tables = match &stored_rows {
        Rows::Server(server, _) => server.sizes()?,
        Rows::Files(_) => Vec::new(),
    };
    Ok(Outcome {
        load,
        connected,
        sent,
        seen,
        delays,
        elapsed,
        cpu,
        rows: after.0 - before.0,
        batches: after.1 - before.1,
        wire_bytes,
        store_bytes,
        memory_bytes: [alone, idle, most],
        threads,
        down,
        strange_connections,
        tables,
    })
}

/// The sum of a figure of all collectors.
fn sum<'a>(collectors: &[Collector<'a>], of: impl Fn(&Collector<'a>) -> u64) -> u64 {
    collectors.iter().map(of).sum()
}

/// Has agents report, and kills a collector meanwhile: a single one at a random moment of each of equal parts of the time, and
/// starts it again at once; several by turns in the first half of each, and starts it again half of a part later.
fn report(fleet: &mut Fleet, collectors: &mut [Collector<'_>], load: Load, signals: &Signals) -> Result<()> {
    let (random, away) = match collectors.len() {
        1 => (1.0, Duration::ZERO),
        _ => (0.5, load.duration.mul_f64(0.5 / load.kills.max(1) as f64)),
    };
    let begun = Instant::now();
    thread::scope(|scope| {
        let reporting = scope.spawn(|| fleet.report(load.duration, signals));
        for number in 0..load.kills {
            let moment = load.duration.mul_f64((number as f64 + random * rand::random::<f64>()) / load.kills as f64);
            signals.pause(moment.saturating_sub(begun.elapsed()))?;
            let which = number % collectors.len();
            collectors[which].kill(away, signals)?;
        }
        reporting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Raises the limit of this process, which the collector inherits. `LimitNOFILE=` of its unit is as high.
fn raise_descriptors() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Only root may exceed the hard limit.
        let wanted = hard.max(DESCRIPTORS);
        if setrlimit(Resource::RLIMIT_NOFILE, wanted, wanted).is_err() {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, hard.max(soft), hard);
        }
    }
}

/// Bytes that the loopback of a namespace has carried.
fn wire_bytes(namespace: &Namespace) -> Result<u64> {
    let path = PathBuf::from("/proc/thread-self/net/dev");
    let text = namespace.enter(|| fs::read_to_string(&path))?.map_err(Error::file("read", &path))?;
    let of_loopback = text.lines().find_map(|line| line.trim().strip_prefix("lo:"));
    let received = of_loopback.and_then(|line| line.split_whitespace().next()?.parse().ok());
    received.ok_or_else(|| Error::invalid("/proc/net/dev", "it has no bytes of lo"))
}

/// The size of a store with its log.
fn store_bytes(store: &Path) -> u64 {
    let log = store.with_extension("db-wal");
    [store, &log].into_iter().filter_map(|path| fs::metadata(path).ok()).map(|file| file.len()).sum()
}
