//! Forwards rows from the spool to a server, on a thread of its own, so that nobody waits for the server.

use std::{
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError},
    },
    thread,
    time::{Duration, Instant},
};

use dwell_app::log::log;
use dwell_records::counted;
use dwell_socket::privilege;
use dwell_store::{Refusal, RefusedRow, Server, SpoolSize, Store, StoreError, Waiting};

use crate::{Error, pace::Pace};

/// Bytes of rows that are read at once, unless a single row has more.
const MAX_BYTES: usize = 16_000_000;
/// Time between two inserts that are not full.
const PAUSE: Duration = Duration::from_secs(1);
/// Time between two attempts: the first pause, and the longest to which it doubles, which is less than [`LAST_PATIENCE`].
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(4));
/// Rows that may wait, however short they are.
const MAX_WAITING: u64 = 4_000_000;
/// How long the server may take for an insert when the collector ends.
const LAST_PATIENCE: Duration = Duration::from_secs(5);
/// A spool that was full takes batches again when this share of its limit is free.
const FREE: u64 = 10;
/// Parts of the spool, of which one host's agent may fill one; fewer and larger ones while fewer hosts have rows in it. As
/// long as less than half of it is taken, an agent may have more.
const SHARE: u64 = 8;

/// Hands rows to the thread that sends them.
pub struct Forward {
    rows: SyncSender<Vec<Waiting>>,
    sent: Receiver<Delivery>,
    address: String,
    shared: Arc<Mutex<Shared>>,
    /// Dropped with this, which wakes the thread and ends it.
    _running: Sender<()>,
    /// The thread is sending.
    is_busy: bool,
    due: Instant,
    limit_bytes: u64,
    is_full: bool,
    pruned: u64,
}

/// What the thread and its handle share.
#[derive(Debug)]
struct Shared {
    pace: Pace,
    failures: Failures,
    refused: u64,
}

/// Inserts that failed, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Failures {
    unreachable: u64,
    slow: u64,
    refused: u64,
}

/// What became of rows.
struct Delivery {
    /// The number of the last one.
    last: i64,
    /// Those that the server does not take.
    refused: Vec<RefusedRow>,
}

/// The state of forwarding, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ForwardStatus {
    /// What waits.
    pub waiting: SpoolSize,
    /// How much may wait, in bytes.
    pub limit_bytes: u64,
    /// Inserts that failed.
    pub failures: Failures,
    /// Rows that the server does not take, since the start.
    pub refused: u64,
    /// Refused rows that were deleted to make room for others, since the start.
    pub pruned: u64,
    /// Rows of one insert at most, at present.
    pub insert_rows: usize,
}

impl Failures {
    /// Returns each count with the name of its reason.
    pub fn by_reason(&self) -> [(&'static str, u64); 3] {
        [("unreachable", self.unreachable), ("slow", self.slow), ("refused", self.refused)]
    }
}

impl Forward {
    /// Starts the thread, which prepares the server first unless it is ready. At most `limit_bytes` may wait.
    pub fn start(server: Server, is_ready: bool, spool: u64, limit_bytes: u64) -> Result<Forward, Error> {
        let (rows, to_send) = mpsc::sync_channel::<Vec<Waiting>>(1);
        let (done, sent) = mpsc::sync_channel(1);
        let (running, ended) = mpsc::channel();
        let address = server.address().to_string();
        let shared = Shared { pace: Pace::new(), failures: Failures::default(), refused: 0 };
        let shared = Arc::new(Mutex::new(shared));
        // Rows that were under way when a collector ended may have arrived.
        let mut sender = Deliverer { server, is_ready, spool, shared: Arc::clone(&shared), ended, again: true };
        thread::Builder::new()
            .name("forward".into())
            .spawn(move || {
                let _ = privilege::keep(&[]);
                if sender.prepare().is_none() {
                    return;
                }
                for rows in to_send {
                    let Some(refused) = sender.deliver(&rows) else {
                        return;
                    };
                    let last = rows.last().map_or(0, |row| row.row);
                    if done.send(Delivery { last, refused }).is_err() {
                        return;
                    }
                }
            })
            .map_err(Error::Thread)?;
        Ok(Forward {
            rows,
            sent,
            address,
            shared,
            _running: running,
            is_busy: false,
            due: Instant::now(),
            limit_bytes,
            is_full: false,
            pruned: 0,
        })
    }

