//! A file of records that is continued, rotated by size, and reopened after others have moved it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Seek, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{Flush, Sink};

/// When a file makes room for a new one, as FILE.1, which becomes FILE.2 at the next time, and so on.
#[derive(Debug, Clone, Copy)]
pub struct Rotation {
    /// The most bytes of a file; only one that has a single record may be larger.
    pub size_bytes: u64,
    /// The number of old files to keep, from 1.
    pub keep: u32,
}

/// A file that takes whole records. Where the file system takes only a part of what is written, the file ends with the
/// last whole line of it, unless somebody else has written behind that part or cut the file meanwhile: then the file is
/// left as it is.
#[derive(Debug)]
pub struct RecordFile {
    path: PathBuf,
    file: File,
    /// The length after the last write here; `None` of what is not a regular file, such as a pipe.
    length: Option<u64>,
    rotation: Option<Rotation>,
    reopen: Arc<AtomicBool>,
}

impl Sink {
    /// Creates a sink that continues a file, or makes one that only its owner may read. Whenever `reopen` is set, the
    /// next record goes to a new file of the name.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened for writing, or is not a regular file and should be rotated.
    pub fn file(path: &Path, rotation: Option<Rotation>, reopen: Arc<AtomicBool>) -> io::Result<Sink> {
        let file = RecordFile::open(path, rotation, reopen)?;
        Ok(Sink::new(path.display().to_string(), Box::new(file), Flush::Full))
    }
}

fn open(path: &Path) -> io::Result<(File, Option<u64>)> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let about = file.metadata()?;
    Ok((file, about.is_file().then_some(about.len())))
}

