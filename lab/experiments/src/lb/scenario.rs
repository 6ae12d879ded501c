//! Scenarios: what happens to servers, clients and the balancer in a run.

use std::time::Duration;

use rand::{RngExt, rngs::Xoshiro256PlusPlus};

use super::star::SERVERS;
use crate::loads::{
    random::{exponential, generator},
    web::Utilisation,
};

/// Distribution of the service time of a request at a server that is not slowed down.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Work {
    /// Exponential with this mean.
    Exponential(Duration),
    /// Constant.
    Fixed(Duration),
}

impl Work {
    pub(super) fn draw(self, random: &mut Xoshiro256PlusPlus) -> Duration {
        match self {
            Work::Exponential(mean) => Duration::from_secs_f64(exponential(random, mean.as_secs_f64())),
            Work::Fixed(time) => time,
        }
    }

    /// The mean.
    pub fn mean(self) -> Duration {
        match self {
            Work::Exponential(mean) | Work::Fixed(mean) => mean,
        }
    }
}

/// Factors by which a server is slowed down, each from a time since the start on. `None`: the server is down. With an
/// infinite factor it stands still: it takes requests, and begins none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Slowdown(pub Vec<(Duration, Option<f64>)>);

impl Slowdown {
    /// The factor at a time since the start.
    pub fn at(&self, time: Duration) -> Option<f64> {
        let phase = self.0.iter().rev().find(|(from, _)| *from <= time);
        phase.map_or(Some(1.0), |(_, times)| *times)
    }

    /// When a request that comes at `time` since the start can be begun.
    pub(super) fn begins(&self, time: Duration) -> Duration {
        let stands_still = self.at(time).is_some_and(f64::is_infinite);
        let next = self.0.iter().map(|(from, _)| *from).find(|from| *from > time);
        next.filter(|_| stands_still).unwrap_or(time)
    }

    /// Capacity until `end`, as a share of the capacity without slowdown.
    fn capacity(&self, end: Duration) -> f64 {
        const STEPS: u32 = 1_000;
        let at = |step: u32| self.at(end * step / STEPS).map_or(0.0, |times| 1.0 / times);
        (0..STEPS).map(at).sum::<f64>() / f64::from(STEPS)
    }
}

/// What happens in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scenario {
    /// Another server is twice as slow every 15 s.
    Tail,
    /// A server is ten times slower for 10 s.
    Slowed,
    /// A server stands still for 5 s, and later another one.
    Stalled,
    /// A server sends only the first byte of each answer for 5 s, and later another one.
    Halted,
    /// A server loses 30 % of the packets in each direction for 10 s.
    Lossy,
    /// A server is killed, and starts again after 15 s.
    Killed,
    /// A server is added.
    Added,
    /// All servers are alike, and clients think before each request.
    Think,
    /// Servers compute, each in a group with a limit of processor time; every 15 s another one shares it with a thread
    /// that spins.
    Shared,
    /// Servers compute, and the limit of each changes every second.
    Limited,
    /// Ten thousand connections stay open while the balancer is reloaded and restarted.
    Open,
}

/// What is done to the network or the balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// Its configuration names this number of servers from now on.
    Servers(usize),
    /// Its process is killed, and another one takes over.
    Restart,
    /// This server, by its position, loses so many of 100 packets in each direction.
    Loss(usize, u32),
    /// It is reloaded this number of times, each time with another number of servers.
    Reloads(usize),
}

const SECOND: Duration = Duration::from_secs(1);

/// The share of a processor to which a server that computes is limited. Four of them leave room on two processors.
pub(super) const PROCESSOR_SHARE: f64 = 0.2;

