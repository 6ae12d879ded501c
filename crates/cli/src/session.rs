//! How a collector may ask an agent's clock.

use dwell_engine::clock::{Key, Session};
use dwell_fleet::Secret;

/// What follows from the secret of their connection: both know it, and nobody else does.
pub fn session(secret: &Secret) -> Session {
    let mut key = [0; 16];
    key.copy_from_slice(&secret[8..24]);
    let id = secret.first_chunk().map_or(0, |id| u64::from_be_bytes(*id));
    Session { id, key: Key(key) }
}
