//! Labels: what the latest request of a flow has asked for, where its first bytes are in clear. They are for people: nothing
//! is measured by them. One thing is decided by what they tell: whether a connection opened with TLS's handshake, which
//! `dwell why` asks whether labels are shown or not.
//!
//! A label never has what an answer brings, nor a query string, a key, or a value of a statement. Nothing of the bytes of
//! others is trusted: each parser reads a bounded part of a payload, and all state is bounded.

mod hpack;
mod http;
mod http2;
mod redis;
mod sql;
mod text;
mod tls;

use std::{ops::Range, sync::Arc};

pub use text::{LONGEST, excerpt, harmless, is_harmless};

use crate::{
    measure::{Endpoint, Protocol},
    names::{DOMAIN, Recent, asked_name},
    rtt::native::Payload,
};

/// Flows whose label is remembered. With at most [`LONGEST`] bytes each they take some 7 MB.
const MAX_FLOWS: usize = 32_768;
/// Directions of connections of which more is to be read, and the bytes that are kept of a message of TLS: with the state of
/// HTTP/2 they take at most 40 KB each.
const MAX_STREAMS: usize = 256;
const MAX_HELLO_BYTES: usize = 8192;

/// What the beginning of a payload tells of a request.
#[derive(Debug, PartialEq, Eq)]
enum Finding {
    /// It is not a request of a known protocol.
    Nothing,
    /// It may be one; more bytes will tell.
    Unfinished,
    /// It asks for what this label says.
    Label(Arc<str>),
}

/// The labels of flows, in bounded memory.
#[derive(Debug)]
pub struct Labels {
    flows: Recent<(Endpoint, Endpoint, Protocol), Arc<str>>,
    streams: Recent<(Endpoint, Endpoint), Stream>,
    requests: u64,
}

/// A direction of a connection of which more is to be read.
#[derive(Debug)]
struct Stream {
    /// The sequence number of what follows.
    next: u32,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// A message of TLS that is not whole yet.
    Hello(Vec<u8>),
    /// A client's end of HTTP/2.
    Http2(Box<http2::Connection>),
}

/// Whether a label is that of the first message of TLS's handshake.
pub fn asks_for_tls(label: &str) -> bool {
    label.starts_with(tls::WORD) && label[tls::WORD.len()..].starts_with(' ')
}

impl Default for Labels {
    fn default() -> Labels {
        Labels { flows: Recent::new(MAX_FLOWS), streams: Recent::new(MAX_STREAMS), requests: 0 }
    }
}

impl Labels {
    /// Takes a payload. Returns the label of its flow if a request begins in it, or ends.
    pub(crate) fn take(&mut self, payload: &Payload<'_>) -> Option<Arc<str>> {
        let label = match payload.protocol {
            Protocol::TCP => self.of_segment(payload)?,
            Protocol::UDP if payload.src.port == DOMAIN || payload.dst.port == DOMAIN => {
                text::label("DNS", asked_name(payload.bytes)?.as_bytes(), false)
            }
            _ => return None,
        };
        self.requests += 1;
        self.flows.insert(flow(&payload.src, &payload.dst, payload.protocol), Arc::clone(&label));
        Some(label)
    }

    /// Reads a segment of TCP.
    fn of_segment(&mut self, payload: &Payload<'_>) -> Option<Arc<str>> {
        if payload.bytes.is_empty() {
            return None;
        }
        /// How far a segment of the same connection may be from the one that is expected.
        const SENT_AGAIN: Range<i32> = -(1 << 24)..0;
        const LOST: i32 = 1 << 24;
        let direction = (payload.src, payload.dst);
        if let Some(stream) = self.streams.remove(&direction) {
            let ahead = payload.seq.wrapping_sub(stream.next) as i32;
            if ahead == 0 {
                return self.go_on(direction, stream.content, payload);
            }
            if SENT_AGAIN.contains(&ahead) {
                self.streams.insert(direction, stream);
                return None;
            }
            if matches!(stream.content, Content::Http2(_)) && (0..LOST).contains(&ahead) {
                return Some(http2::unknown());
            }
        }
        match payload.bytes {
            [0x16, 3, ..] => self.go_on(direction, Content::Hello(Vec::new()), payload),
            bytes if http2::begins(bytes) => self.go_on(direction, Content::Http2(Box::default()), payload),
            bytes => http::request(bytes)
                .or_else(|| redis::request(bytes))
                .or_else(|| sql::postgresql(bytes))
                .or_else(|| sql::mysql(bytes)),
        }
    }

    /// Takes what follows in a direction of a connection, and keeps what is needed of it if more is to be read.
    fn go_on(&mut self, direction: (Endpoint, Endpoint), content: Content, payload: &Payload<'_>) -> Option<Arc<str>> {
        let (label, content) = match content {
            Content::Hello(mut bytes) => {
                bytes.extend(payload.bytes);
                match tls::hello(&bytes) {
                    Finding::Label(label) => (Some(label), None),
                    Finding::Unfinished if payload.is_whole() && bytes.len() <= MAX_HELLO_BYTES => {
                        (None, Some(Content::Hello(bytes)))
                    }
                    Finding::Unfinished | Finding::Nothing => (None, None),
                }
            }
            Content::Http2(mut connection) => {
                let missing = payload.wire_bytes as usize - payload.bytes.len();
                match connection.take(payload.bytes, missing) {
                    Ok(label) => (label, Some(Content::Http2(connection))),
                    Err(http2::Gap) => (Some(http2::unknown()), None),
                }
            }
        };
        if let Some(content) = content {
            let next = payload.seq.wrapping_add(payload.wire_bytes);
            self.streams.insert(direction, Stream { next, content });
        }
        label
    }

    /// Returns what the latest request of a flow has asked for.
    pub fn label(&self, src: &Endpoint, dst: &Endpoint, protocol: Protocol) -> Option<Arc<str>> {
        self.flows.get(&flow(src, dst, protocol)).cloned()
    }

    /// Returns the number of requests that had a label.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Returns the number of flows whose label was forgotten to make room for others.
    pub fn forgotten(&self) -> u64 {
        self.flows.forgotten() + self.streams.forgotten()
    }
}

/// The key of both directions of a flow.
fn flow(src: &Endpoint, dst: &Endpoint, protocol: Protocol) -> (Endpoint, Endpoint, Protocol) {
    if src <= dst { (*src, *dst, protocol) } else { (*dst, *src, protocol) }
}

#[cfg(test)]
mod tests;
