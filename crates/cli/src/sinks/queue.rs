//! Lines of a verb that waits for no reader: one who is slow loses lines, and learns how many.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, channel, sync_channel},
    },
    thread,
    time::Duration,
};

use dwell_records::counted;

use crate::log::log;

/// How long the end waits for lines that have not been written.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The sending end of the queue: lines that are put into it are written by a thread.
#[derive(Debug)]
pub struct Lines {
    sender: SyncSender<Line>,
    counts: Arc<Counts>,
}

/// Waits a short time, when it is dropped, for lines that have not been written, and reports those that nobody read in time.
/// [`Lines`] must be dropped first.
#[derive(Debug)]
pub struct Drain {
    done: Receiver<()>,
    counts: Arc<Counts>,
}

/// Lines by what became of them.
#[derive(Debug, Default)]
struct Counts {
    waiting: AtomicU64,
    /// There was no room for them.
    dropped: AtomicU64,
    /// The output failed.
    failed: AtomicU64,
}

struct Line {
    text: Vec<u8>,
    /// The number of lines that had been dropped before.
    dropped: u64,
}

/// Starts a thread that writes to `out`. At most `most` lines wait for it. An output that fails does not end it: the first error
/// after a success goes to `report`. Before a line that follows lost ones, and at the end, which is its second argument, `notice`
/// may return another line that says how many were lost so far.
///
/// # Errors
///
/// If the thread cannot be started.
pub fn start(
    out: impl Write + Send + 'static,
    most: usize,
    report: impl FnMut(&io::Error) + Send + 'static,
    notice: impl FnMut(u64, bool) -> Option<Vec<u8>> + Send + 'static,
) -> io::Result<(Lines, Drain)> {
    let (sender, lines) = sync_channel(most);
    let (ended, done) = channel();
    let counts = Arc::new(Counts::default());
    let mut writer = Writer { out, report, notice, is_failing: false, told: 0, counts: Arc::clone(&counts) };
    thread::Builder::new().name("lines".into()).spawn(move || {
        lines.iter().for_each(|line| writer.write(&line));
        writer.report(writer.counts.lost(), true);
        let _ = ended.send(());
    })?;
    Ok((Lines { sender, counts: Arc::clone(&counts) }, Drain { done, counts }))
}

