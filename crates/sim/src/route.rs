//! The policies: which server a new connection goes to. What decides is the balancer's code.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use dwell_engine::{
    quic_lb::Stamp,
    steer::{
        HeavyShare, OutOfRange,
        maglev::{self, Member},
        zero_rtt::{HeavyHitters, Loads},
    },
};
use serde::{Deserialize, Serialize};

use crate::{
    Scenario,
    random::{Random, mix},
    server::{Server, unix},
    steering::Steering,
};

/// A policy to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// By the client's address, but for heavy clients of an overloaded server.
    ZeroRtt,
    /// The same, and nobody uses 0-RTT.
    ZeroRttOff,
    /// The server with the least work left, which this one knows exactly.
    LeastLoaded,
    /// The server that says that one waits least: what it said last, as far as that has come.
    LeastTold,
    /// That of two drawn at random with less work left.
    PowerOfTwo,
    /// By the client's address alone.
    SessionAffinity,
    /// TCP: Maglev with weights by measured response latency.
    Latency,
    /// TCP: Maglev.
    Maglev,
}

impl Policy {
    /// All of them.
    pub const ALL: [Policy; 8] = [
        Policy::ZeroRtt,
        Policy::ZeroRttOff,
        Policy::LeastLoaded,
        Policy::LeastTold,
        Policy::PowerOfTwo,
        Policy::SessionAffinity,
        Policy::Latency,
        Policy::Maglev,
    ];

    /// As in a scenario.
    pub fn name(self) -> &'static str {
        match self {
            Policy::ZeroRtt => "zero-rtt",
            Policy::ZeroRttOff => "zero-rtt-off",
            Policy::LeastLoaded => "least-loaded",
            Policy::LeastTold => "least-told",
            Policy::PowerOfTwo => "power-of-two",
            Policy::SessionAffinity => "session-affinity",
            Policy::Latency => "latency",
            Policy::Maglev => "maglev",
        }
    }

    /// Its connections are of TCP: no 0-RTT, and a round trip more.
    pub fn is_tcp(self) -> bool {
        matches!(self, Policy::Latency | Policy::Maglev)
    }

    pub(crate) fn has_zero_rtt(self) -> bool {
        !self.is_tcp() && self != Policy::ZeroRttOff
    }

    /// Its servers say how long one waits.
    pub(crate) fn needs_loads(self) -> bool {
        matches!(self, Policy::ZeroRtt | Policy::ZeroRttOff | Policy::LeastTold)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A client's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
}

impl Client {
    pub(crate) fn new(number: u32, port: u16) -> Client {
        Client { address: Ipv4Addr::from(number.wrapping_add(0x0a00_0000)).into(), port }
    }

    /// What Maglev's table is entered by.
    fn hash(&self, has_port: bool) -> u64 {
        let address = match self.address {
            IpAddr::V4(address) => u32::from(address).into(),
            IpAddr::V6(address) => u128::from(address) as u64,
        };
        mix(address << 16 | if has_port { self.port.into() } else { 0 })
    }
}

/// Decides for one run.
pub(crate) struct Router {
    table: Vec<u32>,
    random: Random,
    rule: Rule,
    /// New connections that went elsewhere than their client's address says.
    pub(crate) diverted: u64,
}

enum Rule {
    Source(Option<Box<Watch>>),
    Least(Tournament),
    Told(Box<Loads>),
    TwoChoices,
    Flow(Option<Box<Steering>>),
}

struct Watch {
    heavy: Vec<HeavyHitters>,
    loads: Loads,
    any: bool,
    share: Option<HeavyShare>,
}

impl Watch {
    /// Chooses how many connections are heavy, where that is not configured.
    fn choose(&mut self) {
        let Some(share) = &mut self.share else {
            return;
        };
        let top = share.step(self.heavy.iter().map(HeavyHitters::window));
        for heavy in &mut self.heavy {
            // a number that the policy has chosen is within its range
            let _ = heavy.set_top(top);
        }
    }
}

