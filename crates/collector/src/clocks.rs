//! The clocks of agents' hosts, as the collector's probers see them.

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

use dwell_app::tell::tell;
use dwell_engine::clock::{Assumptions, BoundedTime, Clock, Fit, best};
use dwell_fleet::{Agent, Secret, clock_session};
use dwell_probes::clock::{Method, Prober, Round, Station};
use dwell_socket::clock::monotonic_ns;

/// Agents whose clocks can be asked by XDP; of more, by sockets or not at all.
const PROBERS: u32 = 1024;
/// Of a round.
const EXCHANGES: u32 = 100;
/// The first round may take so long before anything of the agent is read.
const FIRST_ROUND: Duration = Duration::from_secs(2);
/// Between the first two rounds; from then on it doubles, so that the drift is soon known.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// What a round of exchanges found about a host's clock.
#[derive(Debug, Clone, PartialEq)]
pub struct ClockSample {
    /// The host's name.
    pub host: String,
    /// When, by our CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// The host's CLOCK_MONOTONIC less ours.
    pub offset_ns: i64,
    /// By how much that may be wrong.
    pub bound_ns: u64,
    /// By how many parts in 10^9 the host's is fast, and how well that is known.
    pub drift_ppb: Option<(f64, f64)>,
    /// Of the best exchange.
    pub round_trip_ns: Option<u64>,
    /// Who took the times.
    pub method: &'static str,
    /// It contradicted what was known.
    pub stepped: bool,
}

/// A host's clock.
struct Known {
    /// Since when it runs: with a new boot it begins anew.
    boot: String,
    by: By,
}

/// How a clock is known.
enum By {
    /// It is ours: the agent is on this host.
    Same,
    /// By asking.
    Compared(Box<Clock>),
}

impl By {
    fn new() -> By {
        By::Compared(Box::new(Clock::new(Assumptions::default())))
    }
}

/// The clocks of all agents that are or were here. Cheap to clone.
#[derive(Clone)]
pub struct Clocks(Arc<Shared>);

struct Shared {
    station: Station,
    /// Between two rounds.
    pause: Duration,
    /// The boot_id of our kernel.
    boot: String,
    by_host: Mutex<HashMap<String, Known>>,
    /// Of the agents that are here; ended when it is dropped.
    watches: Mutex<HashMap<Secret, Sender<()>>>,
}

impl Clocks {
    /// Loads what probers need.
    pub fn new(pause: Duration, boot: String) -> Clocks {
        Clocks(Arc::new(Shared {
            station: Station::open(PROBERS),
            pause,
            boot,
            by_host: Mutex::default(),
            watches: Mutex::default(),
        }))
    }

    /// A host's CLOCK_MONOTONIC on ours; `None` while its clock is not known.
    pub fn convert(&self, host: &str, host_ns: u64) -> Option<BoundedTime> {
        match &self.clocks().get(host)?.by {
            By::Same => Some(BoundedTime { ns: host_ns, bound_ns: 0 }),
            By::Compared(clock) => clock.convert(host_ns),
        }
    }

    /// Asks an agent's clock, now and from now on. What comes of it is handed to `report`.
    /// Waits for the first answer, but not for long.
    pub fn watch(&self, agent: &Agent, report: impl Fn(ClockSample) + Send + 'static) {
        // A tunnel may end on our host, and begin on another.
        let is_same = agent.address.ip() == agent.own && agent.boot == self.0.boot;
        self.meet(agent, is_same);
        if is_same {
            return report(same(agent.name.as_str()));
        }
        let Some(port) = agent.sync_port else {
            return cannot(agent, "it does not answer such questions");
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
        let keep_asking = move || {
            let host = watched.name.as_str();
            match clocks.ask(host, &mut prober) {
                Ok(sample) => report(sample),
                Err(why) => cannot(&watched, why),
            }
            drop(asked);
            clocks.keep_asking(host, &mut prober, &stopped, report);
        };
        let spawned = thread::Builder::new().name("clock".into()).spawn(keep_asking);
        if let Err(error) = spawned {
            cannot(agent, error);
        }
        // So that what the agent tells first can be used already. On a long path, or where much
        // is lost, the round goes on while batches come.
        let _ = first_round.recv_timeout(FIRST_ROUND);
    }

    /// Asks an agent no more. What is known of its host's clock is kept.
    pub fn leave(&self, agent: &Agent) {
        self.watches().remove(&agent.secret);
    }

    fn keep_asking(&self, host: &str, prober: &mut Prober, stopped: &Receiver<()>, report: impl Fn(ClockSample)) {
        let mut pause = FIRST_PAUSE.min(self.0.pause);
        while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            pause = self.0.pause.min(pause * 2);
            // A round without an answer widens the bound; the next may have one.
            if let Ok(sample) = self.ask(host, prober) {
                report(sample);
            }
        }
    }

    fn ask(&self, host: &str, prober: &mut Prober) -> Result<ClockSample, String> {
        let round = prober.round(EXCHANGES).map_err(|error| error.to_string())?;
        self.learn(host, &round).ok_or_else(|| "its host does not answer by UDP".into())
    }

    /// What is known of its host's clock is kept if it is the same clock.
    fn meet(&self, agent: &Agent, is_same: bool) {
        let mut clocks = self.clocks();
        let before = clocks.remove(agent.name.as_str());
        let before = before.filter(|before| before.boot == agent.boot);
        let by = match before.map(|before| before.by) {
            _ if is_same => By::Same,
            Some(By::Compared(clock)) => By::Compared(clock),
            Some(By::Same) | None => By::new(),
        };
        let boot = agent.boot.clone();
        clocks.insert(agent.name.as_str().to_owned(), Known { boot, by });
    }

    fn learn(&self, host: &str, round: &Round) -> Option<ClockSample> {
        let exchange = best(&round.exchanges)?;
        let mut clocks = self.clocks();
        let By::Compared(clock) = &mut clocks.get_mut(host)?.by else {
            return None;
        };
        let fit = clock.add(&round.exchanges);
        if let Fit::Stepped { by_ns } = fit {
            tell(format_args!(
                "the clock of {host} was stepped by {by_ns} ns, or its host has started anew: \
                 it is compared from the beginning"
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

    fn clocks(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        let clocks = self.0.by_host.lock();
        clocks.unwrap_or_else(PoisonError::into_inner)
    }

    fn watches(&self) -> MutexGuard<'_, HashMap<Secret, Sender<()>>> {
        let watches = self.0.watches.lock();
        watches.unwrap_or_else(PoisonError::into_inner)
    }
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

fn cannot(agent: &Agent, why: impl std::fmt::Display) {
    tell(format_args!(
        "the clock of {} cannot be compared: {why}; until it can, nothing is known of the path \
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
        let clocks = Clocks::new(FIRST_PAUSE, "ours".into());
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
        let clocks = Clocks::new(FIRST_PAUSE, "ours".into());
        let there = [192, 0, 2, 1];
        watch(&clocks, &agent("first", there));
        let sample = clocks.learn("web", &round(1_000_000)).unwrap();
        assert_eq!(sample.offset_ns, 1_000_000);
        watch(&clocks, &agent("first", there));
        assert!(clocks.convert("web", 2_000_000).is_some());
        watch(&clocks, &agent("second", there));
        assert_eq!(clocks.convert("web", 2_000_000), None);
        let sample = clocks.learn("web", &round(50)).unwrap();
        assert_eq!((sample.offset_ns, sample.stepped), (50, false));
    }
}