impl Lines {
    /// Queues a line without waiting. It is lost if there is no room.
    pub fn put(&self, text: Vec<u8>) {
        let Counts { waiting, dropped, .. } = &*self.counts;
        waiting.fetch_add(1, Ordering::Relaxed);
        if self.sender.try_send(Line { text, dropped: dropped.load(Ordering::Relaxed) }).is_err() {
            waiting.fetch_sub(1, Ordering::Relaxed);
            dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of lines that were lost so far.
    pub fn lost(&self) -> u64 {
        self.counts.lost()
    }
}

impl Counts {
    fn lost(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed) + self.failed.load(Ordering::Relaxed)
    }
}

struct Writer<W, R, N> {
    out: W,
    report: R,
    notice: N,
    is_failing: bool,
    /// The number of lost lines that the reader knows of.
    told: u64,
    counts: Arc<Counts>,
}

impl<W: Write, R: FnMut(&io::Error), N: FnMut(u64, bool) -> Option<Vec<u8>>> Writer<W, R, N> {
    fn write(&mut self, line: &Line) {
        let lost = line.dropped + self.counts.failed.load(Ordering::Relaxed);
        // What was lost must be known before what follows.
        if (lost != self.told && !self.report(lost, false)) || !self.put(&line.text) {
            self.counts.failed.fetch_add(1, Ordering::Relaxed);
        }
        self.counts.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    fn report(&mut self, lost: u64, is_last: bool) -> bool {
        let is_written = (self.notice)(lost, is_last).is_none_or(|notice| self.put(&notice));
        if is_written {
            self.told = lost;
        }
        is_written
    }

    fn put(&mut self, line: &[u8]) -> bool {
        let written = self.out.write_all(line).and_then(|()| self.out.flush());
        if let Err(error) = &written
            && !self.is_failing
        {
            (self.report)(error);
        }
        self.is_failing = written.is_err();
        !self.is_failing
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        let _ = self.done.recv_timeout(DRAIN_TIMEOUT);
        let Counts { waiting, dropped, .. } = &*self.counts;
        let missing = waiting.load(Ordering::Relaxed) + dropped.load(Ordering::Relaxed);
        if missing > 0 {
            log(format_args!("{} of output could not be written in time", counted(missing, "line", "lines")));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, atomic::AtomicBool};

    use dwell_testbed::harness::eventually;

    use super::*;

    /// The number of lines that wait at most.
    const MOST: usize = 16;

    /// Starts with an output whose notices are `lost N`, and `end N` at the end.
    fn begin(
        out: impl Write + Send + 'static,
        report: impl FnMut(&io::Error) + Send + 'static,
    ) -> (impl Fn(usize), Drain) {
        let notice = |lost, is_last| Some(format!("{} {lost}\n", if is_last { "end" } else { "lost" }).into_bytes());
        let (lines, drain) = start(out, MOST, report, notice).unwrap();
        (move |number| lines.put(format!("{number}\n").into_bytes()), drain)
    }

    fn lines(read: &Mutex<Vec<u8>>) -> Vec<String> {
        String::from_utf8(read.lock().unwrap().clone()).unwrap().lines().map(str::to_owned).collect()
    }

    /// An output that accepts bytes only while it is allowed to.
    struct Slow {
        gate: Arc<Mutex<()>>,
        read: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _open = self.gate.lock().unwrap();
            self.read.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_stops_is_not_waited_for_and_learns_where_how_many_lines_are_missing() {
        let (gate, read) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(Vec::new())));
        let (put, drain) = begin(Slow { gate: Arc::clone(&gate), read: Arc::clone(&read) }, |_| {});
        let stopped = gate.lock().unwrap();
        let early = MOST + 100;
        (0..early).for_each(&put);
        drop(stopped);
        eventually("the lines that wait are written", || lines(&read).len() >= MOST);
        put(early);
        drop(put);
        drop(drain);
        let written = lines(&read);
        let (firsts, [notice, last, end]) = written.split_last_chunk().unwrap();
        // One more line than those that wait may be in the hands of the writer.
        let lost = early - firsts.len();
        assert!((99..=100).contains(&lost), "{lost}");
        assert_eq!([notice, last, end], [&format!("lost {lost}"), &early.to_string(), &format!("end {lost}")]);
        assert!((0..).zip(firsts).all(|(number, line): (usize, _)| *line == number.to_string()), "{firsts:?}");
    }

    #[test]
    fn a_reader_that_never_returns_does_not_keep_the_queue_from_ending() {
        let gate = Arc::new(Mutex::new(()));
        let (put, drain) = begin(Slow { gate: Arc::clone(&gate), read: Arc::default() }, |_| {});
        let _stopped = gate.lock().unwrap();
        (0..2).for_each(&put);
        drop(put);
        assert_eq!(drain.counts.waiting.load(Ordering::Relaxed), 2);
        drop(drain);
    }

    /// A disk that is full while `is_full` is set.
    struct Disk {
        is_full: Arc<AtomicBool>,
        read: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.is_full.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.read.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_is_reported_once_and_what_it_cost_before_anything_that_follows() {
        let (is_full, read) = (Arc::new(AtomicBool::new(true)), Arc::new(Mutex::new(Vec::new())));
        let disk = Disk { is_full: Arc::clone(&is_full), read: Arc::clone(&read) };
        let (sender, reports) = channel();
        let (put, drain) = begin(disk, move |error| sender.send(error.kind()).unwrap());
        (0..3).for_each(&put);
        assert_eq!(reports.recv(), Ok(io::ErrorKind::StorageFull));
        let mut count = 3;
        is_full.store(false, Ordering::SeqCst);
        eventually("a line is written", || {
            put(count);
            count += 1;
            !read.lock().unwrap().is_empty()
        });
        drop(put);
        drop(drain);
        let written = lines(&read);
        let [first, others @ .., end] = &written[..] else { panic!("{written:?}") };
        let lost = count - others.len();
        assert!(lost > 0, "{written:?}");
        assert_eq!([first, end], [&format!("lost {lost}"), &format!("end {lost}")]);
        assert!((lost..).zip(others).all(|(number, line)| *line == number.to_string()), "{written:?}");
        assert!(reports.try_recv().is_err());
    }
}
