//! Forwards rows from the spool to a server, on a thread of its own, so that nobody waits for the server.

use std::{
    sync::mpsc::{self, Receiver, SyncSender, TryRecvError},
    thread,
    time::{Duration, Instant},
};

use dwell_app::tell::tell;
use dwell_records::counted;
use dwell_store::{Server, Store, Waiting};

use crate::Error;

/// Rows of one insert at most. Each insert becomes a file or more, which the server merges later.
const MAX_ROWS: usize = 10_000;
/// Time between two inserts that are not full.
const PAUSE: Duration = Duration::from_secs(1);
/// Time between two attempts: the first pause, and the longest to which it doubles, which is less than [`LAST_PATIENCE`].
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(4));
/// Rows that may wait, some 2 GB of the spool. Beyond, agents keep what they have.
const MAX_WAITING: u64 = 4_000_000;
/// How long the server may take for an insert when the collector ends.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

/// Hands rows to the thread that sends them.
pub struct Forward {
    rows: SyncSender<Vec<Waiting>>,
    sent: Receiver<i64>,
    address: String,
    /// The thread is sending.
    is_busy: bool,
    due: Instant,
}

impl Forward {
    /// Starts the thread.
    pub fn start(server: Server, spool: u64) -> Result<Forward, Error> {
        let (rows, to_send) = mpsc::sync_channel::<Vec<Waiting>>(1);
        let (done, sent) = mpsc::sync_channel(1);
        let address = server.address().to_string();
        thread::Builder::new()
            .name("forward".into())
            .spawn(move || {
                // Rows that were under way when a collector ended may have arrived.
                let mut again = true;
                for rows in to_send {
                    send(&server, spool, &rows, again);
                    again = false;
                    let last = rows.last().map_or(0, |row| row.row);
                    if done.send(last).is_err() {
                        return;
                    }
                }
            })
            .map_err(Error::Thread)?;
        Ok(Forward { rows, sent, address, is_busy: false, due: Instant::now() })
    }

    /// Hands on what waits, and deletes what the server has.
    pub fn poll(&mut self, store: &mut Store) -> Result<(), Error> {
        self.forget(store)?;
        if !self.is_busy && Instant::now() >= self.due {
            self.hand_on(store)?;
        }
        Ok(())
    }

    /// True if no more rows may wait.
    pub fn is_full(&self, store: &Store) -> Result<bool, Error> {
        Ok(store.count_waiting()? >= MAX_WAITING)
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
                let rows = counted(store.count_waiting()?, "row", "rows");
                return Err(Error::Waiting { rows, server: self.address.clone() });
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Deletes rows that were sent; true if there were any.
    fn forget(&mut self, store: &mut Store) -> Result<bool, Error> {
        match self.sent.try_recv() {
            Ok(last) => {
                store.sent(last)?;
                self.is_busy = false;
                Ok(true)
            }
            Err(TryRecvError::Empty) => Ok(false),
            Err(TryRecvError::Disconnected) => unreachable!("the thread ends after its handle"),
        }
    }

    /// Hands on the next rows; true if there were any.
    fn hand_on(&mut self, store: &Store) -> Result<bool, Error> {
        let rows = store.waiting(MAX_ROWS)?;
        if rows.len() < MAX_ROWS {
            self.due = Instant::now() + PAUSE;
        }
        if rows.is_empty() {
            return Ok(false);
        }
        self.is_busy = self.rows.send(rows).is_ok();
        Ok(true)
    }
}

/// Sends rows, retrying until the server takes them.
fn send(server: &Server, spool: u64, rows: &[Waiting], mut again: bool) {
    let mut pause = RETRY.0;
    let mut failed = None;
    while let Err(error) = server.insert(spool, rows, again) {
        let why = error.to_string();
        if failed.as_ref() != Some(&why) {
            tell(format_args!("{why}; what comes waits in the spool"));
        }
        failed = Some(why);
        // The rows may have been taken, and only the answer lost.
        again = true;
        thread::sleep(pause);
        pause = RETRY.1.min(pause * 2);
    }
    if failed.is_some() {
        tell(format_args!("{} takes rows again", server.address()));
    }
}
