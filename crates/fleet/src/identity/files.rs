//! Files of keys and of those who have them.

use std::{
    ffi::OsString,
    fmt::Write as _,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use crate::Error;

/// Longest list, in bytes.
const MAX_LIST_BYTES: u64 = 8 << 20;

/// Reads a list.
pub(super) fn read_text(path: &Path) -> Result<String, Error> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_LIST_BYTES).read_to_string(&mut text));
    read.map_err(|source| failed("read", path, source))?;
    Ok(text)
}

/// Returns the folder of a list.
pub(super) fn folder(list: &Path) -> &Path {
    list.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Keeps other processes and threads from changing a list and what is beside it, until the lock is dropped.
pub(super) fn lock(list: &Path) -> Result<File, Error> {
    let folder = folder(list);
    let lock = File::open(folder).and_then(|file| file.lock().map(|()| file));
    lock.map_err(|source| failed("lock", folder, source))
}

/// Creates a file, which must not exist.
pub(super) fn create(path: &Path, text: &str, mode: u32) -> Result<(), Error> {
    write_new(path, text, mode).map_err(|source| failed("create", path, source))
}

/// Replaces a file through another one, so that there is never half of it.
pub(super) fn replace(path: &Path, text: &str, mode: u32) -> Result<(), Error> {
    let mut new = OsString::from(path);
    new.push(".new");
    let new = Path::new(&new);
    let _ = fs::remove_file(new);
    let written = write_new(new, text, mode).and_then(|()| fs::rename(new, path));
    written.map_err(|source| failed("write", path, source))
}

fn write_new(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> Error {
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
