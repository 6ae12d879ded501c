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
use dwell_records::{Format, Jsonl, Record, Source, Status, Verb};
use dwell_socket::clock::realtime_ns;

use super::object;
use crate::source::{cost, host_name};

/// The number of lines that wait for a slow reader. Further ones are lost.
const MAX_PENDING: usize = 1024;
/// How long dropping the writer waits for lines that have not been written.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The writer of events. Dropping it waits a short time for lines that have not been written.
pub(super) struct EventWriter {
    done: Receiver<()>,
}

impl EventWriter {
    /// Starts a thread that writes to `out`, and returns a function that queues an event without waiting. A closed
    /// output does not end it. Events for which there is no room are counted, and reported by a status as soon as there
    /// is. Once the function is dropped, a last status follows.
    ///
    /// # Errors
    ///
    /// If the thread cannot be started.
    pub(super) fn start(
        mut out: impl Write + Send + 'static,
    ) -> io::Result<(EventWriter, impl FnMut(&Event) + 'static)> {
        let (sender, lines) = sync_channel::<Vec<u8>>(MAX_PENDING);
        let (ended, done) = channel();
        let lost = Arc::new(AtomicU64::new(0));
        let total = Arc::clone(&lost);
        thread::Builder::new().name("events".into()).spawn(move || {
            let mut write = |line: &[u8]| {
                let _ = out.write_all(line).and_then(|()| out.flush());
            };
            lines.iter().for_each(|line| write(&line));
            write(&status(total.load(Ordering::Relaxed), true));
            let _ = ended.send(());
        })?;
        let mut is_reported = true;
        let emit = move |event: &Event| {
            let before = lost.load(Ordering::Relaxed);
            is_reported = is_reported || sender.try_send(status(before, false)).is_ok();
            // The status must precede any event emitted after the loss.
            if !is_reported || matches!(sender.try_send(line(event)), Err(TrySendError::Full(_))) {
                lost.store(before + 1, Ordering::Relaxed);
                is_reported = false;
            }
        };
        Ok((EventWriter { done }, emit))
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
    let mut line = Vec::new();
    let status = Status { verb, time_ns, last, lost, cost: cost(&[]), counters, verdict: None };
    Jsonl::default().write(&Record::Status(&status), &source, &mut line);
    line
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

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
        let (writer, mut emit) = EventWriter::start(slow).unwrap();
        let refused = |number: usize| Event::Refused { reason: number.to_string() };
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
}
