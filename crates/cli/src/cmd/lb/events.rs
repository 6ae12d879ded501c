//! Writing the events of a balancer as JSON, one object per line. The balancer never waits for a slow reader.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, TrySendError, channel, sync_channel},
    },
    thread,
    time::Duration,
};

use dwell_balancer::control::Event;
use dwell_records::{Source, Status, Verb};
use dwell_socket::clock::realtime_ns;

use super::object;
use crate::{
    source::{cost, host_name},
    statuses,
};

/// The number of lines that wait for a slow reader. Further ones are lost.
const MAX_PENDING: usize = 1024;
/// How long dropping the writer waits for lines that have not been written.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The writer of events. Dropping it waits a short time for lines that have not been written.
pub(super) struct EventWriter {
    done: Receiver<()>,
}

impl EventWriter {
    /// Starts a thread that writes to `out`, and returns a function that queues an event without waiting. An output that
    /// fails does not end it: the first error after a success goes to `report`. Events for which there is no room are
    /// counted, and reported by a status as soon as there is. Once the function is dropped, a last status follows.
    ///
    /// # Errors
    ///
    /// If the thread cannot be started.
    pub(super) fn start(
        out: impl Write + Send + 'static,
        report: impl FnMut(&io::Error) + Send + 'static,
    ) -> io::Result<(EventWriter, impl FnMut(&Event) + 'static)> {
        let (sender, lines) = sync_channel(MAX_PENDING);
        let (ended, done) = channel();
        let lost = Arc::new(AtomicU64::new(0));
        let mut lines_out = Lines { out, report, is_failing: false, lost: Arc::clone(&lost) };
        thread::Builder::new().name("events".into()).spawn(move || {
            lines.iter().for_each(|line| lines_out.write(line));
            lines_out.write_status(true);
            let _ = ended.send(());
        })?;
        let mut is_reported = true;
        let emit = move |event: &Event| {
            is_reported = is_reported || sender.try_send(Line::Status).is_ok();
            // The status must precede any event emitted after the loss.
            if !is_reported || matches!(sender.try_send(Line::Event(line(event))), Err(TrySendError::Full(_))) {
                lost.fetch_add(1, Ordering::Relaxed);
                is_reported = false;
            }
        };
        Ok((EventWriter { done }, emit))
    }
}

/// What waits for the thread that writes.
enum Line {
    Event(Vec<u8>),
    /// Says how many events are missing so far.
    Status,
}

/// The lines as they leave, and what becomes of those that cannot.
struct Lines<W, R> {
    out: W,
    report: R,
    is_failing: bool,
    lost: Arc<AtomicU64>,
}

impl<W: Write, R: FnMut(&io::Error)> Lines<W, R> {
    fn write(&mut self, line: Line) {
        match line {
            Line::Status => drop(self.write_status(false)),
            // What was lost must be known before what follows.
            Line::Event(line) if (self.is_failing && !self.write_status(false)) || !self.put(&line) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
            Line::Event(_) => {}
        }
    }

    fn write_status(&mut self, last: bool) -> bool {
        let line = status(self.lost.load(Ordering::Relaxed), last);
        self.put(&line)
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

impl Drop for EventWriter {
    fn drop(&mut self) {
        let _ = self.done.recv_timeout(DRAIN_TIMEOUT);
    }
}

fn line(event: &Event) -> Vec<u8> {
    object(Some(&jiff::Timestamp::now().to_string()), event).into_bytes()
}

fn status(lost: u64, last: bool) -> Vec<u8> {
    let (verb, time_ns, counters) = (Verb::Lb, Some(realtime_ns()), Vec::new());
    let source = Source { host: Some(host_name()), ..Source::default() };
    statuses::line(&Status { verb, time_ns, last, lost, cost: cost(&[]), counters, verdict: None }, &source)
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, atomic::AtomicBool};

    use serde_json::Value;

    use super::*;

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
    fn a_reader_that_stops_is_not_waited_for_and_lost_events_are_counted() {
        let (gate, read) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(Vec::new())));
        let slow = Slow { gate: Arc::clone(&gate), read: Arc::clone(&read) };
        let (writer, mut emit) = EventWriter::start(slow, |_| {}).unwrap();
        let refused = |number: usize| Event::Refused { reason: number.to_string(), uid: None, pid: None };
        let stopped = gate.lock().unwrap();
        let emitted = MAX_PENDING + 100;
        (0..emitted).for_each(|number| emit(&refused(number)));
        drop(stopped);
        let written = || {
            let text = String::from_utf8(read.lock().unwrap().clone()).unwrap();
            let parse = |line: &str| serde_json::from_str::<Value>(line).unwrap();
            text.lines().map(parse).collect::<Vec<_>>()
        };
        while written().len() < MAX_PENDING {
            thread::yield_now();
        }
        emit(&refused(emitted));
        drop(emit);
        drop(writer);
        let written = written();
        // One more line than those that wait may be in the hands of the writer.
        let [notice, last, end] = written.last_chunk().unwrap();
        let lost = emitted - (written.len() - 3);
        assert!((99..=100).contains(&lost), "{lost}");
        for (status, is_last) in [(notice, false), (end, true)] {
            assert_eq!((&status["type"], &status["schema"]), (&"lb.status".into(), &"dwell/2".into()));
            assert_eq!((&status["lost"], &status["last"]), (&lost.into(), &is_last.into()));
        }
        assert_eq!(last["reason"], emitted.to_string());
        let firsts = written.iter().enumerate().take(written.len() - 3);
        for (number, line) in firsts {
            assert_eq!(line["reason"], number.to_string());
        }
    }
    /// A disk that is full while it is told so.
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
        let (writer, mut emit) = EventWriter::start(disk, move |error| sender.send(error.kind()).unwrap()).unwrap();
        let refused = |number: usize| Event::Refused { reason: number.to_string(), uid: None, pid: None };
        (0..3).for_each(|number| emit(&refused(number)));
        assert_eq!(reports.recv(), Ok(io::ErrorKind::StorageFull));
        // All three have failed once a fourth is written.
        let mut emitted = 3;
        is_full.store(false, Ordering::SeqCst);
        while read.lock().unwrap().is_empty() {
            emit(&refused(emitted));
            emitted += 1;
            thread::yield_now();
        }
        drop(emit);
        drop(writer);
        let text = String::from_utf8(read.lock().unwrap().clone()).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [first, events @ .., end] = &lines[..] else { panic!("{text}") };
        let lost = emitted - events.len();
        assert!(lost > 0, "{text}");
        assert_eq!(
            (&first["type"], &first["lost"], &first["last"]),
            (&"lb.status".into(), &lost.into(), &false.into())
        );
        assert_eq!((&end["type"], &end["lost"], &end["last"]), (&"lb.status".into(), &lost.into(), &true.into()));
        for (number, event) in (lost..).zip(events) {
            assert_eq!(event["reason"], number.to_string(), "{text}");
        }
        assert!(reports.try_recv().is_err());
    }
}
