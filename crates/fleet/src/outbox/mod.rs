//! The queue of batches that the collector has not stored yet, in memory and, if wanted, on disk as well.

mod adopt;
mod disk;
mod segment;

use std::{
    collections::VecDeque,
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use self::{
    disk::{Disk, Stored},
    segment::Segment,
};
use crate::wire::{self, AgentMessage, Batch, Content, Hello, LossCause, LostBatches, RunId, Version};

pub use self::{
    adopt::adopt,
    disk::{BufferError, Unread},
};

/// Longest report of a loss: no longer content has to be looked at.
const MAX_REPORT_BYTES: usize = 128;

/// A queue of encoded batches in the order of their numbers, bounded by their size. When it is full, the oldest batch is
/// dropped, and that is reported in its place.
///
/// With a folder, batches are on disk as well from the moment they are queued until they are confirmed. The next outbox
/// with the same folder takes up those of earlier runs, which survive the end of the process; a power cut may take those
/// of the last seconds.
#[derive(Debug)]
pub struct Outbox {
    max_bytes: usize,
    live: Arc<Run>,
    state: Mutex<State>,
    changed: Condvar,
}

/// A run of an agent, whose batches have numbers of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) id: RunId,
    /// The boot_id of the kernel at that time.
    pub(crate) boot: String,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Entry>,
    /// Bytes of the batches in the queue.
    bytes: usize,
    /// The number of the newest batch of the live run.
    last: u64,
    /// The number through which a collector has confirmed batches of the live run.
    confirmed: u64,
    /// The same of earlier runs, as far as it is known.
    confirmed_before: Vec<(RunId, u64)>,
    dropped: u64,
    /// The batch of the live run that was sent last and not answered for: the collector may have stored it.
    in_doubt: Option<u64>,
    is_closed: bool,
    disk: Option<Disk>,
}

#[derive(Debug)]
struct Entry {
    run: Arc<Run>,
    /// The number of the batch, or that of the last one that was lost.
    number: u64,
    what: Queued,
}

#[derive(Debug)]
enum Queued {
    Batch {
        /// As the content of a frame.
        content: Arc<[u8]>,
        made_unix_ns: i64,
        /// Where it is on disk.
        segment: Option<Arc<Segment>>,
    },
    /// The segment has the same report, if it has to outlast this process.
    Lost(LostBatches, Option<Arc<Segment>>),
}

/// Size of an outbox, and its losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Number of waiting batches.
    pub batches: u64,
    /// Size of the waiting batches, in bytes.
    pub bytes: u64,
    /// Number of batches given up since the start, mostly because the outbox was full.
    pub dropped: u64,
    /// Whether all of them are on disk too.
    pub is_on_disk: bool,
}

/// The result of waiting for a batch.
#[derive(Debug)]
pub(crate) enum Next {
    /// The oldest batch: its number, and the content of its frame, of any version.
    Batch(u64, Arc<[u8]>),
    /// The outbox stayed empty.
    Timeout,
    /// The oldest batch is of another run.
    OtherRun,
    /// The outbox is empty and closed.
    Closed,
}

