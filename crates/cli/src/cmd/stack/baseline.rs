//! `--baseline`: the file, and what is recorded or compared meanwhile.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::{self, Permissions},
    io::{ErrorKind, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow};
use dwell_engine::layers::{
    Segment,
    baseline::{Compared, Figures, Interval, LEAST_BASELINE, MOST_RECENT, compare},
};
use dwell_records::{StackRow, counted};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::{
    exit::{Exit, Failure},
    tell::tell,
};

/// Name and version of the file's schema.
const SCHEMA: &str = "dwell.stack-baseline/1";
/// Of a run without an end, the last ones are kept: an hour of seconds.
const MOST_RECORDED: usize = 3600;

/// What must be the same in two runs, or their figures mean different things.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    pub host: String,
    pub interval_ns: u64,
    pub sample_bytes: u32,
    pub port: Option<u16>,
    pub filter: Vec<String>,
    /// Whether some processes only were looked at; theirs are other numbers each time.
    pub by_process: bool,
    pub cgroup: Option<PathBuf>,
    pub sample_interval_ns: Option<u64>,
    /// By layer.
    pub hooks: BTreeMap<String, Option<String>>,
}

/// The file.
#[derive(Debug, Serialize, Deserialize)]
struct File {
    schema: String,
    /// When the recording ended.
    time: String,
    #[serde(flatten)]
    settings: Settings,
    /// In the order of time, by segment.
    intervals: Vec<BTreeMap<String, Row>>,
}

/// Count, and p50, p99 and mean in nanoseconds.
type Row = (u64, Option<u64>, Option<u64>, Option<u64>);

/// What is done with the intervals of a run.
pub enum Baseline {
    /// There was none: they become it.
    Record {
        path: PathBuf,
        /// Made at the start, so that a folder that takes no file is told then.
        file: NamedTempFile,
        settings: Settings,
        intervals: VecDeque<Interval>,
    },
    /// They are put beside it.
    Compare { baseline: Vec<Interval>, recent: VecDeque<Interval>, settings: Settings, last: Vec<Compared> },
}

impl Baseline {
    /// Reads the file, or gets ready to write it.
    pub fn open(path: &Path, anew: bool, settings: Settings) -> Result<Baseline, Failure> {
        let text = match anew {
            true => None,
            false => read(path).map_err(Failure::usage)?,
        };
        let Some(text) = text else {
            let file = beside(path).map_err(Failure::usage)?;
            tell(format_args!("records a baseline into {}", path.display()));
            return Ok(Baseline::Record { path: path.to_owned(), file, settings, intervals: VecDeque::new() });
        };
        let (recorded, baseline) = parse(&text)
            .with_context(|| {
                format!(
                    "{} is no baseline; name another file, or have it recorded anew with \
                     --baseline-record",
                    path.display()
                )
            })
            .map_err(Failure::usage)?;
        unlike(&recorded, &settings)
            .map_err(|differs| {
                anyhow!(
                    "{} cannot be compared with this run: {differs}; run as it was recorded, or \
                     have it recorded anew with --baseline-record",
                    path.display()
                )
            })
            .map_err(Failure::usage)?;
        Ok(Baseline::Compare { baseline, recent: VecDeque::new(), settings, last: Vec::new() })
    }

    /// Takes an interval that is over. Where there is a baseline, how the segments are
    /// beside it. One that was cut short is no interval.
    pub fn interval(&mut self, rows: &[StackRow], length: Duration) -> Option<&[Compared]> {
        let figures =
            rows.iter().filter(|row| row.histogram.count() > 0).map(|row| (row.segment, Figures::from(&row.histogram)));
        let interval: Interval = figures.collect();
        let is_whole = |settings: &Settings| length.as_nanos() * 10 >= u128::from(settings.interval_ns) * 9;
        match self {
            Baseline::Record { settings, intervals, .. } => {
                if is_whole(settings) && !interval.is_empty() {
                    keep(intervals, interval, MOST_RECORDED);
                }
                None
            }
            Baseline::Compare { baseline, recent, settings, last } => {
                if is_whole(settings) && !interval.is_empty() {
                    keep(recent, interval, MOST_RECENT);
                }
                *last = compare(baseline, recent.make_contiguous());
                Some(last)
            }
        }
    }

    /// Writes what was recorded, or tells by the exit status how the last comparison came
    /// out.
    pub fn finish(self) -> Result<Exit, Failure> {
        match self {
            Baseline::Record { path, file, settings, intervals } => store(&path, file, settings, intervals),
            Baseline::Compare { last, .. } => {
                if last.iter().any(|one| one.shifted == Some(true)) {
                    return Ok(Exit::False);
                }
                let unknown = last.iter().filter(|one| one.shifted.is_none());
                let unknown: Vec<_> = unknown.map(|one| name(one.segment)).collect();
                if unknown.is_empty() {
                    return Ok(Exit::Done);
                }
                tell(format_args!(
                    "not compared with the baseline, as too few intervals had bytes there: {}",
                    unknown.join(", ")
                ));
                Ok(Exit::Incomplete)
            }
        }
    }
}

fn keep(intervals: &mut VecDeque<Interval>, interval: Interval, most: usize) {
    intervals.push_back(interval);
    if intervals.len() > most {
        intervals.pop_front();
    }
}

