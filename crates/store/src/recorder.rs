//! Records of a run on their way into a store.

use std::{
    borrow::Cow,
    mem,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::Duration,
};

use dwell_engine::replay::Intervals;
use dwell_records::{
    Interval, Keep, LatencyLine, Record, Sockets, Source, Stack, Summary, Top, complete_bytes, counted, latencies,
    sample_latencies,
};

use crate::{
    IntervalRow, Origin, Retain, Retention, Store, StoreError,
    backend::BackendRow,
    columns::Row,
    latency::{latency_row, verdict_row},
    sqlite::Writers,
};

/// Rows of one transaction at most.
const MOST_ROWS: usize = 8_192;
/// Transactions that wait for the disk at most: the rows of an interval come at once, and while the disk stalls they are in
/// memory.
const MOST_WAITING: usize = 8;
/// After this time the end of a run says that it waits for the disk.
const LONG_END: Duration = Duration::from_secs(1);
/// Flows of an interval whose single round trips are kept apart.
const MOST_FLOWS: usize = 100_000;
/// Time after which rows that belong to no common interval are written.
const PAUSE_NS: u64 = 1_000_000_000;

/// How records are stored.
pub struct Recording {
    /// The file of the store.
    pub path: PathBuf,
    /// The length of the intervals of single round trips.
    pub interval_ns: u64,
    /// What of older rows is kept; `None` keeps all.
    pub retain: Option<Retain>,
    /// What the records are of. Those of a capture wait for the disk. Otherwise rows are dropped, and counted, that the disk
    /// is too slow for.
    pub origin: Origin,
    /// The longest time that the end of the run waits for the disk.
    pub longest_end: Duration,
    /// Called for what a person should know, from another thread.
    pub log: fn(&str),
}

/// Stores what it is given: an interval, or what comes within a second, in one transaction of a thread of its own.
pub struct Recorder {
    path: PathBuf,
    origin: Origin,
    longest_end: Duration,
    queue: Option<SyncSender<Vec<Row<'static>>>>,
    /// Disconnected when the thread ends.
    writer: Option<Receiver<()>>,
    log: fn(&str),
    missing: Arc<Missing>,
    /// Whether the last rows were dropped.
    is_dropping: bool,
    rows: Vec<Row<'static>>,
    /// The single round trips of the current interval, and the interval.
    samples: Summary,
    intervals: Intervals,
    /// The last time of a record, and the time of the last transaction, on the source's clock.
    last_ns: u64,
    sent_ns: u64,
}

/// Rows that are not in the store.
#[derive(Debug, Default)]
struct Missing {
    /// The disk was too slow for them.
    dropped: AtomicU64,
    /// The store could not be written.
    failed: AtomicU64,
    /// They wait for the disk.
    waiting: AtomicU64,
}

impl Recorder {
    /// Opens a store, or creates it. Other runs may write to it too, but no collector.
    ///
    /// # Errors
    ///
    /// [`StoreError`] as for [`Store::open`].
    pub fn start(recording: Recording) -> Result<Recorder, StoreError> {
        let store = Store::open_for(&recording.path, Writers::Several)?;
        let missing = Arc::new(Missing::default());
        let (queue, rows) = sync_channel(MOST_WAITING);
        let Recording { path, interval_ns, origin, longest_end, retain, log } = recording;
        let missed = Arc::clone(&missing);
        let retention = Retention::new(&store, retain, origin)?;
        let writer = Writer { store, retention, log, missing: missed, told: [false; 2] };
        let (running, ended) = sync_channel(0);
        let thread = thread::Builder::new().name("dwell-store".into()).spawn(move || {
            let _running: SyncSender<()> = running;
            // It is closed before the other end is told.
            let mut writer = writer;
            writer.run(&rows);
        });
        thread.map_err(|io| StoreError::Thread { path: path.clone(), io })?;
        Ok(Recorder {
            path,
            origin,
            longest_end,
            queue: Some(queue),
            writer: Some(ended),
            log,
            missing,
            is_dropping: false,
            rows: Vec::new(),
            samples: Summary::new(MOST_FLOWS),
            intervals: Intervals::new(interval_ns.max(1)),
            last_ns: 0,
            sent_ns: 0,
        })
    }

