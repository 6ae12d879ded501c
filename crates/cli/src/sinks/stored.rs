//! `--store`: what the verbs that measure have in common.

use std::{path::PathBuf, time::Duration};

use anyhow::anyhow;
use dwell_engine::units::nanos;
use dwell_records::{Keep, Output};
use dwell_store::{Address, Origin, Recorder, Recording, Retain};

use crate::{
    args::{bytes, positive_duration},
    exit::{Exit, Failure},
    log::log,
};

/// Where figures are stored.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct StoreArgs {
    /// Store for the figures too, an SQLite file that `dwell report` reads; several runs may share it
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,

    /// Delete rows of the store that are older than AGE, as in 30d or 12h, and the oldest ones while they take more than SIZE, as
    /// in 4G; or `all` to keep them [default: 30d,4G, or all where a capture is read]
    #[arg(long, value_name = "AGE,SIZE", requires = "store", value_parser = retention)]
    retain: Option<Retain>,
}

/// The longest time that the end of a run waits until all is stored.
const LONGEST_END: Duration = Duration::from_secs(20);

const DAY_S: u64 = 86_400;
/// What is kept where nothing else is asked for.
pub const RETAIN: Retain = Retain { age: Some(Duration::from_secs(30 * DAY_S)), bytes: Some(4_000_000_000) };

impl StoreArgs {
    /// Whether figures are stored.
    pub fn is_given(&self) -> bool {
        self.store.is_some()
    }

    /// Opens the store, if there is one. Single round trips are counted by intervals of this length.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or is not a store.
    pub fn open(&self, interval: Duration, is_capture: bool) -> Result<Option<Box<dyn Keep>>, Failure> {
        let recorder = self.recorder(interval, is_capture, LONGEST_END)?;
        Ok(recorder.map(|recorder| Box::new(recorder) as Box<dyn Keep>))
    }

    /// Opens the store, if there is one, for what does not come as records. The end of the run waits for it no longer than that.
    ///
    /// # Errors
    ///
    /// As [`StoreArgs::open`].
    pub fn recorder(
        &self,
        interval: Duration,
        is_capture: bool,
        longest_end: Duration,
    ) -> Result<Option<Recorder>, Failure> {
        let Some(path) = &self.store else { return Ok(None) };
        if path.to_str().is_some_and(Address::is_meant_by) {
            return Err(Failure::usage(anyhow!(
                "--store is a file here: figures reach a ClickHouse server through `dwell agent` and `dwell collect`"
            )));
        }
        let recorder = Recorder::start(Recording {
            path: path.clone(),
            interval_ns: nanos(interval),
            retain: self.retain.or((!is_capture).then_some(RETAIN)),
            origin: if is_capture { Origin::Capture } else { Origin::Live },
            longest_end,
            log: |text| log(text),
        })?;
        Ok(Some(recorder))
    }
}

/// Ends what is kept of a run, and returns the exit status of one that would end with `exit`: data that is missing in the
/// store or in the file of `--write` makes it incomplete.
pub fn finish(output: Option<&mut Output>, exit: Exit) -> Exit {
    let missing = output.into_iter().flat_map(Output::finish);
    missing.fold(exit, |exit, missing| complete(Some(missing), exit))
}

/// Returns the failure of a run with an option that says nothing of a store that is a file.
pub fn for_server(option: &str) -> Failure {
    Failure::usage(anyhow!("{option} is for a store on a server, clickhouse://HOST:PORT/DATABASE"))
}

/// Logs what is missing, if anything is, and returns the exit status of a run that would end with `exit`.
pub fn complete(missing: Option<String>, exit: Exit) -> Exit {
    match missing {
        None => exit,
        Some(missing) => {
            log(missing);
            exit.max(Exit::Incomplete)
        }
    }
}

/// Parses what is kept. A slip must not delete a store: 30 has no unit, and 500m could be minutes or megabytes.
pub fn retention(text: &str) -> Result<Retain, String> {
    let mut retain = Retain { age: None, bytes: None };
    if text == "all" {
        return Ok(retain);
    }
    for part in text.split(',') {
        match (age(part), size(part)) {
            (Some(age), _) if retain.age.is_none() => retain.age = Some(age),
            (None, Some(bytes)) if retain.bytes.is_none() => retain.bytes = Some(bytes),
            _ => {
                return Err(
                    "write an age in d, h or s, a size of at least 1M in k, M or G, or both, as in 30d, 30G or \
                            12h,500M; or all"
                        .into(),
                );
            }
        }
    }
    Ok(retain)
}

fn age(text: &str) -> Option<Duration> {
    match text.strip_suffix('d') {
        Some(days) => {
            days.parse::<u32>().ok().filter(|days| *days > 0).map(|days| Duration::from_secs(DAY_S * u64::from(days)))
        }
        None => positive_duration(text).ok().filter(|_| {
            let number = text.strip_suffix(['h', 's']).unwrap_or_default();
            number.ends_with(|last: char| last.is_ascii_digit())
        }),
    }
}

fn size(text: &str) -> Option<u64> {
    const LEAST: u64 = 1_000_000;
    bytes(text).ok().filter(|bytes| text.ends_with(['k', 'M', 'G']) && *bytes >= LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_retained_is_an_age_a_size_or_both() {
        let hours = |hours: u64| Some(Duration::from_secs(hours * 3_600));
        for (text, age, bytes) in [
            ("30d,4G", hours(720), Some(4_000_000_000)),
            ("500M,12h", hours(12), Some(500_000_000)),
            ("1d", hours(24), None),
            ("10s", Some(Duration::from_secs(10)), None),
            ("1000k", None, Some(1_000_000)),
            ("all", None, None),
        ] {
            assert_eq!(retention(text), Ok(Retain { age, bytes }), "{text}");
        }
        for wrong in [
            "",
            "0",
            "0d",
            "1d,2d",
            "1G,2G",
            "1d,1G,1h",
            "all,1G",
            "-1d",
            "1x",
            "30",
            "500m",
            "10ms",
            "100ns",
            "500us",
            "5µs",
            "1M,500m",
            "999k",
            "4000000000",
        ] {
            assert!(retention(wrong).is_err(), "{wrong}");
        }
    }
}
