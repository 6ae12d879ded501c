//! The agents: real ones but for what they report.

use std::{
    collections::{HashMap, HashSet},
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use dwell_fleet::{
    Batcher, Event, Identity, Key, Lane, Lanes, Outbox, clock_session,
    wire::{AgentName, Hello, IntervalReport},
};
use dwell_probes::clock::{Reflector, ReflectorOptions};
use dwell_socket::clock::monotonic_ns;
use dwell_testbed::{Error, Namespace, Result, signals::Signals};

use super::{
    Load, PORT,
    oracle::Times,
    traffic::{self, Flow},
};

/// The addresses of agents, and the first one.
pub(super) const ADDRESSES: &str = "10.128.0.0/9";
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 128, 1, 0);
/// The address of the first of several collectors, which all agents have to call the same.
const FIRST_COLLECTOR: Ipv4Addr = Ipv4Addr::new(10, 254, 0, 1);
/// How often an agent looks for bytes that were stamped: as often as it may send them.
const TICK: Duration = Duration::from_millis(100);
/// What an agent keeps for its collector, in bytes, as `dwell agent` does.
pub(super) const BUFFER: usize = 64_000_000;
/// Agents that are ended at once.
const ENDING: usize = 64;

/// The collector's key.
pub(super) fn key(folder: &Path) -> PathBuf {
    folder.join("key")
}

/// The list of agents.
pub(super) fn list(folder: &Path) -> PathBuf {
    folder.join("agents")
}

/// The address of an agent.
pub(super) fn address(agent: usize) -> Ipv4Addr {
    traffic::nth_address(FIRST, agent)
}

/// The address of one of several collectors.
pub(super) fn collector_address(number: usize) -> Ipv4Addr {
    traffic::nth_address(FIRST_COLLECTOR, number)
}

/// The name of an agent.
pub(super) fn name(agent: usize) -> String {
    format!("agent-{agent:05}")
}

/// The number of an agent with this name.
pub(super) fn number(name: &str) -> Option<usize> {
    name.strip_prefix("agent-")?.parse().ok()
}

/// Agents that have credentials.
pub(super) struct Enrolled {
    load: Load,
    identities: Vec<(AgentName, Identity)>,
}

/// Agents that are connected, or try to.
pub(super) struct Fleet {
    load: Load,
    agents: Vec<Agent>,
    counts: Arc<Counts>,
    /// When each interval was handed to its agent's queue, agent by agent.
    reported: Vec<Vec<Instant>>,
    /// Rows that the store should have of each interval.
    rows: Vec<u64>,
}

struct Agent {
    batcher: Batcher,
    flows: Vec<Flow>,
}

/// What agents notice of their connections.
#[derive(Debug, Default)]
struct Counts {
    connected: AtomicU64,
    busy: AtomicU64,
    rejected: AtomicU64,
    disconnected: AtomicU64,
}

/// What agents have sent, and how that went.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    /// When each interval was handed to its agent's queue, agent by agent.
    pub(super) reported: Vec<Vec<Instant>>,
    /// Rows that the store should have of each interval of an agent.
    pub(super) rows: Vec<u64>,
    /// The length of an interval; the store's differ by their number in nanoseconds, by which they are recognized.
    pub(super) interval_ns: u64,
    /// Batches that were neither stored nor given up at the end.
    pub(super) left: u64,
    /// Batches that agents have given up.
    pub(super) dropped: u64,
    /// How often a batch was turned away for a while.
    pub(super) busy: u64,
    /// Batches that the collector will never store.
    pub(super) rejected: u64,
    /// Connections that failed or were lost.
    pub(super) disconnected: u64,
}

impl Fleet {
    /// Makes the keys of the collector and of all agents.
    pub(super) fn enroll(load: Load, folder: &Path) -> Result<Enrolled> {
        let failed = |error: dwell_fleet::Error| Error::invalid("key", error);
        let own = key(folder);
        Key::create(&own).and_then(|()| Key::read(&own)).map_err(failed)?;
        let own = Key::read(&own).map_err(failed)?;
        let enroll = |agent| {
            let name = AgentName::try_from(name(agent))?;
            let file = own.enroll(&name, &list(folder))?;
            Ok((name, Identity::from_key(&Key::read(&file)?)))
        };
        let identities = (0..load.agents).map(enroll).collect::<std::result::Result<_, _>>().map_err(failed)?;
        Ok(Enrolled { load, identities })
    }

