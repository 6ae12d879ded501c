//! Requests of HTTP/2 (RFC 9113), and so of gRPC, of which the connection's beginning was seen: each path may stand for an
//! earlier one.

use std::sync::Arc;

use super::{hpack::Decoder, text};

/// What a client begins a connection with (section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// The longest block of headers that is read.
const MAX_BLOCK_BYTES: usize = 8192;

/// Whether a client's end of a connection begins with these bytes.
pub(super) fn begins(bytes: &[u8]) -> bool {
    bytes.starts_with(PREFACE)
}

/// What a client sends on a connection.
#[derive(Debug, Default)]
pub(super) struct Connection {
    has_begun: bool,
    decoder: Decoder,
    /// The beginning of a frame's header.
    header: Vec<u8>,
    frame: Option<Frame>,
    /// The headers of a request that go on.
    block: Vec<u8>,
}

/// A frame that is being read.
#[derive(Debug)]
struct Frame {
    kind: u8,
    flags: u8,
    /// What is still to come of it.
    left: usize,
}

/// Something of the connection is missing, so that it can no longer be followed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gap;

/// The label of a request whose path is not known, because something before it was not captured.
pub(super) fn unknown() -> Arc<str> {
    text::label("HTTP/2", b"?", false)
}

impl Connection {
    /// Takes what follows, from the preface on, and then so many bytes that were not captured. Returns the label of the last
    /// request in it.
    pub(super) fn take(&mut self, bytes: &[u8], missing: usize) -> Result<Option<Arc<str>>, Gap> {
        let mut label = None;
        let frames = if std::mem::replace(&mut self.has_begun, true) { bytes } else { &bytes[PREFACE.len()..] };
        self.frames(frames, &mut label)?;
        self.skip(missing)?;
        Ok(label)
    }

    fn frames(&mut self, mut bytes: &[u8], label: &mut Option<Arc<str>>) -> Result<(), Gap> {
        while !bytes.is_empty() {
            let Some(frame) = &mut self.frame else {
                let (start, rest) = bytes.split_at(bytes.len().min(FRAME_HEADER - self.header.len()));
                self.header.extend(start);
                bytes = rest;
                if let [a, b, c, kind, flags, ..] = self.header[..]
                    && self.header.len() == FRAME_HEADER
                {
                    self.header.clear();
                    let left = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                    self.frame = Some(Frame { kind, flags, left });
                    *label = self.end_frame()?.or(label.take());
                }
                continue;
            };
            let (part, rest) = bytes.split_at(bytes.len().min(frame.left));
            bytes = rest;
            frame.left -= part.len();
            if matches!(frame.kind, HEADERS | CONTINUATION) {
                if self.block.len() + part.len() > MAX_BLOCK_BYTES {
                    return Err(Gap);
                }
                self.block.extend(part);
            }
            *label = self.end_frame()?.or(label.take());
        }
        Ok(())
    }

    /// Passes over bytes that were not captured, which may only be of a frame that labels do not need.
    fn skip(&mut self, missing: usize) -> Result<(), Gap> {
        if missing == 0 {
            return Ok(());
        }
        match &mut self.frame {
            Some(frame) if frame.left >= missing && !matches!(frame.kind, HEADERS | CONTINUATION) => {
                frame.left -= missing;
                self.end_frame().map(drop)
            }
            _ => Err(Gap),
        }
    }

    /// Reads the frame if it has come whole.
    fn end_frame(&mut self) -> Result<Option<Arc<str>>, Gap> {
        let Some(Frame { kind, flags, .. }) = self.frame.take_if(|frame| frame.left == 0) else {
            return Ok(None);
        };
        if !matches!(kind, HEADERS | CONTINUATION) {
            return Ok(None);
        }
        if kind == HEADERS {
            // What is not headers leaves before a continuation comes.
            let padding = if flags & PADDED == 0 { 0 } else { usize::from(*self.block.first().ok_or(Gap)?) };
            let start = usize::from(flags & PADDED != 0) + if flags & PRIORITY == 0 { 0 } else { 5 };
            let end = self.block.len().checked_sub(padding).filter(|end| *end >= start).ok_or(Gap)?;
            self.block.truncate(end);
            self.block.drain(..start);
        }
        if flags & END_HEADERS == 0 {
            return Ok(None);
        }
        let request = self.decoder.block(&self.block).map_err(|_| Gap)?;
        self.block.clear();
        Ok(request.path.map(|path| {
            let method = request.method.unwrap_or_default();
            match std::str::from_utf8(&method) {
                _ if request.is_grpc => text::label("gRPC", &path, false),
                Ok(method) if super::http::METHODS.contains(&method) => text::label(method, &path, false),
                _ => text::label("HTTP/2", &path, false),
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection after its preface.
    fn open() -> Connection {
        Connection { has_begun: true, ..Connection::default() }
    }

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// GET with a path that is not in a table and is not put into one.
    fn get(path: &str) -> Vec<u8> {
        [&[0x82, 0x04, path.len() as u8], path.as_bytes()].concat()
    }

    #[test]
    fn requests_are_found_wherever_the_bytes_are_divided() {
        let padded = [&[3, 0, 0, 0, 0, 16][..], &get("/b"), &[0; 3]].concat();
        let (start, end) = (get("/c")[..2].to_vec(), get("/c")[2..].to_vec());
        let all = [
            frame(4, 0, &[0; 12]),
            frame(HEADERS, END_HEADERS, &get("/a?secret")),
            frame(0, 1, &[0; 300]),
            frame(HEADERS, END_HEADERS | PADDED | PRIORITY, &padded),
            frame(HEADERS, 0, &start),
            frame(CONTINUATION, END_HEADERS, &end),
        ]
        .concat();
        for size in [1, 2, 7, 100, all.len()] {
            let mut connection = open();
            let found = all.chunks(size).filter_map(|part| connection.take(part, 0).unwrap());
            let found: Vec<String> = found.map(|label| label.to_string()).collect();
            // Of several at once the last one counts.
            match size {
                1..=7 => assert_eq!(found, ["GET /a", "GET /b", "GET /c"]),
                _ => assert_eq!(found.last().unwrap(), "GET /c"),
            }
        }
    }

    #[test]
    fn bytes_that_were_not_captured_may_be_missing_from_data_alone() {
        let mut connection = open();
        let data = frame(0, 0, &[0; 300]);
        assert!(connection.take(&data[..20], data.len() - 20).unwrap().is_none());
        assert_eq!(connection.take(&frame(HEADERS, END_HEADERS, &get("/a")), 0).unwrap().as_deref(), Some("GET /a"));
        let headers = frame(HEADERS, END_HEADERS, &get("/a"));
        assert!(connection.take(&headers[..12], headers.len() - 12).is_err());
        assert!(open().take(&data[..20], data.len()).is_err());
    }

    #[test]
    fn endless_headers_are_given_up() {
        let mut connection = open();
        let long = frame(HEADERS, 0, &[0; 5000]);
        assert!(connection.take(&long, 0).is_ok());
        assert!(connection.take(&frame(CONTINUATION, 0, &[0; 5000]), 0).is_err());
    }
}
