//! Latency steering of TCP: the balancer's intervals and policy, fed with exact latencies instead of measured ones.

use std::{
    collections::{HashMap, VecDeque},
    net::Ipv4Addr,
};

use dwell_engine::{
    measure::{Endpoint, Protocol},
    steer::{
        BackendState, Connection, Intervals, IntervalsConfig, LatencyConfig, LatencySteering, OutOfRange, Pending,
        Policy as _, Responses, Share, draw, least_crowded,
    },
};

use crate::route::{CONTROL_INTERVAL, Client};

pub(crate) struct Steering {
    policy: LatencySteering,
    intervals: Intervals,
    shares: Vec<Share>,
    active: Vec<u64>,
    /// Unanswered requests per server, in the order of their answers.
    requests: Vec<VecDeque<Request>>,
}

struct Request {
    client: Client,
    done_ns: u64,
    latency_ns: u64,
}

impl Request {
    fn age_ns(&self, now_ns: u64) -> u64 {
        (now_ns + self.latency_ns).saturating_sub(self.done_ns)
    }
}

impl Steering {
    pub(crate) fn new(servers: usize) -> Result<Steering, OutOfRange> {
        Ok(Steering {
            policy: LatencySteering::new(LatencyConfig::default(), CONTROL_INTERVAL)?,
            intervals: Intervals::new(IntervalsConfig::default(), CONTROL_INTERVAL)?,
            shares: vec![Share::initial(1.0); servers],
            active: vec![0; servers],
            requests: (0..servers).map(|_| VecDeque::new()).collect(),
        })
    }

    /// Returns the server of a new connection; the number, from 0 to below 1, is random.
    pub(crate) fn select(&self, number: f64) -> usize {
        least_crowded(&self.shares, &self.active, draw(&self.shares, number))
    }

    /// Adds `by` to the number of open connections of a server.
    pub(crate) fn add_open(&mut self, server: usize, by: i64) {
        self.active[server] = self.active[server].saturating_add_signed(by);
    }

    /// Records a request that arrives at `now_ns` and is answered at `done_ns`.
    pub(crate) fn request(&mut self, client: Client, server: usize, now_ns: u64, done_ns: u64) {
        self.intervals.record(server as u32, connection(client), 1, None);
        self.requests[server].push_back(Request { client, done_ns, latency_ns: done_ns - now_ns });
    }

    /// Ends an interval, and with it the epochs of all connections.
    pub(crate) fn step(&mut self, now_ns: u64) {
        let mut pending = vec![Pending::default(); self.requests.len()];
        for (server, requests) in self.requests.iter_mut().enumerate() {
            let answered = requests.partition_point(|request| request.done_ns <= now_ns);
            let mut epochs: HashMap<Client, Vec<(u64, u64)>> = HashMap::new();
            for request in requests.drain(..answered) {
                epochs.entry(request.client).or_default().push((request.latency_ns, 1));
            }
            for (client, singles) in epochs {
                let count = singles.len() as u64;
                let mean_ns = singles.iter().map(|(ns, _)| ns).sum::<u64>() / count;
                let responses = Some(Responses { count, mean_ns, singles });
                self.intervals.record(server as u32, connection(client), 0, responses);
            }
            requests.iter().for_each(|request| pending[server].add(request.client.address, request.age_ns(now_ns)));
        }
        let connections = self.active.iter().zip(pending);
        let backends: Vec<BackendState> = (0..).zip(connections).map(backend).collect();
        self.shares = self.policy.step(&self.intervals.end(&backends), &self.shares);
    }
}

fn backend((real, (active, pending)): (u32, (&u64, Pending))) -> BackendState {
    BackendState { real, configured: 1.0, active: *active, pending, is_usable: true }
}

/// The key of a client's connection to the only VIP.
fn connection(client: Client) -> Connection {
    let client = Endpoint { address: client.address, port: client.port };
    let vip = Endpoint { address: Ipv4Addr::UNSPECIFIED.into(), port: 0 };
    const TCP: Protocol = Protocol(6);
    (client, vip, TCP)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// An interval of six connections to each of two servers, with one request every 10 ms each. The second server takes
    /// `slow_ns`.
    fn interval(steering: &mut Steering, at_ns: u64, slow_ns: u64) {
        for step in 0..50 {
            let now_ns = at_ns + step * 10 * MS;
            for server in 0..2 {
                let latency_ns = if server == 0 { MS } else { slow_ns };
                for number in 0..6 {
                    let client = Client::new(number, 1000 + server as u16);
                    steering.request(client, server, now_ns, now_ns + latency_ns);
                }
            }
        }
        steering.step(at_ns + 500 * MS);
    }

    #[test]
    fn a_slow_server_loses_weight_before_its_answers_arrive() {
        let mut steering = Steering::new(2).unwrap();
        (0..2).for_each(|server| steering.add_open(server, 6));
        let weights = |steering: &Steering| [0, 1].map(|server| steering.shares[server].weight);
        // Its first answer arrives after the first interval.
        interval(&mut steering, 0, 600 * MS);
        let [fast, slow] = weights(&steering);
        assert!(slow < 1.0 && fast > 1.0, "{fast} {slow}");
        assert!((fast + slow - 2.0).abs() < 1e-9);
    }

    #[test]
    fn few_connections_give_no_latency() {
        let mut steering = Steering::new(2).unwrap();
        for server in 0..2 {
            steering.add_open(server, 1);
            for at in 0..100 {
                let client = Client::new(server as u32, 1000);
                let done_ns = at * MS + if server == 0 { MS } else { 20 * MS };
                steering.request(client, server, at * MS, done_ns);
            }
        }
        steering.step(500 * MS);
        assert!(steering.shares.iter().all(|share| share.weight == 1.0));
    }
}
