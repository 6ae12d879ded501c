//! Selection of a server for each new connection, by the balancer's own code.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use dwell_engine::{
    hash::mix,
    quic_lb::Stamp,
    steer::{
        HeavyShare, OutOfRange,
        maglev::{self, Member},
        zero_rtt::{HeavyHitters, Loads},
    },
};

use crate::{
    Policy, Scenario,
    random::Random,
    scenario::HeavyScope,
    server::{Server, unix},
    steering::Steering,
    tournament::Tournament,
};

/// The client's end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
}

impl Client {
    pub(crate) fn new(number: u32, port: u16) -> Client {
        Client { address: Ipv4Addr::from(number.wrapping_add(0x0a00_0000)).into(), port }
    }

    /// Hash for the lookup in a Maglev table.
    fn hash(&self, has_port: bool) -> u64 {
        let address = match self.address {
            IpAddr::V4(address) => u32::from(address).into(),
            IpAddr::V6(address) => u128::from(address) as u64,
        };
        mix(address << 16 | if has_port { self.port.into() } else { 0 })
    }
}

/// The balancer of one run.
pub(crate) struct Router {
    table: Vec<u32>,
    random: Random,
    rule: Rule,
    /// Number of connections that were diverted from the server of their client's address.
    pub(crate) diverted: u64,
}

enum Rule {
    /// By the client's address, with or without detours.
    Source(Option<Box<Detours>>),
    LeastLoaded(Tournament),
    LeastReported(Box<Loads>),
    PowerOfTwo,
    /// By the 5-tuple.
    Flow,
    /// The fewest open connections for a weight that follows latency.
    Latency(Box<Steering>),
}

/// Detours of heavy clients around overloaded servers.
struct Detours {
    /// Heavy connections per server.
    heavy: Vec<HeavyHitters>,
    loads: Loads,
    /// Whether a client that is heavy at any server counts as heavy.
    any: bool,
    share: Option<HeavyShare>,
}

impl Detours {
    /// Adapts how many connections count as heavy, if the scenario sets their share instead of their number.
    fn adapt(&mut self) {
        let Some(share) = &mut self.share else {
            return;
        };
        let top = share.step(self.heavy.iter().map(HeavyHitters::window));
        for heavy in &mut self.heavy {
            // `HeavyShare` returns a number within the range.
            let _ = heavy.set_top(top);
        }
    }
}

impl Router {
    pub(crate) fn new(policy: Policy, scenario: &Scenario, servers: usize, seed: u64) -> Result<Router, OutOfRange> {
        let rule = match policy {
            Policy::ZeroRtt | Policy::ZeroRttOff => {
                let heavy = HeavyHitters::new(scenario.zero_rtt.heavy())?;
                Rule::Source(Some(Box::new(Detours {
                    heavy: vec![heavy; servers],
                    loads: Loads::new(servers, scenario.zero_rtt.overload(scenario.mean_rtt()))?,
                    any: scenario.zero_rtt.heavy == HeavyScope::Any,
                    share: scenario.zero_rtt.share()?,
                })))
            }
            Policy::SessionAffinity => Rule::Source(None),
            Policy::LeastLoaded => Rule::LeastLoaded(Tournament::new(servers)),
            Policy::LeastReported => {
                let overload = scenario.zero_rtt.overload(scenario.mean_rtt());
                Rule::LeastReported(Box::new(Loads::new(servers, overload)?))
            }
            Policy::PowerOfTwo => Rule::PowerOfTwo,
            Policy::Maglev => Rule::Flow,
            Policy::Latency => Rule::Latency(Box::new(Steering::new(servers)?)),
        };
        Ok(Router { table: table(servers), random: Random::stream(seed, 0x726f_7574_6572), rule, diverted: 0 })
    }

    /// Selects the server of a new connection.
    pub(crate) fn select(&mut self, client: Client, now_ns: u64, servers: &[Server]) -> usize {
        match &mut self.rule {
            Rule::Source(detours) => {
                let own = look_up(&self.table, client.hash(false));
                let Some(detours) = detours else {
                    return own;
                };
                let is_heavy = match detours.any {
                    false => detours.heavy[own].contains(client.address),
                    true => detours.heavy.iter().any(|heavy| heavy.contains(client.address)),
                };
                if !is_heavy {
                    return own;
                }
                let from = self.random.below(servers.len());
                let least = detours.loads.divert(own, from, unix(now_ns));
                self.diverted += u64::from(least.is_some());
                least.unwrap_or(own)
            }
            Rule::LeastLoaded(tournament) => tournament.take(now_ns),
            Rule::LeastReported(loads) => {
                // A server without a report comes first, or there would never be one.
                let from = self.random.below(servers.len());
                let order = (from..servers.len()).chain(0..from);
                let least = order.min_by_key(|server| loads.load(*server, unix(now_ns)).code());
                least.unwrap_or(from)
            }
            Rule::PowerOfTwo => {
                let (a, b) = (self.random.below(servers.len()), self.random.below(servers.len()));
                let free_at_ns = |server: usize| servers[server].free_at_ns.max(now_ns);
                if free_at_ns(b) < free_at_ns(a) { b } else { a }
            }
            Rule::Flow => look_up(&self.table, client.hash(true)),
            Rule::Latency(steering) => steering.select(self.random.unit()),
        }
    }

