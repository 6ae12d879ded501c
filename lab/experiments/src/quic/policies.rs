//! Clients that come back, over four servers: who is answered as 0-RTT data.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use dwell_testbed::{Result, signals::Signals};
use rand::rngs::Xoshiro256PlusPlus;
use tokio::task::JoinSet;

use super::{
    Policy, Scene,
    client::{Client, Early, Mode, Request},
    quantile,
    stage::{Like, Placing, Stage, bind, id},
};
use crate::{
    lb::Star,
    loads::{
        quic::block_on,
        random::{exponential, generator},
    },
};

/// What clients and servers do.
#[derive(Debug, Clone)]
pub struct PolicyOptions {
    /// Clients, each with an address of its own: 2 to 500.
    pub clients: usize,
    /// Their visits a second, all together.
    pub rate: f64,
    /// The exponent of the Zipf distribution of rates over clients; 0: all alike.
    pub skew: f64,
    /// For how long.
    pub time: Duration,
    /// Mean of the exponential time that a request takes a server's one worker.
    pub work: Duration,
    /// Of each answer.
    pub bytes: u64,
    /// Tickets a connection.
    pub tickets: usize,
    /// The round trip that is emulated; zero: none is.
    pub rtt: Duration,
    /// The mean round trip, as `zero-rtt` is told: clients leave a server only if requests wait longer there than at
    /// the least loaded one by more than this. At most 30 s.
    pub margin: Duration,
    /// Of all that is random.
    pub seed: u64,
}

/// What came of a policy.
#[derive(Debug, Clone, Default)]
pub struct Balanced {
    /// Connections that were answered.
    pub visits: usize,
    /// Of these, by clients that had been there before.
    pub returning: usize,
    /// Of these, with a ticket.
    pub eligible: usize,
    /// Of these, answered as 0-RTT data.
    pub early: usize,
    /// Connections that got no answer.
    pub broken: usize,
    /// Why the first of them did not.
    pub why: Option<String>,
    /// Until the first byte, of clients that had been there before, in ascending order.
    pub first_byte: Vec<Duration>,
    /// Connections, by server.
    pub answered: Vec<usize>,
    /// Processor time of all servers.
    pub cpu: Duration,
}

impl Balanced {
    /// Of eligible connections, those that used 0-RTT.
    pub fn share(&self) -> Option<f64> {
        (self.eligible > 0).then(|| self.early as f64 / self.eligible as f64)
    }

    /// The time to the first byte below or at which that share of returning clients' lies (nearest rank).
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        quantile(&self.first_byte, share)
    }

    /// Connections of the server that has most, over the mean.
    pub fn imbalance(&self) -> Option<f64> {
        let most = *self.answered.iter().max()?;
        (self.visits > 0).then(|| (most * self.answered.len()) as f64 / self.visits as f64)
    }

    /// Processor time of a connection at its server.
    pub fn cpu_each(&self) -> Option<Duration> {
        let visits = u32::try_from(self.visits).unwrap_or(u32::MAX);
        (visits > 0).then(|| self.cpu / visits)
    }
}

/// A visit of a client.
struct Told {
    is_back: bool,
    had_ticket: bool,
    /// Early data, time to the first byte, server; or why there was none.
    came: Result<(Early, Duration, u16)>,
}

/// Runs a policy.
///
/// # Errors
///
/// If servers or balancer do not come up, or a signal asked to stop.
pub fn policies(scene: Scene<'_>, policy: Policy, options: &PolicyOptions) -> Result<Balanced> {
    let signals = Signals::watch()?;
    let star = scene.star;
    let placing = Placing { policy, margin: options.margin };
    let like = Like { work: options.work, seed: options.seed, ..Like::idle(options.tickets) };
    let stage = Stage::start(scene, placing, like)?;
    let _delay = star.delay(options.rtt)?;
    let before = cpu(&stage)?;
    let begin = Instant::now();
    let crowds: Vec<_> = (0..star.clients.len())
        .map(|number| {
            let crowd = Crowd::new(number, star.clients.len(), begin, &stage, options);
            crowd.map(|crowd| star.clients[number].spawn_thread(move || block_on(crowd.run())))
        })
        .collect::<Result<_>>()?;
    signals.pause(options.time)?;
    let mut balanced = Balanced { answered: vec![0; star.servers.len()], ..Balanced::default() };
    for crowd in crowds {
        let told = crowd.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))??;
        told.into_iter().for_each(|told| balanced.add(told));
    }
    balanced.first_byte.sort_unstable();
    balanced.cpu = cpu(&stage)?.saturating_sub(before);
    stage.stop()?;
    Ok(balanced)
}