/// `None` if there is no such file.
fn read(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// A file in the same folder, which takes the place of `path` when it is whole.
fn beside(path: &Path) -> anyhow::Result<NamedTempFile> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    tempfile::Builder::new()
        .prefix(".dwell-baseline-")
        .permissions(Permissions::from_mode(0o644))
        .tempfile_in(folder)
        .with_context(|| format!("cannot write into the folder of {}", path.display()))
}

fn store(
    path: &Path,
    mut file: NamedTempFile,
    settings: Settings,
    intervals: VecDeque<Interval>,
) -> Result<Exit, Failure> {
    if !Segment::ALL.iter().any(|segment| known(&intervals, *segment) >= LEAST_BASELINE) {
        let most = Segment::ALL.iter().map(|segment| known(&intervals, *segment)).max();
        return Err(Failure::new(
            Exit::Incomplete,
            anyhow!(
                "no baseline was recorded: it takes {LEAST_BASELINE} intervals of the whole length \
                 with bytes, and there were {}; run longer, or with a shorter --interval",
                most.unwrap_or(0)
            ),
        ));
    }
    let count = intervals.len() as u64;
    let of_interval = |interval: Interval| {
        let figures = interval
            .into_iter()
            .map(|(segment, Figures { count, ns: [p50, p99, mean] })| (name(segment), (count, p50, p99, mean)));
        figures.collect()
    };
    let content = File {
        schema: SCHEMA.to_owned(),
        time: jiff::Timestamp::now().to_string(),
        settings,
        intervals: intervals.into_iter().map(of_interval).collect(),
    };
    let written = serde_json::to_vec(&content)
        .map_err(anyhow::Error::new)
        .and_then(|text| Ok(file.write_all(&text)?))
        .and_then(|()| Ok(file.as_file().sync_all()?))
        .and_then(|()| Ok(file.persist(path).map(drop)?));
    written
        .with_context(|| format!("cannot write {}", path.display()))
        .map_err(|error| Failure::new(Exit::Incomplete, error))?;
    tell(format_args!("recorded a baseline of {} into {}", counted(count, "intervals"), path.display()));
    Ok(Exit::Done)
}

/// Intervals that tell something of a segment.
fn known(intervals: &VecDeque<Interval>, segment: Segment) -> usize {
    let figures = intervals.iter().filter_map(|interval| interval.get(&segment));
    figures.filter(|figures| figures.ns[0].is_some()).count()
}

fn name(segment: Segment) -> String {
    format!("{} {}", segment.direction().name(), segment.name())
}

fn parse(text: &str) -> anyhow::Result<(Settings, Vec<Interval>)> {
    #[derive(Deserialize)]
    struct Head {
        schema: String,
    }
    let head: Head = serde_json::from_str(text)?;
    if head.schema != SCHEMA {
        return Err(anyhow!("its schema is {:?}, and not {SCHEMA:?}", head.schema));
    }
    let file: File = serde_json::from_str(text)?;
    let intervals = file.intervals.into_iter().map(|interval| {
        let figures = interval.into_iter().map(|(named, (count, p50, p99, mean))| {
            let segment = Segment::ALL.into_iter().find(|segment| name(*segment) == named);
            let segment = segment.ok_or_else(|| anyhow!("{named:?} is no segment"))?;
            Ok((segment, Figures { count, ns: [p50, p99, mean] }))
        });
        figures.collect()
    });
    Ok((file.settings, intervals.collect::<anyhow::Result<_>>()?))
}

/// What differs first.
fn unlike(recorded: &Settings, now: &Settings) -> Result<(), String> {
    let shown = |filter: &[String]| match filter {
        [] => "none".to_owned(),
        rules => rules.join(" "),
    };
    let port = |port: Option<u16>| port.map_or("all".to_owned(), |port| port.to_string());
    let time = |ns: u64| format!("{:?}", Duration::from_nanos(ns));
    let told = |settings: &Settings| {
        let cgroup = settings.cgroup.as_deref();
        [
            ("the host", settings.host.clone()),
            ("--interval", time(settings.interval_ns)),
            ("--sample-bytes", settings.sample_bytes.to_string()),
            ("--sample-interval", settings.sample_interval_ns.map_or("none".into(), time)),
            ("--port", port(settings.port)),
            ("--filter", shown(&settings.filter)),
            ("--pid", if settings.by_process { "given" } else { "not given" }.into()),
            ("--cgroup", cgroup.map_or("none".into(), |path| path.display().to_string())),
        ]
    };
    let mut pairs = told(recorded).into_iter().zip(told(now));
    if let Some(((what, was), (_, is))) = pairs.find(|(was, is)| was != is) {
        return Err(format!("{what} was {was} and is {is}"));
    }
    let differs = now.hooks.iter().find(|(layer, hook)| recorded.hooks.get(*layer) != Some(*hook));
    match differs {
        None => Ok(()),
        Some((layer, hook)) => {
            let shown = |hook: Option<&String>| hook.map_or("none", String::as_str).to_owned();
            let was = recorded.hooks.get(layer).and_then(Option::as_ref);
            Err(format!("the hook of {layer} was {} and is {}", shown(was), shown(hook.as_ref())))
        }
    }
}
