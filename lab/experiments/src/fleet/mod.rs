//! Many agents and one collector: how fast the store has what they send, and what that costs the collector.
//!
//! The collector is `dwell collect`, as it ships. The agents are those of `dwell_fleet`, each with a key, an address, a
//! connection and a clock session of its own, but all in this process, and what they send is made up. What arrives is counted in
//! the store, by SQL, and nothing that the collector says of itself is believed.

mod agents;
mod goals;
mod oracle;
mod traffic;
pub(crate) mod verb;

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use dwell_testbed::{
    Error, Namespace, Result,
    program::{PATIENCE, RunningProgram},
    signals::Signals,
};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use self::{
    agents::{Fleet, Sent},
    oracle::{Oracle, Seen},
};
use crate::{
    Programs,
    usage::{Usage, process_cpu_time, resident_memory},
};

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
}

/// Runs a collector and agents in a network namespace of their own, with their files in an empty folder.
fn measure(load: Load, programs: &Programs, folder: &Path, signals: &Signals) -> Result<Outcome> {
    raise_descriptors();
    let namespace = Namespace::create("fleet")?;
    // Each agent has an address of its own, which the kernel takes as the source of packets to that address.
    namespace.ip(&format!("route add local {} dev lo\n", agents::ADDRESSES))?;
    let fleet = Fleet::enroll(load, folder)?;
    let store = folder.join("fleet.db");
    let mut collector = collector(&namespace, programs, folder, &store)?;
    collector.wait_for("agents are awaited", 1, PATIENCE)?;
    signals.pause(SETTLE)?;
    let process = collector.id();
    let alone = resident_memory(process);
    let connecting = Instant::now();
    let mut fleet = fleet.connect(&namespace)?;
    while fleet.connected() < load.agents {
        if connecting.elapsed() > LONGEST_WAIT {
            return Err(Error::Timeout(format!(
                "the connection of {} of {} agents",
                load.agents - fleet.connected(),
                load.agents
            )));
        }
        signals.pause(Duration::from_millis(10))?;
    }
    let connected = connecting.elapsed();
    signals.pause(SETTLE)?;
    let (idle, threads) = (resident_memory(process), threads(process));

    let oracle = Oracle::start(&store)?;
    let (begun, cpu) = (Instant::now(), process_cpu_time(process));
    let (before, wire, stored) = (oracle::so_far(&store)?, wire_bytes(&namespace)?, store_bytes(&store));
    fleet.report(load.duration, signals)?;
    let elapsed = begun.elapsed();
    let cpu = process_cpu_time(process).saturating_sub(cpu);
    let after = oracle::so_far(&store)?;
    let (wire_bytes, store_bytes) =
        (wire_bytes(&namespace)?.saturating_sub(wire), store_bytes(&store).saturating_sub(stored));
    let sent = fleet.finish(LONGEST_WAIT);
    let most = Usage::of(process).memory_bytes;
    let times = oracle.stop()?;
    collector.interrupt()?;
    let delays = sent.delays(&times);
    let seen = oracle::count(&store, &sent)?;
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
        memory_bytes: [alone, idle, most].map(Option::unwrap_or_default),
        threads,
    })
}

fn collector(namespace: &Namespace, programs: &Programs, folder: &Path, store: &Path) -> Result<RunningProgram> {
    let listen = format!("0.0.0.0:{PORT}");
    let (key, list) = (agents::key(folder), agents::list(folder));
    let [store, key, list] = [store, &key, &list].map(|path| path.to_string_lossy());
    let collect = ["collect", "--listen", &listen, "--store", &store, "--key-file", &key, "--agents", &list];
    RunningProgram::start("collector", namespace, &programs.dwell, folder, &collect)
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

fn threads(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/task")).map_or(0, Iterator::count)
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