    /// Records a request that arrives at `now_ns` and is answered at `done_ns`. Only packets with a connection ID of the
    /// server count for heavy hitters.
    pub(crate) fn request(
        &mut self,
        client: Client,
        server: usize,
        (now_ns, done_ns): (u64, u64),
        has_servers_id: bool,
    ) {
        match &mut self.rule {
            Rule::Source(Some(detours)) if has_servers_id => {
                let random = (self.random.next() >> 32) as u32;
                detours.heavy[server].count(client.address, client.port, random);
            }
            Rule::Latency(steering) => steering.request(client, server, now_ns, done_ns),
            _ => {}
        }
    }

    /// Records that a server has work until `free_at_ns`.
    pub(crate) fn busy_until(&mut self, server: usize, free_at_ns: u64) {
        if let Rule::LeastLoaded(tournament) = &mut self.rule {
            tournament.set(server, free_at_ns);
        }
    }

    /// Records a server's load report, read from a connection ID.
    pub(crate) fn report(&mut self, server: usize, stamp: Stamp, now_ns: u64) {
        let loads = match &mut self.rule {
            Rule::Source(Some(detours)) => &mut detours.loads,
            Rule::LeastReported(loads) => loads,
            _ => return,
        };
        loads.update(server, stamp, unix(now_ns));
    }

    /// Adds `by` to the number of open connections of a server.
    pub(crate) fn add_open(&mut self, server: usize, by: i64) {
        if let Rule::Latency(steering) = &mut self.rule {
            steering.add_open(server, by);
        }
    }

    /// Ends an interval of the control loop.
    pub(crate) fn end_interval(&mut self, now_ns: u64) {
        match &mut self.rule {
            Rule::Source(Some(detours)) => detours.adapt(),
            Rule::Latency(steering) => steering.step(now_ns),
            _ => {}
        }
    }
}

/// Looks a hash up in a table, as the kernel does.
fn look_up(table: &[u32], hash: u64) -> usize {
    let index = ((hash >> 32) * table.len() as u64) >> 32;
    table[index as usize] as usize
}

/// Builds the Maglev table of numbered servers, all of one weight.
fn table(servers: usize) -> Vec<u32> {
    let members = (0..servers).map(|server| Member { id: mix(server as u64 + 1), weight: 1.0, real: server as u32 });
    maglev::table(maglev::DEFAULT_SIZE, &members.collect::<Vec<_>>())
}

/// Interval of the control loop.
pub(crate) const CONTROL_INTERVAL: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_connections_avoid_a_slow_server() {
        const MS: u64 = 1_000_000;
        let mut router = Router::new(Policy::Latency, &Scenario::default(), 2, 1).unwrap();
        let slow = |router: &mut Router| {
            let selected = (0..1000)
                .map(|number| router.select(Client::new(number, 1), 0, &[Server::new(None), Server::new(None)]));
            selected.sum::<usize>()
        };
        (0..2).for_each(|server| router.add_open(server, 6));
        let before = slow(&mut router);
        assert!(before > 400, "{before}");
        for step in 0..50 {
            for (server, took_ns) in [(0, MS), (1, 20 * MS)] {
                for number in 0..6 {
                    let client = Client::new(number, 1000 + server as u16);
                    let now_ns = step * 10 * MS;
                    router.request(client, server, (now_ns, now_ns + took_ns), true);
                }
            }
        }
        router.end_interval(CONTROL_INTERVAL.as_nanos() as u64);
        assert_eq!(slow(&mut router), 0, "of alike ones, the faster");
    }

    #[test]
    fn only_packets_with_a_servers_connection_id_make_a_client_heavy() {
        let mut router = Router::new(Policy::ZeroRtt, &Scenario::default(), 2, 1).unwrap();
        let clients = [1, 2].map(|number| Client::new(number, 1000));
        for _ in 0..100 {
            router.request(clients[0], 0, (0, 0), true);
            router.request(clients[1], 0, (0, 0), false);
        }
        let Rule::Source(Some(detours)) = &router.rule else {
            unreachable!("the policy is zero-rtt");
        };
        assert_eq!(clients.map(|client| detours.heavy[0].contains(client.address)), [true, false]);
    }
}
