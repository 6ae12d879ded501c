//! The baseline file: recorded intervals of an earlier run, and their comparison with this one.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::{self, Permissions},
    io::{self, ErrorKind, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use dwell_engine::layers::{
    Segment, SegmentFigures,
    baseline::{Figures, Interval, LEAST_BASELINE, MOST_RECENT, SegmentComparison, compare},
};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use thiserror::Error;

/// Name and version of the file's schema.
const SCHEMA: &str = "dwell.stack-baseline/1";
/// The most intervals that a file holds: the last hour at one second each.
const MOST_RECORDED: usize = 3600;

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
        "{} is not a baseline; name another file, or have it recorded anew with --baseline-record: {why}",
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
        "{} cannot be compared with this run: {difference}; run as it was recorded, or have it recorded anew with \
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
        "no baseline was recorded: it takes {LEAST_BASELINE} intervals of the whole length with bytes, and there were \
         {intervals}; run longer, or with a shorter --interval"
    )]
    TooShort {
        /// Whole intervals with bytes, of the segment that had the most.
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

/// Settings that must be the same in two runs for their figures to be comparable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The name of the host.
    pub host: String,
    /// The length of an interval.
    pub interval_ns: u64,
    /// How many bytes of a connection there are to each stamped one.
    pub sample_bytes: u32,
    /// The port that connections were selected by.
    pub port: Option<u16>,
    /// The rules that connections were selected by.
    pub filter: Vec<String>,
    /// Whether only some processes were watched. Their numbers are not kept: they are others in each run.
    pub by_process: bool,
    /// The cgroup that connections were selected by.
    pub cgroup: Option<PathBuf>,
    /// The shortest time between two stamped bytes of a flow.
    pub sample_interval_ns: Option<u64>,
    /// The hooks that stamp, by layer.
    pub hooks: BTreeMap<String, Option<String>>,
}

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct File {
    schema: String,
    /// When the recording ended.
    time: String,
    #[serde(flatten)]
    settings: Settings,
    /// By segment, oldest first.
    intervals: Vec<BTreeMap<String, Row>>,
}

/// Count, and p50, p99 and mean in nanoseconds.
type Row = (u64, Option<u64>, Option<u64>, Option<u64>);

/// A baseline that is being recorded or compared with.
pub enum Baseline {
    /// There was none: this run becomes it.
    Record(Recording),
    /// There is one.
    Compare(Comparison),
}

/// A baseline that is being recorded.
pub struct Recording {
    path: PathBuf,
    /// Made at the start, so that a folder without write permission is reported then.
    file: NamedTempFile,
    settings: Settings,
    intervals: VecDeque<Interval>,
}

/// A run that is being compared with a baseline.
pub struct Comparison {
    baseline: Vec<Interval>,
    recent: VecDeque<Interval>,
    settings: Settings,
    last: Vec<SegmentComparison>,
}

impl Baseline {
    /// Reads the file, or prepares to write it: where there is none, and where `record` asks for a new one.
    pub fn open(path: &Path, record: bool, settings: Settings) -> Result<Baseline, BaselineError> {
        let text = match record {
            true => None,
            false => read(path)?,
        };
        let Some(text) = text else {
            let file = temporary_file_for(path).map_err(|io| BaselineError::Folder { path: path.to_owned(), io })?;
            let path = path.to_owned();
            return Ok(Baseline::Record(Recording { path, file, settings, intervals: VecDeque::new() }));
        };
        let (recorded, baseline) =
            parse(&text).map_err(|why| BaselineError::NotBaseline { path: path.to_owned(), why })?;
        if let Some(difference) = difference(&recorded, &settings) {
            return Err(BaselineError::Settings { path: path.to_owned(), difference });
        }
        Ok(Baseline::Compare(Comparison { baseline, recent: VecDeque::new(), settings, last: Vec::new() }))
    }

    /// Adds an interval of this run. Returns how the segments compare with the baseline, where there is one. An
    /// interval that was cut short is not counted.
    pub fn add(&mut self, segments: &[SegmentFigures], length: Duration) -> Option<&[SegmentComparison]> {
        let with_bytes = segments.iter().filter(|one| one.histogram.count() > 0);
        let interval: Interval = with_bytes.map(|one| (one.segment, Figures::from(&one.histogram))).collect();
        let is_whole = |settings: &Settings| length.as_nanos() * 10 >= u128::from(settings.interval_ns) * 9;
        match self {
            Baseline::Record(recording) => {
                if is_whole(&recording.settings) && !interval.is_empty() {
                    push_within(&mut recording.intervals, interval, MOST_RECORDED);
                }
                None
            }
            Baseline::Compare(comparison) => {
                if is_whole(&comparison.settings) && !interval.is_empty() {
                    push_within(&mut comparison.recent, interval, MOST_RECENT);
                }
                comparison.last = compare(&comparison.baseline, comparison.recent.make_contiguous());
                Some(&comparison.last)
            }
        }
    }
}