    /// Stores what the backends of a balancer did in an interval.
    pub fn backends<'a>(&mut self, rows: impl IntoIterator<Item = BackendRow<'a>>) {
        rows.into_iter().for_each(|row| self.push((&row).into()));
        self.send();
    }

    fn push(&mut self, row: Row<'_>) {
        self.rows.push(row.into_owned());
        if self.rows.len() >= MOST_ROWS {
            self.send();
        }
    }

    fn send(&mut self) {
        const SLOW: &str = "the disk is too slow for";
        const ENDED: &str = "nothing is written any more to";
        self.sent_ns = self.last_ns;
        let rows = mem::take(&mut self.rows);
        let (Some(queue), false) = (&self.queue, rows.is_empty()) else {
            return;
        };
        let count = rows.len() as u64;
        self.missing.waiting.fetch_add(count, Relaxed);
        let left = match self.origin {
            Origin::Capture => queue.send(rows).map_err(|_| ENDED),
            Origin::Live => queue.try_send(rows).map_err(|error| match error {
                TrySendError::Full(_) => SLOW,
                TrySendError::Disconnected(_) => ENDED,
            }),
        };
        let was_dropping = mem::replace(&mut self.is_dropping, left.is_err());
        if self.is_dropping {
            self.missing.waiting.fetch_sub(count, Relaxed);
            self.missing.dropped.fetch_add(count, Relaxed);
        }
        if let (Err(why), false) = (left, was_dropping) {
            let path = self.path.display();
            (self.log)(&format!(
                "{why} the store {path}; rows that it leaves out are counted, and everything else continues"
            ));
        }
    }

    fn lines(&mut self, source: &Source, produce: impl FnOnce(&mut dyn FnMut(LatencyLine<'_>))) {
        let last_ns = self.last_ns;
        produce(&mut |line: LatencyLine<'_>| {
            let time_ns = unix_ns(source, line.time_ns.unwrap_or(last_ns));
            self.push(latency_row(time_ns, source, line));
        });
    }

    /// Ends the interval of single round trips if this time is past it.
    fn advance(&mut self, time_ns: u64, source: &Source) {
        let length_ns = self.intervals.length_ns();
        if let Some(end_ns) = self.intervals.advance(time_ns) {
            self.close((end_ns, length_ns), source);
        }
    }

    /// Stores the single round trips of an interval: its end, and its length.
    fn close(&mut self, interval: (u64, u64), source: &Source) {
        let samples = mem::replace(&mut self.samples, Summary::new(MOST_FLOWS));
        self.lines(source, |each| sample_latencies(&samples, interval, source, &mut |line| each(line)));
        self.send();
    }

    fn stack(&mut self, stack: &Stack<'_>, source: &Source) {
        let time_ns = unix_ns(source, stack.end_ns);
        let all = [(None, false, stack.segments), (None, true, stack.again)].into_iter();
        let flows = stack.flows.iter().map(|flow| (Some(flow), false, flow.segments));
        for (flow, resent, segments) in all.chain(flows) {
            for one in segments {
                if flow.is_some() && complete_bytes(segments, one.segment.direction()) == 0 {
                    continue;
                }
                let hooks = Some(&stack.hooks[one.segment as usize]).filter(|_| flow.is_none());
                self.push(Row::from(&IntervalRow {
                    time_ns,
                    time_clamped: false,
                    length_ns: stack.length_ns,
                    host: source.host.as_deref().unwrap_or_default(),
                    flow: flow.map(|flow| flow.ends),
                    namespace: flow.and_then(|flow| flow.namespace.as_deref()),
                    segment: one.segment,
                    resent,
                    histogram: &one.histogram,
                    hooks,
                }));
            }
        }
    }
}

