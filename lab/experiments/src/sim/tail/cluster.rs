//! A simulated cluster: servers with queues, a balancer that places each connection, and clients that send the requests
//! of a connection one after the other. Times are in seconds.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap},
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use dwell_engine::{
    measure::{Endpoint, Protocol},
    steer::{BackendState, Intervals, IntervalsConfig, Pending, Responses},
    units::nanos,
};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::placement::{Placement, View};
use crate::loads::random::{exponential, normal};

/// What is simulated.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// The number of servers.
    pub servers: usize,
    /// The rate of requests, relative to what all servers can serve at their usual speed.
    pub load: f64,
    /// The factor by which the load is higher at a time.
    pub rise: fn(time: f64) -> f64,
    /// The mean of the service times.
    pub service: f64,
    /// How service times are distributed.
    pub shape: Shape,
    /// How a server works on several requests.
    pub discipline: Discipline,
    /// The factor by which a server is slower at a time.
    pub slowness: fn(server: usize, time: f64) -> f64,
    /// An error that is added to each latency that the balancer sees, such as a think time that it does not notice.
    pub lie: fn(server: usize, random: f64) -> f64,
    /// The number of requests of a connection.
    pub requests: u32,
    /// The mean of the times, exponentially distributed, between an answer and the next request of its connection.
    pub think: f64,
    /// Of how many connections the balancer measures one.
    pub measured_of: u32,
    /// For how long it runs.
    pub seconds: u32,
    /// The length of the balancer's intervals.
    pub interval: f64,
    pub seed: u64,
}

impl Default for Cluster {
    fn default() -> Cluster {
        Cluster {
            servers: 4,
            load: 0.6,
            rise: |_| 1.0,
            service: 0.002,
            shape: Shape::Exponential,
            discipline: Discipline::Queue,
            slowness: |_, _| 1.0,
            lie: |_, _| 0.0,
            requests: 4,
            think: 0.0,
            measured_of: 1,
            seconds: 60,
            interval: 1.0,
            seed: 1,
        }
    }
}

/// The distribution of service times, whose mean is given apart.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    Exponential,
    /// All take as long.
    Constant,
    /// A part of the requests takes this many times as long as the others.
    Bimodal(f64, f64),
    /// Logarithms are normally distributed, with this standard deviation.
    LogNormal(f64),
}

impl Shape {
    fn draw(self, mean: f64, random: &mut StdRng) -> f64 {
        match self {
            Shape::Exponential => exponential(random, mean),
            Shape::Constant => mean,
            Shape::Bimodal(part, times) => {
                let usual = mean / (1.0 - part + part * times);
                if random.random::<f64>() < part { usual * times } else { usual }
            }
            Shape::LogNormal(deviation) => mean * (deviation * normal(random) - deviation * deviation / 2.0).exp(),
        }
    }
}

/// How a server works on several requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discipline {
    /// On one after the other.
    Queue,
    /// On all at once, each with an equal part of the processor.
    Shared,
}

/// What came of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The time of each answer and its latency; at the end, how long the others have waited.
    pub latencies: Vec<(f64, f64)>,
    /// The weights of servers, by interval.
    pub weights: Vec<Vec<f64>>,
}

impl Outcome {
    /// Returns a quantile of the latencies between two times, the latter included.
    pub fn quantile(&self, part: f64, from: f64, to: f64) -> f64 {
        let in_time = |(time, _): &&(f64, f64)| (from..=to).contains(time);
        let mut sorted: Vec<f64> = self.latencies.iter().filter(in_time).map(|answer| answer.1).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get((sorted.len().saturating_sub(1) as f64 * part) as usize).copied().unwrap_or(f64::NAN)
    }
}

/// A time that can be ordered.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Time(f64);

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Time) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Time) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Open,
    Request(u32),
    /// A server has served its first request, unless something else has happened there since.
    Served {
        server: usize,
        version: u64,
    },
    /// Servers may have another speed.
    Speed,
    Interval,
}

/// How often the speed of servers is looked at.
const SPEED: f64 = 0.1;

/// A server. Requests are in the order in which they end, each with the service that the server will have given when it
/// does: to all of them one after the other, or to each of those that are present.
struct Server {
    requests: BTreeMap<(Time, u64), Request>,
    /// The service given so far, in seconds at the usual speed.
    given: f64,
    slowness: f64,
    since: f64,
    version: u64,
}

struct Request {
    connection: u32,
    sent: f64,
    /// The requests that waited at the server when it arrived.
    behind: u64,
}

