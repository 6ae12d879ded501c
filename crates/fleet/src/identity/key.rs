//! A key that agents and collector share.

use std::{
    fmt::Write as _,
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

use crate::Error;

/// 32 random bytes are as many characters in base64.
const LEAST: usize = 43;
const MOST: usize = 4096;

/// What is in a key file, without the white space around it.
#[derive(Clone)]
pub struct Key(pub(super) Vec<u8>);

impl Key {
    /// Reads a key.
    ///
    /// # Errors
    ///
    /// [`Error`], if it cannot be read, can be read by everybody, or is too short.
    pub fn read(path: &Path) -> Result<Key, Error> {
        let failed = |io| Error::File { doing: "read", path: path.into(), io };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.permissions().mode() & 0o007 != 0 {
            return Err(Error::Exposed { path: path.into() });
        }
        let mut key = Vec::new();
        let read = file.take(MOST as u64 + 1).read_to_end(&mut key);
        read.map_err(failed)?;
        if key.len() > MOST {
            return Err(Error::Long { path: path.into(), most: MOST });
        }
        let key = key.trim_ascii().to_vec();
        match key.len() {
            length if length < LEAST => Err(Error::Short { path: path.into(), length, least: LEAST }),
            _ => Ok(Key(key)),
        }
    }

    /// Makes a file with a new key that its owner alone can read. A file that is there is
    /// left alone.
    ///
    /// # Errors
    ///
    /// [`Error::File`], if it cannot be made, or is there.
    pub fn make(path: &Path) -> Result<(), Error> {
        let key: [u8; 32] = rand::random();
        let mut text = String::new();
        for byte in key {
            write!(text, "{byte:02x}").expect("a String takes all");
        }
        text.push('\n');
        let write = || -> io::Result<()> {
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()
        };
        write().map_err(|io| Error::File { doing: "make", path: path.into(), io })
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

    #[test]
    fn a_key_is_read_without_the_white_space_around_it() {
        let text = "a".repeat(43);
        let key = file(&format!(" {text}\r\n"), 0o640).unwrap();
        assert_eq!(key.0, text.as_bytes());
        assert_eq!(format!("{key:?}"), "Key", "keys are in no message");
    }

    #[test]
    fn keys_that_others_know_or_could_guess_are_refused() {
        let good = "a".repeat(43);
        assert!(matches!(file(&good, 0o644), Err(Error::Exposed { .. })));
        let short = file(&format!("{}\n", "a".repeat(42)), 0o600);
        assert!(matches!(short, Err(Error::Short { length: 42, .. })));
        let long = file(&"a".repeat(5000), 0o600);
        assert!(matches!(long, Err(Error::Long { .. })));
        let none = Key::read(Path::new("/no/such/key"));
        assert!(matches!(none, Err(Error::File { .. })));
    }

    #[test]
    fn a_new_key_is_good_and_replaces_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        Key::make(&path).unwrap();
        let key = Key::read(&path).unwrap();
        assert_eq!(key.0.len(), 64);
        assert!(matches!(Key::make(&path), Err(Error::File { .. })));
        assert_eq!(Key::read(&path).unwrap().0, key.0);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
