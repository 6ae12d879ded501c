//! Framing of messages.

use std::{
    borrow::Cow,
    io::{self, Read, Write},
};

use serde::{Serialize, de::DeserializeOwned};

use super::{AgentMessage, Spoken, Version};

/// Maximum length of a frame's content, in bytes. A longer frame is refused before memory is allocated for it.
pub const MAX_FRAME_BYTES: usize = 8 << 20;

/// The place of [`Batch`](super::AgentMessage::Batch) among the messages of an agent.
pub(super) const BATCH_VARIANT: u32 = 1;

/// Bytes of a frame for which memory is taken at once, at the beginning and later: a length alone costs the receiver little.
const PIECE_BYTES: (usize, usize) = (4 << 10, 64 << 10);

/// Why a message cannot be sent or received.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The connection failed, or is slow.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The other side speaks TLS but did not authenticate.
    #[error("the other side did not authenticate: {0}")]
    Unauthenticated(io::Error),
    /// The other side closed the connection between two messages.
    #[error("the other side ended the connection")]
    End,
    /// No valid frame has this length.
    #[error("a frame of {0} bytes is not valid")]
    Length(usize),
    /// A frame is of a version of the protocol that the two sides have not agreed on.
    #[error("the other side speaks version {0} of the protocol, and this dwell {Spoken}")]
    Version(u8),
    /// The two sides have no version of the protocol in common.
    #[error("the other side speaks no version of the protocol that this dwell speaks, which are {Spoken}")]
    NoVersion,
    /// The other side sent a valid message at the wrong time.
    #[error("the other side sent a message out of turn")]
    Turn,
    /// The content of a frame is not a message.
    #[error("a frame does not contain a valid message: {0}")]
    Content(postcard::Error),
    /// More batches than this were not valid.
    #[error("more than {0} of its batches were not valid")]
    Rejected(u32),
}

/// What frames contain.
pub trait Message: Serialize + DeserializeOwned {
    /// Appends the message as it is in a version, which is the same in all unless an implementation says otherwise.
    ///
    /// # Errors
    ///
    /// As postcard.
    fn put(&self, _version: Version, to: Vec<u8>) -> postcard::Result<Vec<u8>> {
        postcard::to_extend(self, to)
    }

    /// Reads a message of a version. Returns the bytes that follow it.
    ///
    /// # Errors
    ///
    /// As postcard.
    fn take(_version: Version, from: &[u8]) -> postcard::Result<(Self, &[u8])> {
        postcard::take_from_bytes(from)
    }
}

/// Encodes a message as the content of a frame. Returns `None` if it is too long for a frame.
pub fn encode(version: Version, message: &impl Message) -> Option<Vec<u8>> {
    let bytes = message.put(version, vec![version.byte()]).ok()?;
    (bytes.len() <= MAX_FRAME_BYTES).then_some(bytes)
}

/// Decodes the message in a frame's content.
///
/// # Errors
///
/// [`FrameError`], if the content is not exactly one message of this version.
pub fn decode<M: Message>(version: Version, content: &[u8]) -> Result<M, FrameError> {
    match content.split_first() {
        None => Err(FrameError::Length(0)),
        Some((byte, bytes)) if *byte == version.byte() => match M::take(version, bytes) {
            Ok((message, [])) => Ok(message),
            Ok(_) => Err(FrameError::Length(content.len())),
            Err(error) => Err(FrameError::Content(error)),
        },
        Some((byte, _)) => Err(FrameError::Version(*byte)),
    }
}

/// Returns the version of a frame that was kept.
///
/// # Errors
///
/// [`FrameError::Version`], if this dwell does not know it.
pub fn version_of(content: &[u8]) -> Result<Version, FrameError> {
    let byte = content.first().ok_or(FrameError::Length(0))?;
    Version::of_byte(*byte).ok_or(FrameError::Version(*byte))
}