impl Keep for Recorder {
    fn keep(&mut self, record: &Record<'_>, source: &Source) {
        match record {
            Record::Sample(sample) => {
                self.last_ns = self.last_ns.max(sample.time_ns);
                self.advance(sample.time_ns, source);
                self.samples.add(sample);
            }
            Record::Status(status) => {
                self.last_ns = status.time_ns.unwrap_or(self.last_ns);
                if self.intervals.start_ns().is_some() {
                    self.advance(self.last_ns, source);
                }
                self.send();
            }
            Record::Response(response) => {
                self.last_ns = self.last_ns.max(response.end_ns());
                self.lines(source, |each| latencies(record, source, &mut |line| each(line)));
                if self.last_ns.saturating_sub(self.sent_ns) >= PAUSE_NS {
                    self.send();
                }
            }
            Record::Interval(Interval { end_ns, .. })
            | Record::Sockets(Sockets { end_ns, .. })
            | Record::Top(Top { end_ns, .. }) => {
                self.last_ns = *end_ns;
                self.lines(source, |each| latencies(record, source, &mut |line| each(line)));
                self.send();
            }
            Record::Summary(_) | Record::SocketEnd(_) => {
                self.lines(source, |each| latencies(record, source, &mut |line| each(line)));
                self.send();
            }
            Record::Stack(stack) => {
                self.stack(stack, source);
                self.send();
            }
            Record::Why(why) => {
                self.push(verdict_row(unix_ns(source, why.end_ns), source, why));
                self.send();
            }
            Record::Flow(_)
            | Record::ResponseSummary(_)
            | Record::ByteTrace(_)
            | Record::Path(_)
            | Record::Agent(_)
            | Record::Gray(_)
            | Record::Shift(_) => {}
        }
    }

