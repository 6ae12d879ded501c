//! Returning clients of four servers: the share of them that uses 0-RTT.

use std::{
    collections::HashMap,
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::{Duration, Instant},
};

use dwell_engine::stats;
use dwell_testbed::{Result, signals::Signals};
use rand::rngs::Xoshiro256PlusPlus;
use tokio::task::JoinSet;

use super::{
    Policy, Scene,
    client::{Client, Early, Mode, Request},
    stage::{BalancerOptions, ServerOptions, Stage, bind, id},
};
use crate::{
    lb::Star,
    loads::{
        quic::block_on,
        random::{exponential, generator},
    },
};

/// Options of an experiment with one policy.
#[derive(Debug, Clone)]
pub struct PolicyOptions {
    /// Number of clients, 2 to 500, each with an address of its own.
    pub clients: usize,
    /// Whether each connection of a client comes from another address, which was not used before.
    pub has_new_addresses: bool,
    /// Connections per second of all clients together.
    pub rate: f64,
    /// The exponent of the Zipf distribution of rates over clients; 0: all clients have the same rate.
    pub skew: f64,
    /// Time for which clients arrive.
    pub time: Duration,
    /// Mean service time of a request, which is exponential.
    pub work: Duration,
    /// Length of each answer.
    pub bytes: u64,
    /// Tickets per connection.
    pub tickets: usize,
    /// The emulated round trip; with zero nothing is emulated.
    pub rtt: Duration,
    /// The overload margin (`rtt` of `zero-rtt`), at most 30 s: a client leaves its server only if requests wait this
    /// much longer there than at the least loaded server.
    pub margin: Duration,
    /// Random seed.
    pub seed: u64,
}

/// What clients and servers measured under a policy.
#[derive(Debug, Clone, Default)]
pub struct PolicyResult {
    /// Connections that were answered.
    pub connections: usize,
    /// Answered connections of clients that had connected before.
    pub returning: usize,
    /// Returning connections whose client had a ticket.
    pub eligible: usize,
    /// Eligible connections whose request was accepted as 0-RTT data.
    pub early: usize,
    /// Connections that got no answer.
    pub broken: usize,
    /// Requests that were executed more than once.
    pub repeated: usize,
    /// Packets that opened a connection at the server that the client's token named, or at its successor.
    pub by_token: u64,
    /// Packets that opened a connection at a less loaded server than the client's own.
    pub diverted: u64,
    /// The error of the first broken connection.
    pub error: Option<String>,
    /// Times to the first byte of returning connections, in ascending order.
    pub first_byte: Vec<Duration>,
    /// Answered connections of each server.
    pub answered: Vec<usize>,
    /// CPU time of all servers.
    pub cpu: Duration,
}

impl PolicyResult {
    /// The share of eligible connections that used 0-RTT.
    pub fn early_share(&self) -> Option<f64> {
        (self.eligible > 0).then(|| self.early as f64 / self.eligible as f64)
    }

    /// A quantile of the times to the first byte, by nearest rank.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        stats::quantile(&self.first_byte, share)
    }

    /// The ratio of the busiest server's connections to the mean.
    pub fn imbalance(&self) -> Option<f64> {
        let most = *self.answered.iter().max()?;
        (self.connections > 0).then(|| (most * self.answered.len()) as f64 / self.connections as f64)
    }

    /// The server's CPU time per connection.
    pub fn cpu_each(&self) -> Option<Duration> {
        let connections = u32::try_from(self.connections).unwrap_or(u32::MAX);
        (connections > 0).then(|| self.cpu / connections)
    }
}

/// One connection of a client.
struct VisitRecord {
    is_returning: bool,
    had_ticket: bool,
    /// Early data, time to the first byte and server, or the error.
    result: Result<(Early, Duration, u16)>,
}

/// Runs an experiment with one policy.
///
/// # Errors
///
/// If servers or balancer do not come up, or a signal asked to stop.
pub fn policies(scene: Scene<'_>, policy: Policy, options: &PolicyOptions) -> Result<PolicyResult> {
    let signals = Signals::watch()?;
    let star = scene.star;
    let balancing = BalancerOptions { policy, margin: options.margin };
    let serving =
        ServerOptions { work: options.work, seed: options.seed, ..ServerOptions::without_work(options.tickets) };
    let stage = Stage::start(scene, balancing, serving)?;
    let _delay = star.delay(options.rtt)?;
    let before = cpu(&stage)?;
    let start = Instant::now();
    let crowds: Vec<_> = (0..star.clients.len())
        .map(|number| {
            let crowd = Crowd::new(number, star.clients.len(), start, &stage, options);
            crowd.map(|crowd| star.clients[number].spawn_thread(move || block_on(crowd.run())))
        })
        .collect::<Result<_>>()?;
    signals.pause(options.time)?;
    let mut total = PolicyResult { answered: vec![0; star.servers.len()], ..PolicyResult::default() };
    for crowd in crowds {
        let visits = crowd.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))??;
        visits.into_iter().for_each(|visit| total.add(visit));
    }
    total.first_byte.sort_unstable();
    total.cpu = cpu(&stage)?.saturating_sub(before);
    total.repeated = repeated(&stage);
    total.by_token = stage.packets("token")?;
    total.diverted = stage.packets("diverted")?;
    stage.stop()?;
    Ok(total)
}

