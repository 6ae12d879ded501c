//! The clocks of agents' hosts, compared with the collector's by its probers.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use dwell_app::log::log;
use dwell_engine::clock::{Assumptions, BoundedTime, Clock, Fit, best, pause};
use dwell_fleet::{Agent, Secret, clock_session};
use dwell_probes::clock::{ClockMode, Method, Prober, Round, Station};
use dwell_socket::{
    clock::monotonic_ns,
    privilege::{self, Capability},
};

/// Agents whose clocks can be compared by XDP. Those of further agents are compared by sockets.
const PROBERS: u32 = 1024;
/// Exchanges of one round.
const EXCHANGES: u32 = 100;
/// How long the first round may delay the reading of an agent's batches.
const FIRST_ROUND: Duration = Duration::from_secs(2);

/// What a round of exchanges found about a host's clock.
#[derive(Debug, Clone, PartialEq)]
pub struct ClockSample {
    /// The host's name.
    pub host: String,
    /// When the round ended, on our CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// The host's CLOCK_MONOTONIC less ours.
    pub offset_ns: i64,
    /// How far off the offset may be.
    pub bound_ns: u64,
    /// Drift of the host's clock in parts per 10^9, positive if it is fast, and the bound of its error.
    pub drift_ppb: Option<(f64, f64)>,
    /// The round trip of the best exchange.
    pub round_trip_ns: Option<u64>,
    /// How times were taken: xdp, socket, or same for the collector's own host.
    pub method: &'static str,
    /// The round contradicted what was known, so the clock was stepped.
    pub stepped: bool,
}

/// What is known of a host's clock.
struct HostClock {
    /// The boot of the host: CLOCK_MONOTONIC starts anew with each.
    boot: String,
    source: ClockSource,
}

/// Where the knowledge of a clock comes from.
enum ClockSource {
    /// The clock is ours: the agent is on this host.
    Same,
    /// Rounds of exchanges.
    Compared(Box<Clock>),
}

impl ClockSource {
    fn new() -> ClockSource {
        ClockSource::Compared(Box::new(Clock::new(Assumptions::default())))
    }
}

/// The clocks of all agents that are or were connected. Cheap to clone.
#[derive(Clone)]
pub struct Clocks(Arc<Shared>);

struct Shared {
    station: Station,
    /// Time between two rounds.
    pause: Duration,
    /// The boot_id of our kernel.
    boot: String,
    by_host: Mutex<HashMap<String, HostClock>>,
    /// One sender per connected agent; dropping it ends the agent's rounds.
    watches: Mutex<HashMap<Secret, Sender<()>>>,
    /// Takes what is to run on a thread of its own with the privilege to attach programs, which threads of agents do not have.
    privileged: Sender<Rounds>,
}

/// The rounds of an agent.
type Rounds = Box<dyn FnOnce() + Send>;

impl Clocks {
    /// Loads what probers need to stamp packets as `mode` says. `pause` is the time between two rounds, `boot` the boot_id
    /// of our kernel.
    pub fn new(pause: Duration, boot: String, mode: ClockMode) -> Clocks {
        Clocks(Arc::new(Shared {
            station: Station::open(PROBERS, mode),
            pause,
            boot,
            by_host: Mutex::default(),
            watches: Mutex::default(),
            privileged: start_privileged(),
        }))
    }

    /// Converts a time of a host's CLOCK_MONOTONIC to ours; `None` while its clock is not known.
    pub fn convert(&self, host: &str, host_ns: u64) -> Option<BoundedTime> {
        match &self.clocks().get(host)?.source {
            ClockSource::Same => Some(BoundedTime { ns: host_ns, bound_ns: 0 }),
            ClockSource::Compared(clock) => clock.convert(host_ns),
        }
    }

    /// Forgets the clock of a host whose agent left long ago.
    pub fn forget(&self, host: &str) {
        self.clocks().remove(host);
    }