impl Router {
    pub(crate) fn new(policy: Policy, scenario: &Scenario, servers: usize, seed: u64) -> Result<Router, OutOfRange> {
        let rule = match policy {
            Policy::ZeroRtt | Policy::ZeroRttOff => {
                let heavy = HeavyHitters::new(scenario.zero_rtt.heavy())?;
                Rule::Source(Some(Box::new(Watch {
                    heavy: vec![heavy; servers],
                    loads: Loads::new(servers, scenario.zero_rtt.overload(scenario.mean_rtt()))?,
                    any: scenario.zero_rtt.heavy_any,
                    share: scenario.zero_rtt.share()?,
                })))
            }
            Policy::SessionAffinity => Rule::Source(None),
            Policy::LeastLoaded => Rule::Least(Tournament::new(servers)),
            Policy::LeastTold => {
                let overload = scenario.zero_rtt.overload(scenario.mean_rtt());
                Rule::Told(Box::new(Loads::new(servers, overload)?))
            }
            Policy::PowerOfTwo => Rule::TwoChoices,
            Policy::Maglev => Rule::Flow(None),
            Policy::Latency => Rule::Flow(Some(Box::new(Steering::new(servers)?))),
        };
        Ok(Router { table: table(servers, |_| 1.0), random: Random::of(seed, 0x726f_7574_6572), rule, diverted: 0 })
    }

    /// Where a new connection goes.
    pub(crate) fn route(&mut self, client: Client, now_ns: u64, servers: &[Server]) -> usize {
        match &mut self.rule {
            Rule::Source(watch) => {
                let own = by_table(&self.table, client.hash(false));
                let Some(watch) = watch else {
                    return own;
                };
                let is_heavy = match watch.any {
                    false => watch.heavy[own].has(client.address),
                    true => watch.heavy.iter().any(|heavy| heavy.has(client.address)),
                };
                if !is_heavy {
                    return own;
                }
                let from = self.random.below(servers.len());
                let least = watch.loads.divert(own, from, unix(now_ns));
                self.diverted += u64::from(least.is_some());
                least.unwrap_or(own)
            }
            Rule::Least(tournament) => tournament.take(now_ns),
            Rule::Told(loads) => {
                // of which nothing is known is tried, or nothing ever would be
                let from = self.random.below(servers.len());
                let turns = (from..servers.len()).chain(0..from);
                let least = turns.min_by_key(|server| loads.load(*server, unix(now_ns)).code());
                least.unwrap_or(from)
            }
            Rule::TwoChoices => {
                let (a, b) = (self.random.below(servers.len()), self.random.below(servers.len()));
                let work = |at: usize| servers[at].free_at_ns.max(now_ns);
                if work(b) < work(a) { b } else { a }
            }
            Rule::Flow(_) => by_table(&self.table, client.hash(true)),
        }
    }

    /// A request comes now, and is answered then.
    pub(crate) fn packet(&mut self, client: Client, server: usize, now_ns: u64, done_ns: u64) {
        match &mut self.rule {
            Rule::Source(Some(watch)) => {
                let random = (self.random.next() >> 32) as u32;
                watch.heavy[server].note(client.address, client.port, random);
            }
            Rule::Flow(Some(steering)) => steering.asked(client, server, now_ns, done_ns),
            _ => {}
        }
    }

    /// A server has something to do until then.
    pub(crate) fn busy_until(&mut self, server: usize, free_at_ns: u64) {
        if let Rule::Least(tournament) = &mut self.rule {
            tournament.set(server, free_at_ns);
        }
    }

    /// A connection ID tells what a server says.
    pub(crate) fn told(&mut self, server: usize, stamp: Stamp, now_ns: u64) {
        let loads = match &mut self.rule {
            Rule::Source(Some(watch)) => &mut watch.loads,
            Rule::Told(loads) => loads,
            _ => return,
        };
        loads.note(server, stamp, unix(now_ns));
    }

    /// A connection to a server began or ended.
    pub(crate) fn opened(&mut self, server: usize, by: i64) {
        if let Rule::Flow(Some(steering)) = &mut self.rule {
            steering.opened(server, by);
        }
    }

    /// An interval of the control loop ends now.
    pub(crate) fn interval(&mut self, now_ns: u64) {
        let steering = match &mut self.rule {
            Rule::Source(Some(watch)) => return watch.choose(),
            Rule::Flow(Some(steering)) => steering,
            _ => return,
        };
        if steering.step(now_ns) {
            let shares = steering.shares();
            self.table = table(shares.len(), |server| shares[server].weight);
        }
    }
}

