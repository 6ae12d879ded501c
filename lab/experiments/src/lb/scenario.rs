//! What servers and clients do.

use std::time::Duration;

use rand::{RngExt, rngs::Xoshiro256PlusPlus};

use super::star::SERVERS;
use crate::loads::random::{exponential, generator};

/// How long a request takes a server at its usual speed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Work {
    /// Exponential, of that mean.
    Exponential(Duration),
    /// Always so long.
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

/// How many times slower than usual a server is, over time: from each time on. Not there at all: none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Speed(pub Vec<(Duration, Option<f64>)>);

impl Speed {
    /// At a time since the beginning.
    pub fn at(&self, time: Duration) -> Option<f64> {
        let phase = self.0.iter().rev().find(|(from, _)| *from <= time);
        phase.map_or(Some(1.0), |(_, times)| *times)
    }

    /// What it can do until an end, over what it could at its usual speed.
    fn capacity(&self, end: Duration) -> f64 {
        const STEPS: u32 = 1_000;
        let at = |step: u32| self.at(end * step / STEPS).map_or(0.0, |times| 1.0 / times);
        (0..STEPS).map(at).sum::<f64>() / f64::from(STEPS)
    }
}

/// What happens in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scenario {
    /// Each 15 s another server is twice as slow.
    Tail,
    /// A server is ten times slower for 10 s.
    Slowed,
    /// A server is killed, and starts again after 15 s.
    Killed,
    /// A server is added.
    Added,
    /// All servers alike, and clients that think before each request.
    Think,
    /// Ten thousand connections that stay, whatever becomes of the balancer.
    Open,
}

/// What is done to the balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// Its configuration names so many servers from now on.
    Servers(usize),
    /// Its process is killed, and another takes over.
    Restart,
    /// It reads its configuration so often, each time with another number of servers.
    Reloads(usize),
}

const SECOND: Duration = Duration::from_secs(1);

impl Scenario {
    /// All.
    pub const ALL: [Scenario; 6] =
        [Scenario::Tail, Scenario::Slowed, Scenario::Killed, Scenario::Added, Scenario::Think, Scenario::Open];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Tail => "tail",
            Scenario::Slowed => "slowed",
            Scenario::Killed => "killed",
            Scenario::Added => "added",
            Scenario::Think => "think",
            Scenario::Open => "open",
        }
    }

    /// What it is, in a few words.
    pub fn about(self) -> &'static str {
        match self {
            Scenario::Tail => "each 15 s another server is twice as slow",
            Scenario::Slowed => "a server is ten times slower for 10 s",
            Scenario::Killed => "a server is killed, and starts again after 15 s",
            Scenario::Added => "a fourth server is added to three",
            Scenario::Think => "clients think before each request, which looks like slow servers",
            Scenario::Open => "10,000 connections stay: a server comes and goes, a restart, 100 reloads",
        }
    }

    /// How long a run of it is.
    pub fn time(self) -> Duration {
        match self {
            Scenario::Tail => 60 * SECOND,
            Scenario::Slowed | Scenario::Killed => 40 * SECOND,
            Scenario::Added | Scenario::Think => 30 * SECOND,
            Scenario::Open => 28 * SECOND,
        }
    }

    /// The loads that are run, over what servers can do.
    pub fn loads(self) -> &'static [f64] {
        match self {
            Scenario::Tail => &[0.2, 0.3, 0.4, 0.5, 0.6, 0.7],
            Scenario::Slowed | Scenario::Killed | Scenario::Added => &[0.4],
            Scenario::Think => &[0.3, 0.5, 0.7],
            // of two requests each
            Scenario::Open => &[0.6],
        }
    }

    /// Of each server, the same for a seed.
    pub fn speeds(self, seed: u64) -> [Speed; SERVERS] {
        let mut speeds: [Speed; SERVERS] = Default::default();
        match self {
            Scenario::Tail => {
                let mut random = generator(seed, 13, 0);
                let mut last = SERVERS;
                for from in (0..self.time().as_secs()).step_by(15).map(|s| s as u32) {
                    // not the same twice: what was slow is as usual again
                    let slow = loop {
                        let server = random.random_range(0..SERVERS);
                        if server != last {
                            break server;
                        }
                    };
                    speeds[slow].0.push((from * SECOND, Some(2.0)));
                    speeds[slow].0.push(((from + 15) * SECOND, Some(1.0)));
                    last = slow;
                }
            }
            Scenario::Slowed => {
                speeds[0].0 = vec![(10 * SECOND, Some(10.0)), (20 * SECOND, Some(1.0))];
            }
            Scenario::Killed => speeds[0].0 = vec![(10 * SECOND, None), (25 * SECOND, Some(1.0))],
            Scenario::Added | Scenario::Think | Scenario::Open => {}
        }
        speeds
    }

    /// Servers that are there from the beginning.
    pub(super) fn servers(self) -> usize {
        match self {
            Scenario::Added | Scenario::Open => SERVERS - 1,
            _ => SERVERS,
        }
    }

    /// What is done to the balancer, and when.
    pub(super) fn events(self) -> &'static [(Duration, Event)] {
        const fn at(second: u64, event: Event) -> (Duration, Event) {
            (Duration::from_secs(second), event)
        }
        match self {
            Scenario::Added => const { &[at(10, Event::Servers(SERVERS))] },
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

    /// Of each connection, where it is not for the user to say.
    pub(super) fn requests(self) -> Option<u32> {
        (self == Scenario::Open).then_some(2)
    }

    /// How long clients think, if they do.
    pub(super) fn think(self) -> Option<Work> {
        match self {
            Scenario::Think => Some(Work::Exponential(Duration::from_millis(20))),
            // until all that is done to the balancer is over
            Scenario::Open => Some(Work::Fixed(45 * SECOND)),
            _ => None,
        }
    }

    /// Requests a second that all servers together can do, over a whole run; in scenarios where something happens to
    /// one, what they can do before.
    pub fn capacity(self, work: Work, seed: u64) -> f64 {
        let usual = 1.0 / work.mean().as_secs_f64();
        match self {
            Scenario::Tail => {
                let speeds = self.speeds(seed);
                let all = speeds.iter().map(|speed| speed.capacity(self.time()));
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
            let speeds = Scenario::Tail.speeds(seed);
            let slow = |second: u64| -> Vec<usize> {
                let at = Duration::from_millis(second * 1000 + 500);
                (0..SERVERS).filter(|n| speeds[*n].at(at) == Some(2.0)).collect()
            };
            for second in 0..60 {
                assert_eq!(slow(second).len(), 1, "{seed}: {second}: {speeds:?}");
            }
            assert!((0..3).all(|phase| slow(15 * phase) != slow(15 * phase + 15)));
        }
        assert_ne!(Scenario::Tail.speeds(1), Scenario::Tail.speeds(2));
    }

    #[test]
    fn capacity_is_what_servers_can_do() {
        let work = Work::Fixed(Duration::from_millis(5));
        let near = |scenario: Scenario, expected: f64| {
            let found = scenario.capacity(work, 3);
            assert!((found - expected).abs() < 2.0, "{scenario:?}: {found}");
        };
        near(Scenario::Tail, 700.0);
        near(Scenario::Slowed, 800.0);
        near(Scenario::Added, 600.0);
        assert_eq!(Scenario::Killed.speeds(1)[0].at(12 * SECOND), None);
        assert_eq!(Scenario::Killed.speeds(1)[0].at(26 * SECOND), Some(1.0));
    }
}
