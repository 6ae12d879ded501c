//! A simulated cluster of servers with one queue and one worker each, and clients that open short connections to them
//! by weight.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    time::Duration,
};

use dwell_engine::{
    abi,
    response::{Estimate, Method, Record, Truth},
    steer::{BackendState, BackendStats, Intervals, IntervalsConfig, Pending, Policy, Share},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use zerocopy::IntoBytes;

pub const SERVERS: usize = 4;

#[derive(Clone)]
pub struct Cluster {
    /// The request rate relative to the capacity of all servers at their usual speed.
    pub load: f64,
    /// The mean of the exponential service times, in seconds.
    pub service: f64,
    /// The factor by which a server is slower at a time.
    pub slowness: fn(server: usize, time: f64) -> f64,
    /// An error that is added to each latency that the balancer sees, such as an unnoticed think time.
    pub lie: fn(server: usize, random: f64) -> f64,
    /// How many servers a connection may go to: the one with the fewest connections gets it.
    pub choices: u32,
    /// Of how many connections the balancer measures one.
    pub measured_of: u32,
    pub requests: u32,
    pub seconds: u32,
    pub interval: f64,
    pub seed: u64,
}

impl Default for Cluster {
    fn default() -> Cluster {
        Cluster {
            load: 0.6,
            service: 0.002,
            slowness: |_, _| 1.0,
            lie: |_, _| 0.0,
            choices: 1,
            measured_of: 1,
            requests: 4,
            seconds: 60,
            interval: 0.5,
            seed: 1,
        }
    }
}

/// The results of a run.
pub struct Outcome {
    /// The time of each response, and its latency.
    pub latencies: Vec<(f64, f64)>,
    /// The weights by interval.
    pub weights: Vec<[f64; SERVERS]>,
}

impl Outcome {
    /// Returns a percentile of the latencies of responses between two times, in seconds.
    pub fn percentile(&self, part: f64, from: f64, to: f64) -> f64 {
        let in_time = |(time, _): &&(f64, f64)| (from..to).contains(time);
        let mut sorted: Vec<f64> = self.latencies.iter().filter(in_time).map(|l| l.1).collect();
        sorted.sort_by(f64::total_cmp);
        sorted[((sorted.len() - 1) as f64 * part) as usize]
    }
}

#[derive(PartialEq, PartialOrd)]
struct Time(f64);
impl Eq for Time {}
#[allow(clippy::derive_ord_xor_partial_ord)]
impl Ord for Time {
    fn cmp(&self, other: &Time) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Open,
    Response { connection: u32, sent: Time },
    Interval,
}

struct Connection {
    server: usize,
    left: u32,
    /// The current interval: requests, responses, and the sum of their latencies.
    epoch: (u32, u32, f64),
}

struct Run<'a> {
    cluster: &'a Cluster,
    random: StdRng,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    numbers: u64,
    free_at: [f64; SERVERS],
    connections: HashMap<u32, Connection>,
    opened: u32,
    shares: Vec<Share>,
    intervals: Intervals,
    active: [u64; SERVERS],
    open: [u64; SERVERS],
    outcome: Outcome,
}

impl Cluster {
    pub fn run(&self, policy: &mut dyn Policy) -> Outcome {
        let mut run = Run {
            cluster: self,
            random: StdRng::seed_from_u64(self.seed),
            events: BinaryHeap::new(),
            numbers: 0,
            free_at: [0.0; SERVERS],
            connections: HashMap::new(),
            opened: 0,
            shares: vec![Share::initial(1.0); SERVERS],
            intervals: Intervals::new(IntervalsConfig::default(), Duration::from_secs_f64(self.interval))
                .unwrap()
                .of_sample(self.measured_of),
            active: [0; SERVERS],
            open: [0; SERVERS],
            outcome: Outcome { latencies: Vec::new(), weights: Vec::new() },
        };
        run.after(0.0, 0.0, Event::Open);
        run.after(0.0, self.interval, Event::Interval);
        while let Some(Reverse((Time(now), _, event))) = run.events.pop() {
            if now > f64::from(self.seconds) {
                break;
            }
            match event {
                Event::Open => run.open(now),
                Event::Response { connection, sent } => run.response(now, connection, sent.0),
                Event::Interval => run.interval(now, policy),
            }
        }
        run.outcome
    }
}

