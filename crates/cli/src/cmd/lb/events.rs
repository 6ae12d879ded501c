//! Writing the events of a balancer as JSON, one object per line. The balancer never waits for a slow reader.

use std::{
    io::{self, Write},
    sync::mpsc::{Receiver, TrySendError, channel, sync_channel},
    thread,
    time::Duration,
};

use dwell_balancer::control::Event;
use serde_json::Value;

/// The name and version of the schema of events.
const SCHEMA: &str = "dwell.lb/1";
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
    /// output does not end it. Events for which there is no room are counted, and reported by an `lb_lost` event as
    /// soon as there is.
    ///
    /// # Errors
    ///
    /// If the thread cannot be started.
    pub(super) fn start(
        mut out: impl Write + Send + 'static,
    ) -> io::Result<(EventWriter, impl FnMut(&Event) + 'static)> {
        let (sender, lines) = sync_channel::<String>(MAX_PENDING);
        let (ended, done) = channel();
        thread::Builder::new().name("events".into()).spawn(move || {
            for line in lines {
                let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
            }
            let _ = ended.send(());
        })?;
        let mut lost = 0;
        let emit = move |event: &Event| {
            if lost > 0 && sender.try_send(line(&Event::Lost { events: lost })).is_ok() {
                lost = 0;
            }
            // `lb_lost` must precede any event emitted after the loss.
            let is_full = lost > 0 || matches!(sender.try_send(line(event)), Err(TrySendError::Full(_)));
            lost += u64::from(is_full);
        };
        Ok((EventWriter { done }, emit))
    }
}

impl Drop for EventWriter {
    fn drop(&mut self) {
        let _ = self.done.recv_timeout(DRAIN_TIMEOUT);
    }
}

fn line(event: &Event) -> String {
    let mut line = serde_json::Map::new();
    if let Ok(Value::Object(fields)) = serde_json::to_value(event) {
        line.extend(fields);
    }
    line.insert("schema".into(), SCHEMA.into());
    line.insert("time".into(), jiff::Timestamp::now().to_string().into());
    format!("{}\n", Value::Object(line))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

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
        let refused = |number: usize| Event::Refused { error: number.to_string() };
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
        let (notice, last) = (&written[written.len() - 2], &written[written.len() - 1]);
        let lost = emitted - (written.len() - 2);
        assert!((99..=100).contains(&lost), "{lost}");
        assert_eq!((&notice["type"], &notice["events"]), (&"lb_lost".into(), &lost.into()));
        assert_eq!(last["error"], emitted.to_string());
        assert_eq!(last["schema"], "dwell.lb/1");
        let firsts = written.iter().enumerate().take(written.len() - 2);
        for (number, line) in firsts {
            assert_eq!(line["error"], number.to_string());
        }
    }
}
