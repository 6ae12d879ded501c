//! How connection IDs of a rotation are made and read.

use std::{fmt, ops::Deref};

use thiserror::Error;
use zerocopy::IntoBytes;
use zeroize::Zeroize;

use super::{Load, native};
use crate::abi;

/// Why there is no such layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// Three bits, of which 7 says that an ID cannot be routed.
    #[error("rotation {0}: must be 0 to 6")]
    Rotation(u8),
    /// Of the server ID.
    #[error("a server ID of {0} octets: must have 1 to 15")]
    ServerId(u8),
    /// Of the nonce.
    #[error("a nonce of {0} octets: must have 4 to 18")]
    Nonce(u8),
    /// Together.
    #[error("server ID and nonce have {0} octets together: must have at most 19")]
    Together(u8),
}

/// Why there is no such connection ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// Of another length than configured.
    #[error("the server ID has {0} octets where the configuration has {1}")]
    ServerId(usize, u8),
    /// Of another length than configured.
    #[error("the nonce has {0} octets where the configuration has {1}")]
    Nonce(usize, u8),
}

/// A connection ID, 5 to 20 octets.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    octets: [u8; abi::DWELL_CID_MAX_BYTES as usize],
    bytes: u8,
}

impl ConnectionId {
    pub(super) fn new(octets: [u8; abi::DWELL_CID_MAX_BYTES as usize], bytes: u32) -> ConnectionId {
        ConnectionId { octets, bytes: bytes as u8 }
    }
}

impl Deref for ConnectionId {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.octets[..usize::from(self.bytes)]
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

/// What is in a connection ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded {
    octets: [u8; abi::DWELL_CID_PLAIN_MAX_BYTES as usize],
    server_id_bytes: u8,
    bytes: u8,
}

impl Decoded {
    /// Whose connection it is.
    pub fn server_id(&self) -> &[u8] {
        &self.octets[..usize::from(self.server_id_bytes)]
    }

    /// What tells its connection IDs apart.
    pub fn nonce(&self) -> &[u8] {
        &self.octets[usize::from(self.server_id_bytes)..usize::from(self.bytes)]
    }
}

/// What a server says in a connection ID of our own layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// 48 bits: seconds since 1970 (32), and a count that tells IDs of a second apart. It never
    /// comes again under a key.
    pub freshness: u64,
    /// How long a request waits there.
    pub load: Load,
}

impl Stamp {
    /// As one word, of which the largest is the newest.
    pub fn to_word(self) -> u64 {
        self.freshness << 16 | u64::from(self.load.code())
    }

    /// Of such a word.
    pub fn from_word(word: u64) -> Stamp {
        Stamp { freshness: word >> 16, load: Load::from_code(word as u16) }
    }
}

/// How connection IDs of one rotation are made. Its key is cleared from memory when it is dropped.
#[derive(Clone)]
pub struct Config(abi::dwell_cid_config);

impl Config {
    /// Any layout of the draft; without a key in the clear.
    ///
    /// # Errors
    ///
    /// If the draft has no such layout.
    pub fn new(
        rotation: u8,
        server_id_bytes: u8,
        nonce_bytes: u8,
        key: Option<[u8; 16]>,
    ) -> Result<Config, ConfigError> {
        if u32::from(rotation) >= abi::DWELL_CID_ROTATIONS {
            return Err(ConfigError::Rotation(rotation));
        }
        if !(1..=15).contains(&server_id_bytes) {
            return Err(ConfigError::ServerId(server_id_bytes));
        }
        if !(4..=18).contains(&nonce_bytes) {
            return Err(ConfigError::Nonce(nonce_bytes));
        }
        let together = server_id_bytes + nonce_bytes;
        if u32::from(together) > abi::DWELL_CID_PLAIN_MAX_BYTES {
            return Err(ConfigError::Together(together));
        }
        let mut key = key;
        let config = native::config(rotation, server_id_bytes, nonce_bytes, key.as_ref());
        key.zeroize();
        Ok(Config(config))
    }

