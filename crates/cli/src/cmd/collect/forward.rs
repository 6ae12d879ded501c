//! From the spool to a server: a thread that sends, so that none waits for the server.

use std::{
    sync::mpsc::{self, Receiver, SyncSender, TryRecvError},
    thread,
    time::{Duration, Instant},
};

use dwell_records::counted;
use dwell_store::{Server, Store, Waiting};

use crate::{
    exit::{Exit, Failure},
    tell::tell,
};

/// Rows of an insert, and time between two that are not full: each insert is a file or more that
/// the server merges later.
const MOST_ROWS: usize = 10_000;
const PAUSE: Duration = Duration::from_secs(1);
/// Between two attempts; it doubles up to the second, which is less than `LAST`.
const AGAIN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(4));
/// Some 2 GB of the spool. Beyond, agents keep what they have.
const MOST_WAITING: u64 = 4_000_000;
/// At the end, the server may take so long for an insert.
const LAST: Duration = Duration::from_secs(5);

/// The side of the one that writes the store.
pub struct Forward {
    rows: SyncSender<Vec<Waiting>>,
    sent: Receiver<i64>,
    address: String,
    /// The thread has something to send.
    is_busy: bool,
    due: Instant,
}

impl Forward {
    /// Begins to send.
    pub fn start(server: Server, spool: u64) -> Result<Forward, Failure> {
        let (rows, to_send) = mpsc::sync_channel::<Vec<Waiting>>(1);
        let (done, sent) = mpsc::sync_channel(1);
        let address = server.address().to_string();
        thread::Builder::new()
            .name("forward".into())
            .spawn(move || {
                // What was under way when a collector ended may be there.
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
            .map_err(|error| Failure::new(Exit::Host, error))?;
        Ok(Forward { rows, sent, address, is_busy: false, due: Instant::now() })
    }

    /// Hands on what waits, and forgets what is there.
    pub fn look(&mut self, store: &mut Store) -> Result<(), Failure> {
        self.forget(store)?;
        if !self.is_busy && Instant::now() >= self.due {
            self.hand_on(store)?;
        }
        Ok(())
    }

    /// True if no more may wait.
    pub fn is_full(&self, store: &Store) -> Result<bool, Failure> {
        Ok(store.count_waiting()? >= MOST_WAITING)
    }

    /// Sends all that waits, as long as the server takes it.
    pub fn finish(&mut self, store: &mut Store) -> Result<(), Failure> {
        let mut since = Instant::now();
        loop {
            if self.forget(store)? {
                since = Instant::now();
            }
            if !self.is_busy && !self.hand_on(store)? {
                return Ok(());
            }
            if since.elapsed() > LAST {
                let rows = counted(store.count_waiting()?, "row", "rows");
                let error = anyhow::anyhow!(
                    "{rows} are not on {} yet: they wait in the spool; start the collector again \
                     with it",
                    self.address
                );
                return Err(Failure::new(Exit::Incomplete, error));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// True if something was sent.
    fn forget(&mut self, store: &mut Store) -> Result<bool, Failure> {
        match self.sent.try_recv() {
            Ok(last) => {
                store.sent(last)?;
                self.is_busy = false;
                Ok(true)
            }
            Err(TryRecvError::Empty) => Ok(false),
            Err(TryRecvError::Disconnected) => unreachable!("it ends after us"),
        }
    }

    /// True if there was something.
    fn hand_on(&mut self, store: &Store) -> Result<bool, Failure> {
        let rows = store.waiting(MOST_ROWS)?;
        if rows.len() < MOST_ROWS {
            self.due = Instant::now() + PAUSE;
        }
        if rows.is_empty() {
            return Ok(false);
        }
        self.is_busy = self.rows.send(rows).is_ok();
        Ok(true)
    }
}

/// Sends rows, however long it takes.
fn send(server: &Server, spool: u64, rows: &[Waiting], mut again: bool) {
    let mut pause = AGAIN.0;
    let mut failed = None;
    while let Err(error) = server.insert(spool, rows, again) {
        let why = error.to_string();
        if failed.as_ref() != Some(&why) {
            tell(format_args!("{why}; what comes waits in the spool"));
        }
        failed = Some(why);
        // It may have been taken, and only the answer lost.
        again = true;
        thread::sleep(pause);
        pause = AGAIN.1.min(pause * 2);
    }
    if failed.is_some() {
        tell(format_args!("{} takes rows again", server.address()));
    }
}