    /// The number of agents that all collectors have welcomed.
    pub(super) fn connected(&self) -> usize {
        self.counts.connected.load(Ordering::Relaxed) as usize
    }

    /// Connections that failed or were lost so far.
    pub(super) fn disconnected(&self) -> u64 {
        self.counts.disconnected.load(Ordering::Relaxed)
    }

    /// Reports for a time. The intervals of agents end at different times.
    pub(super) fn report(&mut self, duration: Duration, signals: &Signals) -> Result<()> {
        let begun = Instant::now();
        let ticks = (self.load.interval.as_millis() / TICK.as_millis()).max(1) as u64;
        let (agents, interval_ns) = (self.agents.len() as u64, self.load.interval.as_nanos() as u64);
        for tick in 1.. {
            let due = TICK * tick as u32;
            if due > duration {
                break;
            }
            signals.pause(due.saturating_sub(begun.elapsed()))?;
            for (agent, number) in self.agents.iter_mut().zip(0_u64..) {
                let now_ns = monotonic_ns();
                let stamped = agent.flows.iter().filter(|flow| self.load.is_stamped && flow.is_stamped(tick, ticks));
                let interval = tick / ticks;
                stamped.for_each(|flow| agent.batcher.push_trace(flow.trace(interval, now_ns)));
                agent.batcher.flush_if_due();
                if tick % ticks != (2 * number + 1) * ticks / (2 * agents) {
                    continue;
                }
                let reported = &mut self.reported[number as usize];
                let number = reported.len() as u64;
                let report = interval_report(&agent.flows, now_ns, interval_ns + number);
                reported.push(Instant::now());
                agent.batcher.push_interval(report, traffic::counters(number));
            }
        }
        Ok(())
    }

    /// Waits until everything is stored, at most for a time, and takes leave.
    pub(super) fn finish(self, limit: Duration) -> Sent {
        let Fleet { load, agents, counts, reported, rows } = self;
        let deadline = Instant::now() + limit;
        let mut batchers: Vec<Vec<Batcher>> = (0..ENDING).map(|_| Vec::new()).collect();
        for (agent, number) in agents.into_iter().zip(0..) {
            batchers[number % ENDING].push(agent.batcher);
        }
        let end = |batchers: Vec<Batcher>| -> (u64, u64) {
            let left = batchers.into_iter().map(|batcher| {
                let left = batcher.finish(deadline.saturating_duration_since(Instant::now()));
                (left.batches, left.dropped)
            });
            left.fold((0, 0), |sum, (batches, dropped)| (sum.0 + batches, sum.1 + dropped))
        };
        let (left, dropped) = thread::scope(|scope| {
            let ends: Vec<_> = batchers.into_iter().map(|batchers| scope.spawn(|| end(batchers))).collect();
            let ends = ends.into_iter().map(|end| end.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            ends.fold((0, 0), |sum, end| (sum.0 + end.0, sum.1 + end.1))
        });
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Sent {
            reported,
            rows,
            interval_ns: load.interval.as_nanos() as u64,
            left,
            dropped,
            busy: count(&counts.busy),
            rejected: count(&counts.rejected),
            disconnected: count(&counts.disconnected),
        }
    }
}

impl Enrolled {
    /// Takes agents by their names and credentials.
    pub(super) fn with(load: Load, identities: Vec<(AgentName, Identity)>) -> Enrolled {
        Enrolled { load, identities }
    }

