//! What a balancer tells, a line each, for a reader that may be slow: it waits for nobody.

use std::{
    io::{self, Write},
    sync::mpsc::{Receiver, TrySendError, channel, sync_channel},
    thread,
    time::Duration,
};

use dwell_balancer::control::Event;
use dwell_records::SCHEMA;
use serde_json::Value;

/// So many lines wait for a reader; those beyond are lost.
const MOST_WAITING: usize = 1024;
/// How long the end waits for a reader.
const LAST: Duration = Duration::from_secs(1);

/// Writes lines while its other half lives. When it goes, it waits a little for those not written yet.
pub(super) struct Lines {
    done: Receiver<()>,
}

impl Lines {
    /// The second half takes events and never waits. That nobody reads them does not end it. What did
    /// not fit is counted, and told by an `lb_lost` as soon as there is room.
    ///
    /// # Errors
    ///
    /// If there can be no thread.
    pub(super) fn start(mut out: impl Write + Send + 'static) -> io::Result<(Lines, impl FnMut(&Event) + 'static)> {
        let (sender, lines) = sync_channel::<String>(MOST_WAITING);
        let (ended, done) = channel();
        thread::Builder::new().name("lines".into()).spawn(move || {
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
            // What is told later than what was lost comes after the word of that.
            let is_full = lost > 0 || matches!(sender.try_send(line(event)), Err(TrySendError::Full(_)));
            lost += u64::from(is_full);
        };
        Ok((Lines { done }, emit))
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = self.done.recv_timeout(LAST);
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

    /// A reader that reads only while it is let.
    struct Slow {
        may: Arc<Mutex<()>>,
        read: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _may = self.may.lock().unwrap();
            self.read.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_stops_is_not_waited_for_and_what_it_missed_is_counted() {
        let (may, read) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(Vec::new())));
        let slow = Slow { may: Arc::clone(&may), read: Arc::clone(&read) };
        let (lines, mut emit) = Lines::start(slow).unwrap();
        let refused = |number: usize| Event::Refused { error: number.to_string() };
        let stopped = may.lock().unwrap();
        let told = MOST_WAITING + 100;
        (0..told).for_each(|number| emit(&refused(number)));
        drop(stopped);
        let written = || {
            let text = String::from_utf8(read.lock().unwrap().clone()).unwrap();
            let parse = |line: &str| serde_json::from_str::<Value>(line).unwrap();
            text.lines().map(parse).collect::<Vec<_>>()
        };
        while written().len() < MOST_WAITING {
            thread::yield_now();
        }
        emit(&refused(told));
        drop(emit);
        drop(lines);
        let written = written();
        // One more than wait may be on its way.
        let (word, last) = (&written[written.len() - 2], &written[written.len() - 1]);
        let lost = told - (written.len() - 2);
        assert!((99..=100).contains(&lost), "{lost}");
        assert_eq!((&word["type"], &word["events"]), (&"lb_lost".into(), &lost.into()));
        assert_eq!(last["error"], told.to_string());
        assert_eq!(last["schema"], SCHEMA);
        let firsts = written.iter().enumerate().take(written.len() - 2);
        for (number, line) in firsts {
            assert_eq!(line["error"], number.to_string());
        }
    }
}