    /// Hands on what waits, and deletes what the server has.
    pub fn poll(&mut self, store: &mut Store) -> Result<(), Error> {
        self.forget(store)?;
        if !self.is_busy && Instant::now() >= self.due {
            self.hand_on(store)?;
        }
        Ok(())
    }

    /// True if no more rows may wait. Once that was so, it is until a part of the spool is free again.
    pub fn is_full(&mut self, store: &Store) -> bool {
        let SpoolSize { rows, bytes } = store.spool_size();
        let part = if self.is_full { FREE - 1 } else { FREE };
        self.is_full = rows >= MAX_WAITING / FREE * part || bytes >= self.limit_bytes / FREE * part;
        self.is_full
    }

    /// Returns the hosts that have more than their share of a spool of which at least half is taken.
    pub fn crowding(&self, store: &Store) -> Result<Vec<String>, Error> {
        match store.spool_size().bytes >= self.limit_bytes / 2 {
            true => {
                // One part is left for a host that has nothing there yet.
                let parts = (store.spool_hosts() + 1).min(SHARE);
                Ok(store.hosts_beyond(self.limit_bytes / parts)?)
            }
            false => Ok(Vec::new()),
        }
    }

    /// Returns how forwarding goes.
    pub fn status(&self, store: &Store) -> ForwardStatus {
        let shared = lock(&self.shared);
        ForwardStatus {
            waiting: store.spool_size(),
            limit_bytes: self.limit_bytes,
            failures: shared.failures,
            refused: shared.refused,
            pruned: self.pruned,
            insert_rows: shared.pace.rows(),
        }
    }

