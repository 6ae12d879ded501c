//! The name of the server that a client of TLS asks for: server_name (RFC 6066 section 3) in its ClientHello (RFC 8446
//! section 4.1.2). Where the client encrypts its ClientHello, the name is that of the server in front.
//!
//! Libraries want the whole message. Here one that was captured in part, or has come in part, has a label as soon as the name
//! is there.

use super::{Finding, text};

/// The first word of the label.
pub(super) const WORD: &str = "TLS";
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
/// What a client asks for that names no server, as one that was given an address.
const NO_NAME: &[u8] = b"?";
/// The length of version and random number at the beginning of a ClientHello.
const FIXED: usize = 34;

/// Reads the beginning of a connection, as far as it has come.
pub(super) fn hello(bytes: &[u8]) -> Finding {
    match record(bytes) {
        Ok(name) => name.map_or(Finding::Nothing, |name| Finding::Label(text::label(WORD, name, false))),
        Err(End) => Finding::Unfinished,
    }
}

/// The bytes have ended before what was to be read.
struct End;

/// Returns the name, or [`NO_NAME`] if there is none; `None` if it is not one, or the bytes are not a ClientHello.
fn record(bytes: &[u8]) -> Result<Option<&[u8]>, End> {
    let mut rest = bytes;
    let [content, major, _minor] = *take(&mut rest, 3)? else { return Err(End) };
    if content != HANDSHAKE || major != 3 {
        return Ok(None);
    }
    // A name beyond the first record is not looked for: clients send the message in one.
    let length = number(&mut rest, 2)?;
    let mut rest = &rest[..rest.len().min(length)];
    if number(&mut rest, 1)? != usize::from(CLIENT_HELLO) {
        return Ok(None);
    }
    number(&mut rest, 3)?;
    take(&mut rest, FIXED)?;
    for length_bytes in [1, 2, 1] {
        // The session's ID, cipher suites, and methods of compression.
        let length = number(&mut rest, length_bytes)?;
        take(&mut rest, length)?;
    }
    let mut left = number(&mut rest, 2)?;
    while left >= 4 {
        let kind = number(&mut rest, 2)?;
        let length = number(&mut rest, 2)?;
        if kind == usize::from(SERVER_NAME) {
            number(&mut rest, 2)?;
            let is_host = number(&mut rest, 1)? == usize::from(HOST_NAME);
            let length = number(&mut rest, 2)?;
            let name = take(&mut rest, length)?;
            return Ok((is_host && is_name(name)).then_some(name));
        }
        take(&mut rest, length)?;
        left = left.saturating_sub(4 + length);
    }
    Ok(Some(NO_NAME))
}

fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(byte))
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], End> {
    let (taken, left) = rest.split_at_checked(length).ok_or(End)?;
    *rest = left;
    Ok(taken)
}

fn number(rest: &mut &[u8], bytes: usize) -> Result<usize, End> {
    Ok(take(rest, bytes)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
}
