//! A client of memcached: as many reads as writes.

use std::{collections::VecDeque, net::SocketAddr, process::Command};

use dwell_testbed::{Error, Guarded, Namespace, Result};
use rand::{RngExt, rngs::Xoshiro256PlusPlus};

use super::{Dialect, Mode, Task, random::generator};

/// Sizes of values in bytes.
const SMALLEST: u64 = 40;
const LARGEST: u64 = 10_000;
/// Keys of each connection. No other connection uses them, so that every read finds what was written.
const KEYS: usize = 100;
/// Requests of a round, where it does not follow from the depth.
const STRETCH: usize = 64;
/// Longest line of an answer.
const LONGEST_LINE: usize = 512;

/// Starts the server and waits until it listens.
pub(super) fn start(namespace: &Namespace, address: SocketAddr) -> Result<Guarded> {
    let configure = |command: &mut Command| {
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        command.args(["-u", "root", "-U", "0", "-t", "2", "-l", &host, "-p", &port]);
    };
    dwell_testbed::workload::serve(namespace, "memcached", configure, "tcp", address.port())
}

/// One connection's side of the talk.
#[derive(Debug)]
pub(super) struct Memcached {
    mode: Mode,
    depth: usize,
    connection: u64,
    random: Xoshiro256PlusPlus,
    /// Length of the value of each key that has been written.
    written: Vec<u64>,
    /// Keys of requests that have been drawn. They are sent in this order, as none waits for another.
    keys: VecDeque<usize>,
    answers: Answers,
}

impl Memcached {
    pub(super) fn new(mode: Mode, depth: usize, seed: u64, connection: u64) -> Self {
        Self {
            mode,
            depth,
            connection,
            random: generator(seed, 5, connection),
            written: Vec::new(),
            keys: VecDeque::new(),
            answers: Answers::default(),
        }
    }

    fn draw(&mut self) -> Task {
        let (class, key) = if self.written.is_empty() || self.random.random_bool(0.5) {
            ("set", self.write())
        } else {
            ("get", self.random.random_range(0..self.written.len()))
        };
        self.keys.push_back(key);
        Task { class, bytes: self.written[key], parent: None }
    }

    fn write(&mut self) -> usize {
        let bytes = self.random.random_range(SMALLEST..=LARGEST);
        let key = self.random.random_range(0..KEYS).min(self.written.len());
        match self.written.get_mut(key) {
            Some(length) => *length = bytes,
            None => self.written.push(bytes),
        }
        key
    }
}

impl Dialect for Memcached {
    fn round(&mut self) -> Vec<Task> {
        let requests = match self.mode {
            Mode::Batch => self.depth,
            Mode::Page | Mode::Window => STRETCH,
        };
        (0..requests).map(|_| self.draw()).collect()
    }

    fn request(&mut self, task: &Task, _id: u64, out: &mut Vec<u8>) {
        let key = self.keys.pop_front().expect("each task was drawn with a key");
        let key = format!("lab-{:04}-{key:02}", self.connection);
        match task.class {
            "get" => out.extend_from_slice(format!("get {key}\r\n").as_bytes()),
            _ => {
                out.extend_from_slice(format!("set {key} 0 0 {}\r\n", task.bytes).as_bytes());
                out.resize(out.len() + task.bytes as usize, b'x');
                out.extend_from_slice(b"\r\n");
            }
        }
    }

    fn answers(&mut self, bytes: &[u8], done: &mut Vec<Option<u64>>) -> Result<()> {
        self.answers.feed(bytes, done)
    }
}

/// Reads answers, one after the other, from pieces as they come.
#[derive(Debug, Default)]
struct Answers {
    line: Vec<u8>,
    /// Of the value that is being read: its length, and what has not come, with the line ends around `END`.
    value: Option<(u64, u64)>,
}

impl Answers {
    fn feed(&mut self, mut piece: &[u8], done: &mut Vec<Option<u64>>) -> Result<()> {
        const REST: u64 = b"\r\nEND\r\n".len() as u64;
        loop {
            if let Some((length, left)) = self.value {
                let here = left.min(piece.len() as u64);
                piece = &piece[here as usize..];
                if here < left {
                    self.value = Some((length, left - here));
                    return Ok(());
                }
                self.value = None;
                done.push(Some(length));
            }
            let Some(end) = piece.iter().position(|&byte| byte == b'\n') else {
                self.line.extend_from_slice(piece);
                return match self.line.len() {
                    ..LONGEST_LINE => Ok(()),
                    _ => Err(Error::invalid("answer", "a line has no end")),
                };
            };
            self.line.extend_from_slice(&piece[..end]);
            piece = &piece[end + 1..];
            let line = std::mem::take(&mut self.line);
            match value_length(line.trim_ascii_end())? {
                Some(length) => self.value = Some((length, length + REST)),
                None => done.push(None),
            }
        }
    }
}

/// Length of the value that follows; None for the answer to a write. A read finds what it asks for, as its client
/// has written it.
fn value_length(line: &[u8]) -> Result<Option<u64>> {
    if line == b"STORED" {
        return Ok(None);
    }
    let parsed = || {
        let text = std::str::from_utf8(line).ok()?;
        let mut words = text.strip_prefix("VALUE ")?.split(' ');
        words.nth(2)?.parse().ok()
    };
    match parsed() {
        Some(length) => Ok(Some(length)),
        None => Err(Error::invalid("answer", String::from_utf8_lossy(line))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn reads_and_writes_are_as_many_and_reads_find_what_was_written_last() {
        let mut client = Memcached::new(Mode::Window, 4, 1, 7);
        let mut written: BTreeMap<String, u64> = BTreeMap::new();
        let (mut reads, mut writes) = (0, 0);
        for _ in 0..50 {
            for task in client.round() {
                let mut request = Vec::new();
                client.request(&task, 0, &mut request);
                let text = String::from_utf8(request).unwrap();
                assert!((SMALLEST..=LARGEST).contains(&task.bytes));
                let words: Vec<&str> = text.lines().next().unwrap().split(' ').collect();
                assert!(words[1].starts_with("lab-0007-"));
                if words[0] == "get" {
                    reads += 1;
                    assert_eq!(written[words[1]], task.bytes);
                } else {
                    writes += 1;
                    assert_eq!(text.lines().nth(1).unwrap().len() as u64, task.bytes);
                    assert_eq!(words[4], task.bytes.to_string());
                    written.insert(words[1].to_owned(), task.bytes);
                }
            }
        }
        assert_eq!(reads + writes, 50 * STRETCH);
        assert!((1_500..1_700).contains(&reads), "{reads}");
        assert!(written.len() > KEYS / 2);
    }

    #[test]
    fn pipelined_answers_are_told_apart_however_they_are_cut() {
        let stream = b"STORED\r\nVALUE lab-0007-01 0 6\r\nEND\r\nx\r\nEND\r\nSTORED\r\nVALUE k 0 1\r\ny\r\nEND\r\n";
        for piece in [1, 2, 7, stream.len()] {
            let mut answers = Answers::default();
            let mut done = Vec::new();
            for bytes in stream.chunks(piece) {
                answers.feed(bytes, &mut done).unwrap();
            }
            assert_eq!(done, [None, Some(6), None, Some(1)], "in pieces of {piece}");
        }
    }

    #[test]
    fn an_error_or_a_missing_value_is_no_answer() {
        for text in ["ERROR\r\n", "END\r\n", "SERVER_ERROR out of memory\r\n", "VALUE k 0\r\n"] {
            let mut done = Vec::new();
            assert!(Answers::default().feed(text.as_bytes(), &mut done).is_err(), "{text}");
        }
    }
}
