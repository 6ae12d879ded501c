//! The file of a baseline: the recorded intervals of an earlier run.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs::{self, Permissions},
    io::{self, ErrorKind, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use dwell_engine::baseline::{Figures, LEAST_BASELINE};
use dwell_fleet::folder_of;
use dwell_records::ShiftKey;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use thiserror::Error;

use super::{Interval, MOST_KEYS, Settings};

/// Name and version of the file's schema.
const SCHEMA: &str = "dwell.baseline/1";
/// The most intervals that a file holds: the last hour at one second each.
const MOST_RECORDED: usize = 3600;
/// The most figures of keys that a file holds, of all its intervals: some 6 MB.
const MOST_FIGURES: usize = 100_000;

/// Why a baseline cannot be read, compared or written.
#[derive(Debug, Error)]
pub enum BaselineError {
    /// There is a file, but it cannot be read.
    #[error("cannot read {}: {io}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        io: io::Error,
    },
    /// The folder does not allow new files.
    #[error("cannot write into the folder of {}: {io}", path.display())]
    Folder {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        io: io::Error,
    },
    /// The file holds something else.
    #[error(
        "{} is not a baseline; name another file, or record it again with --baseline-record: {why}",
        path.display()
    )]
    NotBaseline {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The file was recorded with other settings.
    #[error(
        "{} cannot be compared with this run: {difference}; run as it was recorded, or record it again with \
         --baseline-record",
        path.display()
    )]
    Settings {
        /// The file.
        path: PathBuf,
        /// The first setting that differs.
        difference: String,
    },
    /// The run was too short.
    #[error(
        "no baseline was recorded: it takes {LEAST_BASELINE} intervals of the whole length with 10 or more {samples}, and there \
         were {intervals}; run longer, or with another --interval"
    )]
    TooShort {
        /// What is measured, as in "bytes".
        samples: &'static str,
        /// Whole intervals with samples, of the key that had the most.
        intervals: usize,
    },
    /// The file could not be written.
    #[error("cannot write {}: {io}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        io: io::Error,
    },
}

impl BaselineError {
    /// True if the request was wrong; false if the run has left the baseline incomplete.
    pub fn is_usage(&self) -> bool {
        !matches!(self, BaselineError::TooShort { .. } | BaselineError::Write { .. })
    }
}

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct File {
    schema: String,
    /// When the recording ended.
    time: String,
    settings: BTreeMap<String, String>,
    keys: Vec<ShiftKey>,
    /// Oldest first.
    intervals: Vec<Vec<Row>>,
}

/// A key's place in the list of keys, the count, and p50, p99 and mean in nanoseconds.
type Row = (usize, u64, Option<u64>, Option<u64>, Option<u64>);

/// A baseline that is being recorded.
pub struct Recording {
    path: PathBuf,
    /// Made at the start, so that a folder without write permission is reported then.
    file: NamedTempFile,
    settings: Settings,
    keys: BTreeSet<ShiftKey>,
    intervals: VecDeque<Interval>,
    /// Figures in all intervals.
    figures: usize,
    /// Figures of keys beyond the limit.
    omitted: u64,
}

impl Recording {
    /// Prepares to write a file.
    pub fn new(path: &Path, settings: Settings) -> Result<Recording, BaselineError> {
        let file = temporary_file_for(path).map_err(|io| BaselineError::Folder { path: path.to_owned(), io })?;
        let (keys, intervals) = (BTreeSet::new(), VecDeque::new());
        Ok(Recording { path: path.to_owned(), file, settings, keys, intervals, figures: 0, omitted: 0 })
    }