/// Returns an agent's message as the content of a frame of a version, whatever version it was encoded in.
///
/// # Errors
///
/// [`FrameError`], if the content is not a message of a version that is known, or is too long in the other one.
pub(crate) fn for_version(version: Version, content: &[u8]) -> Result<Cow<'_, [u8]>, FrameError> {
    let from = version_of(content)?;
    if from == version {
        return Ok(Cow::Borrowed(content));
    }
    let message = decode::<AgentMessage>(from, content)?;
    encode(version, &message).map(Cow::Owned).ok_or(FrameError::Length(MAX_FRAME_BYTES))
}

/// Returns the number of the batch in a frame's content, also if the rest of the batch is not valid; `None` for another
/// message or another version.
pub(crate) fn batch_number(version: Version, content: &[u8]) -> Option<u64> {
    let (byte, bytes) = content.split_first()?;
    if *byte != version.byte() {
        return None;
    }
    // The variant of the message in its enumeration, and the first field of the batch.
    let ((variant, number), _) = postcard::take_from_bytes::<(u32, u64)>(bytes).ok()?;
    (variant == BATCH_VARIANT).then_some(number)
}

/// Writes a frame and flushes it.
///
/// # Errors
///
/// [`FrameError::Io`], if the stream fails.
pub fn write(to: &mut impl Write, content: &[u8]) -> Result<(), FrameError> {
    let length = u32::try_from(content.len()).map_err(|_| FrameError::Length(content.len()))?;
    to.write_all(&length.to_be_bytes())?;
    to.write_all(content)?;
    Ok(to.flush()?)
}

/// Reads the content of a frame of at most `max_bytes`.
///
/// # Errors
///
/// [`FrameError`], if the stream ends or fails, or the frame has a length that is not valid.
pub fn read(from: &mut impl Read, max_bytes: usize) -> Result<Vec<u8>, FrameError> {
    let content = read_within(from, max_bytes, |_, _| true)?;
    Ok(content.expect("nothing is refused"))
}

/// As [`read`], but asks `may_take` for the memory of each piece before it is read, and calls it with 0 before each piece
/// that is skipped. If it is refused, the rest of the frame is skipped, and the result is `None`.
pub fn read_within<R: Read>(
    from: &mut R,
    max_bytes: usize,
    mut may_take: impl FnMut(&mut R, usize) -> bool,
) -> Result<Option<Vec<u8>>, FrameError> {
    let mut length = [0; 4];
    match from.read(&mut length)? {
        0 => return Err(FrameError::End),
        some => from.read_exact(&mut length[some..])?,
    }
    let length = u32::from_be_bytes(length) as usize;
    if length == 0 || length > max_bytes.min(MAX_FRAME_BYTES) {
        return Err(FrameError::Length(length));
    }
    // Memory grows with the bytes that arrive, not with the length that was announced.
    let mut content = Vec::new();
    while content.len() < length {
        let left = length - content.len();
        let piece = left.min(if content.is_empty() { PIECE_BYTES.0 } else { PIECE_BYTES.1 });
        if !may_take(from, piece) {
            drop(content);
            return skip(from, left, may_take).map(|()| None);
        }
        if from.by_ref().take(piece as u64).read_to_end(&mut content)? < piece {
            return Err(cut_off());
        }
    }
    Ok(Some(content))
}

fn skip<R: Read>(from: &mut R, mut left: usize, mut next: impl FnMut(&mut R, usize) -> bool) -> Result<(), FrameError> {
    while left > 0 {
        next(from, 0);
        let piece = left.min(PIECE_BYTES.1);
        if io::copy(&mut from.by_ref().take(piece as u64), &mut io::sink())? < piece as u64 {
            return Err(cut_off());
        }
        left -= piece;
    }
    Ok(())
}

fn cut_off() -> FrameError {
    io::Error::from(io::ErrorKind::UnexpectedEof).into()
}
