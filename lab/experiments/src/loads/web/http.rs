//! As much of HTTP/1.1 as client and server of the load need.

use std::fmt::Write as _;

use dwell_testbed::{Error, Result};

use crate::loads::Task;

/// Longest head of a request or an answer.
const LONGEST_HEAD: usize = 4096;

/// A request as the server reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) id: u64,
    pub(super) bytes: u64,
}

/// Appends a request of about 300 bytes: `GET /CLASS/BYTES/ID`, with a browser's usual fields.
pub(super) fn write_request(task: &Task, id: u64, out: &mut Vec<u8>) {
    let Task { class, bytes, .. } = task;
    out.extend_from_slice(
        format!(
            "GET /{class}/{bytes}/{id} HTTP/1.1\r\n\
             Host: server.lab\r\n\
             User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
             Accept: text/html,text/css,application/javascript,image/*;q=0.8\r\n\
             Accept-Language: en-GB,en;q=0.5\r\n\
             Accept-Encoding: identity\r\n\
             Connection: keep-alive\r\n\r\n"
        )
        .as_bytes(),
    );
}

/// The head of an answer.
pub(super) fn answer_head(bytes: u64) -> Vec<u8> {
    let mut head = String::from("HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n");
    let _ = write!(head, "Content-Length: {bytes}\r\n\r\n");
    head.into_bytes()
}

/// Takes the requests that have come in full off the front of what was read.
pub(super) fn take_requests(read: &mut Vec<u8>) -> Result<Vec<Request>> {
    let mut requests = Vec::new();
    let mut taken = 0;
    while let Some(length) = head_length(&read[taken..])? {
        requests.push(request(&read[taken..taken + length])?);
        taken += length;
    }
    read.drain(..taken);
    Ok(requests)
}

fn request(head: &[u8]) -> Result<Request> {
    let parsed = || {
        let line = std::str::from_utf8(head).ok()?.lines().next()?;
        let path = line.strip_prefix("GET /")?.strip_suffix(" HTTP/1.1")?;
        let mut parts = path.split('/').skip(1);
        let bytes = parts.next()?.parse().ok()?;
        let id = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some(Request { id, bytes })
    };
    parsed().ok_or_else(|| {
        let text = String::from_utf8_lossy(head);
        Error::invalid("request", format!("{:?}", text.lines().next()))
    })
}

/// Length of the head at the front, with its empty line; None while it has not come in full.
fn head_length(bytes: &[u8]) -> Result<Option<usize>> {
    let searched = &bytes[..bytes.len().min(LONGEST_HEAD)];
    let end = searched.windows(4).position(|four| four == b"\r\n\r\n");
    match end {
        Some(end) => Ok(Some(end + 4)),
        None if bytes.len() >= LONGEST_HEAD => Err(Error::invalid("head", "it has no end")),
        None => Ok(None),
    }
}

/// Reads answers, one after the other, from pieces as they come.
#[derive(Debug, Default)]
pub(super) struct Answers {
    head: Vec<u8>,
    /// Of the answer whose body is being read: its length, and what has not come.
    body: Option<(u64, u64)>,
}

impl Answers {
    /// Takes a piece, and adds the body's length of each answer that it completes to `done`.
    pub(super) fn feed(&mut self, mut piece: &[u8], done: &mut Vec<Option<u64>>) -> Result<()> {
        loop {
            if let Some((length, left)) = self.body {
                let here = left.min(piece.len() as u64);
                piece = &piece[here as usize..];
                if here < left {
                    self.body = Some((length, left - here));
                    return Ok(());
                }
                self.body = None;
                done.push(Some(length));
            }
            if piece.is_empty() {
                return Ok(());
            }
            let before = self.head.len();
            // Only as much as may be head: a body is never copied.
            let looked_at = piece.len().min(LONGEST_HEAD);
            self.head.extend_from_slice(&piece[..looked_at]);
            let Some(length) = head_length(&self.head)? else {
                return Ok(());
            };
            let body = content_length(&self.head[..length])?;
            piece = &piece[length - before..];
            self.head.clear();
            self.body = Some((body, body));
        }
    }
}

fn content_length(head: &[u8]) -> Result<u64> {
    let parsed = || {
        let text = std::str::from_utf8(head).ok()?;
        let mut lines = text.lines();
        lines.next()?.strip_prefix("HTTP/1.1 200")?;
        let field = |line: &str| line.strip_prefix("Content-Length: ").map(str::to_owned);
        lines.find_map(field)?.parse().ok()
    };
    parsed().ok_or_else(|| Error::invalid("answer", String::from_utf8_lossy(head)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipelined(bodies: &[u64]) -> Vec<u8> {
        let mut stream = Vec::new();
        for &bytes in bodies {
            stream.extend(answer_head(bytes));
            stream.extend(std::iter::repeat_n(b'x', bytes as usize));
        }
        stream
    }

    #[test]
    fn pipelined_answers_are_told_apart_however_they_are_cut() {
        let bodies = [0, 5, 10_000, 1, 0, 4096];
        let stream = pipelined(&bodies);
        for piece in [1, 3, 79, 4096, stream.len()] {
            let mut answers = Answers::default();
            let mut done = Vec::new();
            for bytes in stream.chunks(piece) {
                answers.feed(bytes, &mut done).unwrap();
            }
            assert_eq!(done, bodies.map(Some), "in pieces of {piece}");
        }
    }

    #[test]
    fn an_answer_is_complete_with_its_last_byte() {
        let stream = pipelined(&[1000]);
        let mut answers = Answers::default();
        let mut done = Vec::new();
        answers.feed(&stream[..stream.len() - 1], &mut done).unwrap();
        assert_eq!(done, []);
        answers.feed(&stream[stream.len() - 1..], &mut done).unwrap();
        assert_eq!(done, [Some(1000)]);
    }

    #[test]
    fn an_error_of_the_server_is_no_answer() {
        let refused = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
        assert!(Answers::default().feed(refused, &mut Vec::new()).is_err());
    }

    #[test]
    fn requests_are_read_as_they_were_written() {
        let task = |class, bytes| Task { class, bytes, parent: None };
        let mut stream = Vec::new();
        write_request(&task("html", 11_800), 3, &mut stream);
        assert!((270..330).contains(&stream.len()), "{}", stream.len());
        write_request(&task("image", 1), 4_000_000, &mut stream);
        let mut read = Vec::new();
        let mut requests = Vec::new();
        for piece in stream.chunks(100) {
            read.extend_from_slice(piece);
            requests.extend(take_requests(&mut read).unwrap());
        }
        let expected = [(3, 11_800), (4_000_000, 1)].map(|(id, bytes)| Request { id, bytes });
        assert_eq!(requests, expected);
        assert!(read.is_empty());
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for line in ["POST /html/1/1 HTTP/1.1", "GET /html/1 HTTP/1.1", "GET /html/1/2/3 HTTP/1.1"] {
            let mut read = format!("{line}\r\n\r\n").into_bytes();
            assert!(take_requests(&mut read).is_err(), "{line}");
        }
    }
}
