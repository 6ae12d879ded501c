//! The queue between the threads of agents and the thread that writes. Nobody waits in it without a limit.

use std::{
    collections::HashSet,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender},
    },
    time::{Duration, Instant},
};

use dwell_app::log::log;
use dwell_fleet::{
    Agent, Busy, Error, Handler, VERSION_REMEDY, peer_host,
    wire::{AgentName, Batch},
};

use crate::{
    clocks::{ClockSample, Clocks},
    quota::{Quotas, cost, cost_of_rows},
};

/// Jobs that may wait, among them batches of up to 8 MiB each on the wire; agents wait beyond.
const QUEUE: usize = 64;
/// Limit on the wait for room in the queue.
const ENTER: Duration = Duration::from_secs(5);
/// Limit on the wait for an answer. Together with [`ENTER`] it is less than the patience of an agent: 20 s for a hello.
const HELLO: Duration = Duration::from_secs(10);
/// The same for a batch, for which an agent waits 60 s.
const STORE: Duration = Duration::from_secs(40);
/// When agents come back to a spool that is full, to a share of it that is taken, and to a queue that does not move.
const RETRY: Duration = Duration::from_secs(5);

/// Time between two messages about peers of other versions.
const INCOMPATIBLE: Duration = Duration::from_secs(60);

/// What the writing thread is asked to do.
pub enum Job {
    /// An agent connected; answered with the number of its last stored batch, or why it cannot come. The answer waits until it is
    /// taken, so that it is known whether it was.
    Hello(Agent, SyncSender<Result<u64, String>>),
    /// Store a batch; answered when it is on disk, or with the reason why not.
    Store(Agent, Batch, SyncSender<Result<(), Busy>>),
    /// An agent disconnected, and why.
    Disconnected(Agent, String),
    /// A clock was compared.
    Clock(ClockSample),
}

/// Agents at one address may send this many times as much together as one agent: a holder of a shared key may choose as
/// many names as it likes.
const AGENTS_PER_ADDRESS: u64 = 8;

/// What the writing thread lets the threads of agents know, and what these have counted.
#[derive(Debug)]
pub struct Gate {
    by_agent: Quotas<String>,
    by_address: Quotas<IpAddr>,
    is_full: AtomicBool,
    /// Hosts that have more than their share of the spool.
    crowding: Mutex<HashSet<String>>,
    deferred: [AtomicU64; 4],
    samples_dropped: AtomicU64,
}

/// Why a batch has to wait.
#[derive(Debug, Clone, Copy)]
enum Deferral {
    Spool,
    Share,
    Quota,
    Queue,
}

impl Gate {
    /// Lets each agent send this many bytes per second.
    pub fn new(agent_rate: u64) -> Gate {
        Gate {
            by_agent: Quotas::new(agent_rate),
            by_address: Quotas::new(agent_rate.saturating_mul(AGENTS_PER_ADDRESS)),
            is_full: AtomicBool::default(),
            crowding: Mutex::default(),
            deferred: Default::default(),
            samples_dropped: AtomicU64::default(),
        }
    }

    /// Counts rows that are written because of what a host's agent sent before.
    pub fn charge_rows(&self, host: &str, rows: usize) {
        self.by_agent.charge(&host.to_owned(), cost_of_rows(rows), Instant::now());
    }

    fn take_quota(&self, agent: &Agent, bytes: usize) -> Result<(), Busy> {
        let now = Instant::now();
        let address = peer_host(agent.address.ip());
        let busy = |wait, reason| self.busy(Deferral::Quota, wait, reason);
        self.by_address
            .take(&address, 0, now)
            .map_err(|wait| busy(wait, "agents at this address send more than --agent-rate allows"))?;
        self.by_agent
            .take(&agent.name.as_str().to_owned(), bytes, now)
            .map_err(|wait| busy(wait, "this agent sends more than --agent-rate allows"))?;
        self.by_address.charge(&address, bytes, now);
        Ok(())
    }

    /// Sets whether the spool takes nothing, and which hosts have more than their share of it.
    pub fn set(&self, is_full: bool, crowding: Vec<String>) {
        self.is_full.store(is_full, Ordering::Relaxed);
        let mut current = self.crowding.lock().unwrap_or_else(PoisonError::into_inner);
        if !(current.is_empty() && crowding.is_empty()) {
            *current = crowding.into_iter().collect();
        }
    }