    /// Starts all agents at once in a namespace.
    pub(super) fn connect(self, namespace: &Namespace) -> Result<Fleet> {
        let load = self.load;
        let counts = Arc::<Counts>::default();
        let rows = (0..load.agents).map(|agent| traffic::rows(&traffic::flows(agent, load.agents, load.flows)));
        let rows = rows.collect();
        let start = || {
            let sessions = ReflectorOptions {
                sessions: (4 * load.agents * load.collectors) as u32 + 64,
                ..ReflectorOptions::default()
            };
            let reflector = Reflector::attach(&sessions).map_err(|error| Error::invalid("clock", error))?;
            let reflector = Arc::new(reflector);
            let agents = self.identities.into_iter().zip(0..).map(|((name, identity), number)| {
                let batcher = connect(&load, number, &name, &identity, &reflector, &counts)?;
                Ok(Agent { batcher, flows: traffic::flows(number, load.agents, load.flows) })
            });
            agents.collect::<Result<Vec<_>>>()
        };
        let agents = namespace.enter(start)??;
        Ok(Fleet { load, agents, counts, reported: vec![Vec::new(); load.agents], rows })
    }
}

/// Starts an agent, which calls a single collector by an address of its own.
fn connect(
    load: &Load,
    number: usize,
    name: &AgentName,
    identity: &Identity,
    reflector: &Arc<Reflector>,
    counts: &Arc<Counts>,
) -> Result<Batcher> {
    let failed = |error: dwell_fleet::Error| Error::invalid("agent", error);
    let addresses: Vec<Ipv4Addr> = match load.collectors {
        1 => vec![address(number)],
        several => (0..several).map(collector_address).collect(),
    };
    let lane = |address: &Ipv4Addr| {
        let hello = Hello {
            // Another kernel than that of the collector, so that its clock is compared.
            boot: format!("boot-of-{name}"),
            name: name.clone(),
            run: rand::random(),
            sync_port: Some(reflector.port()),
            is_past: false,
            confirmed: 0,
        };
        let collector = format!("{address}:{PORT}").parse()?;
        Ok(Lane { collector, outbox: Outbox::new(load.buffer / addresses.len(), &hello), hello })
    };
    let lanes = addresses.iter().map(lane).collect::<std::result::Result<Vec<_>, _>>().map_err(failed)?;
    let (reflector, counts, collectors) = (Arc::clone(reflector), Arc::clone(counts), lanes.len());
    let (mut sessions, mut welcomes) = (HashMap::new(), HashSet::new());
    let on_event = move |lane, event| match event {
        Event::Authenticated { collector, secret } => {
            let new = clock_session(&secret);
            if let Some(old) = sessions.insert(lane, new.id) {
                reflector.dismiss(old);
            }
            // An agent whose clock is not compared works all the same.
            let _ = reflector.admit(&new, collector.ip());
        }
        Event::Connected { .. } => {
            if welcomes.insert(lane) && welcomes.len() == collectors {
                counts.connected.fetch_add(1, Ordering::Relaxed);
            }
        }
        Event::Busy { .. } => _ = counts.busy.fetch_add(1, Ordering::Relaxed),
        Event::Rejected { .. } | Event::GivenUp { .. } => _ = counts.rejected.fetch_add(1, Ordering::Relaxed),
        Event::Disconnected { .. } => _ = counts.disconnected.fetch_add(1, Ordering::Relaxed),
        Event::Disk(_) | Event::Unusable(_) => {}
    };
    Ok(Batcher::new(Lanes::start(lanes, identity, on_event).map_err(failed)?))
}

impl Sent {
    /// Number of intervals.
    pub(super) fn intervals(&self) -> usize {
        self.reported.iter().map(Vec::len).sum()
    }

    /// Number of rows that the store should have of them.
    pub(super) fn rows(&self) -> u64 {
        self.reported.iter().zip(&self.rows).map(|(reported, rows)| reported.len() as u64 * rows).sum()
    }

    /// Returns how long each interval took that was found complete in the store, the shortest first.
    pub(super) fn delays(&self, times: &Times) -> Vec<Duration> {
        let mut delays = Vec::new();
        for (agent, (reported, rows)) in self.reported.iter().zip(&self.rows).enumerate() {
            let name = name(agent);
            for (interval, at) in reported.iter().enumerate() {
                let seen = times.complete(&name, self.interval_ns + interval as u64, *rows);
                delays.extend(seen.map(|seen| seen.saturating_duration_since(*at)));
            }
        }
        delays.sort_unstable();
        delays
    }
}

/// An interval that ends now, as an agent reports it.
pub(super) fn interval_report(flows: &[Flow], now_ns: u64, length_ns: u64) -> IntervalReport {
    let (reports, rtts): (Vec<_>, Vec<_>) = flows.iter().map(|flow| flow.report(now_ns)).unzip();
    IntervalReport {
        end_ns: now_ns,
        end_unix_ns: unix_ns(),
        length_ns,
        sample_bytes: traffic::SAMPLE_BYTES,
        segments: traffic::segments(flows.len()),
        flows: reports,
        rtts: rtts.concat(),
    }
}

pub(super) fn unix_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as i64)
}
