//! Messages as frames.

use std::io::{self, Read, Write};

use serde::{Serialize, de::DeserializeOwned};

use super::VERSION;

/// A longer frame is refused, before memory is taken for it.
pub const MAX_FRAME_BYTES: usize = 8 << 20;

/// Why there is no message.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The connection failed, or is slow.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It speaks TLS, and did not show that it is one of us.
    #[error("the other side did not show who it is: {0}")]
    Stranger(io::Error),
    /// It ended between two messages.
    #[error("the other side ended the connection")]
    End,
    /// No such frame is sent.
    #[error("a frame of {0} bytes is not taken")]
    Length(usize),
    /// The other side is another dwell.
    #[error("the other side speaks version {0} of the protocol, and this dwell {VERSION}")]
    Version(u8),
    /// A message, but not when it is its turn.
    #[error("the other side speaks out of turn")]
    Turn,
    /// It is no message.
    #[error("what came is no message: {0}")]
    Content(postcard::Error),
}

/// A message as the content of a frame; `None` if it is too long for one.
pub fn encode(message: &impl Serialize) -> Option<Vec<u8>> {
    let bytes = postcard::to_extend(message, vec![VERSION]).ok()?;
    (bytes.len() <= MAX_FRAME_BYTES).then_some(bytes)
}

/// The message of a frame.
///
/// # Errors
///
/// [`FrameError`], if it has none, or one with more behind it.
pub fn decode<M: DeserializeOwned>(content: &[u8]) -> Result<M, FrameError> {
    match content.split_first() {
        None => Err(FrameError::Length(0)),
        Some((&VERSION, bytes)) => match postcard::take_from_bytes(bytes) {
            Ok((message, [])) => Ok(message),
            Ok(_) => Err(FrameError::Length(content.len())),
            Err(error) => Err(FrameError::Content(error)),
        },
        Some((version, _)) => Err(FrameError::Version(*version)),
    }
}

/// Writes a frame, and all of it.
///
/// # Errors
///
/// [`FrameError::Io`], if that fails.
pub fn write(to: &mut impl Write, content: &[u8]) -> Result<(), FrameError> {
    let length = u32::try_from(content.len()).map_err(|_| FrameError::Length(content.len()))?;
    to.write_all(&length.to_be_bytes())?;
    to.write_all(content)?;
    Ok(to.flush()?)
}

/// Reads a frame of at most `most` bytes.
///
/// # Errors
///
/// [`FrameError`], if there is none.
pub fn read(from: &mut impl Read, most: usize) -> Result<Vec<u8>, FrameError> {
    let mut length = [0; 4];
    match from.read(&mut length)? {
        0 => return Err(FrameError::End),
        some => from.read_exact(&mut length[some..])?,
    }
    let length = u32::from_be_bytes(length) as usize;
    if length == 0 || length > most.min(MAX_FRAME_BYTES) {
        return Err(FrameError::Length(length));
    }
    // Memory is taken as bytes come, and not as they are promised.
    let mut content = Vec::new();
    let came = from.take(length as u64).read_to_end(&mut content)?;
    match came == length {
        true => Ok(content),
        false => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
    }
}