impl Recording {
    /// The file that will be written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the file, and returns the number of intervals in it.
    pub fn store(self) -> Result<usize, BaselineError> {
        let Recording { path, mut file, settings, intervals } = self;
        let most = Segment::ALL.iter().map(|segment| known(&intervals, *segment)).max().unwrap_or(0);
        if most < LEAST_BASELINE {
            return Err(BaselineError::TooShort { intervals: most });
        }
        let count = intervals.len();
        let rows = |interval: Interval| {
            let rows = interval
                .into_iter()
                .map(|(segment, Figures { count, ns: [p50, p99, mean] })| (name(segment), (count, p50, p99, mean)));
            rows.collect()
        };
        let content = File {
            schema: SCHEMA.to_owned(),
            time: jiff::Timestamp::now().to_string(),
            settings,
            intervals: intervals.into_iter().map(rows).collect(),
        };
        serde_json::to_vec(&content)
            .map_err(io::Error::from)
            .and_then(|text| file.write_all(&text))
            .and_then(|()| file.as_file().sync_all())
            .and_then(|()| Ok(file.persist(&path).map(drop)?))
            .map_err(|io| BaselineError::Write { path, io })?;
        Ok(count)
    }
}

impl Comparison {
    /// Whether the last comparison named a segment that has shifted.
    pub fn has_shifted(&self) -> bool {
        self.last.iter().any(|one| one.shifted == Some(true))
    }

    /// Names of the segments that could not be compared, as too few intervals had bytes in them.
    pub fn unknown(&self) -> Vec<String> {
        self.last.iter().filter(|one| one.shifted.is_none()).map(|one| name(one.segment)).collect()
    }
}

fn push_within(intervals: &mut VecDeque<Interval>, interval: Interval, most: usize) {
    intervals.push_back(interval);
    if intervals.len() > most {
        intervals.pop_front();
    }
}

/// Reads the file; `None` if there is none.
fn read(path: &Path) -> Result<Option<String>, BaselineError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(io) => Err(BaselineError::Read { path: path.to_owned(), io }),
    }
}

/// Makes a file in the same folder, which replaces `path` when it is complete.
fn temporary_file_for(path: &Path) -> io::Result<NamedTempFile> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    tempfile::Builder::new().prefix(".dwell-baseline-").permissions(Permissions::from_mode(0o644)).tempfile_in(folder)
}

/// Counts the intervals with enough bytes in a segment for its figures to be known.
fn known(intervals: &VecDeque<Interval>, segment: Segment) -> usize {
    let figures = intervals.iter().filter_map(|interval| interval.get(&segment));
    figures.filter(|figures| figures.ns[0].is_some()).count()
}

fn name(segment: Segment) -> String {
    format!("{} {}", segment.direction().name(), segment.name())
}

fn parse(text: &str) -> Result<(Settings, Vec<Interval>), String> {
    #[derive(Deserialize)]
    struct Head {
        schema: String,
    }
    let head: Head = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if head.schema != SCHEMA {
        return Err(format!("its schema is {:?}, and not {SCHEMA:?}", head.schema));
    }
    let file: File = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let intervals = file.intervals.into_iter().map(|interval| {
        let figures = interval.into_iter().map(|(named, (count, p50, p99, mean))| {
            let segment = Segment::ALL.into_iter().find(|segment| name(*segment) == named);
            let segment = segment.ok_or_else(|| format!("{named:?} is not a segment"))?;
            Ok((segment, Figures { count, ns: [p50, p99, mean] }))
        });
        figures.collect()
    });
    Ok((file.settings, intervals.collect::<Result<_, String>>()?))
}

/// Describes the first setting that differs.
fn difference(recorded: &Settings, now: &Settings) -> Option<String> {
    let rules = |filter: &[String]| match filter {
        [] => "none".to_owned(),
        rules => rules.join(" "),
    };
    let port = |port: Option<u16>| port.map_or("all".to_owned(), |port| port.to_string());
    let time = |ns: u64| format!("{:?}", Duration::from_nanos(ns));
    let described = |settings: &Settings| {
        let cgroup = settings.cgroup.as_deref();
        [
            ("the host", settings.host.clone()),
            ("--interval", time(settings.interval_ns)),
            ("--sample-bytes", settings.sample_bytes.to_string()),
            ("--sample-interval", settings.sample_interval_ns.map_or("none".into(), time)),
            ("--port", port(settings.port)),
            ("--filter", rules(&settings.filter)),
            ("--pid", if settings.by_process { "given" } else { "not given" }.into()),
            ("--cgroup", cgroup.map_or("none".into(), |path| path.display().to_string())),
        ]
    };
    let mut pairs = described(recorded).into_iter().zip(described(now));
    if let Some(((what, was), (_, is))) = pairs.find(|(was, is)| was != is) {
        return Some(format!("{what} was {was} and is {is}"));
    }
    let (layer, hook) = now.hooks.iter().find(|(layer, hook)| recorded.hooks.get(*layer) != Some(*hook))?;
    let name_of = |hook: Option<&String>| hook.map_or("none", String::as_str).to_owned();
    let was = recorded.hooks.get(layer).and_then(Option::as_ref);
    Some(format!("the hook of {layer} was {} and is {}", name_of(was), name_of(hook.as_ref())))
}