impl Server {
    /// The time that a second of service takes.
    fn pace(&self, discipline: Discipline) -> f64 {
        match discipline {
            Discipline::Queue => self.slowness,
            Discipline::Shared => self.slowness * self.requests.len() as f64,
        }
    }

    fn advance(&mut self, now: f64, cluster: &Cluster, number: usize) {
        if !self.requests.is_empty() {
            self.given += (now - self.since) / self.pace(cluster.discipline);
        }
        self.since = now;
        self.slowness = (cluster.slowness)(number, now);
        self.version += 1;
    }
}

struct Connection {
    server: usize,
    left: u32,
    sent: Option<f64>,
    /// Of the current interval: requests, and the latencies of answers.
    requests: u32,
    answers: Vec<u64>,
}

struct Run<'a> {
    cluster: &'a Cluster,
    /// Apart from all other numbers, so that connections begin at the same times under each policy.
    arrivals: StdRng,
    random: StdRng,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    numbers: u64,
    servers: Vec<Server>,
    connections: HashMap<u32, Connection>,
    opened: u32,
    intervals: Intervals,
    active: Vec<u64>,
    /// Connections, and requests without an answer, by server.
    open: Vec<u64>,
    waiting: Vec<u64>,
    outcome: Outcome,
}

impl Cluster {
    /// Runs the cluster behind a balancer.
    ///
    /// # Panics
    ///
    /// If the interval is 0.
    pub fn run(&self, placement: &mut dyn Placement) -> Outcome {
        let idle = || Server { requests: BTreeMap::new(), given: 0.0, slowness: 1.0, since: 0.0, version: 0 };
        let intervals = Intervals::new(IntervalsConfig::default(), Duration::from_secs_f64(self.interval));
        let mut run = Run {
            cluster: self,
            arrivals: StdRng::seed_from_u64(self.seed),
            random: StdRng::seed_from_u64(!self.seed),
            events: BinaryHeap::new(),
            numbers: 0,
            servers: (0..self.servers).map(|_| idle()).collect(),
            connections: HashMap::new(),
            opened: 0,
            intervals: intervals.expect("the defaults are in their ranges").of_sample(self.measured_of),
            active: vec![0; self.servers],
            open: vec![0; self.servers],
            waiting: vec![0; self.servers],
            outcome: Outcome::default(),
        };
        run.at(0.0, Event::Open);
        run.at(0.0, Event::Speed);
        run.at(self.interval, Event::Interval);
        while let Some(Reverse((Time(now), _, event))) = run.events.pop() {
            if now > f64::from(self.seconds) {
                break;
            }
            match event {
                Event::Open => run.open(now, placement),
                Event::Request(connection) => run.request(now, connection),
                Event::Served { server, version } if run.servers[server].version == version => {
                    run.served(now, server, placement);
                }
                Event::Served { .. } => {}
                Event::Speed => run.speed(now),
                Event::Interval => run.interval(now, placement),
            }
        }
        run.give_up();
        run.outcome
    }
}

