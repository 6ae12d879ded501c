//! A file with batches of one run: a header, and then records that are appended.
//!
//! Each record, the header too, is the length of its body in four bytes, the first eight bytes of the body's SHA-256, and
//! the body. So a record that was cut off, or is not ours, is recognized. A record without content says that batches were
//! confirmed, through its number.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use ring::digest;
use serde::{Deserialize, Serialize};

use super::Run;
use crate::wire::{self, FrameError, MAX_FRAME_BYTES, Message, RunId, Version};

/// Length and digest of a record.
const HEAD_BYTES: usize = 4 + DIGEST_BYTES;
const DIGEST_BYTES: usize = 8;
/// Longest body of a record: a frame with its number and time.
const MAX_BODY_BYTES: usize = MAX_FRAME_BYTES + 64;

/// A file of batches. It is deleted when none of its batches is needed any more.
#[derive(Debug)]
pub(super) struct Segment {
    path: PathBuf,
    bytes: AtomicU64,
    /// Bytes of the header alone.
    header_bytes: u64,
}

/// The header of a segment.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    run: RunId,
    boot: String,
    /// The number through which batches had been confirmed when the segment was begun.
    confirmed: u64,
}

impl Message for Header {}

/// What a file turned out to be.
pub(super) enum SegmentFile {
    /// A segment, with as many bytes at its end that cannot be read.
    Read(Arc<Segment>, u64),
    /// A segment of a newer dwell, with its size.
    Newer(u64),
    /// A segment of a dwell whose version is not read any more, with its size.
    Older(u64),
    /// None, with its size.
    Damaged(u64),
}

/// A batch in a segment: its number, when it was made in Unix time, and the content of its frame.
type Record<'a> = (u64, i64, &'a [u8]);

impl Segment {
    /// Begins a file that does not exist yet.
    pub(super) fn create(path: PathBuf, run: &Run, confirmed: u64) -> io::Result<(Segment, File)> {
        let header = Header { run: run.id, boot: run.boot.clone(), confirmed };
        let header = wire::encode(Version::NEWEST, &header).ok_or_else(|| io::Error::other("a header is too long"))?;
        let record = record(&header);
        let mut file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(&record).inspect_err(|_| {
            // On a full disk it would be one more file at each attempt.
            let _ = fs::remove_file(&path);
        })?;
        let bytes = record.len() as u64;
        Ok((Segment { path, bytes: bytes.into(), header_bytes: bytes }, file))
    }

    /// Reads a file that an earlier run has left. Calls `each` with each batch that was not confirmed, its number, when it was
    /// made, and the number through which batches of the run were confirmed. What cannot be read at the end is cut off, so that
    /// more can follow.
    pub(super) fn read(
        path: PathBuf,
        mut each: impl FnMut(&Arc<Segment>, &Arc<Run>, u64, Record<'_>),
    ) -> io::Result<SegmentFile> {
        let mut file = File::open(&path)?;
        let length = file.metadata()?.len();
        let Some(body) = next_record(&mut file)? else {
            return Ok(SegmentFile::Damaged(length));
        };
        let version = match wire::version_of(&body) {
            Ok(version) => version,
            Err(FrameError::Version(byte)) if byte > Version::NEWEST.byte() => return Ok(SegmentFile::Newer(length)),
            Err(FrameError::Version(_)) => return Ok(SegmentFile::Older(length)),
            Err(_) => return Ok(SegmentFile::Damaged(length)),
        };
        let Ok(Header { run, boot, confirmed }) = wire::decode(version, &body) else {
            return Ok(SegmentFile::Damaged(length));
        };
        let run = Arc::new(Run { id: run, boot });
        let header_bytes = (HEAD_BYTES + body.len()) as u64;
        let segment = Arc::new(Segment { path, bytes: length.into(), header_bytes });
        let (mut read, mut bodies) = (header_bytes, Vec::new());
        while let Some(body) = next_record(&mut file)? {
            if postcard::from_bytes::<Record<'_>>(&body).is_err() {
                break;
            }
            read += (HEAD_BYTES + body.len()) as u64;
            bodies.push(body);
        }
        let records = || bodies.iter().filter_map(|body| postcard::from_bytes::<Record<'_>>(body).ok());
        let confirmed_here = records().filter(|(_, _, content)| content.is_empty()).map(|(through, ..)| through).max();
        let through = confirmed_here.unwrap_or(0);
        for record in records().filter(|(number, _, content)| *number > through && !content.is_empty()) {
            each(&segment, &run, through.max(confirmed), record);
        }
        let rest = length.saturating_sub(read);
        let is_cut = || OpenOptions::new().write(true).open(&segment.path).and_then(|file| file.set_len(read)).is_ok();
        if rest > 0 && is_cut() {
            segment.bytes.store(read, Ordering::Relaxed);
        }
        Ok(SegmentFile::Read(segment, rest))
    }

    /// Appends a batch; returns the bytes that it takes.
    pub(super) fn append(&self, mut file: &File, (number, made_unix_ns, content): Record<'_>) -> io::Result<u64> {
        let body = postcard::to_extend(&(number, made_unix_ns, content), Vec::new()).map_err(io::Error::other)?;
        let record = record(&body);
        file.write_all(&record)?;
        let bytes = record.len() as u64;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(bytes)
    }

    /// Notes that batches through this number were confirmed; returns the bytes that this takes. If it cannot be written, the file
    /// stays as it is.
    pub(super) fn confirm(&self, file: &File, through: u64) -> io::Result<u64> {
        self.append(file, (through, 0, &[])).inspect_err(|_| {
            let _ = file.set_len(self.bytes());
        })
    }

    /// Whether no record is in the file.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes() <= self.header_bytes
    }

    /// Opens the file to append to it.
    pub(super) fn open(&self) -> io::Result<File> {
        OpenOptions::new().append(true).open(&self.path)
    }

    /// Removes all batches from the file; returns the bytes that it had.
    pub(super) fn clear(&self, file: &File) -> io::Result<u64> {
        file.set_len(self.header_bytes)?;
        Ok(self.bytes.swap(self.header_bytes, Ordering::Relaxed) - self.header_bytes)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Deletes the file.
    pub(super) fn delete(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn record(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("a frame is short");
    let mut record = Vec::with_capacity(HEAD_BYTES + body.len());
    record.extend_from_slice(&length.to_be_bytes());
    record.extend_from_slice(&check(body));
    record.extend_from_slice(body);
    record
}

fn check(body: &[u8]) -> [u8; DIGEST_BYTES] {
    let digest = digest::digest(&digest::SHA256, body);
    *digest.as_ref().first_chunk().expect("a digest has 32 bytes")
}

/// Reads the body of the next record; `None` at the end, and where there is no whole record.
fn next_record(file: &mut File) -> io::Result<Option<Vec<u8>>> {
    let mut head = [0; HEAD_BYTES];
    match file.read_exact(&mut head) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        result => result?,
    }
    let (length, digest) = head.split_first_chunk().expect("the head is longer");
    let length = u32::from_be_bytes(*length) as usize;
    if length > MAX_BODY_BYTES {
        return Ok(None);
    }
    let mut body = Vec::new();
    file.take(length as u64).read_to_end(&mut body)?;
    Ok((body.len() == length && digest == check(&body)).then_some(body))
}