impl Run<'_> {
    fn after(&mut self, now: f64, delay: f64, event: Event) {
        self.numbers += 1;
        let entry = (Time(now + delay), self.numbers, event);
        self.events.push(Reverse(entry));
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.random.random::<f64>()).ln()
    }

    fn open(&mut self, now: f64) {
        let rate = self.cluster.load * SERVERS as f64 / self.cluster.service;
        let gap = self.exponential(f64::from(self.cluster.requests) / rate);
        self.after(now, gap, Event::Open);
        let candidates: Vec<usize> = (0..self.cluster.choices).map(|_| self.candidate()).collect();
        let server = candidates.into_iter().min_by_key(|server| self.open[*server]);
        self.opened += 1;
        let connection = Connection { server: server.unwrap_or(0), left: self.cluster.requests, epoch: (0, 0, 0.0) };
        self.active[connection.server] += 1;
        self.open[connection.server] += 1;
        self.connections.insert(self.opened, connection);
        self.request(now, self.opened);
    }

    /// Draws a server by weight.
    fn candidate(&mut self) -> usize {
        let total: f64 = self.shares.iter().map(|share| share.weight).sum();
        let mut at = self.random.random::<f64>() * total;
        let server = self.shares.iter().position(|share| {
            at -= share.weight;
            at < 0.0
        });
        server.unwrap_or(0)
    }

    fn request(&mut self, now: f64, number: u32) {
        let service = self.exponential(self.cluster.service);
        let connection = self.connections.get_mut(&number).unwrap();
        connection.left -= 1;
        connection.epoch.0 += 1;
        let server = connection.server;
        let start = self.free_at[server].max(now);
        let done = start + service * (self.cluster.slowness)(server, start);
        self.free_at[server] = done;
        let sent = Time(now);
        self.after(now, done - now, Event::Response { connection: number, sent });
    }

    fn response(&mut self, now: f64, number: u32, sent: f64) {
        self.outcome.latencies.push((now, now - sent));
        let lie = self.random.random::<f64>();
        let connection = self.connections.get_mut(&number).unwrap();
        connection.epoch.1 += 1;
        connection.epoch.2 += now - sent + (self.cluster.lie)(connection.server, lie);
        if connection.left > 0 {
            self.request(now, number);
        } else {
            let connection = self.connections.remove(&number).unwrap();
            self.open[connection.server] -= 1;
            self.tell(number, &connection);
        }
    }

    /// Reports the epoch of a connection as the kernel does, if it is measured.
    fn tell(&mut self, number: u32, connection: &Connection) {
        // Servers are drawn, so that every n-th connection is a random one of each.
        if !number.is_multiple_of(self.cluster.measured_of) {
            return;
        }
        let (requests, responses, latency) = connection.epoch;
        let estimate = Estimate {
            method: Method::AckRuns,
            truth: Truth::All,
            response_ns: (responses > 0).then(|| (latency / f64::from(responses) * 1e9) as u64),
            ibg_ns: None,
            batches: responses.into(),
            confidence: 0.9,
            reason: (responses < 2).then_some(dwell_engine::response::Reason::TooFew),
        };
        let record = record(number, requests);
        let real = connection.server as u32 + 1;
        self.intervals.add(real, &record, &estimate);
    }

    fn interval(&mut self, now: f64, policy: &mut dyn Policy) {
        self.after(now, self.cluster.interval, Event::Interval);
        let numbers: Vec<u32> = {
            let mut numbers: Vec<u32> = self.connections.keys().copied().collect();
            numbers.sort_unstable();
            numbers
        };
        for number in numbers {
            let connection = self.connections.get_mut(&number).unwrap();
            let ended = Connection { ..*connection };
            connection.epoch = (0, 0, 0.0);
            self.tell(number, &ended);
        }
        let backends: Vec<BackendState> = (0..SERVERS)
            .map(|server| BackendState {
                real: server as u32 + 1,
                configured: 1.0,
                active: self.active[server],
                pending: Pending::default(),
                is_usable: true,
            })
            .collect();
        let seen: Vec<BackendStats> = self.intervals.end(&backends);
        // The idle time is the interval: the connections seen in it count.
        self.active = [0; SERVERS];
        for connection in self.connections.values() {
            self.active[connection.server] += 1;
        }
        self.shares = policy.step(&seen, &self.shares);
        let weights = std::array::from_fn(|server| self.shares[server].weight);
        self.outcome.weights.push(weights);
    }
}

/// Returns a record of this number of requests on a connection of its own.
pub fn record(connection: u32, requests: u32) -> Record {
    let event = abi::dwell_response_event {
        event: abi::DWELL_EVENT_RESPONSE as u8,
        key_kind: abi::DWELL_KEY_5TUPLE as u8,
        src: abi::dwell_address { high: 0, low: connection.into() },
        epoch: abi::dwell_epoch { requests, ..Default::default() },
        ..Default::default()
    };
    Record::from_kernel(event.as_bytes()).unwrap()
}
