//! A collector with agents, while something goes wrong.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use dwell_fleet::wire::AgentName;
use dwell_testbed::{Error, Namespace, Result, signals::Signals};
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};
use rustls::ClientConfig;

use super::{
    super::{
        LONGEST_WAIT, Load, PORT,
        agents::{self, Enrolled, Fleet},
        clickhouse::ClickHouse,
        collector::{Collector, store_arguments},
        oracle::{Oracle, Rows},
    },
    authority::{Authority, Files},
    disk::Disk,
    figures::{Figures, Truth},
    members::Process,
    peers,
};
use crate::Programs;

/// Agents that report from this process.
pub(super) const AGENTS: usize = 4;
/// Agents that are processes of their own.
pub(super) const MEMBERS: usize = 2;
/// Peers that do not speak as agents do, at most.
pub(super) const PEERS: usize = 48;
/// Flows of each agent.
const FLOWS: usize = 10;
/// Their interval.
const INTERVAL: Duration = Duration::from_secs(1);
/// The name of the collector's certificate.
const COLLECTOR: &str = "collector";
/// Time between two looks whether a collector has ended.
const TEND: Duration = Duration::from_secs(1);

/// Where a fault happens.
pub(super) struct Scene<'a> {
    pub(super) namespace: &'a Arc<Namespace>,
    pub(super) folder: &'a Path,
    pub(super) programs: &'a Programs,
    pub(super) signals: &'a Signals,
    pub(super) authority: Authority,
    /// How long agents report.
    pub(super) duration: Duration,
    /// What moments are drawn from.
    pub(super) seed: u64,
}

/// How a run differs from others.
#[derive(Default)]
pub(super) struct Setup<'a> {
    /// What each agent keeps, in bytes, if it is not the usual.
    pub(super) buffer: Option<usize>,
    /// The server that has the store.
    pub(super) server: Option<Arc<ClickHouse>>,
    /// The disk that has the store or the spool.
    pub(super) disk: Option<&'a Disk>,
    /// What `env` sets for the collector.
    pub(super) variables: Vec<String>,
    /// How long certificates last.
    pub(super) lasts: Option<Duration>,
    /// Whether agents with which nothing is wrong are to get through soon.
    pub(super) is_timed: bool,
}

/// A collector with agents that are connected.
pub(super) struct Running<'a> {
    pub(super) scene: &'a Scene<'a>,
    pub(super) collector: Collector<'a>,
    fleet: Fleet,
    load: Load,
    rows: Rows,
    /// The store where it is on a disk of its own. SQLite cannot open it there.
    on_disk: Option<PathBuf>,
    oracle: Option<Oracle>,
}

/// The time in which agents report.
pub(super) struct Course<'a> {
    begun: Instant,
    scene: &'a Scene<'a>,
}

impl<'a> Scene<'a> {
    pub(super) fn new(
        namespace: &'a Arc<Namespace>,
        folder: &'a Path,
        programs: &'a Programs,
        signals: &'a Signals,
        duration: Duration,
        seed: u64,
    ) -> Result<Scene<'a>> {
        let authority = Authority::create(folder)?;
        Ok(Scene { namespace, folder, programs, signals, authority, duration, seed })
    }

    /// Starts a collector and the agents of this process, and waits until they are connected.
    pub(super) fn start(&'a self, setup: &Setup<'_>) -> Result<Running<'a>> {
        let load = Load {
            agents: AGENTS,
            flows: FLOWS,
            interval: INTERVAL,
            duration: self.duration,
            collectors: 1,
            kills: 0,
            strangers: 0,
            has_server: setup.server.is_some(),
            is_downsampled: false,
            is_stamped: false,
            buffer: setup.buffer.unwrap_or(agents::BUFFER),
        };
        self.sign(setup.lasts)?;
        let here = self.folder.join("store");
        let (store, on_disk) = match setup.disk {
            Some(disk) => (disk.path("store"), Some(disk.outside("store"))),
            None => (here.clone(), None),
        };
        let within = setup.disk.map_or(Vec::new(), Disk::within);
        let collect = [self.programs.dwell.display().to_string(), "collect".into(), "--listen".into()];
        let listen = [format!("0.0.0.0:{PORT}")];
        let credentials = Files::of(self.folder, COLLECTOR).arguments();
        let parts = [&setup.variables, &within, &collect[..], &listen, &credentials];
        let command = [parts.concat(), store_arguments(&store, load.has_server)].concat();
        let collector = Collector::start_as(self.namespace, self.folder, &here, command)?;
        let fleet = Enrolled::with(load, self.identities()?).connect(self.namespace)?;
        let connecting = Instant::now();
        while fleet.connected() < AGENTS {
            if connecting.elapsed() > LONGEST_WAIT {
                return Err(Error::Timeout("the connection of all agents".into()));
            }
            self.signals.pause(Duration::from_millis(10))?;
        }
        let rows = match &setup.server {
            Some(server) => Rows::Server(Arc::clone(server), here),
            None => Rows::Files(vec![here]),
        };
        let oracle = setup.is_timed.then(|| Oracle::start(&rows)).transpose()?;
        Ok(Running { scene: self, collector, fleet, load, rows, on_disk, oracle })
    }

    /// Signs the certificates of all, or renews them.
    pub(super) fn sign(&self, lasts: Option<Duration>) -> Result<()> {
        let of_agents = (0..AGENTS + MEMBERS).map(agents::address);
        let addresses = of_agents.chain((0..PEERS).map(peers::address)).map(|address| address.to_string());
        self.authority.sign(COLLECTOR, addresses.collect(), lasts)?;
        let names = (0..AGENTS + MEMBERS).map(agents::name);
        names.into_iter().try_for_each(|name| self.authority.sign(&name, vec![name.clone()], lasts))
    }

    fn identities(&self) -> Result<Vec<(AgentName, dwell_fleet::Identity)>> {
        let identity = |agent| {
            let name = agents::name(agent);
            let identity = Files::of(self.folder, &name).identity()?;
            let name = AgentName::try_from(name).map_err(|error| Error::invalid("agent", error))?;
            Ok((name, identity))
        };
        (0..AGENTS).map(identity).collect()
    }

    /// Makes peers with certificates of their own: what they speak as agents of today, and as somebody of a version that is not known.
    pub(super) fn peers(&self, number: usize) -> Result<Vec<[Arc<ClientConfig>; 2]>> {
        let configs = |peer| {
            let name = peers::name(peer);
            self.authority.sign(&name, vec![name.clone()], None)?;
            let config = |protocols| self.authority.client(&name, protocols);
            Ok([config(&[b"dwell-fleet/4"])?, config(&[b"dwell-fleet/9"])?])
        };
        (0..number).map(configs).collect()
    }

    /// Starts an agent as a process of its own, after those of this process, which keeps what it measures in a folder.
    pub(super) fn member(&self, number: usize, command: Vec<String>, buffer: PathBuf) -> Result<Process<'_>> {
        let of = (AGENTS + number, AGENTS + MEMBERS, FLOWS);
        let command = [command, vec![self.programs.lab.display().to_string()]].concat();
        Process::start(self.namespace, self.folder, of, INTERVAL, command, buffer)
    }

    /// The flows and the interval of an agent that is none of the others.
    pub(super) fn another(&self) -> (Vec<super::super::traffic::Flow>, u64) {
        let agents = AGENTS + MEMBERS + 1;
        (super::super::traffic::flows(agents - 1, agents, FLOWS), INTERVAL.as_nanos() as u64)
    }
}