    /// Compares an agent's clock now and regularly from now on, and hands each sample to `report`. Waits for the first
    /// sample, but not for long.
    pub fn watch(&self, agent: &Agent, report: impl Fn(ClockSample) + Send + 'static) {
        // The address alone proves nothing: a tunnel may end on our host and begin on another.
        let is_same = agent.address.ip() == agent.own && agent.boot == self.0.boot;
        self.register(agent, is_same);
        if is_same {
            return report(same(agent.name.as_str()));
        }
        let Some(port) = agent.sync_port else {
            return cannot(agent, "it does not answer requests for its time");
        };
        let address = SocketAddr::new(agent.address.ip(), port);
        let prober = self.0.station.prober(clock_session(&agent.secret), Some(agent.own), address);
        let mut prober = match prober {
            Ok(prober) => prober,
            Err(error) => return cannot(agent, error),
        };
        let (stop, stopped) = mpsc::channel();
        self.watches().insert(agent.secret, stop);
        let (asked, first_round) = mpsc::channel::<()>();
        let (clocks, watched) = (self.clone(), agent.clone());
        let rounds = move || {
            let host = watched.name.as_str();
            match clocks.run_round(host, &mut prober) {
                Ok(sample) => report(sample),
                Err(reason) => cannot(&watched, reason),
            }
            drop(asked);
            clocks.repeat_rounds(host, &mut prober, &stopped, report);
        };
        if self.0.privileged.send(Box::new(rounds)).is_err() {
            cannot(agent, "no thread can be started");
        }
        // Then the agent's first batches can be used already. On a long path, or where much is lost, the round goes on
        // while batches arrive.
        let _ = first_round.recv_timeout(FIRST_ROUND);
    }

    /// Ends the rounds of an agent. What is known of its host's clock is kept.
    pub fn leave(&self, agent: &Agent) {
        self.watches().remove(&agent.secret);
    }

    fn repeat_rounds(&self, host: &str, prober: &mut Prober, stopped: &Receiver<()>, report: impl Fn(ClockSample)) {
        // The first round was before the agent was welcomed.
        let mut rounds = 1;
        while stopped.recv_timeout(pause(rounds, self.0.pause)) == Err(RecvTimeoutError::Timeout) {
            rounds += 1;
            // A round without an answer widens the bound; the next may have one.
            if let Ok(sample) = self.run_round(host, prober) {
                report(sample);
            }
        }
    }

    fn run_round(&self, host: &str, prober: &mut Prober) -> Result<ClockSample, String> {
        let round = prober.round(EXCHANGES).map_err(|error| error.to_string())?;
        self.add_round(host, &round).ok_or_else(|| "its host does not answer by UDP".into())
    }

    /// Registers an agent. What is known of its host's clock is kept if the host has not rebooted.
    fn register(&self, agent: &Agent, is_same: bool) {
        let mut clocks = self.clocks();
        let before = clocks.remove(agent.name.as_str());
        let before = before.filter(|before| before.boot == agent.boot);
        let source = match before.map(|before| before.source) {
            _ if is_same => ClockSource::Same,
            Some(ClockSource::Compared(clock)) => ClockSource::Compared(clock),
            Some(ClockSource::Same) | None => ClockSource::new(),
        };
        let boot = agent.boot.clone();
        clocks.insert(agent.name.as_str().to_owned(), HostClock { boot, source });
    }

    fn add_round(&self, host: &str, round: &Round) -> Option<ClockSample> {
        let exchange = best(&round.exchanges)?;
        let mut clocks = self.clocks();
        let ClockSource::Compared(clock) = &mut clocks.get_mut(host)?.source else {
            return None;
        };
        let fit = clock.add(&round.exchanges);
        if let Fit::Stepped { by_ns } = fit {
            log(format_args!(
                "the clock of {host} was stepped by {by_ns} ns, or its host has rebooted: the comparison starts over"
            ));
        }
        let converted = clock.convert(exchange.t2_ns)?;
        let drift = clock.drift();
        Some(ClockSample {
            host: host.to_owned(),
            at_ns: exchange.t4_ns,
            offset_ns: exchange.t2_ns.wrapping_sub(converted.ns).cast_signed(),
            bound_ns: converted.bound_ns,
            drift_ppb: drift.map(|drift| (drift.ppb, drift.bound_ppb)),
            round_trip_ns: exchange.round_trip_ns(),
            method: match round.method {
                Method::Xdp => "xdp",
                Method::Socket => "socket",
            },
            stepped: matches!(fit, Fit::Stepped { .. }),
        })
    }

