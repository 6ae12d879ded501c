//! The output of a machine's console.

use std::{
    io::{BufRead, BufReader},
    process::ChildStdout,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// Lines that a process has written to its standard output. Each new line wakes the threads that wait.
#[derive(Debug, Default)]
pub(crate) struct Console {
    written: Mutex<Written>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Written {
    text: String,
    is_over: bool,
}

impl Console {
    /// Reads the output on a thread of its own until the process closes it.
    pub(crate) fn read(from: ChildStdout) -> Arc<Console> {
        let console = Arc::new(Console::default());
        let of_thread = Arc::clone(&console);
        thread::spawn(move || of_thread.fill(from));
        console
    }

    /// Returns the output so far.
    pub(crate) fn text(&self) -> String {
        self.lock().text.clone()
    }

    /// Returns the end of the output, for an error message.
    pub(crate) fn last_lines(&self) -> String {
        let written = self.lock();
        let lines: Vec<_> = written.text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Returns whether the process has closed its output.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Waits until the output contains what is searched for. `None` if it does not within the time, or has ended
    /// before.
    pub(crate) fn wait<T>(&self, patience: Duration, find: impl Fn(&str) -> Option<T>) -> Option<T> {
        self.wait_or(patience, |written| find(&written.text))
    }

    /// Waits until the process has closed its output. Returns whether it did.
    pub(crate) fn wait_for_end(&self, patience: Duration) -> bool {
        self.wait_or(patience, |written| written.is_over.then_some(())).is_some()
    }

    fn wait_or<T>(&self, patience: Duration, find: impl Fn(&Written) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + patience;
        let mut written = self.lock();
        loop {
            if let Some(found) = find(&written) {
                return Some(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if written.is_over || left.is_zero() {
                return None;
            }
            written = self.changed.wait_timeout(written, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn fill(&self, from: ChildStdout) {
        for line in BufReader::new(from).split(b'\n') {
            let Ok(line) = line else { break };
            let line = String::from_utf8_lossy(&line);
            let mut written = self.lock();
            written.text.push_str(line.trim_end_matches('\r'));
            written.text.push('\n');
            self.changed.notify_all();
        }
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
