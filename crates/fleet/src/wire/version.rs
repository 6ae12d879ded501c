//! Versions of the protocol, and how two sides agree on one.
//!
//! The side that connects offers all versions that it speaks, as protocols of ALPN (RFC 7301), and the other one takes the newest
//! that it speaks too. Peers from before that offer none, and speak version 3.

use std::fmt;

/// A version of the messages that this dwell reads and writes: the newest one, and that of one release before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Version {
    /// With fewer causes of losses, and without network namespaces and initial sequence numbers.
    V3 = 3,
    /// The newest.
    V4 = 4,
}

impl Version {
    /// All versions, the newest first, as they are offered.
    pub const ALL: [Version; 2] = [Version::V4, Version::V3];
    /// What is written to disk, and to a peer that reads it.
    pub const NEWEST: Version = Version::ALL[0];

    /// Returns the byte by which a frame begins.
    pub fn byte(self) -> u8 {
        self as u8
    }

    /// Returns the version of a frame that begins with this byte, if it is known.
    pub fn of_byte(byte: u8) -> Option<Version> {
        Version::ALL.into_iter().find(|version| version.byte() == byte)
    }

    /// Returns the name of the version in ALPN.
    pub(crate) fn protocol(self) -> &'static [u8] {
        match self {
            Version::V3 => b"dwell-fleet/3",
            Version::V4 => b"dwell-fleet/4",
        }
    }

    /// Returns the version that two sides have agreed on.
    pub(crate) fn of_protocol(protocol: Option<&[u8]>) -> Option<Version> {
        let Some(protocol) = protocol else {
            return Some(Version::V3);
        };
        Version::ALL.into_iter().find(|version| version.protocol() == protocol)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.byte().fmt(f)
    }
}

/// All versions that this dwell speaks, for people to read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spoken;

impl fmt::Display for Spoken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = Version::ALL.map(|version| version.to_string());
        f.write_str(&all.join(" and "))
    }
}
