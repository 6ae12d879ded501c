//! Whether backends answer: each is asked by itself, at its own address, and counts of good and bad
//! answers in a row decide.
//!
//! A few threads take whichever check is due, wait for its answer, and put it back for later. There are
//! no more threads than were allowed, so that ten thousand backends that are all silent delay checks,
//! and nothing else; what is late is counted.

mod ask;
mod ping;
mod tls;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    net::IpAddr,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc::Sender},
    thread,
    time::{Duration, Instant},
};

use crate::config::{Check, Kind};

pub use self::{
    ask::{Failed, ask},
    tls::{Client, TlsError},
};

/// A backend, and how it is checked.
#[derive(Debug, Clone)]
pub struct Target {
    /// By which it is told.
    pub real: u32,
    /// Where it is asked.
    pub address: IpAddr,
    /// What it is asked.
    pub check: Arc<Check>,
    /// For HTTPS: how to speak TLS.
    pub client: Option<Client>,
    /// What is known of it from before this process: whether it was up.
    pub was_up: Option<bool>,
}

impl Target {
    /// Prepares what the check needs.
    ///
    /// # Errors
    ///
    /// If certificates of authorities cannot be used.
    pub fn new(real: u32, address: IpAddr, check: Arc<Check>) -> Result<Target, TlsError> {
        let client = match &check.kind {
            Kind::Http { tls: Some(tls), .. } => Some(Client::new(tls)?),
            _ => None,
        };
        Ok(Target { real, address, check, client, was_up: None })
    }

    fn is_same(&self, other: &Target) -> bool {
        self.address == other.address && self.check == other.check
    }
}

/// What a check came to.
#[derive(Debug, Clone)]
pub struct Told {
    /// Which backend.
    pub real: u32,
    /// Whether it answered as wanted in this check, and if not, why.
    pub answer: Result<Duration, String>,
    /// Whether it is up now.
    pub is_up: bool,
    /// Whether that is news. The first answer is, unless it speaks against what was known.
    pub is_news: bool,
}

/// Good and bad answers in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    rise: u32,
    fall: u32,
    /// None before the first answer, if nothing is known from before.
    is_up: Option<bool>,
    /// Whether that was told.
    is_told: bool,
    /// Answers in a row that speak against it.
    against: u32,
}

impl Count {
    /// Nothing is known yet.
    pub fn new(rise: u32, fall: u32) -> Count {
        Count { rise, fall, is_up: None, is_told: false, against: 0 }
    }

    /// It was up, or down, before anybody counted: answers that say otherwise count as ever.
    pub fn known(rise: u32, fall: u32, was_up: bool) -> Count {
        Count { is_up: Some(was_up), ..Count::new(rise, fall) }
    }

    /// The same with other counts, to begin with.
    fn with(self, rise: u32, fall: u32) -> Count {
        Count { rise, fall, against: 0, ..self }
    }

    /// Takes an answer; tells whether the backend is up, if that is news. Where nothing is known the
    /// first answer decides at once, whatever the counts.
    pub fn add(&mut self, is_good: bool) -> Option<bool> {
        let is_up = *self.is_up.get_or_insert(is_good);
        if is_good == is_up {
            self.against = 0;
            let is_news = !std::mem::replace(&mut self.is_told, true);
            return self.is_up.filter(|_| is_news);
        }
        self.against += 1;
        let needed = if is_up { self.fall } else { self.rise };
        if self.against < needed {
            return None;
        }
        (self.against, self.is_told) = (0, true);
        self.is_up = Some(is_good);
        self.is_up
    }

    /// Before the first answer it counts as up.
    pub fn is_up(&self) -> bool {
        self.is_up.unwrap_or(true)
    }
}

/// Checks while it lives.
#[derive(Debug)]
pub struct Health {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    due: Condvar,
    most_threads: usize,
}

#[derive(Debug)]
struct Queue {
    targets: HashMap<u32, Entry>,
    /// The next first. What is no longer a target is passed over.
    due: BinaryHeap<Reverse<(Instant, u32, u64)>>,
    generation: u64,
    threads: usize,
    waiting: usize,
    late: u64,
    told: Sender<Told>,
    stopping: bool,
}

#[derive(Debug)]
struct Entry {
    target: Target,
    count: Count,
    generation: u64,
}

/// Checks that begin so much later than they were due are late.
const LATE: Duration = Duration::from_millis(500);
/// Enough for TLS, and little enough for thousands.
const STACK_BYTES: usize = 256 * 1024;