    /// Our own layout: a server ID of 2 octets, a nonce of 14 in which a stamp is.
    ///
    /// # Errors
    ///
    /// If the rotation is none.
    pub fn own(rotation: u8, key: [u8; 16]) -> Result<Config, ConfigError> {
        let mut config =
            Config::new(rotation, abi::DWELL_CID_OWN_SERVER as u8, abi::DWELL_CID_OWN_NONCE as u8, Some(key))?;
        config.0.stamped = 1;
        Ok(config)
    }

    /// The first three bits of its connection IDs.
    pub fn rotation(&self) -> u8 {
        self.0.rotation
    }

    /// Octets of a server ID.
    pub fn server_id_bytes(&self) -> u8 {
        self.0.server_id_bytes
    }

    /// Octets of a nonce.
    pub fn nonce_bytes(&self) -> u8 {
        self.0.nonce_bytes
    }

    /// Octets of its connection IDs.
    pub fn cid_bytes(&self) -> usize {
        1 + usize::from(self.0.server_id_bytes) + usize::from(self.0.nonce_bytes)
    }

    /// A connection ID. A nonce must not come again with a key.
    ///
    /// # Errors
    ///
    /// If one is not as long as configured.
    pub fn encode(&self, server_id: &[u8], nonce: &[u8]) -> Result<ConnectionId, EncodeError> {
        if server_id.len() != usize::from(self.0.server_id_bytes) {
            return Err(EncodeError::ServerId(server_id.len(), self.0.server_id_bytes));
        }
        if nonce.len() != usize::from(self.0.nonce_bytes) {
            return Err(EncodeError::Nonce(nonce.len(), self.0.nonce_bytes));
        }
        Ok(native::encode(&self.0, server_id, nonce))
    }

    /// What is in a connection ID, if its rotation is this one and it is long enough. Whoever has
    /// no key gets something too: only its length says that it is none.
    pub fn decode(&self, cid: &[u8]) -> Option<Decoded> {
        let octets = native::decode(&self.0, cid)?;
        let mut decoded = Decoded {
            octets: [0; abi::DWELL_CID_PLAIN_MAX_BYTES as usize],
            server_id_bytes: self.0.server_id_bytes,
            bytes: self.0.server_id_bytes + self.0.nonce_bytes,
        };
        let most = decoded.octets.len();
        decoded.octets.copy_from_slice(&octets[..most]);
        Some(decoded)
    }

    /// A connection ID of our own layout.
    ///
    /// # Panics
    ///
    /// If the configuration is not of [`Config::own`].
    pub fn encode_stamped(&self, server: u16, stamp: Stamp) -> ConnectionId {
        assert_eq!(self.0.stamped, 1, "only the own layout has a stamp");
        native::encode_stamped(&self.0, server, stamp.to_word())
    }

    /// The server and what it says; none if it is not of our own layout, or nobody with the key
    /// made it.
    pub fn decode_stamped(&self, cid: &[u8]) -> Option<(u16, Stamp)> {
        let first = self.0.rotation << 5 | 16;
        if self.0.stamped == 0 || cid.len() != self.cid_bytes() || cid[0] != first {
            return None;
        }
        let decoded = self.decode(cid)?;
        let server = u16::from_be_bytes(decoded.server_id().try_into().ok()?);
        let (check, stamp) = decoded.nonce().split_first_chunk::<6>()?;
        let word = u64::from_be_bytes(stamp.try_into().ok()?);
        (*check == [0; 6]).then(|| (server, Stamp::from_word(word)))
    }

    /// Whether its connection IDs carry a stamp.
    pub fn is_stamped(&self) -> bool {
        self.0.stamped != 0
    }

    /// As the kernel has it.
    pub fn to_core(&self) -> &abi::dwell_cid_config {
        &self.0
    }
}

impl Drop for Config {
    fn drop(&mut self) {
        self.0.as_mut_bytes().zeroize();
    }
}

impl PartialEq for Config {
    fn eq(&self, other: &Config) -> bool {
        self.0.as_bytes() == other.0.as_bytes()
    }
}

impl Eq for Config {}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("rotation", &self.0.rotation)
            .field("server_id_bytes", &self.0.server_id_bytes)
            .field("nonce_bytes", &self.0.nonce_bytes)
            .field("cipher", &self.0.cipher)
            .finish_non_exhaustive()
    }
}
