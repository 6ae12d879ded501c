//! `dwell lb` between real clients and servers: the star of Figure 3(c) of "Measuring Response Latencies Under
//! Asymmetric Routing" (arXiv 2505.14358). Clients' packets pass through the balancer; servers answer directly.

mod client;
mod compare;
mod goals;
mod picture;
pub(crate) mod process;
mod scenario;
mod server;
mod several;
mod star;
pub(crate) mod verb;

use std::{
    net::TcpStream,
    path::PathBuf,
    sync::{Arc, OnceLock},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use client::{ClientPlan, run_client};
use dwell_engine::stats;
use dwell_testbed::{CpuGroups, Error, Result, signals::Signals};
use jiff::Timestamp;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use process::{Balancer, BalancerPaths, configuration};
use scenario::{Event, PROCESSOR_SHARE};
use serde::Deserialize;
use server::{Processor, Server, ServerPlan};

pub use client::{ANSWER_TIMEOUT, ClientResult};
pub use goals::MIN_P99_CUT;
pub use picture::{Percentile, by_load, over_time};
pub use scenario::{Scenario, Slowdown, Work};
pub use star::{CLIENTS, SERVERS, Star};

/// How the balancer weighs servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// All servers alike.
    Maglev,
    /// By their response latency.
    Latency,
}

impl Policy {
    /// Both policies, in the order in which they run.
    pub const ALL: [Policy; 2] = [Policy::Maglev, Policy::Latency];

    /// The name in the balancer's configuration.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Maglev => "maglev",
            Policy::Latency => "latency",
        }
    }
}

/// Options of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// What servers, clients and the balancer do.
    pub scenario: Scenario,
    /// How the balancer weighs servers.
    pub policy: Policy,
    /// Request rate as a share of the servers' capacity.
    pub load: f64,
    /// Time for which clients open connections.
    pub time: Duration,
    /// Service time of a request.
    pub work: Work,
    /// Requests per connection, sent one after another.
    pub requests: u32,
    /// Lines for the top of the balancer's configuration.
    pub settings: Vec<String>,
    /// Random seed. Runs of both policies with one seed have the same arrivals and the same slow servers.
    pub seed: u64,
    /// The `dwell` program that balances.
    pub dwell: PathBuf,
    /// An existing folder for the balancer's files.
    pub folder: PathBuf,
}

/// What clients, servers and the balancer reported of a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// What all clients together measured.
    pub clients: ClientResult,
    /// Number of answers of each server.
    pub answered: Vec<u64>,
    /// p99 of the delay of answers because this host was busy: the accuracy of clients' latencies. `None` if servers
    /// compute.
    pub late_p99: Option<Duration>,
    /// The changes of weights, in order of time.
    pub weight_changes: Vec<WeightChange>,
}

/// A change of weights.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightChange {
    /// Time since clients started.
    pub time_s: f64,
    /// Share of the table that changed.
    pub disruption: f64,
    /// The weight of each server.
    pub weights: Vec<Weight>,
}

/// A server's weight, as the balancer reports it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Weight {
    /// The server's name.
    #[serde(rename = "backend")]
    pub server: String,
    /// The server's share of the table.
    pub share: f64,
    /// The reason for the weight, in one word.
    pub reason: String,
}

impl Outcome {
    /// A quantile of the latencies of requests sent between two times since the start, by nearest rank. Requests of
    /// broken connections count as longer than all others. `None` if there were no requests.
    pub fn quantile(&self, share: f64, from: Duration, to: Duration) -> Option<Duration> {
        let in_time = |at: &Duration| (from..to).contains(at);
        let answers = self.clients.answers.iter().filter(|(at, _)| in_time(at));
        let broken = self.clients.broken.iter().filter(|at| in_time(at));
        let mut all: Vec<Duration> = answers.map(|(_, latency)| *latency).collect();
        all.extend(broken.map(|_| ANSWER_TIMEOUT));
        all.sort_unstable();
        stats::quantile(&all, share)
    }
}

/// Time for all clients to get ready before they start together.
const LEAD: Duration = Duration::from_millis(200);

/// Raises the limit of open files for ten thousand simultaneous connections.
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
    let signals = Signals::watch()?;
    let field = Field::start(star, options)?;
    let mut balancer = start_balancer(star, options)?;
    balancer.wait_until("a connection through", || star.clients[0].enter(connects))?;
    let started_at = Timestamp::now();
    let mut outcome = field.play(&signals, |event| match event {
        Event::Servers(servers) => balancer.reload(config_for(options, servers)),
        Event::Loss(server, percent) => star.lose(server, percent),
        Event::Restart => balancer.restart(),
        Event::Reloads(times) => (0..times).try_for_each(|time| {
            signals.pause(Duration::ZERO)?;
            balancer.reload(config_for(options, SERVERS - (time + 1) % 2))
        }),
    })?;
    outcome.weight_changes = balancer.stop(started_at)?;
    Ok(outcome)
}