impl<'a> Running<'a> {
    /// Has agents report, while something goes wrong.
    pub(super) fn report(
        &mut self,
        go_wrong: impl FnOnce(&mut Collector<'a>, &Course<'a>) -> Result<u64>,
    ) -> Result<u64> {
        let Running { scene, collector, fleet, .. } = self;
        let course = Course { begun: Instant::now(), scene };
        thread::scope(|scope| {
            let reporting = scope.spawn(|| fleet.report(scene.duration, scene.signals));
            let times = go_wrong(collector, &course)?;
            reporting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok(times)
        })
    }

    /// Connections that agents have lost so far.
    pub(super) fn disconnected(&self) -> u64 {
        self.fleet.disconnected()
    }

    /// Waits until all is stored, and counts it with what others have sent, who have nothing left.
    pub(super) fn count(self, times: u64, others: Vec<Process<'_>>, more: Vec<Truth>) -> Result<Figures> {
        let Running { scene, collector, fleet, load, rows, on_disk, oracle } = self;
        let sent = fleet.finish(LONGEST_WAIT);
        let mut truths = Truth::of(&sent);
        let others = others.into_iter().map(Process::end).collect::<Result<Vec<_>>>()?;
        truths.extend(others.into_iter().chain(more));
        let rows_of = |truth: &Truth| truth.intervals.len() as u64 * truth.rows;
        rows.wait_for(truths.iter().map(rows_of).sum(), LONGEST_WAIT, scene.signals)?;
        let memory_bytes = collector.most_bytes();
        let slowest = oracle.map(Oracle::stop).transpose()?.map(|times| {
            let delays = sent.delays(&times);
            (delays.len() == sent.intervals()).then(|| delays.last().copied()).flatten()
        });
        let here = collector.store().to_owned();
        collector.end()?;
        if let Some(store) = on_disk {
            // The collector has taken leave, and its log is part of the file.
            fs::copy(&store, &here).map_err(Error::file("copy", &store))?;
        }
        let mut figures = Figures { times, memory_bytes, slowest, left: sent.left, ..Figures::default() };
        figures.count(&rows, &truths, load.interval.as_nanos() as u64)?;
        // Each of these has one interval of one agent.
        let given_up = (sent.dropped + sent.left) * sent.rows[0];
        figures.acknowledged = figures.acknowledged.saturating_sub(given_up);
        Ok(figures)
    }
}

impl Course<'_> {
    /// Waits until a part of the time is over.
    pub(super) fn wait_until(&self, part: f64) -> Result<()> {
        let at = self.scene.duration.mul_f64(part);
        self.scene.signals.pause(at.saturating_sub(self.begun.elapsed()))
    }

    /// The same, and starts a collector that has ended. Returns how often.
    pub(super) fn tend_until(&self, part: f64, collector: &mut Collector<'_>) -> Result<u64> {
        let (at, mut times) = (self.scene.duration.mul_f64(part), 0);
        while self.begun.elapsed() < at {
            times += u64::from(collector.tend());
            self.scene.signals.pause(TEND.min(at.saturating_sub(self.begun.elapsed())))?;
        }
        Ok(times)
    }

    /// Calls `act` at so many moments, which are drawn from the seed.
    pub(super) fn at_random(&self, times: u64, mut act: impl FnMut(u64) -> Result<()>) -> Result<u64> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.scene.seed);
        for number in 0..times {
            self.wait_until((number as f64 + random.random::<f64>()) / times as f64)?;
            act(number)?;
        }
        Ok(times)
    }
}