    /// Returns whether the spool takes nothing.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Returns the batches that had to wait so far, by reason.
    pub fn deferred(&self) -> [(&'static str, u64); 4] {
        let count = |deferral: Deferral| self.deferred[deferral as usize].load(Ordering::Relaxed);
        [
            ("spool", count(Deferral::Spool)),
            ("share", count(Deferral::Share)),
            ("quota", count(Deferral::Quota)),
            ("queue", count(Deferral::Queue)),
        ]
    }

    /// Returns the clock samples for which there was no room in the queue so far.
    pub fn samples_dropped(&self) -> u64 {
        self.samples_dropped.load(Ordering::Relaxed)
    }

    /// Says that a batch is not stored because the spool is full.
    pub fn full(&self) -> Busy {
        self.busy(Deferral::Spool, RETRY, "the collector's spool is full: its server does not take the rows")
    }

    fn check(&self, host: &str) -> Result<(), Busy> {
        if self.is_full() {
            return Err(self.full());
        }
        let crowding = self.crowding.lock().unwrap_or_else(PoisonError::into_inner);
        if crowding.contains(host) {
            let reason = "this agent has its share of the collector's spool, which is half full";
            return Err(self.busy(Deferral::Share, RETRY, reason));
        }
        Ok(())
    }

    fn busy(&self, deferral: Deferral, retry: Duration, reason: &str) -> Busy {
        self.deferred[deferral as usize].fetch_add(1, Ordering::Relaxed);
        Busy { reason: reason.to_owned(), retry }
    }
}

/// Room for jobs: the queue itself has no bound, because its senders could not wait with a limit.
#[derive(Debug)]
struct Room {
    /// Below zero, that many jobs are in it beyond its bound.
    left: Mutex<i64>,
    returned: Condvar,
}

impl Room {
    /// Takes room for one job; returns false if there was none in time.
    fn take(&self, limit: Duration) -> bool {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.returned.wait_timeout_while(left, limit, |left| *left <= 0);
        let (mut left, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let has_room = *left > 0;
        *left -= i64::from(has_room);
        has_room
    }

    /// Takes room for one job although there may be none.
    fn take_anyway(&self) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
    }

    fn give_back(&self, jobs: usize) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) += jobs as i64;
        // Not all: of a thousand agents that wait, most would find no room.
        (0..jobs).for_each(|_| self.returned.notify_one());
    }
}

/// The end that agents use.
pub struct Front {
    jobs: Entrance,
    clocks: Clocks,
    gate: Arc<Gate>,
    /// When it was last logged that an agent speaks another version.
    told: Mutex<Option<Instant>>,
}

/// Where jobs enter the queue.
#[derive(Clone)]
struct Entrance {
    jobs: Sender<Job>,
    room: Arc<Room>,
}

/// The end of the writing thread.
pub struct Jobs {
    jobs: Receiver<Job>,
    room: Arc<Room>,
}

/// Both ends of a new queue, and what they share. An agent may send `agent_rate` bytes per second.
pub fn queue(clocks: Clocks, agent_rate: u64) -> (Arc<Front>, Jobs, Arc<Gate>) {
    let (sender, receiver) = mpsc::channel();
    let room = Arc::new(Room { left: Mutex::new(QUEUE as i64), returned: Condvar::new() });
    let gate = Arc::new(Gate::new(agent_rate));
    let jobs = Entrance { jobs: sender, room: Arc::clone(&room) };
    let front = Front { jobs, clocks, gate: Arc::clone(&gate), told: Mutex::default() };
    (Arc::new(front), Jobs { jobs: receiver, room }, gate)
}

impl Jobs {
    /// Waits for a job, and takes up to `most` that are there.
    pub fn next(&self, patience: Duration, most: usize) -> Result<Vec<Job>, RecvTimeoutError> {
        let first = self.jobs.recv_timeout(patience)?;
        let jobs: Vec<_> = std::iter::once(first).chain(self.jobs.try_iter().take(most - 1)).collect();
        self.room.give_back(jobs.len());
        Ok(jobs)
    }
}

const CLOSED: &str = "the collector is about to end";
const BEHIND: &str = "the collector cannot keep up with its agents";

impl Entrance {
    /// Enters a job as soon as there is room, or says why that is not possible.
    fn send(&self, job: Job) -> Result<(), &'static str> {
        if !self.room.take(ENTER) {
            return Err(BEHIND);
        }
        self.jobs.send(job).map_err(|_| CLOSED)
    }
}

/// Waits for an answer of the writing thread.
fn answer<T>(answered: &Receiver<T>, limit: Duration) -> Result<T, &'static str> {
    answered.recv_timeout(limit).map_err(|error| match error {
        RecvTimeoutError::Timeout => BEHIND,
        RecvTimeoutError::Disconnected => CLOSED,
    })
}