/// Counts the requests that servers executed more than once. Those that show whether servers are there have no number.
fn repeated(stage: &Stage<'_>) -> usize {
    let mut all: HashMap<u64, u32> = HashMap::new();
    for (number, times) in stage.servers.iter().flat_map(|server| server.all_executions()) {
        *all.entry(number).or_default() += times;
    }
    all.into_iter().filter(|(number, times)| *number != 0 && *times > 1).count()
}

fn cpu(stage: &Stage<'_>) -> Result<Duration> {
    stage.servers.iter().map(|server| server.cpu()).sum()
}

impl PolicyResult {
    fn add(&mut self, visit: VisitRecord) {
        let (early, first_byte, server) = match visit.result {
            Ok(result) => result,
            Err(error) => {
                self.broken += 1;
                self.error.get_or_insert_with(|| error.to_string());
                return;
            }
        };
        self.connections += 1;
        if let Some(index) = (0..self.answered.len()).find(|index| id(*index) == server) {
            self.answered[index] += 1;
        }
        if visit.is_returning {
            self.returning += 1;
            self.first_byte.push(first_byte);
        }
        if visit.is_returning && visit.had_ticket {
            self.eligible += 1;
            self.early += usize::from(early == Early::Accepted);
        }
    }
}

/// The clients of a namespace.
struct Crowd {
    number: usize,
    start: Instant,
    end: Instant,
    bytes: u64,
    seed: u64,
    /// How many further addresses have been used; none if clients keep their addresses.
    further: Option<Arc<AtomicU16>>,
    /// The clients and their rates.
    clients: Vec<(Client, f64)>,
}

impl Crowd {
    fn new(number: usize, crowds: usize, start: Instant, stage: &Stage<'_>, options: &PolicyOptions) -> Result<Crowd> {
        let weight = |client: usize| (client as f64 + 1.0).powf(-options.skew);
        let total: f64 = (0..options.clients).map(weight).sum();
        let own = (0..options.clients).filter(|client| client % crowds == number);
        let clients = own.map(|client| {
            let rate = options.rate * weight(client) / total;
            Ok((Client::new(&stage.identity.certificate, Mode::ZeroRtt)?, rate))
        });
        Ok(Crowd {
            number,
            start,
            end: start + options.time,
            bytes: options.bytes,
            seed: options.seed,
            further: options.has_new_addresses.then(Arc::default),
            clients: clients.collect::<Result<_>>()?,
        })
    }

    async fn run(self) -> Result<Vec<VisitRecord>> {
        let mut tasks = JoinSet::new();
        for (host, (client, rate)) in (1..).zip(self.clients) {
            let own = Star::client_address(self.number, host);
            let random = generator(self.seed, 22, u64::from(u32::from(own)));
            let (start, end, bytes) = (self.start, self.end, self.bytes);
            let origin = Origin { own, crowd: self.number, further: self.further.clone() };
            tasks.spawn(return_often(client, origin, rate, (start, end), bytes, random));
        }
        let mut all = Vec::new();
        while let Some(visits) = tasks.join_next().await {
            all.extend(visits.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())));
        }
        Ok(all)
    }
}

/// Where a client's connections come from.
struct Origin {
    own: Ipv4Addr,
    crowd: usize,
    further: Option<Arc<AtomicU16>>,
}

impl Origin {
    fn address(&self) -> Ipv4Addr {
        match &self.further {
            Some(used) => Star::further_address(self.crowd, used.fetch_add(1, Ordering::Relaxed)),
            None => self.own,
        }
    }
}

/// Connects as a Poisson process, but never twice at a time.
async fn return_often(
    client: Client,
    origin: Origin,
    rate: f64,
    (start, end): (Instant, Instant),
    bytes: u64,
    mut random: Xoshiro256PlusPlus,
) -> Vec<VisitRecord> {
    let mut all = Vec::new();
    let mut next = start;
    let mut is_returning = false;
    loop {
        next += Duration::from_secs_f64(exponential(&mut random, 1.0 / rate));
        next = next.max(Instant::now());
        if next >= end {
            return all;
        }
        tokio::time::sleep_until(next.into()).await;
        let had_ticket = client.has_ticket();
        let number = u64::from(u32::from(origin.own)) << 32 | all.len() as u64;
        let request = Request { bytes, ..Request::short(number) };
        let visit = match bind(origin.address()) {
            Ok(socket) => client.visit(socket, Stage::vip(), request).await,
            Err(error) => Err(error),
        };
        let result = match visit {
            Ok(visit) => {
                let result = (visit.early, visit.first_byte, visit.server);
                client.leave(visit).await;
                Ok(result)
            }
            Err(error) => Err(error),
        };
        let succeeded = result.is_ok();
        all.push(VisitRecord { is_returning, had_ticket, result });
        is_returning |= succeeded;
    }
}
