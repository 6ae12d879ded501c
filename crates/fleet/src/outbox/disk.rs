//! The part of an outbox that is on disk: segments in a folder, which are deleted as their batches are confirmed.

use std::{
    fs::{self, DirBuilder, File, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Run,
    segment::{Segment, SegmentFile},
};

/// How the names of segments end.
const EXTENSION: &str = "batches";
/// A segment is this part of all of them, at most [`MAX_SEGMENT_BYTES`].
const PARTS: u64 = 16;
const MAX_SEGMENT_BYTES: u64 = 4 << 20;
/// A segment that is not needed any more while batches are still appended is emptied when it has this many bytes: then
/// what a connected agent sends hardly ever reaches the disk.
const CLEAR_BYTES: u64 = 256 << 10;
/// Time between two attempts to write after a failure, and between two calls of fdatasync.
const RETRY: Duration = Duration::from_secs(60);
const SYNC: Duration = Duration::from_secs(5);

/// Why batches cannot be kept on disk.
#[derive(Debug, thiserror::Error)]
pub enum BufferError {
    /// A file or the folder cannot be used.
    #[error("cannot {operation} {}: {source}", path.display())]
    File {
        /// The operation that failed: create, read, lock, move.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another agent uses the folder.
    #[error("another agent uses {}", .0.display())]
    Taken(PathBuf),
    /// Other users could put batches into the folder.
    #[error("other users can write to {}", .0.display())]
    Exposed(PathBuf),
}

/// Bytes in a folder that are not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unread {
    /// They are given up: they were cut off by a power cut, or damaged.
    pub damaged: u64,
    /// A newer dwell wrote them, and reads them when it comes again.
    pub newer: u64,
    /// A dwell wrote them that is so old that this one cannot read them.
    pub older: u64,
}

/// A batch of an earlier run.
pub(super) struct Stored {
    pub(super) run: Arc<Run>,
    /// The number through which batches of the run were confirmed.
    pub(super) confirmed: u64,
    pub(super) number: u64,
    pub(super) made_unix_ns: i64,
    pub(super) content: Arc<[u8]>,
    pub(super) segment: Arc<Segment>,
}

/// Creates a folder if it does not exist, and keeps other agents out of it until the lock is dropped.
pub(super) fn lock(folder: &Path) -> Result<File, BufferError> {
    let failed = |operation, path: &Path| {
        let path = path.to_owned();
        move |source| BufferError::File { operation, path, source }
    };
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed("create", folder))?;
    let mode = fs::metadata(folder).map_err(failed("read", folder))?.permissions().mode();
    if mode & 0o022 != 0 {
        return Err(BufferError::Exposed(folder.into()));
    }
    let path = folder.join("lock");
    let lock = File::options().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let lock = lock.map_err(failed("create", &path))?;
    lock.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => BufferError::Taken(folder.into()),
        TryLockError::Error(source) => failed("lock", &path)(source),
    })?;
    Ok(lock)
}

/// Returns the segments in a folder in their order, with the numbers in their names.
pub(super) fn segments_in(folder: &Path) -> Result<Vec<(u64, PathBuf)>, BufferError> {
    let failed = |source| BufferError::File { operation: "read", path: folder.into(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_segment = path.extension().is_some_and(|extension| extension == EXTENSION);
        let number = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
        found.extend(number.filter(|_| is_segment).map(|number| (number, path)));
    }
    found.sort();
    Ok(found)
}

/// Returns the path of a segment in a folder.
pub(super) fn segment_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:020}.{EXTENSION}"))
}

/// The folder of an outbox.
#[derive(Debug)]
pub(super) struct Disk {
    folder: PathBuf,
    /// Locked as long as this lives.
    _lock: File,
    run: Arc<Run>,
    max_segment_bytes: u64,
    /// The number in the name of the next segment.
    next: u64,
    active: Option<(Arc<Segment>, Arc<File>)>,
    bytes: u64,
    retry: Option<Instant>,
    synced: Instant,
    is_dirty: bool,
    notice: Option<String>,
}

impl Disk {
    /// Creates the folder if it does not exist, and makes sure that nobody else uses it. The segments of this run may
    /// have `max_bytes` together.
    pub(super) fn open(folder: &Path, max_bytes: u64, run: &Arc<Run>) -> Result<Disk, BufferError> {
        let lock = lock(folder)?;
        Ok(Disk {
            folder: folder.into(),
            _lock: lock,
            run: Arc::clone(run),
            max_segment_bytes: MAX_SEGMENT_BYTES.min(max_bytes / PARTS),
            next: 0,
            active: None,
            bytes: 0,
            retry: None,
            synced: Instant::now(),
            is_dirty: false,
            notice: None,
        })
    }

