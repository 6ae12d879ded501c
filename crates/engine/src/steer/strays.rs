//! Requests that wait at a backend and say nothing of it: their answers have passed the balancer by, or will never come.

use std::{
    collections::{HashMap, VecDeque, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    time::Duration,
};

use super::{BackendState, Connection, Pending, range::intervals};

/// One request in so many that began at the same time and waits while the others have their answers is a stray.
const STRAY: u64 = 5;
/// That many responses of a backend, and as many connections with one for each request that waits and began later, show that it has passed
/// whatever keeps earlier ones waiting: however many these are, they are strays.
const PASSED: u64 = 10;
/// Requests that wait at a backend are strays if they are at most so many times those that have turned out to be strays of that age at
/// another one.
const ALIKE: u64 = 2;
/// Responses that show that a backend answers.
const ANSWERS: u64 = 2;
/// For how long requests have waited when a backend is tried in spite of them: about 1 s.
const TRIED_NS: u64 = 1 << 30;

/// Tells strays from requests that show their backend to be slow, by what backends have answered since these began.
#[derive(Debug, Clone)]
pub(super) struct Strays {
    interval: Duration,
    /// For how many intervals a connection is known again.
    look_back: u32,
    reals: HashMap<u32, History>,
}

impl Strays {
    /// Creates a history without answers, of intervals of this length.
    pub(super) fn new(interval: Duration, look_back: u32) -> Strays {
        Strays { interval, look_back, reals: HashMap::new() }
    }

    /// Counts responses of a backend on a connection, whether or not it is known how long they took.
    pub(super) fn count(&mut self, real: u32, connection: &Connection, responses: u64) {
        if responses > 0 {
            self.reals.entry(real).or_default().count(connection, responses);
        }
    }

    /// Takes the strays out of the requests that wait at each backend. Returns for each backend the rest, and the number of strays; of
    /// these, some are in the rest as well if the backend is to be tried in spite of them.
    pub(super) fn take(&self, backends: &[BackendState]) -> Vec<(Pending, u64)> {
        let mut pending: Vec<Pending> = backends.iter().map(|backend| backend.pending).collect();
        if pending.iter().all(|pending| pending.count() == 0) {
            return pending.into_iter().map(|pending| (pending, 0)).collect();
        }
        let usable = backends.iter().filter(|backend| backend.is_usable).count().max(1) as u64;
        let all = History::of_all(self.reals.values());
        // Those of whole intervals since then: earlier answers say nothing of what keeps a request waiting.
        let answered = |real: u32, age_ns: u64| {
            let past = (u128::from(age_ns) / self.interval.as_nanos()) as usize;
            let own = self.reals.get(&real).map_or(Answered::default(), |history| history.of_last(past));
            let all = all.of_last(past);
            (own, Answered { responses: all.responses / usable, connections: all.connections / usable })
        };
        let forget = |(backend, pending): (&BackendState, &mut Pending)| {
            pending.forget(|age_ns, count, younger| {
                let (own, mean) = answered(backend.real, age_ns);
                let others =
                    if own.responses >= ANSWERS { own.connections.max(mean.connections) } else { own.connections };
                let has_passed = own.responses >= PASSED && u64::from(younger) * PASSED < own.connections;
                u64::from(count) * STRAY < others || has_passed
            })
        };
        let forgotten: Vec<Pending> = backends.iter().zip(&mut pending).map(forget).collect();
        // What has come to the others alike, and has passed there, is not of this backend: it may get nothing that could show it.
        let passed = |age_ns: u64| forgotten.iter().map(|of| u64::from(of.of_octave(age_ns))).max().unwrap_or(0);
        let rest = backends.iter().zip(pending).zip(&forgotten).map(|((backend, mut pending), forgotten)| {
            let alike = pending.forget(|age_ns, count, _| u64::from(count) <= ALIKE * passed(age_ns));
            // It may answer nothing as it gets nothing, for what waits there.
            let tried = pending.only_octave().filter(|(age_ns, count)| {
                let (own, mean) = answered(backend.real, *age_ns);
                *age_ns >= TRIED_NS && own.responses < ANSWERS && u64::from(*count) * STRAY < mean.responses
            });
            let strays = forgotten.count() + alike.count() + tried.map_or(0, |(_, count)| count.into());
            (pending, strays)
        });
        rest.collect()
    }

    /// Ends the interval, and forgets all but these backends.
    pub(super) fn end(&mut self, backends: &[BackendState]) {
        let longest = intervals(Duration::from_nanos(Pending::LONGEST_NS), self.interval);
        let mut reals = std::mem::take(&mut self.reals);
        for backend in backends {
            if let Some(mut history) = reals.remove(&backend.real) {
                history.end(longest, self.look_back);
                self.reals.insert(backend.real, history);
            }
        }
    }
}

/// What has been answered in a time.
#[derive(Debug, Clone, Copy, Default)]
struct Answered {
    responses: u64,
    /// Connections with a response. One that is silent for longer than `look_back` counts again.
    connections: u64,
}

impl Answered {
    fn add(&mut self, other: Answered) {
        self.responses += other.responses;
        self.connections += other.connections;
    }
}

/// What a backend has answered by interval, for as long as requests may wait.
#[derive(Debug, Clone)]
struct History {
    /// The newest interval first, which is the current one.
    intervals: VecDeque<Answered>,
    /// By hash of a connection, the number of the interval with its newest response.
    newest: HashMap<u64, u64>,
    /// The number of the current interval.
    current: u64,
}

impl Default for History {
    fn default() -> History {
        History { intervals: VecDeque::from([Answered::default()]), newest: HashMap::new(), current: 0 }
    }
}

impl History {
    /// Adds up what backends have answered.
    fn of_all<'a>(backends: impl Iterator<Item = &'a History>) -> History {
        let mut all = History::default();
        for history in backends {
            let length = all.intervals.len().max(history.intervals.len());
            all.intervals.resize(length, Answered::default());
            all.intervals.iter_mut().zip(&history.intervals).for_each(|(all, one)| all.add(*one));
        }
        all
    }

    fn count(&mut self, connection: &Connection, responses: u64) {
        let mut hash = DefaultHasher::new();
        connection.hash(&mut hash);
        // A connection counts where its newest response is, so that it counts once in any time that ends now.
        let before = self.newest.insert(hash.finish(), self.current);
        let before = before.and_then(|number| self.intervals.get_mut((self.current - number) as usize));
        before.into_iter().for_each(|before| before.connections -= 1);
        self.intervals[0].add(Answered { responses, connections: 1 });
    }

    fn end(&mut self, longest: u32, look_back: u32) {
        self.intervals.push_front(Answered::default());
        self.intervals.truncate(longest as usize + 1);
        self.current += 1;
        self.newest.retain(|_, number| self.current - *number < u64::from(look_back));
    }

    /// Returns what was answered in the last intervals, with the current one.
    fn of_last(&self, intervals: usize) -> Answered {
        let mut answered = Answered::default();
        self.intervals.iter().take(intervals).for_each(|interval| answered.add(*interval));
        answered
    }
}