impl Health {
    /// Checks nobody yet. Answers go to `told`.
    pub fn start(most_threads: usize, told: Sender<Told>) -> Health {
        let queue = Queue {
            targets: HashMap::new(),
            due: BinaryHeap::new(),
            generation: 0,
            threads: 0,
            waiting: 0,
            late: 0,
            told,
            stopping: false,
        };
        Health { shared: Arc::new(Shared { queue: Mutex::new(queue), due: Condvar::new(), most_threads }) }
    }

    /// Checks these from now on, and no others. What is known of those that stay where they are stays,
    /// also if they are asked otherwise: then they count anew, from there.
    pub fn set(&self, targets: Vec<Target>) {
        let mut queue = self.shared.queue();
        let mut before = std::mem::take(&mut queue.targets);
        let now = Instant::now();
        for target in targets {
            let (rise, fall) = (target.check.rise, target.check.fall);
            let mut count = match target.was_up {
                Some(was_up) => Count::known(rise, fall, was_up),
                None => Count::new(rise, fall),
            };
            match before.remove(&target.real) {
                Some(entry) if entry.target.is_same(&target) => {
                    queue.targets.insert(target.real, entry);
                    continue;
                }
                Some(entry) if entry.target.address == target.address => {
                    count = entry.count.with(rise, fall);
                }
                _ => {}
            }
            queue.generation += 1;
            let generation = queue.generation;
            // Not all at once.
            let spread = target.check.interval.mul_f64(f64::from(target.real % 64) / 64.0);
            let first = now + spread.min(Duration::from_secs(1));
            queue.due.push(Reverse((first, target.real, generation)));
            queue.targets.insert(target.real, Entry { target, count, generation });
        }
        let is_idle = queue.threads == 0 && !queue.targets.is_empty();
        drop(queue);
        if is_idle {
            Shared::grow(&self.shared);
        }
        self.shared.due.notify_all();
    }

    /// Checks that were late so far: raise `health.threads`, or ask less often.
    pub fn late(&self) -> u64 {
        self.shared.queue().late
    }
}

impl Drop for Health {
    fn drop(&mut self) {
        self.shared.queue().stopping = true;
        self.shared.due.notify_all();
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more thread, if there may be.
    fn grow(shared: &Arc<Shared>) {
        let mut queue = shared.queue();
        if queue.threads >= shared.most_threads {
            return;
        }
        let for_thread = Arc::clone(shared);
        let started = thread::Builder::new()
            .name("health".into())
            .stack_size(STACK_BYTES)
            .spawn(move || Shared::work(&for_thread));
        // Without another, those that there are go on.
        queue.threads += usize::from(started.is_ok());
    }

    fn work(shared: &Arc<Shared>) {
        let mut queue = shared.queue();
        while !queue.stopping {
            let now = Instant::now();
            let wait = match queue.due.peek() {
                Some(Reverse((due, _, _))) => due.saturating_duration_since(now),
                None => Duration::from_secs(3600),
            };
            if !wait.is_zero() {
                queue.waiting += 1;
                queue = shared.due.wait_timeout(queue, wait).unwrap_or_else(PoisonError::into_inner).0;
                queue.waiting -= 1;
                continue;
            }
            let Some(Reverse((due, real, generation))) = queue.due.pop() else {
                continue;
            };
            let Some(entry) = queue.targets.get(&real).filter(|entry| entry.generation == generation) else {
                continue;
            };
            let target = entry.target.clone();
            queue.late += u64::from(now.duration_since(due) > LATE);
            // Whoever waits takes the next one; if nobody does, it may have to wait for this one.
            let is_next_alone = queue.waiting == 0;
            drop(queue);
            if is_next_alone {
                Shared::grow(shared);
            }
            let begun = Instant::now();
            let answer = ask(&target).map(|()| begun.elapsed());
            queue = shared.queue();
            queue.answered(&target, generation, answer, due);
            shared.due.notify_one();
        }
    }
}

impl Queue {
    fn answered(&mut self, target: &Target, generation: u64, answer: Result<Duration, Failed>, due: Instant) {
        let real = target.real;
        let Some(entry) = self.targets.get_mut(&real).filter(|entry| entry.generation == generation) else {
            return;
        };
        let news = entry.count.add(answer.is_ok());
        let told = Told {
            real,
            answer: answer.map_err(|failed| failed.to_string()),
            is_up: entry.count.is_up(),
            is_news: news.is_some(),
        };
        let next = (due + target.check.interval).max(Instant::now());
        self.due.push(Reverse((next, real, generation)));
        // Nobody hears it any more once the run is over.
        let _ = self.told.send(told);
    }
}