    /// The file that will be written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds an interval. The oldest one makes room for it if need be.
    pub fn add(&mut self, mut interval: Interval) {
        interval.retain(|key, _| {
            if self.keys.len() < MOST_KEYS && !self.keys.contains(key) {
                self.keys.insert(key.clone());
            }
            let has_room = self.keys.contains(key);
            self.omitted += u64::from(!has_room);
            has_room
        });
        self.figures += interval.len();
        self.intervals.push_back(interval);
        while self.intervals.len() > MOST_RECORDED || self.figures > MOST_FIGURES {
            self.figures -= self.intervals.pop_front().map_or(0, |oldest| oldest.len());
        }
    }

    /// The number of figures that had no room, each of one key in one interval.
    pub fn omitted(&self) -> u64 {
        self.omitted
    }

    /// Writes the file, and returns the number of intervals in it. `samples` is what is measured, for the message.
    pub fn store(self, samples: &'static str) -> Result<usize, BaselineError> {
        let Recording { path, mut file, settings, keys, intervals, .. } = self;
        let most = keys.iter().map(|key| known(&intervals, key)).max().unwrap_or(0);
        if most < LEAST_BASELINE {
            return Err(BaselineError::TooShort { samples, intervals: most });
        }
        let count = intervals.len();
        let keys: Vec<_> = keys.into_iter().collect();
        let row = |(key, Figures { count, ns: [p50, p99, mean] }): (ShiftKey, Figures)| {
            let place = keys.binary_search(&key).expect("the keys of all intervals are kept");
            (place, count, p50, p99, mean)
        };
        let intervals = intervals.into_iter().map(|interval| interval.into_iter().map(row).collect()).collect();
        let content =
            File { schema: SCHEMA.to_owned(), time: dwell_records::now(), settings: settings.named(), keys, intervals };
        serde_json::to_vec(&content)
            .map_err(io::Error::from)
            .and_then(|text| file.write_all(&text))
            .and_then(|()| file.as_file().sync_all())
            .and_then(|()| Ok(file.persist(&path).map(drop)?))
            .map_err(|io| BaselineError::Write { path, io })?;
        Ok(count)
    }
}

/// Reads the intervals of a file that was recorded with these settings; `None` if there is no file.
pub fn read(path: &Path, settings: &Settings) -> Result<Option<Vec<Interval>>, BaselineError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(io) => return Err(BaselineError::Read { path: path.to_owned(), io }),
    };
    let file = parse(&text).map_err(|why| BaselineError::NotBaseline { path: path.to_owned(), why })?;
    if let Some(difference) = settings.difference(&file.settings) {
        return Err(BaselineError::Settings { path: path.to_owned(), difference });
    }
    let intervals = intervals(file).map_err(|why| BaselineError::NotBaseline { path: path.to_owned(), why })?;
    Ok(Some(intervals))
}

/// Makes a file in the same folder, which replaces `path` when it is complete.
fn temporary_file_for(path: &Path) -> io::Result<NamedTempFile> {
    let permissions = Permissions::from_mode(0o644);
    tempfile::Builder::new().prefix(".dwell-baseline-").permissions(permissions).tempfile_in(folder_of(path))
}

/// Counts the intervals with enough samples of a key for its figures to be known.
fn known(intervals: &VecDeque<Interval>, key: &ShiftKey) -> usize {
    let figures = intervals.iter().filter_map(|interval| interval.get(key));
    figures.filter(|figures| figures.ns[0].is_some()).count()
}

fn parse(text: &str) -> Result<File, String> {
    #[derive(Deserialize)]
    struct Head {
        schema: String,
    }
    let head: Head = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if head.schema != SCHEMA {
        return Err(format!("its schema is {:?}, and not {SCHEMA:?}", head.schema));
    }
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// Returns the figures of a file by key.
fn intervals(file: File) -> Result<Vec<Interval>, String> {
    let figures = |(place, count, p50, p99, mean): Row| {
        let key = file.keys.get(place).ok_or_else(|| format!("it has no key {place}"))?;
        Ok((key.clone(), Figures { count, ns: [p50, p99, mean] }))
    };
    file.intervals.into_iter().map(|rows| rows.into_iter().map(figures).collect()).collect()
}
