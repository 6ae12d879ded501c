//! Key files.

use std::{
    fs::{self, File},
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    agents::{self, AgentKey, HEADER},
    files::{self, hex},
    tokens::{self, Token},
};
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
    /// already, its former key is no longer valid. Returns the file of the key.
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

    /// Makes a token by which an agent can get its key from the collector once, within `lifetime`, and notes it beside a list
    /// of agents, in a file whose name has `.tokens` added.
    ///
    /// # Errors
    ///
    /// [`Error`], if this is not the key of a collector, or a file cannot be read or written.
    pub fn issue_token(&self, name: &AgentName, list: &Path, lifetime: Duration) -> Result<Token, Error> {
        match self {
            Key::Collector(secret) => tokens::issue(secret, name, list, lifetime),
            Key::Agent(_) => Err(Error::NotCollector),
        }
    }

    /// Creates a file with a new random key that only its owner can read. An existing file is not overwritten.
    ///
    /// # Errors
    ///
    /// [`Error::File`], if the file cannot be created; [`Error::KeyExists`], if there is one.
    pub fn create(path: &Path) -> Result<(), Error> {
        files::create(path, &(hex(&rand::random::<[u8; 32]>()) + "\n"), 0o600)
    }
}

/// The key of an agent as its collector has sent it: the content of a file.
pub struct NewKey(String);

impl NewKey {
    pub(crate) fn parse(text: String) -> Option<NewKey> {
        AgentKey::parse(&text).map(|_| NewKey(text))
    }
}

impl std::fmt::Debug for NewKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NewKey")
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
        assert!(matches!(Key::create(&path), Err(Error::KeyExists(_))));
        assert_eq!(secret(&Key::read(&path).unwrap()), secret(&key));
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

/// The file of a key that is about to be asked for. That it can be written is known before a token is used up.
#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    /// Becomes the file once the key is in it, so that there is never half of one.
    new: PathBuf,
    file: File,
}

impl KeyFile {
    /// Prepares a file that only its owner can read.
    ///
    /// # Errors
    ///
    /// [`Error::File`], if its folder does not exist or cannot be written to.
    pub fn prepare(path: &Path) -> Result<KeyFile, Error> {
        let new = files::beside(path, ".new");
        let _ = fs::remove_file(&new);
        let file = files::open_new(&new, 0o600).map_err(|source| files::failed("create", path, source))?;
        Ok(KeyFile { path: path.into(), new, file })
    }

    /// Writes the key.
    ///
    /// # Errors
    ///
    /// [`Error::File`]: a new token is needed then.
    pub fn keep(self, key: &NewKey) -> Result<(), Error> {
        let kept = files::fill(&self.file, &key.0).and_then(|()| fs::rename(&self.new, &self.path));
        kept.map_err(|source| files::failed("write", &self.path, source))
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.new);
    }
}