fn cpu(stage: &Stage<'_>) -> Result<Duration> {
    stage.servers.iter().map(|server| server.cpu()).sum()
}

impl Balanced {
    fn add(&mut self, told: Told) {
        let (early, first_byte, server) = match told.came {
            Ok(came) => came,
            Err(why) => {
                self.broken += 1;
                self.why.get_or_insert_with(|| why.to_string());
                return;
            }
        };
        self.visits += 1;
        if let Some(answered) = (0..self.answered.len()).find(|place| id(*place) == server) {
            self.answered[answered] += 1;
        }
        if told.is_back {
            self.returning += 1;
            self.first_byte.push(first_byte);
        }
        if told.is_back && told.had_ticket {
            self.eligible += 1;
            self.early += usize::from(early == Early::Accepted);
        }
    }
}

/// The clients of a namespace.
struct Crowd {
    number: usize,
    begin: Instant,
    end: Instant,
    bytes: u64,
    seed: u64,
    /// With the rate of each.
    clients: Vec<(Client, f64)>,
}

impl Crowd {
    fn new(number: usize, crowds: usize, begin: Instant, stage: &Stage<'_>, options: &PolicyOptions) -> Result<Crowd> {
        let weight = |client: usize| (client as f64 + 1.0).powf(-options.skew);
        let total: f64 = (0..options.clients).map(weight).sum();
        let own = (0..options.clients).filter(|client| client % crowds == number);
        let clients = own.map(|client| {
            let rate = options.rate * weight(client) / total;
            Ok((Client::new(&stage.identity.certificate, Mode::ZeroRtt)?, rate))
        });
        Ok(Crowd {
            number,
            begin,
            end: begin + options.time,
            bytes: options.bytes,
            seed: options.seed,
            clients: clients.collect::<Result<_>>()?,
        })
    }

    async fn run(self) -> Result<Vec<Told>> {
        let mut tasks = JoinSet::new();
        for (host, (client, rate)) in (1..).zip(self.clients) {
            let address = Star::client_address(self.number, host);
            let random = generator(self.seed, 22, u64::from(u32::from(address)));
            let (begin, end, bytes) = (self.begin, self.end, self.bytes);
            tasks.spawn(come_back(client, address, rate, (begin, end), bytes, random));
        }
        let mut all = Vec::new();
        while let Some(told) = tasks.join_next().await {
            all.extend(told.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())));
        }
        Ok(all)
    }
}

/// Visits as a Poisson process, but never two at a time.
async fn come_back(
    client: Client,
    address: Ipv4Addr,
    rate: f64,
    (begin, end): (Instant, Instant),
    bytes: u64,
    mut random: Xoshiro256PlusPlus,
) -> Vec<Told> {
    let mut all = Vec::new();
    let mut next = begin;
    let mut is_back = false;
    loop {
        next += Duration::from_secs_f64(exponential(&mut random, 1.0 / rate));
        next = next.max(Instant::now());
        if next >= end {
            return all;
        }
        tokio::time::sleep_until(next.into()).await;
        let had_ticket = client.has_ticket();
        let request = Request { bytes, ..Request::short(0) };
        let came = match bind(address) {
            Ok(socket) => client.visit(socket, Stage::vip(), request).await,
            Err(error) => Err(error),
        };
        let came = match came {
            Ok(visit) => {
                let told = (visit.early, visit.first_byte, visit.server);
                client.leave(visit).await;
                Ok(told)
            }
            Err(error) => Err(error),
        };
        let has_come = came.is_ok();
        all.push(Told { is_back, had_ticket, came });
        is_back |= has_come;
    }
}