impl Handler for Front {
    fn hello(&self, agent: &Agent) -> Result<u64, String> {
        let (to_answer, answered) = mpsc::sync_channel(0);
        let sent = self.jobs.send(Job::Hello(agent.clone(), to_answer));
        sent.and_then(|()| answer(&answered, HELLO)).map_err(str::to_owned)?
    }

    fn welcomed(&self, agent: &Agent) {
        let (jobs, gate) = (self.jobs.clone(), Arc::clone(&self.gate));
        self.clocks.watch(agent, move |sample| {
            // At the end nobody is left to write it.
            if jobs.send(Job::Clock(sample)) == Err(BEHIND) {
                gate.samples_dropped.fetch_add(1, Ordering::Relaxed);
            }
        });
    }

    fn ready(&self, agent: &Agent) -> Result<(), Busy> {
        self.gate.check(agent.name.as_str())?;
        self.gate.take_quota(agent, 0)
    }

    fn store(&self, agent: &Agent, batch: Batch, bytes: usize) -> Result<(), Busy> {
        self.gate.check(agent.name.as_str())?;
        self.gate.take_quota(agent, cost(&batch, bytes))?;
        let (to_answer, answered) = mpsc::sync_channel(1);
        let sent = self.jobs.send(Job::Store(agent.clone(), batch, to_answer));
        // A batch that is stored later than this is recognized when it comes again.
        let answer = sent.and_then(|()| answer(&answered, STORE));
        answer.unwrap_or_else(|reason| Err(self.gate.busy(Deferral::Queue, RETRY, reason)))
    }

    fn incompatible(&self, address: SocketAddr, reason: &str) {
        // It may be anybody, as often as it likes; all are counted.
        let is_due = {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            let is_due = told.is_none_or(|told| told.elapsed() >= INCOMPATIBLE);
            if is_due {
                *told = Some(Instant::now());
            }
            is_due
        };
        // Whoever reads this may be slow, and others of them need not wait for that.
        if is_due {
            log(format_args!("{address} is refused: {reason}; {VERSION_REMEDY}"));
        }
    }

    fn unusable(&self, error: &Error) {
        log(format_args!(
            "{error}; until that is fixed, the previous content of the files stays in use, and agents are refused once it expires"
        ));
    }

    fn enrolled(&self, address: SocketAddr, outcome: Result<AgentName, String>) {
        match outcome {
            Ok(name) => log(format_args!("{name} has its key, at {address}")),
            Err(reason) => log(format_args!("an agent at {address} asked for its key and got none: {reason}")),
        }
    }

    fn disconnected(&self, agent: &Agent, reason: Option<&str>) {
        self.clocks.leave(agent);
        if let Some(reason) = reason {
            // Otherwise the host would count as connected for ever. There is one of these for each connection.
            self.jobs.room.take_anyway();
            let _ = self.jobs.jobs.send(Job::Disconnected(agent.clone(), reason.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use nix::sys::resource::{UsageWho, getrusage};

    use super::*;

    #[test]
    fn a_queue_that_nobody_empties_refuses_in_time() {
        let room = Room { left: Mutex::new(1), returned: Condvar::new() };
        assert!(room.take(ENTER));
        assert!(!room.take(Duration::from_millis(1)));
        room.give_back(1);
        assert!(room.take(ENTER));
        // What has to enter does, and what must not wait for it.
        room.take_anyway();
        room.give_back(1);
        assert!(!room.take(Duration::from_millis(1)));
        room.give_back(1);
        assert!(room.take(ENTER));
    }

    #[test]
    fn an_agent_that_waits_for_room_wakes_up_once_there_is_some() {
        const AGENTS: usize = 200;
        let room = Room { left: Mutex::new(0), returned: Condvar::new() };
        let wake_ups: i64 = thread::scope(|scope| {
            let wait = || {
                assert!(room.take(ENTER));
                getrusage(UsageWho::RUSAGE_THREAD).unwrap().voluntary_context_switches()
            };
            let waiting: Vec<_> = (0..AGENTS).map(|_| scope.spawn(wait)).collect();
            thread::sleep(Duration::from_millis(200));
            for _ in 0..AGENTS / 2 {
                room.give_back(2);
                thread::sleep(Duration::from_millis(1));
            }
            waiting.into_iter().map(|agent| agent.join().unwrap()).sum()
        });
        // Each has waited once, and now and then for the lock. If all woke up each time, it would be 10,000 times.
        assert!(wake_ups < 20 * AGENTS as i64, "{wake_ups} for {AGENTS} agents");
    }
}
