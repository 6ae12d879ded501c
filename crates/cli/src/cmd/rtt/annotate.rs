//! `--annotate FILE`: the capture again, with each round trip as a comment on the packet that completed it.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Write, stdin},
    os::{
        fd::AsFd,
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use anyhow::anyhow;
use dwell_engine::measure::Sample;
use dwell_records::{Flush, Sink};

use crate::exit::Failure;

/// Returns the comment of a sample, with exact times: "dwell: rtt 12.345 ms, tcp-timestamp, base 10.1 ms". The base is
/// what the queueing delay of the sample is counted from.
pub fn comment(sample: &Sample) -> String {
    let handshake = if sample.handshake { ", handshake" } else { "" };
    let (rtt, base) = (milliseconds(sample.rtt_ns), milliseconds(sample.base_ns));
    format!("dwell: rtt {rtt}, {}{handshake}, base {base}", sample.method)
}

fn milliseconds(ns: u64) -> String {
    let digits = format!("{}.{:06}", ns / 1_000_000, ns % 1_000_000);
    format!("{} ms", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// Opens the file `copy` for what is read from `read`, and not from the records in `written`.
///
/// # Errors
///
/// If it is one of these files, or cannot be written.
pub fn open(copy: &Path, read: &Path, written: Option<&Path>) -> Result<Box<dyn Write>, Failure> {
    let refused = |why: &str| Failure::usage(anyhow!("--annotate {}: {why}", copy.display()));
    if copy.as_os_str() == "-" {
        return Err(refused("the copy cannot go to standard output: name a file"));
    }
    let file = BlockFile::open(copy).map_err(|error| refused(&format!("{error}; name a writable file")))?;
    for (other, what) in [(metadata(read), "the capture that is read"), (written.and_then(metadata), "that of --write")]
    {
        if other.is_some_and(|other| file.is(&other)) {
            return Err(refused(&format!("this is {what}: name another file")));
        }
    }
    Ok(Box::new(Blocks(Sink::new(copy.display().to_string(), Box::new(file), Flush::Full))))
}

/// What is known of an open input or output; `None` where it will be told when it is opened.
fn metadata(path: &Path) -> Option<Metadata> {
    match path.as_os_str() == "-" {
        true => File::from(stdin().as_fd().try_clone_to_owned().ok()?).metadata().ok(),
        false => fs::metadata(path).ok(),
    }
}

/// Whole blocks, which go to the file many at a time.
struct Blocks(Sink);

impl Write for Blocks {
    fn write(&mut self, block: &[u8]) -> io::Result<usize> {
        self.0.record(|out| out.extend_from_slice(block)).map_err(io::Error::other)?;
        Ok(block.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(io::Error::other)
    }
}

/// A file of whole blocks: where the file system takes only a part of what is written, that part is cut off again. What
/// the file had before is lost with the first block, and a file that gets none does not remain.
struct BlockFile {
    path: PathBuf,
    file: File,
    is_new: bool,
    /// Whole blocks in bytes; `None` before the first one, and of what is not a regular file.
    length: Option<u64>,
    is_begun: bool,
}

impl BlockFile {
    fn open(path: &Path) -> io::Result<BlockFile> {
        let mut options = OpenOptions::new();
        options.write(true).mode(0o600);
        let (file, is_new) = match options.clone().create_new(true).open(path) {
            Ok(file) => (file, true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                (options.create(true).truncate(false).open(path)?, false)
            }
            Err(error) => return Err(error),
        };
        Ok(BlockFile { path: path.into(), file, is_new, length: None, is_begun: false })
    }

    /// Returns true if `other` is the same regular file.
    fn is(&self, other: &Metadata) -> bool {
        let own = self.file.metadata();
        own.is_ok_and(|own| own.is_file() && (own.dev(), own.ino()) == (other.dev(), other.ino()))
    }

    fn begin(&mut self) -> io::Result<()> {
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
            self.length = Some(0);
        }
        self.is_begun = true;
        Ok(())
    }
}

impl Write for BlockFile {
    fn write(&mut self, blocks: &[u8]) -> io::Result<usize> {
        if !self.is_begun {
            self.begin()?;
        }
        let written = self.file.write_all(blocks);
        match (&mut self.length, &written) {
            (Some(length), Ok(())) => *length += blocks.len() as u64,
            // The error that is reported is the one before.
            (Some(length), Err(_)) => {
                let fitted = self.file.metadata().map_or(0, |file| file.len().saturating_sub(*length));
                *length += whole(blocks, fitted);
                let _ = self.file.set_len(*length);
            }
            (None, _) => {}
        }
        written.map(|()| blocks.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns how many bytes of blocks are in those that a file had room for and are whole.
fn whole(blocks: &[u8], fitted: u64) -> u64 {
    let length = |rest: &[u8]| {
        let bytes = <[u8; 4]>::try_from(rest.get(4..8)?).ok()?;
        // A block has its length at its end too, which shows the order of its bytes.
        let ends = |length: &u32| (*length as usize).checked_sub(4).and_then(|at| rest.get(at..at + 4)) == Some(&bytes);
        [u32::from_le_bytes(bytes), u32::from_be_bytes(bytes)].into_iter().find(ends).map(u64::from)
    };
    let mut end = 0;
    while let Some(next) = length(&blocks[end as usize..]).map(|length| end + length).filter(|next| *next <= fitted) {
        end = next;
    }
    end
}

impl Drop for BlockFile {
    fn drop(&mut self) {
        if self.is_new && !self.is_begun {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_a_file_had_room_for_are_whole_in_either_order_of_bytes() {
        let block = |order: fn(u32) -> [u8; 4]| [&order(6)[..], &order(16), &[0; 4], &order(16)].concat();
        for order in [u32::to_le_bytes, u32::to_be_bytes] {
            let blocks = [block(order), block(order), block(order)].concat();
            assert_eq!([0, 15, 16, 47, 48].map(|fitted| whole(&blocks, fitted)), [0, 0, 16, 32, 48]);
        }
    }

    #[test]
    fn times_are_exact_and_short() {
        for (ns, text) in [
            (12_345_000, "12.345 ms"),
            (10_100_000, "10.1 ms"),
            (20_000_000, "20 ms"),
            (1, "0.000001 ms"),
            (0, "0 ms"),
            (3_600_000_000_001, "3600000.000001 ms"),
        ] {
            assert_eq!(milliseconds(ns), text);
        }
    }
}