impl Outbox {
    /// Creates an empty outbox in memory, for at most `max_bytes` of batches of the run of `hello`.
    pub fn new(max_bytes: usize, hello: &Hello) -> Outbox {
        let live = Arc::new(Run { id: hello.run, boot: hello.boot.clone() });
        Outbox { max_bytes, live, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Keeps batches in a folder too, and takes up what earlier runs left there, also those of an older dwell. What a newer one
    /// left stays there for it. Returns what cannot be read.
    ///
    /// # Errors
    ///
    /// [`BufferError`], if the folder cannot be used. The outbox remains usable, in memory.
    pub fn keep_in(&self, folder: &Path) -> Result<Unread, BufferError> {
        let mut disk = Disk::open(folder, self.max_bytes as u64, &self.live)?;
        let mut state = self.state();
        let unread = disk.read_earlier(|Stored { run, confirmed, number, made_unix_ns, content, segment }| {
            let known = state.confirmed_before.iter_mut().find(|(id, _)| *id == run.id);
            match known {
                Some((_, before)) => *before = confirmed.max(*before),
                None => state.confirmed_before.push((run.id, confirmed)),
            }
            let what = match reported(&content) {
                Some(lost) => {
                    // Records of the batches that it is about may still be there.
                    let is_moved = |entry: &Entry| *entry.run == *run && entry.number >= lost.from;
                    while state.queue.back().is_some_and(is_moved) {
                        let entry = state.queue.pop_back().expect("it was just seen");
                        state.remove(entry.what);
                    }
                    Queued::Lost(lost, Some(segment))
                }
                None => {
                    state.bytes += content.len();
                    Queued::Batch { content, made_unix_ns, segment: Some(segment) }
                }
            };
            state.queue.push_back(Entry { run, number, what });
            while state.bytes > self.max_bytes && state.drop_oldest(LossCause::BufferFull) {}
        })?;
        state.disk = Some(disk);
        Ok(unread)
    }

    /// Appends a batch under the next number. A batch that is too long for a frame is given up and counted.
    pub fn push(&self, content: Content) {
        let made_unix_ns = unix_now_ns();
        let mut state = self.state();
        state.last += 1;
        let (number, confirmed) = (state.last, state.confirmed);
        let batch = Batch { number, content };
        let encoded = wire::encode(Version::NEWEST, &AgentMessage::Batch(Box::new(batch)));
        let what = match encoded {
            Some(bytes) => {
                state.bytes += bytes.len();
                let disk = state.disk.as_mut();
                let segment = disk.and_then(|disk| disk.append(number, made_unix_ns, &bytes, confirmed));
                Queued::Batch { content: bytes.into(), made_unix_ns, segment }
            }
            None => {
                state.dropped += 1;
                Queued::Lost(lost(number, LossCause::TooLong, made_unix_ns), None)
            }
        };
        state.queue.push_back(Entry { run: Arc::clone(&self.live), number, what });
        while state.is_beyond(self.max_bytes) && state.drop_oldest(LossCause::BufferFull) {}
        drop(state);
        self.changed.notify_all();
    }

    /// Returns the current size and losses.
    pub fn backlog(&self) -> Backlog {
        let state = self.state();
        let batches = || state.queue.iter().filter(|entry| entry.is_batch());
        let is_on_disk = batches().all(Entry::is_on_disk);
        Backlog {
            batches: batches().count() as u64,
            bytes: state.bytes as u64,
            dropped: state.dropped,
            is_on_disk: is_on_disk && state.disk.is_some(),
        }
    }

    /// Returns the run whose batch is the oldest, and the number through which its batches were confirmed.
    pub(crate) fn next_run(&self) -> (Arc<Run>, u64) {
        let state = self.state();
        let run = state.queue.front().map_or(&self.live, |entry| &entry.run);
        let before = state.confirmed_before.iter().find(|(id, _)| *id == run.id);
        (Arc::clone(run), before.map_or(state.confirmed, |(_, confirmed)| *confirmed))
    }

    /// Whether this is the run that queues batches.
    pub(crate) fn is_live(&self, run: &Run) -> bool {
        *run == *self.live
    }

    /// Removes the batches of a run up to this number: the collector has stored them.
    pub(crate) fn acknowledge(&self, run: &Run, through: u64) {
        let mut state = self.state();
        if self.is_live(run) {
            state.confirmed = state.confirmed.max(through.min(state.last));
            state.in_doubt = None;
        }
        // A weak reference does not keep a segment whose last batch leaves.
        let mut last = None;
        while state.queue.front().is_some_and(|entry| *entry.run == *run && entry.number <= through) {
            let entry = state.queue.pop_front().expect("it was just seen");
            if let Some(segment) = entry.segment() {
                last = Some((Arc::downgrade(segment), entry.number));
            }
            state.remove(entry.what);
        }
        let noted = last.and_then(|(segment, number)| Some((segment.upgrade()?, number)));
        if let (Some((segment, number)), Some(disk)) = (noted, &mut state.disk) {
            disk.confirm(&segment, number);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Gives up the oldest batch, or the report in its place, if it has this number: the collector will never store it.
    pub(crate) fn reject(&self, run: &Run, number: u64) {
        let mut state = self.state();
        let is_oldest = |entry: &Entry| *entry.run == *run && entry.number == number;
        if !state.queue.front().is_some_and(is_oldest) {
            return;
        }
        if state.queue.front().is_some_and(Entry::is_batch) {
            state.drop_oldest(LossCause::Rejected);
        } else if let Some(report) = state.queue.pop_front() {
            state.remove(report.what);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Takes out all batches of the live run but the one that the collector may have stored already, hands them to `each`, and
    /// leaves reports that they have moved. A batch that is not valid, which a collector would reject, counts as dropped.
    pub(crate) fn move_unsent(&self, mut each: impl FnMut(Batch)) {
        for encoded in self.take_unsent() {
            match wire::version_of(&encoded).and_then(|version| wire::decode(version, &encoded)) {
                Ok(AgentMessage::Batch(batch)) => each(*batch),
                _ => self.state().dropped += 1,
            }
        }
    }

    /// Returns what moves, as contents of frames. The reports are on disk before that, if the batches are: those that are there
    /// stay if the report cannot be written, as the next run would send them too.
    fn take_unsent(&self) -> Vec<Arc<[u8]>> {
        let mut state = self.state();
        let State { queue, in_doubt, .. } = &*state;
        let is_unsent = |entry: &Entry| *entry.run == *self.live && Some(entry.number) != *in_doubt && entry.is_batch();
        let Some(first) = queue.iter().position(is_unsent) else {
            return Vec::new();
        };
        // What is in doubt is before all. Reports of losses stay in their places.
        let mut rest = state.queue.split_off(first);
        let mut contents = Vec::new();
        let kind = |entry: &Entry| (entry.is_batch(), entry.is_on_disk());
        while let Some(of_first) = rest.front().map(kind) {
            let length = rest.iter().take_while(|entry| kind(entry) == of_first).count();
            let alike: Vec<Entry> = rest.drain(..length).collect();
            match of_first {
                (true, _) => state.move_out(alike, &mut contents),
                (false, _) => state.queue.extend(alike),
            }
        }
        drop(state);
        self.changed.notify_all();
        contents
    }

    /// Returns the oldest batch of a run without removing it; waits at most `timeout` for one.
    pub(crate) fn next(&self, run: &Run, timeout: Duration) -> Next {
        let deadline = Instant::now() + timeout;
        let mut state = self.state();
        loop {
            match state.queue.front() {
                Some(entry) if *entry.run != *run => return Next::OtherRun,
                Some(entry) => {
                    let (number, content) = (entry.number, entry.content());
                    state.in_doubt = Some(number).filter(|_| self.is_live(run));
                    return Next::Batch(number, content);
                }
                None if state.is_closed => return Next::Closed,
                None if !self.is_live(run) => return Next::OtherRun,
                None => {}
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Next::Timeout;
            }
            state = self.wait(state, remaining);
        }
    }

    /// Makes sure from time to time that what waits for longer survives a power cut. Returns what people should know about
    /// the disk since the last call.
    pub(crate) fn tend_disk(&self) -> Option<String> {
        let mut state = self.state();
        let disk = state.disk.as_mut()?;
        let to_sync = disk.due_sync();
        let mut notice = disk.take_notice();
        drop(state);
        if let Some(Err(error)) = to_sync.map(|file| file.sync_data())
            && let Some(disk) = &mut self.state().disk
        {
            disk.give_up_for_now(&error);
            notice = disk.take_notice();
        }
        notice
    }

    /// Marks the end: nothing more will be pushed.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        drop(state);
        self.changed.notify_all();
    }

    /// Waits at most `timeout` until all batches are stored. Returns whether they are.
    pub(crate) fn wait_until_empty(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.state();
        while !state.queue.is_empty() {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return false;
            }
            state = self.wait(state, remaining);
        }
        true
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, timeout: Duration) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, timeout);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_beyond(&self, max_bytes: usize) -> bool {
        self.bytes > max_bytes || self.disk.as_ref().is_some_and(|disk| disk.bytes() > max_bytes as u64)
    }

    /// Gives up the oldest batch and leaves a report of that in its place, one for all that follow each other. False if
    /// there is no batch.
    fn drop_oldest(&mut self, why: LossCause) -> bool {
        let at = self.queue.iter().position(Entry::is_batch);
        let Some(entry) = at.and_then(|at| self.queue.remove(at)) else {
            return false;
        };
        let (at, number) = (at.unwrap_or(0), entry.number);
        let Some(made_unix_ns) = self.remove(entry.what) else {
            return false;
        };
        self.dropped += 1;
        let before = at.checked_sub(1).and_then(|before| self.queue.get_mut(before));
        match before {
            Some(Entry { run, number: last, what: Queued::Lost(lost, _) }) if *run == entry.run && lost.why == why => {
                *last = number;
                lost.until_unix_ns = made_unix_ns;
            }
            _ => {
                let what = Queued::Lost(lost(number, why, made_unix_ns), None);
                self.queue.insert(at, Entry { run: entry.run, number, what });
            }
        }
        true
    }

    /// Takes batches that follow each other out of the queue, or leaves them at its end if they have to stay. All are on disk, or
    /// none.
    fn move_out(&mut self, batches: Vec<Entry>, contents: &mut Vec<Arc<[u8]>>) {
        let made = || batches.iter().filter_map(Entry::made_unix_ns);
        let mut moved = LostBatches {
            from: batches[0].number,
            why: LossCause::Moved,
            since_unix_ns: made().min().unwrap_or_default(),
            until_unix_ns: made().max().unwrap_or_default(),
        };
        let Entry { run, number, .. } = &batches[batches.len() - 1];
        let (run, number) = (Arc::clone(run), *number);
        // One report for all moves that follow each other.
        let before = match self.queue.back() {
            Some(Entry { run: of, what: Queued::Lost(before, _), .. })
                if *of == run && before.why == LossCause::Moved =>
            {
                moved.from = before.from;
                moved.since_unix_ns = moved.since_unix_ns.min(before.since_unix_ns);
                moved.until_unix_ns = moved.until_unix_ns.max(before.until_unix_ns);
                self.queue.pop_back()
            }
            _ => None,
        };
        let (confirmed, until_unix_ns) = (self.confirmed, moved.until_unix_ns);
        let disk = self.disk.as_mut();
        let segment = disk.and_then(|disk| disk.append(number, until_unix_ns, &report(number, moved), confirmed));
        if segment.is_none() && before.iter().chain(&batches).any(Entry::is_on_disk) {
            self.queue.extend(before);
            self.queue.extend(batches);
            return;
        }
        for entry in before.into_iter().chain(batches) {
            if let Queued::Batch { content, .. } = &entry.what {
                contents.push(Arc::clone(content));
            }
            self.remove(entry.what);
        }
        self.queue.push_back(Entry { run, number, what: Queued::Lost(moved, segment) });
    }

    /// Accounts for a batch that has left the queue. Returns when it was made.
    fn remove(&mut self, what: Queued) -> Option<i64> {
        let (made_unix_ns, segment) = match what {
            Queued::Batch { content, made_unix_ns, segment } => {
                self.bytes -= content.len();
                (Some(made_unix_ns), segment)
            }
            Queued::Lost(_, segment) => (None, segment),
        };
        if let (Some(disk), Some(segment)) = (&mut self.disk, segment) {
            disk.release(&segment);
        }
        made_unix_ns
    }
}

impl Entry {
    fn is_batch(&self) -> bool {
        matches!(self.what, Queued::Batch { .. })
    }

    fn is_on_disk(&self) -> bool {
        self.segment().is_some()
    }

    fn segment(&self) -> Option<&Arc<Segment>> {
        match &self.what {
            Queued::Batch { segment, .. } | Queued::Lost(_, segment) => segment.as_ref(),
        }
    }

    fn made_unix_ns(&self) -> Option<i64> {
        match &self.what {
            Queued::Batch { made_unix_ns, .. } => Some(*made_unix_ns),
            Queued::Lost(..) => None,
        }
    }

    fn content(&self) -> Arc<[u8]> {
        match &self.what {
            Queued::Batch { content, .. } => Arc::clone(content),
            Queued::Lost(lost, _) => report(self.number, *lost).into(),
        }
    }
}

/// Returns a batch that reports losses up to its number, as the content of a frame.
fn report(number: u64, lost: LostBatches) -> Vec<u8> {
    let batch = Batch { number, content: Content { lost: Some(lost), ..Content::default() } };
    let report = wire::encode(Version::NEWEST, &AgentMessage::Batch(Box::new(batch)));
    report.expect("a report of a loss is short")
}

/// Returns what such a batch reports.
fn reported(content: &[u8]) -> Option<LostBatches> {
    let is_short = content.len() <= MAX_REPORT_BYTES;
    let version = wire::version_of(content).ok().filter(|_| is_short)?;
    match wire::decode(version, content).ok()? {
        AgentMessage::Batch(batch) => batch.content.lost,
        _ => None,
    }
}

fn lost(number: u64, why: LossCause, made_unix_ns: i64) -> LostBatches {
    LostBatches { from: number, why, since_unix_ns: made_unix_ns, until_unix_ns: made_unix_ns }
}

fn unix_now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
