//! Health checks: each backend is checked at its own address, and the number of successes or failures in a row decides
//! whether it is up.
//!
//! A limited number of threads take the check that is due next, wait for its answer, and schedule the next one. If
//! thousands of backends are silent, checks are delayed, and nothing else; late checks are counted.

mod ping;
mod probe;
mod raw;
mod tls;
mod tunnel;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    io,
    net::IpAddr,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc::Sender},
    thread,
    time::{Duration, Instant},
};

use crate::config::{Check, CheckKind};

pub use self::{
    probe::{CheckFailure, probe},
    tls::{TlsClient, TlsError},
    tunnel::SynProbe,
};

/// A backend and its check.
#[derive(Debug, Clone)]
pub struct Target {
    /// The backend's number.
    pub real: u32,
    /// The address to check.
    pub address: IpAddr,
    /// The check.
    pub check: Arc<Check>,
    /// The TLS settings of an HTTPS check.
    pub client: Option<TlsClient>,
    /// The SYN to the VIP that must be answered through the tunnel too; none if it need not.
    pub syn_probe: Option<SynProbe>,
    /// Whether it was up according to an earlier process; none if that is not known.
    pub was_up: Option<bool>,
}

impl Target {
    /// Prepares a check.
    ///
    /// # Errors
    ///
    /// If the certificates of authorities cannot be used.
    pub fn new(real: u32, address: IpAddr, check: Arc<Check>) -> Result<Target, TlsError> {
        let client = match &check.kind {
            CheckKind::Http { tls: Some(tls), .. } => Some(TlsClient::new(tls)?),
            _ => None,
        };
        Ok(Target { real, address, check, client, syn_probe: None, was_up: None })
    }

    fn has_same_check(&self, other: &Target) -> bool {
        self.address == other.address && self.check == other.check && self.syn_probe == other.syn_probe
    }
}

/// The result of a check.
#[derive(Debug, Clone)]
pub struct CheckResult {
    /// The backend's number.
    pub real: u32,
    /// The duration of the check if it succeeded, or why it failed.
    pub outcome: Result<Duration, String>,
    /// Whether the backend is up now.
    pub is_up: bool,
    /// Whether that is a change, or the first report. A result that contradicts the known state is not reported until
    /// enough of them follow each other.
    pub is_news: bool,
}

/// Decides whether a backend is up: `fall` failures in a row take it down, `rise` successes bring it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RiseFall {
    rise: u32,
    fall: u32,
    /// None before the first result, unless the state is known from an earlier process.
    is_up: Option<bool>,
    /// Whether the state has been reported.
    is_reported: bool,
    /// The number of results in a row that contradict the state.
    against: u32,
}

impl RiseFall {
    /// Starts without a known state.
    pub fn new(rise: u32, fall: u32) -> RiseFall {
        RiseFall { rise, fall, is_up: None, is_reported: false, against: 0 }
    }

    /// Starts from the state that an earlier process knew.
    pub fn resume(rise: u32, fall: u32, was_up: bool) -> RiseFall {
        RiseFall { is_up: Some(was_up), ..RiseFall::new(rise, fall) }
    }

    /// Changes the thresholds, and starts counting again from the known state.
    fn restart(self, rise: u32, fall: u32) -> RiseFall {
        RiseFall { rise, fall, against: 0, ..self }
    }

    /// Adds a result. Returns whether the backend is up if that has to be reported. Without a known state the first
    /// result decides at once, whatever the thresholds.
    pub fn add(&mut self, is_success: bool) -> Option<bool> {
        let is_up = *self.is_up.get_or_insert(is_success);
        if is_success == is_up {
            self.against = 0;
            let is_news = !std::mem::replace(&mut self.is_reported, true);
            return self.is_up.filter(|_| is_news);
        }
        self.against += 1;
        let needed = if is_up { self.fall } else { self.rise };
        if self.against < needed {
            return None;
        }
        (self.against, self.is_reported) = (0, true);
        self.is_up = Some(is_success);
        self.is_up
    }

    /// Whether the backend is up. Before the first result it counts as up.
    pub fn is_up(&self) -> bool {
        self.is_up.unwrap_or(true)
    }
}

/// Checks backends until it is dropped.
pub struct Health {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    due: Condvar,
    max_threads: usize,
    spawn: Spawn,
}

/// What a thread does.
type Work = Box<dyn FnOnce() + Send>;
/// Starts a thread.
type Spawn = Box<dyn Fn(Work) -> io::Result<()> + Send + Sync>;

#[derive(Debug)]
struct Queue {
    targets: HashMap<u32, Entry>,
    /// The scheduled checks, the earliest first: time, backend and generation. Entries of an older generation are
    /// skipped.
    due: BinaryHeap<Reverse<(Instant, u32, u64)>>,
    generation: u64,
    threads: usize,
    waiting: usize,
    late: u64,
    results: Sender<CheckResult>,
    stopping: bool,
}

#[derive(Debug)]
struct Entry {
    target: Target,
    count: RiseFall,
    generation: u64,
}

/// A check that starts this much after it was due counts as late.
const LATE_AFTER: Duration = Duration::from_millis(500);
/// The stack of a thread: enough for TLS, and small enough for thousands of threads.
const STACK_BYTES: usize = 256 * 1024;

impl Health {
    /// Starts without targets. Results are sent to `results`.
    pub fn start(max_threads: usize, results: Sender<CheckResult>) -> Health {
        Health::start_by(Box::new(spawn), max_threads, results)
    }