    /// Sends everything that waits, while the server takes it.
    pub fn finish(&mut self, store: &mut Store) -> Result<(), Error> {
        let mut since = Instant::now();
        loop {
            if self.forget(store)? {
                since = Instant::now();
            }
            if !self.is_busy && !self.hand_on(store)? {
                return Ok(());
            }
            if since.elapsed() > LAST_PATIENCE {
                let rows = counted(store.spool_size().rows, "row", "rows");
                return Err(Error::Waiting { rows, server: self.address.clone() });
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Deletes rows that were sent; true if there were any.
    fn forget(&mut self, store: &mut Store) -> Result<bool, Error> {
        match self.sent.try_recv() {
            Ok(Delivery { last, refused }) => {
                self.pruned += store.sent(last, &refused)?;
                self.is_busy = false;
                Ok(true)
            }
            Err(TryRecvError::Empty) => Ok(false),
            Err(TryRecvError::Disconnected) => unreachable!("the thread ends after its handle"),
        }
    }

    /// Hands on the next rows; true if there were any.
    fn hand_on(&mut self, store: &Store) -> Result<bool, Error> {
        let most = lock(&self.shared).pace.rows();
        let rows = store.waiting(most, MAX_BYTES)?;
        if rows.is_empty() {
            self.due = Instant::now() + PAUSE;
            return Ok(false);
        }
        let size: usize = rows.iter().map(|row| row.line.len()).sum();
        if rows.len() < most && size < MAX_BYTES / 2 {
            self.due = Instant::now() + PAUSE;
        }
        self.is_busy = self.rows.send(rows).is_ok();
        Ok(true)
    }
}

/// The thread's side.
struct Deliverer {
    server: Server,
    /// The server has all tables.
    is_ready: bool,
    spool: u64,
    shared: Arc<Mutex<Shared>>,
    ended: Receiver<()>,
    /// Rows may have been taken, and only the answer lost.
    again: bool,
}

impl Deliverer {
    /// Sends rows until the server has each, or has refused it. Returns those that it refused; `None` if the handle of
    /// the thread is gone.
    fn deliver(&mut self, rows: &[Waiting]) -> Option<Vec<RefusedRow>> {
        let mut refused = Vec::new();
        let mut rest: Vec<&Waiting> = rows.iter().collect();
        // One table after the other, each in the order of its rows.
        while let Some(first) = rest.first() {
            let (same, others): (Vec<_>, Vec<_>) = rest.iter().copied().partition(|row| row.table == first.table);
            self.deliver_table(&same, &mut refused)?;
            rest = others;
        }
        self.again = false;
        Some(refused)
    }

    /// Prepares the server, which was away when the collector started. Returns `None` if the handle of the thread is gone.
    fn prepare(&mut self) -> Option<()> {
        let mut trouble = Trouble::default();
        while !self.is_ready {
            match self.server.prepare() {
                Ok(()) => {
                    self.is_ready = true;
                    trouble.end(&self.server);
                }
                Err(error) => {
                    // None of its rows is to blame.
                    self.judge(&error, 1);
                    trouble.report(&error);
                    if self.ended.recv_timeout(trouble.pause()) != Err(RecvTimeoutError::Timeout) {
                        return None;
                    }
                }
            }
        }
        Some(())
    }

    fn deliver_table(&mut self, rows: &[&Waiting], refused: &mut Vec<RefusedRow>) -> Option<()> {
        // What is still to be sent, the next last.
        let mut parts = vec![rows];
        let mut trouble = Trouble::default();
        while let Some(part) = parts.pop() {
            let limit = lock(&self.shared).pace.limit();
            let start = Instant::now();
            let Err(error) = self.server.insert(self.spool, part, self.again, limit) else {
                lock(&self.shared).pace.succeeded(part.len(), start.elapsed());
                trouble.end(&self.server);
                continue;
            };
            self.again = true;
            match self.judge(&error, part.len()) {
                Next::Split => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
                Next::PutAside => self.put_aside(part, &error, refused),
                Next::Retry => {
                    parts.push(part);
                    trouble.report(&error);
                    if self.ended.recv_timeout(trouble.pause()) != Err(RecvTimeoutError::Timeout) {
                        return None;
                    }
                }
            }
        }
        Some(())
    }

    /// Counts a failed insert of this many rows, and decides what to do about it.
    fn judge(&self, error: &StoreError, rows: usize) -> Next {
        let mut shared = lock(&self.shared);
        let Shared { pace, failures, .. } = &mut *shared;
        match error {
            StoreError::Refused { refusal, .. } => {
                failures.refused += 1;
                match refusal {
                    Refusal::Now => Next::Retry,
                    Refusal::Table => Next::PutAside,
                    Refusal::Row if rows == 1 => Next::PutAside,
                    Refusal::Row => Next::Split,
                    // A single row cannot be too large: the server has too little memory for anything.
                    Refusal::Size if rows == 1 => Next::Retry,
                    Refusal::Size => {
                        pace.was_too_large(rows);
                        Next::Split
                    }
                }
            }
            StoreError::Slow { .. } => {
                failures.slow += 1;
                pace.was_slow(rows);
                if rows > pace.rows() { Next::Split } else { Next::Retry }
            }
            _ => {
                failures.unreachable += 1;
                Next::Retry
            }
        }
    }

    fn put_aside(&self, rows: &[&Waiting], error: &StoreError, refused: &mut Vec<RefusedRow>) {
        let reason = error.to_string();
        let mut shared = lock(&self.shared);
        if shared.refused == 0 {
            log(format_args!("{reason}; the rows that it does not take are in the spool's table 'refused'"));
        }
        shared.refused += rows.len() as u64;
        refused.extend(rows.iter().map(|row| RefusedRow { row: row.row, reason: reason.clone() }));
    }
}

/// What follows from a failed insert.
enum Next {
    /// Insert the same rows after a pause.
    Retry,
    /// Insert each half.
    Split,
    /// Insert none of these rows any more.
    PutAside,
}

/// Attempts that have failed, one after the other.
#[derive(Debug, Default)]
struct Trouble {
    reason: Option<String>,
    pause: Option<Duration>,
}

impl Trouble {
    fn report(&mut self, error: &StoreError) {
        // Attempts to connect fail in several ways, by turns.
        let reason = match error {
            StoreError::Refused { said, .. } => said,
            StoreError::Slow { .. } => "slow",
            _ => "unreachable",
        };
        if self.reason.as_deref() != Some(reason) {
            log(format_args!("{error}; what comes waits in the spool"));
        }
        self.reason = Some(reason.to_owned());
    }

    fn pause(&mut self) -> Duration {
        let pause = self.pause.map_or(RETRY.0, |pause| RETRY.1.min(pause * 2));
        *self.pause.insert(pause)
    }

    fn end(&mut self, server: &Server) {
        if mem::take(self).reason.is_some() {
            log(format_args!("{} takes rows again", server.address()));
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