fn start_balancer<'a>(star: &'a Star, options: &'a Options) -> Result<Balancer<'a>> {
    let first = config_for(options, options.scenario.servers());
    Balancer::start(&star.balancer, &options.dwell, &options.folder, first)
}

fn config_for(options: &Options, servers: usize) -> impl Fn(&BalancerPaths) -> String {
    move |paths| configuration(paths, options.policy, servers, &options.settings)
}

/// Servers that wait for clients, whatever balances between them.
struct Field<'a> {
    star: &'a Star,
    options: &'a Options,
    start: Arc<OnceLock<Instant>>,
    servers: Vec<Server>,
    /// Removed after the servers, whose threads it holds.
    _groups: Option<CpuGroups>,
}

impl<'a> Field<'a> {
    fn start(star: &'a Star, options: &'a Options) -> Result<Field<'a>> {
        let Options { scenario, seed, .. } = *options;
        if scenario == Scenario::Open {
            allow_connections()?;
        }
        let start = Arc::new(OnceLock::new());
        let groups = scenario.computes().then(CpuGroups::create).transpose()?;
        let processor = |groups: &CpuGroups, number: usize| {
            let group = groups.add(&format!("server{}", number + 1), PROCESSOR_SHARE)?;
            Ok::<_, Error>(Processor { group, has_neighbour: scenario == Scenario::Shared })
        };
        let mut servers = Vec::new();
        for ((namespace, slowdown), number) in star.servers.iter().zip(scenario.slowdowns(seed)).zip(0..) {
            let processor = groups.as_ref().map(|groups| processor(groups, number)).transpose()?;
            let plan = ServerPlan {
                scenario,
                number,
                work: options.work,
                slowdown,
                seed,
                start: Arc::clone(&start),
                processor,
            };
            servers.push(Server::start(namespace, plan));
        }
        Ok(Field { star, options, start, servers, _groups: groups })
    }

    /// Runs the clients. `handle` does to the balancer what the scenario says.
    fn play(self, signals: &Signals, mut handle: impl FnMut(Event) -> Result<()>) -> Result<Outcome> {
        let start = *self.start.get_or_init(|| Instant::now() + LEAD);
        let clients = self.start_clients(start);
        for (at, event) in self.options.scenario.events() {
            signals.pause((start + *at).saturating_duration_since(Instant::now()))?;
            handle(*event)?;
        }
        signals.pause((start + self.options.time).saturating_duration_since(Instant::now()))?;
        let mut outcome = Outcome::default();
        for client in clients {
            let result = client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))??;
            outcome.clients.answers.extend(result.answers);
            outcome.clients.broken.extend(result.broken);
            outcome.clients.connections += result.connections;
        }
        let mut late = Vec::new();
        for server in self.servers {
            let served = server.stop()?;
            outcome.answered.push(served.answered);
            late.extend(served.late);
        }
        late.sort_unstable();
        outcome.late_p99 = stats::quantile(&late, 0.99);
        match outcome.clients.answers.is_empty() {
            true => Err(Error::Timeout("an answer to any request".to_owned())),
            false => Ok(outcome),
        }
    }

    fn start_clients(&self, start: Instant) -> Vec<JoinHandle<Result<Result<ClientResult>>>> {
        let Options { scenario, seed, .. } = *self.options;
        let requests = scenario.requests().unwrap_or(self.options.requests);
        let rate = self.options.load * scenario.capacity(self.options.work, seed);
        let clients = self.star.clients.iter().zip(0..);
        clients
            .map(|(namespace, number)| {
                let plan = ClientPlan {
                    to: Star::vip(),
                    rate: rate / f64::from(requests) / CLIENTS as f64,
                    requests,
                    think: scenario.think(),
                    has_own_files: scenario == Scenario::Open,
                    start,
                    time: self.options.time,
                    seed,
                    number,
                };
                namespace.spawn_thread(move || run_client(plan))
            })
            .collect()
    }
}

/// Whether a connection through the balancer succeeds.
fn connects() -> bool {
    TcpStream::connect_timeout(&Star::vip().into(), Duration::from_millis(250)).is_ok()
}