    fn count(&self, counters: &mut Vec<(Cow<'static, str>, u64)>) {
        let Missing { dropped, failed, .. } = &*self.missing;
        let counts = [("store_rows_dropped", dropped), ("store_rows_failed", failed)];
        let counts = counts.map(|(name, count)| (name.into(), count.load(Relaxed)));
        counters.extend(counts.into_iter().filter(|(_, count)| *count > 0));
    }

    fn finish(&mut self, source: &Source) -> Option<String> {
        if let Some(start_ns) = self.intervals.start_ns() {
            let end_ns = self.last_ns.max(start_ns);
            self.close((end_ns, end_ns - start_ns), source);
        }
        self.end();
        let [dropped, failed] = [&self.missing.dropped, &self.missing.failed].map(|count| count.load(Relaxed));
        let path = self.path.display();
        match (dropped, failed) {
            (0, 0) => None,
            (_, 0) => Some(format!(
                "{} missing in the store {path}: its disk was too slow for them, or others kept it locked; take a faster disk, \
                 or a longer interval",
                counted(dropped, "row is", "rows are")
            )),
            _ => Some(format!(
                "{} missing in the store {path}: it could not be written",
                counted(dropped + failed, "row is", "rows are")
            )),
        }
    }
}

impl Recorder {
    /// Waits until all rows are stored. What still waits for the disk after the longest time is dropped.
    fn end(&mut self) {
        let limit = self.longest_end;
        self.send();
        self.queue = None;
        let Some(ended) = self.writer.take() else { return };
        let is_over = |limit| ended.recv_timeout(limit) != Err(RecvTimeoutError::Timeout);
        if is_over(LONG_END.min(limit)) {
            return;
        }
        let path = self.path.display();
        (self.log)(&format!(
            "waiting for the store {path}: its disk is slow, or others write to it; {limit:?} at most"
        ));
        if !is_over(limit.saturating_sub(LONG_END)) {
            self.missing.dropped.fetch_add(self.missing.waiting.load(Relaxed), Relaxed);
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.end();
    }
}

fn unix_ns(source: &Source, time_ns: u64) -> i64 {
    let time_ns = source.clock.unix_ns(time_ns);
    time_ns.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// What runs in the thread.
struct Writer {
    store: Store,
    retention: Retention,
    log: fn(&str),
    missing: Arc<Missing>,
    /// Whether it was told that the last transaction with rows has failed, and the last one that deletes old ones.
    told: [bool; 2],
}

impl Writer {
    fn run(&mut self, queue: &Receiver<Vec<Row<'static>>>) {
        for rows in queue {
            let count = rows.len() as u64;
            let latest_ns = rows.iter().map(|row| row.time_ns).max();
            let written = self.store.write(|store| rows.into_iter().try_for_each(|row| store.insert(row)));
            if written.is_err() {
                self.missing.failed.fetch_add(count, Relaxed);
            }
            self.missing.waiting.fetch_sub(count, Relaxed);
            if self.report_once(0, written, "rows that cannot be stored are counted, and everything else continues") {
                let kept = self.keep_within(latest_ns);
                self.report_once(1, kept, "old rows stay until they can be deleted, and everything else continues");
            }
        }
    }

    /// Tells the first failure of several. Returns whether there was none.
    fn report_once(&mut self, which: usize, done: Result<(), StoreError>, what: &str) -> bool {
        let had_failed = mem::replace(&mut self.told[which], done.is_err());
        match done {
            Ok(()) => true,
            Err(error) => {
                if !had_failed {
                    (self.log)(&format!("{error}; {what}"));
                }
                false
            }
        }
    }

    /// Deletes what is not to be kept, as seen at the time of the latest row, which may be long ago and is not in the future.
    fn keep_within(&mut self, latest_ns: Option<i64>) -> Result<(), StoreError> {
        let Some(latest_ns) = latest_ns else { return Ok(()) };
        let now_ns = jiff::Timestamp::now().as_nanosecond().clamp(0, i64::MAX.into()) as i64;
        // One transaction deletes more rows than one writes.
        let notice = self.retention.apply(&mut self.store, latest_ns.min(now_ns), Duration::ZERO)?;
        notice.iter().for_each(|notice| (self.log)(notice));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use dwell_engine::{histogram::Histogram, layers::Segment};
    use rusqlite::Connection;
    use tempfile::TempDir;

    use super::*;

    fn recorder(path: PathBuf, longest_end: Duration, log: fn(&str)) -> Recorder {
        let retain = Some(Retain { age: Some(Duration::from_secs(10)), bytes: None });
        let recording = Recording { path, interval_ns: 1, retain, origin: Origin::Live, longest_end, log };
        Recorder::start(recording).unwrap()
    }

    /// Records into a store that another connection keeps locked until it is dropped, below a folder.
    fn locked(log: fn(&str)) -> (TempDir, Recorder, Connection) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let recorder = recorder(path.clone(), Duration::from_millis(100), log);
        let busy = Connection::open(&path).unwrap();
        busy.execute_batch("BEGIN IMMEDIATE").unwrap();
        (folder, recorder, busy)
    }

    /// Stores a row of this second.
    fn store(recorder: &mut Recorder, second: i64) {
        recorder.push(Row::from(&IntervalRow {
            time_ns: second * 1_000_000_000,
            time_clamped: false,
            length_ns: 1_000_000_000,
            host: "here",
            flow: None,
            namespace: None,
            segment: Segment::TxTotal,
            resent: false,
            histogram: &Histogram::default(),
            hooks: None,
        }));
        recorder.send();
    }

    #[test]
    fn the_end_of_a_run_waits_for_a_disk_that_stalls_no_longer_than_a_limit_and_says_so() {
        static TOLD: Mutex<String> = Mutex::new(String::new());
        let (_folder, mut recorder, _busy) = locked(|text| TOLD.lock().unwrap().push_str(text));
        (1..=3).for_each(|second| store(&mut recorder, second));
        let missing = recorder.finish(&Source::default()).unwrap();
        assert!(missing.starts_with("3 rows are missing in the store"), "{missing}");
        let told = TOLD.lock().unwrap();
        assert!(told.contains("waiting for the store") && told.contains("100ms at most"), "{told}");
    }

    #[test]
    fn that_rows_are_dropped_is_told_while_the_run_goes_on() {
        static TOLD: Mutex<String> = Mutex::new(String::new());
        let (_folder, mut recorder, busy) = locked(|text| TOLD.lock().unwrap().push_str(text));
        (1..=20).for_each(|second| store(&mut recorder, second));
        assert!(TOLD.lock().unwrap().contains("the disk is too slow"));
        drop(busy);
    }

    #[test]
    fn what_cannot_be_deleted_is_not_called_missing() {
        static TOLD: Mutex<String> = Mutex::new(String::new());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let log = |text: &str| TOLD.lock().unwrap().push_str(text);
        let mut recorder = recorder(path.clone(), Duration::from_secs(20), log);
        let refuse = "CREATE TRIGGER full BEFORE DELETE ON interval BEGIN SELECT RAISE(ABORT, 'no room'); END";
        Connection::open(&path).unwrap().execute_batch(refuse).unwrap();
        (1..=3).for_each(|time| store(&mut recorder, 100 * time));
        assert_eq!(recorder.finish(&Source::default()), None);
        let told = TOLD.lock().unwrap();
        assert_eq!(told.matches("no room; old rows stay").count(), 1, "{told}");
        assert!(!told.contains("cannot be stored"), "{told}");
    }
}
