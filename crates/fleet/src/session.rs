//! The session in which a collector asks an agent's clock.

use dwell_engine::clock::{Key, Session};

use crate::Secret;

/// Derives the session from the secret of a connection, which its two ends know and nobody else.
pub fn clock_session(secret: &Secret) -> Session {
    let mut key = [0; 16];
    key.copy_from_slice(&secret[8..24]);
    let id = secret.first_chunk().map_or(0, |id| u64::from_be_bytes(*id));
    Session { id, key: Key(key) }
}
