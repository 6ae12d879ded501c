//! Files of keys and of those who have them.

use std::{
    fmt::Write as _,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, fchown},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::Error;

/// How long a file may be locked by another process.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_RETRY: Duration = Duration::from_millis(10);
/// Longest list, in bytes: more than lines with the longest names take.
const MAX_LIST_BYTES: u64 = 16 << 20;

/// Reads a list, unless it is too long: with its last lines cut off it would be another.
pub(super) fn read_text(path: &Path) -> Result<String, Error> {
    let mut bytes = Vec::new();
    let read = open_existing(path, OpenOptions::new().read(true), 0)
        .and_then(|file| file.take(MAX_LIST_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|source| failed("read", path, source))?;
    if bytes.len() as u64 > MAX_LIST_BYTES {
        return Err(failed("read", path, io::Error::other(format!("it has more than {MAX_LIST_BYTES} bytes"))));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What tells one version of a file from another, also if only its owner or mode has changed.
pub(super) type FileVersion = (i64, i64, u64, u64);

/// Returns which version of a file is there.
pub(super) fn version(path: &Path) -> io::Result<FileVersion> {
    let metadata = fs::metadata(path)?;
    Ok((metadata.ctime(), metadata.ctime_nsec(), metadata.len(), metadata.ino()))
}

/// Time that it may take to replace files, one after the other.
const REPLACEMENT: Duration = Duration::from_secs(5);

/// The last attempt to read files that may be replaced at any time.
#[derive(Debug)]
pub(super) struct Attempt<V> {
    /// Of which version it was; `None` if a file was missing.
    version: Option<V>,
    at: Instant,
    /// Why it failed, until that is taken.
    pub(super) problem: Option<Error>,
}

impl<V: PartialEq> Attempt<V> {
    pub(super) fn new(version: Option<V>) -> Attempt<V> {
        Attempt { version, at: Instant::now(), problem: None }
    }

    /// Begins another attempt if the files have another version now. Returns whether they have.
    pub(super) fn begin(&mut self, now: Option<V>) -> bool {
        let is_other = now != self.version;
        if is_other {
            *self = Attempt::new(now);
        }
        is_other
    }

    /// Whether it failed, and the time is over in which the files may be about to be replaced.
    pub(super) fn has_failed(&self) -> bool {
        self.problem.is_some() && self.at.elapsed() >= REPLACEMENT
    }

    /// Returns why it failed, once, and only after the time in which the files may be about to be replaced.
    pub(super) fn take_problem(&mut self) -> Option<Error> {
        if self.has_failed() { self.problem.take() } else { None }
    }
}

/// Returns the folder of a list.
pub(super) fn folder(list: &Path) -> &Path {
    list.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Keeps other processes and threads from changing a list and what is beside it, until the lock is dropped. The file of the
/// lock is beside the list, is no stranger's to open, and is not a link: whoever owns the folder could lead root anywhere.
pub(super) fn lock(list: &Path) -> Result<File, Error> {
    let path = beside(list, ".lock");
    let begun = Instant::now();
    let file = match open_as_neighbour(&path, 0o600) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            open_existing(&path, OpenOptions::new().write(true), libc::O_NOFOLLOW)
        }
        opened => opened,
    };
    let lock = file.and_then(|file| {
        while let Err(error) = file.try_lock() {
            match error {
                TryLockError::WouldBlock if begun.elapsed() < LOCK_TIMEOUT => thread::sleep(LOCK_RETRY),
                error => return Err(error.into()),
            }
        }
        Ok(file)
    });
    lock.map_err(|source| failed("lock", &path, source))
}

/// Returns the path of a file beside a list, whose name has an ending more.
pub(super) fn beside(list: &Path, ending: &str) -> PathBuf {
    let mut path = list.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// Creates the file of a key, which must not exist.
pub(super) fn create(path: &Path, text: &str, mode: u32) -> Result<(), Error> {
    let written = open_new(path, mode).and_then(|file| fill(&file, text));
    written.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => Error::KeyExists(path.into()),
        _ => failed("create", path, source),
    })
}

/// Replaces a file through another one, so that there is never half of it.
pub(super) fn replace(path: &Path, text: &str, mode: u32) -> Result<(), Error> {
    let new = beside(path, ".new");
    let _ = fs::remove_file(&new);
    let written =
        open_as_neighbour(&new, mode).and_then(|file| fill(&file, text)).and_then(|()| fs::rename(&new, path));
    written.map_err(|source| failed("write", path, source))
}

/// Opens a file that exists, with these flags of open(2) too. Whatever else is at its path is refused at once, whereas to open a
/// FIFO would wait for its other end.
fn open_existing(path: &Path, options: &mut OpenOptions, flags: i32) -> io::Result<File> {
    match options.custom_flags(flags | libc::O_NONBLOCK).open(path) {
        Ok(file) if file.metadata()?.is_file() => Ok(file),
        Err(error) if !matches!(error.raw_os_error(), Some(libc::ELOOP | libc::ENXIO)) => Err(error),
        _ => Err(io::Error::other("it is not a regular file")),
    }
}

pub(super) fn open_new(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

/// Creates a file that, where root does this, belongs to the owner of its folder: a collector without privileges keeps its
/// list and tokens in a folder of its own, and root adds to them.
fn open_as_neighbour(path: &Path, mode: u32) -> io::Result<File> {
    let file = open_new(path, mode)?;
    let (own, folder) = (file.metadata()?, fs::metadata(folder(path))?);
    if own.uid() == 0 && folder.uid() != 0 {
        fchown(&file, Some(folder.uid()), Some(folder.gid()))?;
    }
    Ok(file)
}

pub(super) fn fill(mut file: &File, text: &str) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

pub(super) fn failed(operation: &'static str, path: &Path, source: io::Error) -> Error {
    Error::File { operation, path: path.into(), source }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok().filter(|_| pair.len() == 2)).collect()
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::symlink, process::Command};

    use super::*;

    #[test]
    fn what_is_not_a_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("agents");
        let path = beside(&list, ".lock");
        let refused = |result: Result<(), Error>| {
            let said = result.unwrap_err().to_string();
            assert!(said.ends_with("it is not a regular file"), "{said}");
        };
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, "").unwrap();
        symlink(&elsewhere, &path).unwrap();
        refused(lock(&list).map(drop));
        fs::remove_file(&path).unwrap();
        for fifo in [&path, &list] {
            assert!(Command::new("mkfifo").arg(fifo).status().unwrap().success());
        }
        refused(lock(&list).map(drop));
        refused(read_text(&list).map(drop));
        fs::remove_file(&path).unwrap();
        drop(lock(&list).unwrap());
        drop(lock(&list).unwrap());
    }
}