    fn start_by(spawn: Spawn, max_threads: usize, results: Sender<CheckResult>) -> Health {
        let queue = Queue {
            targets: HashMap::new(),
            due: BinaryHeap::new(),
            generation: 0,
            threads: 0,
            waiting: 0,
            late: 0,
            results,
            stopping: false,
        };
        Health { shared: Arc::new(Shared { queue: Mutex::new(queue), due: Condvar::new(), max_threads, spawn }) }
    }

    /// Replaces the targets. A backend whose address stays the same keeps its state; if its check changes, counting
    /// starts again from that state.
    pub fn set(&self, targets: Vec<Target>) {
        let mut queue = self.shared.queue();
        let mut before = std::mem::take(&mut queue.targets);
        let now = Instant::now();
        for target in targets {
            let (rise, fall) = (target.check.rise, target.check.fall);
            let mut count = match target.was_up {
                Some(was_up) => RiseFall::resume(rise, fall, was_up),
                None => RiseFall::new(rise, fall),
            };
            match before.remove(&target.real) {
                Some(entry) if entry.target.has_same_check(&target) => {
                    queue.targets.insert(target.real, entry);
                    continue;
                }
                Some(entry) if entry.target.address == target.address => {
                    count = entry.count.restart(rise, fall);
                }
                _ => {}
            }
            queue.generation += 1;
            let generation = queue.generation;
            // Spread the first checks.
            let spread = target.check.interval.mul_f64(f64::from(target.real % 64) / 64.0);
            let first = now + spread.min(Duration::from_secs(1));
            queue.due.push(Reverse((first, target.real, generation)));
            queue.targets.insert(target.real, Entry { target, count, generation });
        }
        drop(queue);
        // If no thread can be started now, one may be later.
        let _ = self.revive();
        self.shared.due.notify_all();
    }

    /// Starts a thread if there is something to check and none runs, as none could be started before. Returns why there is
    /// still none. To be called from time to time.
    pub fn revive(&self) -> Option<io::Error> {
        let queue = self.shared.queue();
        let is_idle = queue.threads == 0 && !queue.targets.is_empty();
        drop(queue);
        is_idle.then(|| Shared::grow(&self.shared).err()).flatten()
    }

    /// Returns the number of checks so far that were late. To reduce it, raise `health.threads` or check less often.
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

fn spawn(work: Work) -> io::Result<()> {
    thread::Builder::new().name("health".into()).stack_size(STACK_BYTES).spawn(work).map(drop)
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts another thread, up to the limit.
    fn grow(shared: &Arc<Shared>) -> io::Result<()> {
        let mut queue = shared.queue();
        if queue.threads >= shared.max_threads {
            return Ok(());
        }
        let for_thread = Arc::clone(shared);
        let started = (shared.spawn)(Box::new(move || Shared::work(&for_thread)));
        queue.threads += usize::from(started.is_ok());
        started
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
            queue.late += u64::from(now.duration_since(due) > LATE_AFTER);
            // A waiting thread takes the next check; if none is waiting, that check might have to wait for this one.
            let is_next_alone = queue.waiting == 0;
            drop(queue);
            if is_next_alone {
                // If it cannot be started, the existing threads go on.
                let _ = Shared::grow(shared);
            }
            let started = Instant::now();
            let outcome = probe(&target).map(|()| started.elapsed());
            queue = shared.queue();
            queue.finish(&target, generation, outcome, due);
            shared.due.notify_one();
        }
    }
}

impl Queue {
    fn finish(&mut self, target: &Target, generation: u64, outcome: Result<Duration, CheckFailure>, due: Instant) {
        let real = target.real;
        let Some(entry) = self.targets.get_mut(&real).filter(|entry| entry.generation == generation) else {
            return;
        };
        let news = entry.count.add(outcome.is_ok());
        let result = CheckResult {
            real,
            outcome: outcome.map_err(|failure| failure.to_string()),
            is_up: entry.count.is_up(),
            is_news: news.is_some(),
        };
        let next = (due + target.check.interval).max(Instant::now());
        self.due.push(Reverse((next, real, generation)));
        // Nothing receives results once the balancer has ended.
        let _ = self.results.send(result);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{Ipv4Addr, TcpListener},
        sync::{
            atomic::{AtomicU32, Ordering},
            mpsc::channel,
        },
    };

    use super::*;

    /// As on a host whose service has used up its tasks for a while.
    #[test]
    fn checks_begin_as_soon_as_a_thread_can_be_started() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("it listens").port();
        let check = Check {
            kind: CheckKind::Tcp,
            port,
            interval: Duration::from_millis(10),
            timeout: Duration::from_secs(10),
            rise: 1,
            fall: 1,
            tunnel: false,
        };
        let target = Target::new(1, Ipv4Addr::LOCALHOST.into(), Arc::new(check)).expect("it needs no certificates");
        let attempts = AtomicU32::new(0);
        let spawn = move |work: Work| match attempts.fetch_add(1, Ordering::SeqCst) {
            0..3 => Err(io::Error::from(io::ErrorKind::WouldBlock)),
            _ => spawn(work),
        };
        let (sender, results) = channel();
        let health = Health::start_by(Box::new(spawn), 2, sender);
        assert!(health.revive().is_none(), "nothing is to be checked");
        health.set(vec![target]);
        for _ in 0..2 {
            assert_eq!(health.revive().map(|error| error.kind()), Some(io::ErrorKind::WouldBlock));
        }
        assert!(health.revive().is_none());
        let result = results.recv_timeout(Duration::from_secs(60)).expect("a check has ended");
        assert!(result.is_up && result.outcome.is_ok(), "{result:?}");
    }
}