impl Run<'_> {
    fn at(&mut self, time: f64, event: Event) {
        self.numbers += 1;
        self.events.push(Reverse((Time(time), self.numbers, event)));
    }

    fn open(&mut self, now: f64, placement: &mut dyn Placement) {
        let cluster = self.cluster;
        let rate = cluster.load * (cluster.rise)(now) * cluster.servers as f64 / cluster.service;
        let gap = exponential(&mut self.arrivals, f64::from(cluster.requests) / rate);
        self.at(now + gap, Event::Open);
        let view = View { now, open: &self.open, waiting: &self.waiting };
        let server = placement.place(&view, &mut self.random);
        self.opened += 1;
        self.active[server] += 1;
        self.open[server] += 1;
        let connection = Connection { server, left: cluster.requests, sent: None, requests: 0, answers: Vec::new() };
        self.connections.insert(self.opened, connection);
        self.request(now, self.opened);
    }

    fn request(&mut self, now: f64, number: u32) {
        let work = self.cluster.shape.draw(self.cluster.service, &mut self.random);
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.left -= 1;
        connection.requests += 1;
        connection.sent = Some(now);
        let at = connection.server;
        let server = &mut self.servers[at];
        server.advance(now, self.cluster, at);
        let from = match (self.cluster.discipline, server.requests.last_key_value()) {
            (Discipline::Queue, Some(((Time(last), _), _))) => *last,
            _ => server.given,
        };
        self.numbers += 1;
        let request = Request { connection: number, sent: now, behind: self.waiting[at] };
        server.requests.insert((Time(from + work), self.numbers), request);
        self.waiting[at] += 1;
        self.schedule(now, at);
    }

    /// Schedules the end of a server's first request.
    fn schedule(&mut self, now: f64, number: usize) {
        let server = &self.servers[number];
        let Some(((Time(end), _), _)) = server.requests.first_key_value() else { return };
        let left = (end - server.given).max(0.0) * server.pace(self.cluster.discipline);
        let event = Event::Served { server: number, version: server.version };
        self.at(now + left, event);
    }

    fn served(&mut self, now: f64, at: usize, placement: &mut dyn Placement) {
        self.servers[at].advance(now, self.cluster, at);
        let Some((_, request)) = self.servers[at].requests.pop_first() else { return };
        self.schedule(now, at);
        self.waiting[at] -= 1;
        let latency = now - request.sent;
        self.outcome.latencies.push((now, latency));
        placement.answered(at, request.behind, latency);
        let lie = (self.cluster.lie)(at, self.random.random::<f64>());
        let Some(connection) = self.connections.get_mut(&request.connection) else { return };
        connection.sent = None;
        connection.answers.push(((latency + lie) * 1e9) as u64);
        if connection.left > 0 && self.cluster.think > 0.0 {
            let think = exponential(&mut self.random, self.cluster.think);
            self.at(now + think, Event::Request(request.connection));
        } else if connection.left > 0 {
            self.request(now, request.connection);
        } else if let Some(mut connection) = self.connections.remove(&request.connection) {
            self.open[at] -= 1;
            self.report(request.connection, &mut connection);
        }
    }

    /// Requests that are not answered at the end count with what they have waited.
    fn give_up(&mut self) {
        let end = f64::from(self.cluster.seconds);
        let mut sent: Vec<f64> = self.connections.values().filter_map(|connection| connection.sent).collect();
        sent.sort_unstable_by(f64::total_cmp);
        self.outcome.latencies.extend(sent.into_iter().map(|sent| (end, end - sent)));
    }

    fn speed(&mut self, now: f64) {
        self.at(now + SPEED, Event::Speed);
        for number in 0..self.servers.len() {
            self.servers[number].advance(now, self.cluster, number);
            self.schedule(now, number);
        }
    }

    /// Reports what a connection did since the last report, if it is measured.
    fn report(&mut self, number: u32, connection: &mut Connection) {
        let (requests, answers) = (connection.requests, std::mem::take(&mut connection.answers));
        connection.requests = 0;
        // Servers are drawn, so that every n-th connection is a random one of each.
        if !number.is_multiple_of(self.cluster.measured_of) {
            return;
        }
        let count = answers.len() as u64;
        let responses = (count > 0).then(|| Responses {
            count,
            mean_ns: answers.iter().sum::<u64>() / count,
            singles: answers.iter().map(|ns| (*ns, 1)).collect(),
        });
        let ends = (end(client(number)), end(Ipv4Addr::UNSPECIFIED.into()), Protocol::TCP);
        self.intervals.record(connection.server as u32, ends, requests.into(), responses);
    }

    fn interval(&mut self, now: f64, placement: &mut dyn Placement) {
        self.at(now + self.cluster.interval, Event::Interval);
        let mut pending = vec![Pending::default(); self.servers.len()];
        let mut connections = std::mem::take(&mut self.connections);
        let mut numbers: Vec<u32> = connections.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            let Some(connection) = connections.get_mut(&number) else { continue };
            if let Some(sent) = connection.sent
                && number.is_multiple_of(self.cluster.measured_of)
            {
                let age = Duration::from_secs_f64(now - sent);
                pending[connection.server].add(client(number), nanos(age));
            }
            self.report(number, connection);
        }
        self.connections = connections;
        let state = |(real, (active, pending)): (usize, (&u64, Pending))| BackendState {
            real: real as u32,
            configured: 1.0,
            active: *active,
            pending,
            is_usable: true,
        };
        let backends: Vec<BackendState> = self.active.iter().zip(pending).enumerate().map(state).collect();
        let weights = placement.interval(&self.intervals.end(&backends));
        // The idle time is the interval: the connections seen in it count.
        self.active.clone_from(&self.open);
        self.outcome.weights.push(weights);
    }
}

/// The address of the client of a connection: clients are of many networks.
fn client(connection: u32) -> IpAddr {
    Ipv4Addr::from(connection.wrapping_mul(0x9e37_79b1)).into()
}

fn end(address: IpAddr) -> Endpoint {
    Endpoint { address, port: 0 }
}