    /// Reads what earlier runs have left, the oldest first, and deletes segments of which no batch is kept. Returns what
    /// is not read.
    pub(super) fn read_earlier(&mut self, mut each: impl FnMut(Stored)) -> Result<Unread, BufferError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| BufferError::File { operation: "read", path, source }
        };
        let (mut unread, mut segments) = (Unread::default(), Vec::new());
        for (number, path) in segments_in(&self.folder)? {
            self.next = number + 1;
            let read = Segment::read(path.clone(), |segment, run, confirmed, (number, made_unix_ns, content)| {
                let (run, segment) = (Arc::clone(run), Arc::clone(segment));
                each(Stored { run, confirmed, number, made_unix_ns, content: content.into(), segment });
            });
            match read.map_err(failed(&path))? {
                SegmentFile::Read(segment, rest) => {
                    segments.push(segment);
                    unread.damaged += rest;
                }
                SegmentFile::Newer(bytes) => unread.newer += bytes,
                SegmentFile::Older(bytes) => unread.older += bytes,
                SegmentFile::Damaged(bytes) => {
                    fs::remove_file(&path).map_err(failed(&path))?;
                    unread.damaged += bytes;
                }
            }
        }
        // Only now is it known which batches have to go again, for want of room in memory.
        for segment in segments {
            self.bytes += segment.bytes();
            self.release(&segment);
        }
        Ok(unread)
    }

    /// Appends a batch; returns where it is, `None` if it cannot be written now.
    pub(super) fn append(
        &mut self,
        number: u64,
        made_unix_ns: i64,
        content: &[u8],
        confirmed: u64,
    ) -> Option<Arc<Segment>> {
        if self.retry.is_some_and(|retry| Instant::now() < retry) {
            return None;
        }
        match self.try_append(number, made_unix_ns, content, confirmed) {
            Ok(segment) => {
                if self.retry.take().is_some() {
                    self.notice = Some(format!("measurements are kept in {} again", self.folder.display()));
                }
                Some(segment)
            }
            Err(error) => {
                self.give_up_for_now(&error);
                None
            }
        }
    }

    fn try_append(&mut self, number: u64, made: i64, content: &[u8], confirmed: u64) -> io::Result<Arc<Segment>> {
        if let Some((segment, _)) = &self.active
            && segment.bytes() >= self.max_segment_bytes
            && let Some((full, _)) = self.active.take()
        {
            self.release(&full);
        }
        if self.active.is_none() {
            let path = segment_path(&self.folder, self.next);
            self.next += 1;
            let (segment, file) = Segment::create(path, &self.run, confirmed)?;
            self.bytes += segment.bytes();
            self.active = Some((Arc::new(segment), Arc::new(file)));
        }
        let (segment, file) = self.active.as_ref().expect("it was just made");
        self.bytes += segment.append(file, (number, made, content))?;
        self.is_dirty = true;
        Ok(Arc::clone(segment))
    }

    /// Stops to write for a while: the disk is full, or fails. What is there stays.
    pub(super) fn give_up_for_now(&mut self, error: &io::Error) {
        if self.retry.is_none() {
            self.notice = Some(format!(
                "cannot keep measurements in {}: {error}; they wait in memory only, and are lost if this agent is killed",
                self.folder.display()
            ));
        }
        self.retry = Some(Instant::now() + RETRY);
        self.is_dirty = false;
        // The last record may be incomplete, and confirmations may follow.
        if let Some((segment, file)) = self.active.take() {
            let _ = file.set_len(segment.bytes());
            self.release(&segment);
        }
    }

    /// Deletes or empties a segment that no batch needs any more, as this was its last one.
    pub(super) fn release(&mut self, segment: &Arc<Segment>) {
        let is_active = self.active.as_ref().is_some_and(|(active, _)| Arc::ptr_eq(active, segment));
        // One reference is the caller's, one is that of the active segment.
        if Arc::strong_count(segment) > 1 + usize::from(is_active) {
            return;
        }
        match &self.active {
            Some((active, file)) if is_active => {
                if active.bytes() >= CLEAR_BYTES.min(self.max_segment_bytes) {
                    self.bytes -= active.clear(file).unwrap_or(0);
                }
                self.is_dirty = false;
            }
            _ => {
                self.bytes = self.bytes.saturating_sub(segment.bytes());
                if let Err(error) = segment.delete() {
                    self.notice = Some(format!("cannot delete {}: {error}", segment.path().display()));
                }
            }
        }
    }

    /// Notes that batches through this number were confirmed, in the segment that had the last of them, unless it is gone: what
    /// stays in it must not be sent again, least of all to another collector. Where that cannot be written, only the same
    /// collector knows what it has.
    pub(super) fn confirm(&mut self, segment: &Arc<Segment>, through: u64) {
        if segment.is_empty() {
            return;
        }
        let active = self.active.as_ref().filter(|(active, _)| Arc::ptr_eq(active, segment));
        let noted = match active {
            Some((_, file)) => segment.confirm(file, through),
            None => segment.open().and_then(|file| segment.confirm(&file, through)),
        };
        self.bytes += noted.unwrap_or(0);
    }

    /// Bytes of all segments.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the file that is to be synced now, if there is one.
    pub(super) fn due_sync(&mut self) -> Option<Arc<File>> {
        if !self.is_dirty || self.synced.elapsed() < SYNC {
            return None;
        }
        self.synced = Instant::now();
        self.is_dirty = false;
        self.active.as_ref().map(|(_, file)| Arc::clone(file))
    }

    /// Returns what people should know, once.
    pub(super) fn take_notice(&mut self) -> Option<String> {
        self.notice.take()
    }
}