impl Scenario {
    /// All scenarios, in the order in which they run.
    pub const ALL: [Scenario; 11] = [
        Scenario::Tail,
        Scenario::Slowed,
        Scenario::Stalled,
        Scenario::Halted,
        Scenario::Lossy,
        Scenario::Killed,
        Scenario::Added,
        Scenario::Think,
        Scenario::Shared,
        Scenario::Limited,
        Scenario::Open,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Tail => "tail",
            Scenario::Slowed => "slowed",
            Scenario::Stalled => "stalled",
            Scenario::Halted => "halted",
            Scenario::Lossy => "lossy",
            Scenario::Killed => "killed",
            Scenario::Added => "added",
            Scenario::Think => "think",
            Scenario::Shared => "shared",
            Scenario::Limited => "limited",
            Scenario::Open => "open",
        }
    }

    /// A description in a few words.
    pub fn about(self) -> &'static str {
        match self {
            Scenario::Tail => "another server is twice as slow every 15 s",
            Scenario::Slowed => "a server is ten times slower for 10 s",
            Scenario::Stalled => "a server stands still for 5 s, and 10 s later another one",
            Scenario::Halted => "a server sends only the first byte of each answer for 5 s, and 10 s later another one",
            Scenario::Lossy => "a server loses 30 % of the packets in each direction for 10 s",
            Scenario::Killed => "a server is killed, and starts again after 15 s",
            Scenario::Added => "a fourth server is added to three",
            Scenario::Think => "clients think before each request, which looks like slow servers",
            Scenario::Shared => {
                "servers compute under a CPU limit; every 15 s a spinning neighbour shares another one's"
            }
            Scenario::Limited => "servers compute under a CPU limit, which changes every second",
            Scenario::Open => "10,000 connections stay open while a server comes and goes, a restart and 100 reloads",
        }
    }

    /// Whether servers differ in speed, so that the selection matters.
    pub(super) fn has_slow_servers(self) -> bool {
        use Scenario::{Halted, Limited, Lossy, Shared, Slowed, Stalled, Tail};
        matches!(self, Tail | Slowed | Stalled | Halted | Lossy | Shared | Limited)
    }

    /// The time for which clients open connections, by default.
    pub fn time(self) -> Duration {
        match self {
            Scenario::Tail | Scenario::Shared | Scenario::Limited => 60 * SECOND,
            Scenario::Slowed | Scenario::Stalled | Scenario::Halted | Scenario::Lossy | Scenario::Killed => 40 * SECOND,
            Scenario::Added | Scenario::Think => 30 * SECOND,
            Scenario::Open => 28 * SECOND,
        }
    }

    /// The loads by default, as shares of the servers' capacity.
    pub fn loads(self) -> &'static [f64] {
        match self {
            Scenario::Tail => &[0.2, 0.3, 0.4, 0.5, 0.6, 0.7],
            Scenario::Slowed
            | Scenario::Stalled
            | Scenario::Halted
            | Scenario::Lossy
            | Scenario::Killed
            | Scenario::Added => &[0.4],
            Scenario::Think => &[0.3, 0.5, 0.7],
            Scenario::Shared | Scenario::Limited => &[0.2, 0.3, 0.4],
            // Connections have two requests each.
            Scenario::Open => &[0.6],
        }
    }

    /// The slowdown of each server, which is the same for the same seed.
    pub fn slowdowns(self, seed: u64) -> [Slowdown; SERVERS] {
        let mut slowdowns: [Slowdown; SERVERS] = Default::default();
        match self {
            Scenario::Tail | Scenario::Shared => {
                let mut random = generator(seed, 13, 0);
                let mut last = SERVERS;
                for from in (0..self.time().as_secs()).step_by(15).map(|s| s as u32) {
                    // The server that was slow last is not slow again.
                    let slow = loop {
                        let server = random.random_range(0..SERVERS);
                        if server != last {
                            break server;
                        }
                    };
                    slowdowns[slow].0.push((from * SECOND, Some(2.0)));
                    slowdowns[slow].0.push(((from + 15) * SECOND, Some(1.0)));
                    last = slow;
                }
            }
            Scenario::Slowed => {
                slowdowns[0].0 = vec![(10 * SECOND, Some(10.0)), (20 * SECOND, Some(1.0))];
            }
            Scenario::Stalled => {
                for (server, from) in [(0, 10), (2, 25)] {
                    let still = (from * SECOND, Some(f64::INFINITY));
                    slowdowns[server].0 = vec![still, ((from + 5) * SECOND, Some(1.0))];
                }
            }
            Scenario::Killed => slowdowns[0].0 = vec![(10 * SECOND, None), (25 * SECOND, Some(1.0))],
            Scenario::Limited => {
                for (slowdown, server) in slowdowns.iter_mut().zip(0..) {
                    let others = Utilisation::new(seed.wrapping_add(server));
                    let seconds = 0..self.time().as_secs() as u32;
                    let times = seconds.map(|at| (at * SECOND, Some(1.0 / (1.0 - others.at((at * SECOND).into())))));
                    slowdown.0 = times.collect();
                }
            }
            Scenario::Halted | Scenario::Lossy | Scenario::Added | Scenario::Think | Scenario::Open => {}
        }
        slowdowns
    }

    /// Whether a server, by its position, sends only the first byte of its answers at a time since the start.
    pub(super) fn halts(self, server: usize, time: Duration) -> bool {
        let halted = [(0, 10 * SECOND), (2, 25 * SECOND)];
        self == Scenario::Halted
            && halted.iter().any(|(halts, from)| *halts == server && (*from..*from + 5 * SECOND).contains(&time))
    }

    /// Whether servers compute, in groups with a limit of processor time, instead of waiting.
    pub(super) fn computes(self) -> bool {
        matches!(self, Scenario::Shared | Scenario::Limited)
    }

    /// The mean service time by default.
    pub fn work(self) -> Duration {
        Duration::from_micros(if self.computes() { 400 } else { 5_000 })
    }

    /// Number of servers in the balancer's configuration at the start.
    pub(super) fn servers(self) -> usize {
        match self {
            Scenario::Added | Scenario::Open => SERVERS - 1,
            _ => SERVERS,
        }
    }

    /// Events of the network and the balancer, with times since the start.
    pub(super) fn events(self) -> &'static [(Duration, Event)] {
        const fn at(second: u64, event: Event) -> (Duration, Event) {
            (Duration::from_secs(second), event)
        }
        match self {
            Scenario::Added => const { &[at(10, Event::Servers(SERVERS))] },
            Scenario::Lossy => const { &[at(10, Event::Loss(0, 30)), at(20, Event::Loss(0, 0))] },
            Scenario::Open => {
                const {
                    &[
                        at(8, Event::Servers(SERVERS)),
                        at(29, Event::Servers(SERVERS - 1)),
                        at(30, Event::Restart),
                        at(31, Event::Reloads(100)),
                    ]
                }
            }
            _ => &[],
        }
    }

    /// Requests per connection, if the scenario prescribes it.
    pub(super) fn requests(self) -> Option<u32> {
        (self == Scenario::Open).then_some(2)
    }

    /// Think time of clients before each request, if they think.
    pub(super) fn think(self) -> Option<Work> {
        match self {
            Scenario::Think => Some(Work::Exponential(Duration::from_millis(20))),
            // Longer than all events of the balancer take.
            Scenario::Open => Some(Work::Fixed(45 * SECOND)),
            _ => None,
        }
    }

    /// Requests per second that all servers together can serve: over a whole run of `tail`, `shared` and `limited`, and
    /// before the first event of other scenarios. What the kernel does for packets is not counted.
    pub fn capacity(self, work: Work, seed: u64) -> f64 {
        let processor = if self.computes() { PROCESSOR_SHARE } else { 1.0 };
        let usual = processor / work.mean().as_secs_f64();
        match self {
            Scenario::Tail | Scenario::Shared | Scenario::Limited => {
                let slowdowns = self.slowdowns(seed);
                let all = slowdowns.iter().map(|slowdown| slowdown.capacity(self.time()));
                usual * all.sum::<f64>()
            }
            _ => usual * self.servers() as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_is_slow_at_a_time_and_never_the_same_twice() {
        for seed in 0..20 {
            let slowdowns = Scenario::Tail.slowdowns(seed);
            let slow = |second: u64| -> Vec<usize> {
                let at = Duration::from_millis(second * 1000 + 500);
                (0..SERVERS).filter(|n| slowdowns[*n].at(at) == Some(2.0)).collect()
            };
            for second in 0..60 {
                assert_eq!(slow(second).len(), 1, "{seed}: {second}: {slowdowns:?}");
            }
            assert!((0..3).all(|phase| slow(15 * phase) != slow(15 * phase + 15)));
        }
        assert_ne!(Scenario::Tail.slowdowns(1), Scenario::Tail.slowdowns(2));
    }

    #[test]
    fn capacity_is_the_rate_that_servers_can_serve() {
        let work = Work::Fixed(Duration::from_millis(5));
        let near = |scenario: Scenario, expected: f64| {
            let found = scenario.capacity(work, 3);
            assert!((found - expected).abs() < 2.0, "{scenario:?}: {found}");
        };
        near(Scenario::Tail, 700.0);
        near(Scenario::Slowed, 800.0);
        near(Scenario::Added, 600.0);
        near(Scenario::Shared, 140.0);
        // The others use half of a processor on average.
        assert!((60.0..120.0).contains(&Scenario::Limited.capacity(work, 3)));
        let stalled = &Scenario::Stalled.slowdowns(1)[2];
        assert_eq!(
            [24, 26, 31].map(|second| stalled.begins(second * SECOND)),
            [24, 30, 31].map(|second| second * SECOND)
        );
        let halted = |server, second| Scenario::Halted.halts(server, second * SECOND);
        assert_eq!(
            [(0, 9), (0, 12), (2, 12), (2, 29), (2, 30)].map(|(server, at)| halted(server, at)),
            [false, true, false, true, false]
        );
        assert!(!Scenario::Stalled.halts(0, 12 * SECOND));
        assert_eq!(Scenario::Killed.slowdowns(1)[0].at(12 * SECOND), None);
        assert_eq!(Scenario::Killed.slowdowns(1)[0].at(26 * SECOND), Some(1.0));
    }
}
