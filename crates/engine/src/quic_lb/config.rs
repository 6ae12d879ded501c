//! Encoding and decoding of connection IDs.

use std::{fmt, ops::Deref};

use thiserror::Error;
use zeroize::Zeroize;

use super::{Load, cipher::Key, native};
use crate::abi;

/// The reason why a layout is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// The rotation has three bits, and 7 marks an ID that cannot be routed.
    #[error("rotation {0}: must be 0 to 6")]
    Rotation(u8),
    /// The length of the server ID is invalid.
    #[error("a server ID of {0} octets: must have 1 to 15")]
    ServerId(u8),
    /// The length of the nonce is invalid.
    #[error("a nonce of {0} octets: must have 4 to 18")]
    Nonce(u8),
    /// Server ID and nonce are too long together.
    #[error("server ID and nonce have {0} octets together: must have at most 19")]
    Together(u8),
}

/// The reason why a connection ID cannot be encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// The server ID does not have the configured length.
    #[error("the server ID has {0} octets where the configuration has {1}")]
    ServerId(usize, u8),
    /// The nonce does not have the configured length.
    #[error("the nonce has {0} octets where the configuration has {1}")]
    Nonce(usize, u8),
}

/// A connection ID of 5 to 20 octets.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    octets: [u8; abi::DWELL_CID_MAX_BYTES as usize],
    bytes: u8,
}

impl ConnectionId {
    fn new(content: &[u8]) -> ConnectionId {
        let mut octets = [0; abi::DWELL_CID_MAX_BYTES as usize];
        octets[..content.len()].copy_from_slice(content);
        ConnectionId { octets, bytes: content.len() as u8 }
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

/// The content of a connection ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded {
    octets: [u8; abi::DWELL_CID_PLAIN_MAX_BYTES as usize],
    server_id_bytes: u8,
    bytes: u8,
}

impl Decoded {
    /// Returns the ID of the server.
    pub fn server_id(&self) -> &[u8] {
        &self.octets[..usize::from(self.server_id_bytes)]
    }

    /// Returns the nonce, which distinguishes the connection IDs of a server.
    pub fn nonce(&self) -> &[u8] {
        &self.octets[usize::from(self.server_id_bytes)..usize::from(self.bytes)]
    }
}

/// The load report of a server in a connection ID of dwell's own layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// 48 bits: seconds since 1970 (32 bits), and a counter that distinguishes the IDs of one second. It never repeats
    /// under a key.
    pub freshness: u64,
    /// The waiting time of a request at the server.
    pub load: Load,
}

impl Stamp {
    /// Encodes the stamp as a word. Of two stamps, the newer one has the larger word.
    pub fn to_word(self) -> u64 {
        self.freshness << 16 | u64::from(self.load.code())
    }

    /// Decodes a word.
    pub fn from_word(word: u64) -> Stamp {
        Stamp { freshness: word >> 16, load: Load::from_code(word as u16) }
    }
}

/// What the beginning of an address-validation token says besides its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenStamp {
    /// 48 bits, as in [`Stamp`]: the time of issue in seconds since 1970, and a counter. It never repeats under a key.
    pub freshness: u64,
    /// For how many minutes the balancer follows the token.
    pub lifetime_minutes: u16,
}

/// The octets at the beginning of a token that a balancer reads.
pub const TOKEN_PREFIX: usize = abi::DWELL_CID_OWN_BYTES as usize;

/// The layout and key of the connection IDs of one rotation. The key is cleared from memory on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    rotation: u8,
    server_id_bytes: u8,
    nonce_bytes: u8,
    is_stamped: bool,
    key: Option<Key>,
}

