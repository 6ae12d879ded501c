//! `dwell lb` between real clients and servers: the star of Figure 3(c) of "Measuring Response Latencies Under
//! Asymmetric Routing" (arXiv 2505.14358). Clients' packets pass the balancer; what servers answer goes straight back.

mod client;
mod picture;
pub(crate) mod process;
mod scenario;
mod server;
mod star;
pub(crate) mod verb;

use std::{
    net::TcpStream,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use client::{ClientPlan, run_client};
use dwell_testbed::{Error, Result, signals::Signals};
use jiff::Timestamp;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use process::{Balancer, Places, configuration};
use scenario::Event;
use server::{Server, ServerPlan};

pub use client::{PATIENCE, Seen};
pub use picture::{Bar, by_load, over_time};
pub use scenario::{Scenario, Speed, Work};
pub use star::{CLIENTS, SERVERS, Star};

/// How the balancer weighs servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// All alike.
    Maglev,
    /// By their response latency.
    Latency,
}

impl Policy {
    /// Both, in the order in which they take turns.
    pub const ALL: [Policy; 2] = [Policy::Maglev, Policy::Latency];

    /// As in the balancer's configuration.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Maglev => "maglev",
            Policy::Latency => "latency",
        }
    }
}

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// What happens.
    pub scenario: Scenario,
    /// How servers are weighed.
    pub policy: Policy,
    /// Requests a second over what servers can do.
    pub load: f64,
    /// For how long clients open connections.
    pub time: Duration,
    /// What a request takes a server.
    pub work: Work,
    /// Of each connection, one after the other.
    pub requests: u32,
    /// Of all that is random. Runs of both policies with the same have the same arrivals, and servers as slow.
    pub seed: u64,
    /// The `dwell` that balances.
    pub dwell: PathBuf,
    /// An existing folder for its files.
    pub folder: PathBuf,
}

/// What came of it.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// What clients saw, all of them together.
    pub seen: Seen,
    /// What each server answered.
    pub answered: Vec<u64>,
    /// p99 of how late servers answered, as this host had other things to do. What clients wait is no better known.
    pub late: Duration,
    /// Each time that weights changed.
    pub weighings: Vec<Weighing>,
}

/// A change of weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Weighing {
    /// Since clients began.
    pub time_s: f64,
    /// The part of the table that changed.
    pub disruption: f64,
    /// Of each server.
    pub weights: Vec<Weight>,
}

/// What a server gets.
#[derive(Debug, Clone, PartialEq)]
pub struct Weight {
    /// Its name.
    pub server: String,
    /// Its part of the table.
    pub share: f64,
    /// Why, in one word.
    pub why: String,
    /// As the balancer sees it.
    pub latency_s: Option<f64>,
}

impl Outcome {
    /// The latency below or at which that share of answers lies (nearest rank), of those asked for between two times.
    /// Requests of broken connections count as longer than all others. None if there were no requests.
    pub fn quantile(&self, share: f64, from: Duration, to: Duration) -> Option<Duration> {
        let in_time = |at: &Duration| (from..to).contains(at);
        let answers = self.seen.answers.iter().filter(|(at, _)| in_time(at));
        let broken = self.seen.broken.iter().filter(|at| in_time(at));
        let mut all: Vec<Duration> = answers.map(|(_, latency)| *latency).collect();
        all.extend(broken.map(|_| PATIENCE));
        all.sort_unstable();
        let rank = (all.len() as f64 * share).ceil() as usize;
        all.get(rank.saturating_sub(1)).copied()
    }
}

/// Clients begin when all of them run.
const LEAD: Duration = Duration::from_millis(200);

/// Ten thousand connections are open at once.
fn allow_connections() -> Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(Error::os("read the limit of open files"))?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_err(Error::os("raise the limit of open files"))
}

/// Runs clients and servers through a balancer of its own.
///
/// # Errors
///
/// If the balancer does not come up or ends badly, or a signal asked to stop.
pub fn run(star: &Star, options: &Options) -> Result<Outcome> {
    let Options { scenario, seed, .. } = *options;
    let signals = Signals::watch()?;
    if scenario == Scenario::Open {
        allow_connections()?;
    }
    let begins = Arc::new(OnceLock::new());
    let servers: Vec<Server> = star
        .servers
        .iter()
        .zip(scenario.speeds(seed))
        .zip(0..)
        .map(|((namespace, speed), number)| {
            let plan = ServerPlan { work: options.work, speed, seed, begin: Arc::clone(&begins) };
            Server::start(namespace, number, plan)
        })
        .collect();
    let configured = |servers| {
        let policy = options.policy;
        move |places: &Places| configuration(places, policy, servers)
    };
    let first = configured(scenario.servers());
    let mut balancer = Balancer::start(star, &options.dwell, &options.folder, first)?;
    balancer.wait_until(|| star.clients[0].enter(connects))?;
    let began = Timestamp::now();
    let begin = *begins.get_or_init(|| Instant::now() + LEAD);
    let requests = scenario.requests().unwrap_or(options.requests);
    let rate = options.load * scenario.capacity(options.work, seed);
    let clients: Vec<_> = star
        .clients
        .iter()
        .zip(0..)
        .map(|(namespace, number)| {
            let plan = ClientPlan {
                to: Star::vip(),
                rate: rate / f64::from(requests) / CLIENTS as f64,
                requests,
                think: scenario.think(),
                has_own_files: scenario == Scenario::Open,
                begin,
                time: options.time,
                seed,
                number,
            };
            namespace.spawn_thread(move || run_client(plan))
        })
        .collect();
    for (at, event) in scenario.events() {
        signals.pause((begin + *at).saturating_duration_since(Instant::now()))?;
        match *event {
            Event::Servers(servers) => balancer.reload(configured(servers))?,
            Event::Restart => balancer.restart()?,
            Event::Reloads(times) => (0..times).try_for_each(|time| {
                signals.pause(Duration::ZERO)?;
                balancer.reload(configured(SERVERS - (time + 1) % 2))
            })?,
        }
    }
    signals.pause((begin + options.time).saturating_duration_since(Instant::now()))?;
    let mut outcome = Outcome::default();
    for client in clients {
        let seen = client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))??;
        outcome.seen.answers.extend(seen.answers);
        outcome.seen.broken.extend(seen.broken);
        outcome.seen.connections += seen.connections;
    }
    let mut late = Vec::new();
    for server in servers {
        let served = server.stop()?;
        outcome.answered.push(served.answered);
        late.extend(served.late);
    }
    late.sort_unstable();
    outcome.late = late.get(late.len() * 99 / 100).copied().unwrap_or_default();
    outcome.weighings = balancer.stop(began)?;
    if outcome.seen.answers.is_empty() {
        return Err(Error::Timeout("an answer to any request".to_owned()));
    }
    Ok(outcome)
}

/// Whether a connection comes through.
fn connects() -> bool {
    TcpStream::connect_timeout(&Star::vip().into(), Duration::from_millis(250)).is_ok()
}
