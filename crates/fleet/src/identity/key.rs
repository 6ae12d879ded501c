//! Key files.

use std::{
    fmt::Write as _,
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use super::agents::{self, AgentKey, HEADER};
use crate::{Error, wire::AgentName};

/// Minimum length of a key: 32 random bytes in base64.
const MIN_BYTES: usize = 43;
const MAX_BYTES: usize = 4096;

/// The content of a key file.
#[derive(Clone)]
pub enum Key {
    /// The key of a collector, which its agents may share: without leading and trailing white space.
    Collector(Vec<u8>),
    /// The key of one agent.
    Agent(AgentKey),
}

impl Key {
    /// Reads a key file.
    ///
    /// # Errors
    ///
    /// [`Error`], if the file cannot be read, is readable by every user, or holds a key that is too short or too long.
    pub fn read(path: &Path) -> Result<Key, Error> {
        let failed = |source| Error::File { operation: "read", path: path.into(), source };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.permissions().mode() & 0o007 != 0 {
            return Err(Error::KeyExposed { path: path.into() });
        }
        let mut key = Vec::new();
        let read = file.take(MAX_BYTES as u64 + 1).read_to_end(&mut key);
        read.map_err(failed)?;
        if key.len() > MAX_BYTES {
            return Err(Error::KeyTooLong { path: path.into(), max: MAX_BYTES });
        }
        let key = key.trim_ascii().to_vec();
        match key.len() {
            length if length < MIN_BYTES => Err(Error::KeyTooShort { path: path.into(), length, min: MIN_BYTES }),
            _ if key.starts_with(HEADER.as_bytes()) => {
                let parsed = str::from_utf8(&key).ok().and_then(AgentKey::parse);
                parsed.map(Key::Agent).ok_or_else(|| Error::AgentKey { path: path.into() })
            }
            _ => Ok(Key::Collector(key)),
        }
    }

    /// Returns the name of the agent whose key it is.
    pub fn agent(&self) -> Option<&AgentName> {
        match self {
            Key::Collector(_) => None,
            Key::Agent(key) => Some(&key.name),
        }
    }

    /// Makes the key of an agent, as NAME.key beside a list of agents, and adds its name to that list. If it is there
    /// already, its former key is good no longer. Returns the file of the key.
    ///
    /// # Errors
    ///
    /// [`Error`], if this is not the key of a collector, or a file cannot be read or written.
    pub fn enroll(&self, name: &AgentName, list: &Path) -> Result<PathBuf, Error> {
        match self {
            Key::Collector(secret) => agents::enroll(secret, name, list),
            Key::Agent(_) => Err(Error::NotCollector),
        }
    }

    /// Creates a file with a new random key that only its owner can read. An existing file is not overwritten.
    ///
    /// # Errors
    ///
    /// [`Error::File`], if the file cannot be created or already exists.
    pub fn create(path: &Path) -> Result<(), Error> {
        let key: [u8; 32] = rand::random();
        let mut text = String::new();
        for byte in key {
            write!(text, "{byte:02x}").expect("writing to a String cannot fail");
        }
        text.push('\n');
        let write = || -> io::Result<()> {
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()
        };
        write().map_err(|source| Error::File { operation: "create", path: path.into(), source })
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn file(text: &str, mode: u32) -> Result<Key, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        Key::read(&path)
    }

    fn secret(key: &Key) -> &[u8] {
        match key {
            Key::Collector(secret) => secret,
            Key::Agent(_) => panic!("it is an agent's"),
        }
    }

    #[test]
    fn surrounding_white_space_is_not_part_of_a_key() {
        let text = "a".repeat(43);
        let key = file(&format!(" {text}\r\n"), 0o640).unwrap();
        assert_eq!(secret(&key), text.as_bytes());
        assert_eq!(format!("{key:?}"), "Key", "no message contains a key");
    }

    #[test]
    fn keys_that_others_can_read_or_guess_are_refused() {
        let good = "a".repeat(43);
        assert!(matches!(file(&good, 0o644), Err(Error::KeyExposed { .. })));
        let short = file(&format!("{}\n", "a".repeat(42)), 0o600);
        assert!(matches!(short, Err(Error::KeyTooShort { length: 42, .. })));
        let long = file(&"a".repeat(5000), 0o600);
        assert!(matches!(long, Err(Error::KeyTooLong { .. })));
        let none = Key::read(Path::new("/no/such/key"));
        assert!(matches!(none, Err(Error::File { .. })));
    }

    #[test]
    fn a_new_key_is_valid_and_does_not_overwrite_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        Key::create(&path).unwrap();
        let key = Key::read(&path).unwrap();
        assert_eq!(secret(&key).len(), 64);
        assert!(matches!(Key::create(&path), Err(Error::File { .. })));
        assert_eq!(secret(&Key::read(&path).unwrap()), secret(&key));
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