    fn clocks(&self) -> MutexGuard<'_, HashMap<String, HostClock>> {
        let clocks = self.0.by_host.lock();
        clocks.unwrap_or_else(PoisonError::into_inner)
    }

    fn watches(&self) -> MutexGuard<'_, HashMap<Secret, Sender<()>>> {
        let watches = self.0.watches.lock();
        watches.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the thread that starts those of rounds. They attach programs, if this thread has the privilege.
fn start_privileged() -> Sender<Rounds> {
    let (sender, receiver) = mpsc::channel::<Rounds>();
    let start_each = move || {
        let _ = privilege::keep(&[Capability::Bpf, Capability::NetAdmin]);
        for rounds in receiver {
            if let Err(error) = thread::Builder::new().name("clock".into()).spawn(rounds) {
                log(format_args!("the clock of a host cannot be compared: {error}"));
            }
        }
    };
    // Without it, each agent learns that there is none.
    let _ = thread::Builder::new().name("clocks".into()).spawn(start_each);
    sender
}

fn same(host: &str) -> ClockSample {
    ClockSample {
        host: host.to_owned(),
        at_ns: monotonic_ns(),
        offset_ns: 0,
        bound_ns: 0,
        drift_ppb: None,
        round_trip_ns: None,
        method: "same",
        stepped: false,
    }
}

fn cannot(agent: &Agent, reason: impl std::fmt::Display) {
    log(format_args!(
        "the clock of {} cannot be compared: {reason}; until it can, nothing is known of the path \
         between it and other hosts",
        agent.name
    ));
}

#[cfg(test)]
mod tests {
    use dwell_engine::clock::Exchange;

    use super::*;

    fn agent(boot: &str, address: [u8; 4]) -> Agent {
        Agent {
            name: "web".to_owned().try_into().unwrap(),
            run: [1; 16],
            boot: boot.into(),
            address: (address, 4790).into(),
            own: [192, 0, 2, 9].into(),
            sync_port: None,
            secret: [0; 32],
            is_past: false,
            confirmed: 0,
        }
    }

    fn watch(clocks: &Clocks, agent: &Agent) -> Vec<&'static str> {
        let (report, reported) = mpsc::channel();
        clocks.watch(agent, move |sample| report.send(sample.method).unwrap());
        reported.iter().collect()
    }

    /// A round that found the host's clock ahead by this.
    fn round(ahead_ns: u64) -> Round {
        let exchange = Exchange { t1_ns: 10_000, t2_ns: 10_100 + ahead_ns, t3_ns: 10_110 + ahead_ns, t4_ns: 10_210 };
        Round { exchanges: vec![exchange], method: Method::Socket, reason: None, lost: 0 }
    }

    #[test]
    fn only_an_agent_on_our_kernel_has_our_clock() {
        let clocks = Clocks::new(pause(1, Duration::MAX), "ours".into(), ClockMode::Generic);
        let own = [192, 0, 2, 9];
        assert_eq!(watch(&clocks, &agent("ours", own)), ["same"]);
        let same = clocks.convert("web", 5).unwrap();
        assert_eq!((same.ns, same.bound_ns), (5, 0));
        // Through a tunnel that ends here.
        assert_eq!(watch(&clocks, &agent("another", own)), [""; 0]);
        assert_eq!(clocks.convert("web", 5), None);
        // Of a namespace on this machine: it is asked.
        assert_eq!(watch(&clocks, &agent("ours", [192, 0, 2, 1])), [""; 0]);
        assert_eq!(clocks.convert("web", 5), None);
    }

    #[test]
    fn a_clock_is_known_until_its_host_starts_anew() {
        let clocks = Clocks::new(pause(1, Duration::MAX), "ours".into(), ClockMode::Generic);
        let there = [192, 0, 2, 1];
        watch(&clocks, &agent("first", there));
        let sample = clocks.add_round("web", &round(1_000_000)).unwrap();
        assert_eq!(sample.offset_ns, 1_000_000);
        watch(&clocks, &agent("first", there));
        assert!(clocks.convert("web", 2_000_000).is_some());
        watch(&clocks, &agent("second", there));
        assert_eq!(clocks.convert("web", 2_000_000), None);
        let sample = clocks.add_round("web", &round(50)).unwrap();
        assert_eq!((sample.offset_ns, sample.stepped), (50, false));
    }
}