impl Config {
    /// Creates any layout of the draft. Without a key, connection IDs are not encrypted.
    ///
    /// # Errors
    ///
    /// The draft does not allow this layout.
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
        let mut octets = key;
        let key = octets.map(Key::new);
        octets.zeroize();
        Ok(Config { rotation, server_id_bytes, nonce_bytes, is_stamped: false, key })
    }

    /// Creates dwell's own layout: a server ID of 2 octets, and a nonce of 14 that contains a stamp.
    ///
    /// # Errors
    ///
    /// The rotation is invalid.
    pub fn own(rotation: u8, key: [u8; 16]) -> Result<Config, ConfigError> {
        let mut config =
            Config::new(rotation, abi::DWELL_CID_OWN_SERVER as u8, abi::DWELL_CID_OWN_NONCE as u8, Some(key))?;
        config.is_stamped = true;
        Ok(config)
    }

    /// Returns the rotation: the first three bits of the connection IDs.
    pub fn rotation(&self) -> u8 {
        self.rotation
    }

    /// Returns the length of a server ID in octets.
    pub fn server_id_bytes(&self) -> u8 {
        self.server_id_bytes
    }

    /// Returns the length of a nonce in octets.
    pub fn nonce_bytes(&self) -> u8 {
        self.nonce_bytes
    }

    /// Returns the length of the connection IDs in octets.
    pub fn cid_bytes(&self) -> usize {
        1 + usize::from(self.server_id_bytes) + usize::from(self.nonce_bytes)
    }

    /// Encodes a connection ID. A nonce must not be used twice with a key.
    ///
    /// # Errors
    ///
    /// One of the two does not have the configured length.
    pub fn encode(&self, server_id: &[u8], nonce: &[u8]) -> Result<ConnectionId, EncodeError> {
        if server_id.len() != usize::from(self.server_id_bytes) {
            return Err(EncodeError::ServerId(server_id.len(), self.server_id_bytes));
        }
        if nonce.len() != usize::from(self.nonce_bytes) {
            return Err(EncodeError::Nonce(nonce.len(), self.nonce_bytes));
        }
        let mut cid = [0; abi::DWELL_CID_MAX_BYTES as usize];
        let cid = &mut cid[..self.cid_bytes()];
        let (first, plain) = cid.split_first_mut().expect("no connection ID is empty");
        *first = self.rotation << 5 | plain.len() as u8;
        plain[..server_id.len()].copy_from_slice(server_id);
        plain[server_id.len()..].copy_from_slice(nonce);
        if let Some(key) = &self.key {
            key.seal(plain);
        }
        Ok(ConnectionId::new(cid))
    }

    /// Decodes a connection ID. `None` if its rotation is another one, or it is too short. Decoding with a wrong key is
    /// not detected.
    pub fn decode(&self, cid: &[u8]) -> Option<Decoded> {
        let content = cid.get(..self.cid_bytes()).filter(|cid| cid[0] >> 5 == self.rotation)?;
        let mut decoded = Decoded {
            octets: [0; abi::DWELL_CID_PLAIN_MAX_BYTES as usize],
            server_id_bytes: self.server_id_bytes,
            bytes: self.server_id_bytes + self.nonce_bytes,
        };
        let plain = &mut decoded.octets[..usize::from(decoded.bytes)];
        plain.copy_from_slice(&content[1..]);
        if let Some(key) = &self.key {
            key.open(plain);
        }
        Some(decoded)
    }

    /// Encodes a connection ID of dwell's own layout.
    ///
    /// # Panics
    ///
    /// If the configuration was not created with [`Config::own`].
    pub fn encode_stamped(&self, server: u16, stamp: Stamp) -> ConnectionId {
        self.encode_checked(server, abi::DWELL_CID_CHECK.into(), stamp.to_word())
    }

    /// Encodes the beginning of an address-validation token, by which a balancer sends a client that returns to this
    /// server.
    ///
    /// # Panics
    ///
    /// If the configuration was not created with [`Config::own`].
    pub fn encode_token(&self, server: u16, stamp: TokenStamp) -> [u8; TOKEN_PREFIX] {
        let word = stamp.freshness << 16 | u64::from(stamp.lifetime_minutes);
        let prefix = self.encode_checked(server, abi::DWELL_TOKEN_CHECK, word);
        (*prefix).try_into().expect("the own layout has this length")
    }

    fn encode_checked(&self, server: u16, check: u64, word: u64) -> ConnectionId {
        assert!(self.is_stamped, "only the own layout has a stamp");
        let mut nonce = [0; abi::DWELL_CID_OWN_NONCE as usize];
        nonce[..6].copy_from_slice(&check.to_be_bytes()[2..]);
        nonce[6..].copy_from_slice(&word.to_be_bytes());
        self.encode(&server.to_be_bytes(), &nonce).expect("the own layout has these lengths")
    }

    /// Decodes the server ID and the stamp. `None` if the connection ID does not have dwell's own layout, or was not
    /// made with the key.
    pub fn decode_stamped(&self, cid: &[u8]) -> Option<(u16, Stamp)> {
        let (server, word) = self.decode_checked(cid, abi::DWELL_CID_CHECK.into())?;
        Some((server, Stamp::from_word(word)))
    }

    /// Decodes the server ID and the stamp of a token. `None` if it does not begin with a block of dwell's own layout, or
    /// was not made with the key. It may have expired.
    pub fn decode_token(&self, token: &[u8]) -> Option<(u16, TokenStamp)> {
        let (server, word) = self.decode_checked(token.get(..TOKEN_PREFIX)?, abi::DWELL_TOKEN_CHECK)?;
        Some((server, TokenStamp { freshness: word >> 16, lifetime_minutes: word as u16 }))
    }

    fn decode_checked(&self, cid: &[u8], check: u64) -> Option<(u16, u64)> {
        let first = self.rotation << 5 | 16;
        if !self.is_stamped || cid.len() != self.cid_bytes() || cid[0] != first {
            return None;
        }
        let decoded = self.decode(cid)?;
        let server = u16::from_be_bytes(decoded.server_id().try_into().ok()?);
        let (found, stamp) = decoded.nonce().split_first_chunk::<6>()?;
        let word = u64::from_be_bytes(stamp.try_into().ok()?);
        (found[..] == check.to_be_bytes()[2..]).then_some((server, word))
    }

    /// Returns whether the connection IDs carry a stamp.
    pub fn is_stamped(&self) -> bool {
        self.is_stamped
    }

    /// Converts to the core's format, of the balancer. It has the key, in rounds that a table has made.
    pub fn to_core(&self) -> abi::dwell_cid_config {
        let key = self.key.as_ref().map(Key::octets);
        let mut core = native::config(self.rotation, self.server_id_bytes, self.nonce_bytes, key);
        core.stamped = self.is_stamped.into();
        core
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("rotation", &self.rotation)
            .field("server_id_bytes", &self.server_id_bytes)
            .field("nonce_bytes", &self.nonce_bytes)
            .field("is_encrypted", &self.key.is_some())
            .finish_non_exhaustive()
    }
}