/// The server of an entry, as the kernel finds it.
fn by_table(table: &[u32], hash: u64) -> usize {
    let at = ((hash >> 32) * table.len() as u64) >> 32;
    table[at as usize] as usize
}

/// A Maglev table of servers, by number.
fn table(servers: usize, weight: impl Fn(usize) -> f64) -> Vec<u32> {
    let members =
        (0..servers).map(|server| Member { id: mix(server as u64 + 1), weight: weight(server), real: server as u32 });
    maglev::table(maglev::DEFAULT_SIZE, &members.collect::<Vec<_>>())
}

/// Who has the least work left, in the time that the logarithm of their number takes. Of those that have
/// none the one that was not asked to do anything for longest.
struct Tournament {
    leaves: usize,
    /// 1 is the root; who is at 2n and 2n + 1 plays for n.
    winners: Vec<u32>,
    free_at_ns: Vec<u64>,
}

impl Tournament {
    fn new(servers: usize) -> Tournament {
        let leaves = servers.next_power_of_two();
        let mut free_at_ns = vec![0; leaves];
        free_at_ns[servers..].fill(u64::MAX);
        let mut tournament = Tournament { leaves, winners: vec![0; 2 * leaves], free_at_ns };
        for server in 0..leaves {
            tournament.winners[leaves + server] = server as u32;
        }
        for match_ in (1..leaves).rev() {
            tournament.play(match_);
        }
        tournament
    }

    fn play(&mut self, match_: usize) {
        let (a, b) = (self.winners[2 * match_], self.winners[2 * match_ + 1]);
        let free_at = |server: u32| self.free_at_ns[server as usize];
        self.winners[match_] = if free_at(b) < free_at(a) { b } else { a };
    }

    fn set(&mut self, server: usize, free_at_ns: u64) {
        self.free_at_ns[server] = free_at_ns;
        let mut match_ = (self.leaves + server) / 2;
        while match_ > 0 {
            self.play(match_);
            match_ /= 2;
        }
    }

    fn least(&self) -> usize {
        self.winners[1] as usize
    }

    /// The least, which is idle no longer: its work is still to come.
    fn take(&mut self, now_ns: u64) -> usize {
        let least = self.least();
        self.set(least, self.free_at_ns[least].max(now_ns));
        least
    }
}

/// How long an interval of the control loop is.
pub(crate) const CONTROL_INTERVAL: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_wins() {
        for servers in [1, 2, 3, 24, 64, 100] {
            let mut tournament = Tournament::new(servers);
            let mut random = Random::new(servers as u64);
            let mut free_at = vec![0; servers];
            for _ in 0..2000 {
                let (server, time) = (random.below(servers), random.next() >> 40);
                free_at[server] = time;
                tournament.set(server, time);
                assert_eq!(free_at[tournament.least()], *free_at.iter().min().unwrap());
            }
        }
    }

    #[test]
    fn new_connections_avoid_a_server_whose_answers_take_long() {
        const MS: u64 = 1_000_000;
        let mut router = Router::new(Policy::Latency, &Scenario::default(), 2, 1).unwrap();
        let entries = |router: &Router| router.table.iter().filter(|entry| **entry == 1).count();
        let before = entries(&router);
        (0..2).for_each(|server| router.opened(server, 6));
        for step in 0..50 {
            for (server, took_ns) in [(0, MS), (1, 20 * MS)] {
                for number in 0..6 {
                    let client = Client::new(number, 1000 + server as u16);
                    router.packet(client, server, step * 10 * MS, step * 10 * MS + took_ns);
                }
            }
        }
        router.interval(CONTROL_INTERVAL.as_nanos() as u64);
        let after = entries(&router);
        assert!(after < before, "{before} {after}");
    }

    #[test]
    fn names_are_those_of_scenarios() {
        for policy in Policy::ALL {
            let quoted = serde_json::to_string(&policy).unwrap();
            assert_eq!(quoted, format!("\"{}\"", policy.name()));
        }
    }
}