impl RecordFile {
    /// Opens a file as [`Sink::file`] does. Unlike a sink, it goes on after an error.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened for writing, or is not a regular file and should be rotated.
    pub fn open(path: &Path, rotation: Option<Rotation>, reopen: Arc<AtomicBool>) -> io::Result<RecordFile> {
        let (file, length) = open(path)?;
        if rotation.is_some() && length.is_none() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "only a regular file can be rotated"));
        }
        Ok(RecordFile { path: path.into(), file, length, rotation, reopen })
    }

    /// How many of these bytes go to one file: the records that this one has room for; if it has none, those that the next one has
    /// room for, and one at least.
    fn portion(&self, bytes: &[u8]) -> usize {
        let Some(rotation) = self.rotation else { return bytes.len() };
        let whole = |room: u64| {
            let room = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
            bytes[..room].iter().rposition(|byte| *byte == b'\n').map(|at| at + 1)
        };
        let left = rotation.size_bytes.saturating_sub(self.length.unwrap_or(0));
        let first = || bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        whole(left).or_else(|| whole(rotation.size_bytes)).unwrap_or_else(first)
    }

    /// Opens the file anew if it was moved, or is to be. If that fails, it is due at the next record: the old file may be
    /// moved or gone.
    fn prepare(&mut self, more: usize) -> io::Result<()> {
        let is_asked = self.reopen.swap(false, Ordering::Relaxed);
        let full = self.rotation.filter(|rotation| {
            self.length.is_some_and(|length| length > 0 && length + more as u64 > rotation.size_bytes)
        });
        if !is_asked && full.is_none() {
            return Ok(());
        }
        let rotated = full.map_or(Ok(()), |rotation| rotate(&self.path, rotation.keep));
        match rotated.and_then(|()| open(&self.path)) {
            Ok(opened) => {
                (self.file, self.length) = opened;
                Ok(())
            }
            Err(error) => {
                self.reopen.store(true, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// Follows a write of `more` bytes behind `contiguous` ones of the same call. Returns how many bytes of the call lie
    /// behind each other now: others may append to the file between two writes, or cut it.
    fn advance(&mut self, contiguous: u64, more: u64) -> io::Result<u64> {
        let Some(before) = self.length else {
            return Ok(0);
        };
        // A file that is appended to is positioned behind the last write, wherever that went.
        let end = self.file.stream_position()?;
        self.length = Some(end);
        Ok(if end == before + more { contiguous + more } else { more })
    }

    /// Removes the last `half` bytes of what was written here, if the file still ends with them.
    fn cut(&mut self, half: u64) -> io::Result<()> {
        match self.length {
            Some(end) if half > 0 && self.file.metadata()?.len() == end => self.file.set_len(end - half),
            _ => Ok(()),
        }
    }
}

impl Write for RecordFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..self.portion(bytes)];
        self.prepare(bytes.len())?;
        let mut written = 0;
        // Bytes of this call that lie behind each other at the end of what was written here.
        let mut contiguous = 0;
        while written < bytes.len() {
            match self.file.write(&bytes[written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(more) => {
                    written += more;
                    contiguous = self.advance(contiguous, more as u64)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let whole = bytes[..written].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                    let half = (written - whole) as u64;
                    // The error that is reported is the one before.
                    let _ = self.cut(half.min(contiguous));
                    // The next call meets the error again, and the caller knows how many lines are there.
                    return if whole > 0 { Ok(whole) } else { Err(error) };
                }
            }
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Moves a file to the first of its old names, and each old one to the next. The last is overwritten.
fn rotate(path: &Path, keep: u32) -> io::Result<()> {
    let old = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    for number in (1..keep).rev() {
        match fs::rename(old(number), old(number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    match fs::rename(path, old(1)) {
        // Somebody else has moved it.
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::SinkError;

    fn sink(path: &Path, rotation: Option<Rotation>) -> (Sink, Arc<AtomicBool>) {
        let reopen = Arc::new(AtomicBool::new(false));
        (Sink::file(path, rotation, Arc::clone(&reopen)).unwrap(), reopen)
    }

    fn write(sink: &mut Sink, text: &str) -> Result<(), SinkError> {
        sink.record(|out| out.extend_from_slice(text.as_bytes()))?;
        sink.flush()
    }

    #[test]
    fn a_file_is_continued_and_only_its_owner_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records");
        for text in ["one\n", "two\n"] {
            write(&mut sink(&path, None).0, text).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_full_file_becomes_the_first_old_one_and_the_oldest_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records");
        let (mut sink, _) = sink(&path, Some(Rotation { size_bytes: 8, keep: 2 }));
        for text in ["one\n", "two\n", "tri\n", "four four four\n", "five\n"] {
            write(&mut sink, text).unwrap();
        }
        let content = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(content("records"), "five\n");
        assert_eq!(content("records.1"), "four four four\n");
        assert_eq!(content("records.2"), "tri\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
        let null = Sink::file(Path::new("/dev/null"), Some(Rotation { size_bytes: 8, keep: 2 }), Arc::default());
        assert!(null.is_err());
    }

    #[test]
    fn records_that_are_written_at_once_are_parted_where_a_file_is_full() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records");
        let (mut sink, _) = sink(&path, Some(Rotation { size_bytes: 8, keep: 5 }));
        write(&mut sink, "one\n").unwrap();
        write(&mut sink, "two\ntri\nfour four four\nfive\nsix\nseven\n").unwrap();
        let content = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let files = ["records.5", "records.4", "records.3", "records.2", "records.1", "records"].map(content);
        assert_eq!(files, ["one\ntwo\n", "tri\n", "four four four\n", "five\n", "six\n", "seven\n"].map(String::from));
    }

    #[test]
    fn a_file_that_was_moved_is_reopened_when_asked() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("records"), folder.path().join("moved"));
        let (mut sink, reopen) = sink(&path, None);
        write(&mut sink, "one\n").unwrap();
        fs::rename(&path, &moved).unwrap();
        write(&mut sink, "two\n").unwrap();
        reopen.store(true, Ordering::Relaxed);
        write(&mut sink, "three\n").unwrap();
        assert_eq!(fs::read_to_string(&moved).unwrap(), "one\ntwo\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "three\n");
    }

    #[test]
    fn a_file_that_cannot_be_reopened_is_at_the_next_record() {
        let folder = tempfile::tempdir().unwrap();
        let (here, away) = (folder.path().join("here"), folder.path().join("away"));
        fs::create_dir(&here).unwrap();
        let path = here.join("records");
        let reopen = Arc::new(AtomicBool::new(false));
        let mut file = RecordFile::open(&path, None, Arc::clone(&reopen)).unwrap();
        file.write_all(b"one\n").unwrap();
        fs::rename(&here, &away).unwrap();
        reopen.store(true, Ordering::Relaxed);
        for _ in 0..2 {
            assert_eq!(file.write(b"lost\n").unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        fs::create_dir(&here).unwrap();
        file.write_all(b"two\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(fs::read_to_string(away.join("records")).unwrap(), "one\n");
    }
}
