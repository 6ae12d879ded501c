//! `--fail-if` of agents and collectors: conditions on the segments of hosts, and of the paths between them.

use dwell_engine::{
    histogram::{Figure, Histogram},
    layers::PathSegment,
};
use dwell_records::Verdict;

use crate::{
    exit::Exit,
    fail_if::{self, Conditions, Latencies, Vocabulary},
};

/// Conditions on the segments of one host.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct HostConditions {
    /// Fail (exit status 1) if this holds for the bytes of the run, or cannot be judged because there are none: [SEGMENT]
    /// FIGURE>TIME, as in 'queueing p99>5ms' or 'rx total max>=1s'; without SEGMENT for the total of either direction; FIGURE is count, mean,
    /// min, max, p50, p90, p95, p99 or p99.9; may be given several times
    #[arg(long, value_name = "CONDITION", value_parser = of_host)]
    fail_if: Vec<Conditions>,
}

/// Conditions on the segments of all paths together.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct PathConditions {
    /// Fail (exit status 1) if this holds for the bytes of the run on all paths together, or cannot be judged because there are
    /// none: [SEGMENT] FIGURE>TIME, as in 'network p99>5ms' or 'rx application max>=1s'; without SEGMENT for end-to-end; FIGURE is
    /// count, mean, min, max, p50, p90, p95, p99 or p99.9; may be given several times
    #[arg(long, value_name = "CONDITION", value_parser = of_path)]
    fail_if: Vec<Conditions>,
}

impl HostConditions {
    /// Collects what the conditions need.
    pub fn segments(&self) -> Segments {
        Segments { latencies: Latencies::new(&self.fail_if), default: "total" }
    }
}

impl PathConditions {
    /// Collects what the conditions need.
    pub fn segments(&self) -> Segments {
        Segments { latencies: Latencies::new(&self.fail_if), default: PathSegment::EndToEnd.name() }
    }
}

fn of_host(text: &str) -> Result<Conditions, String> {
    parse(text, |segment| matches!(segment, PathSegment::Host(_)))
}

fn of_path(text: &str) -> Result<Conditions, String> {
    parse(text, |_| true)
}

/// Parses conditions on segments, which are named with or without their direction.
fn parse(text: &str, is_meant: impl Fn(&PathSegment) -> bool) -> Result<Conditions, String> {
    let mut names: Vec<String> = Vec::new();
    for segment in PathSegment::ALL.into_iter().filter(is_meant) {
        for name in [segment.name().to_owned(), name_with_direction(segment)] {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    fail_if::parse(text, &Vocabulary { kind: "segment", names, figures: &Figure::ALL })
}

/// The time of bytes by segment, as far as conditions are about it.
pub struct Segments {
    latencies: Latencies<PathSegment>,
    /// What a condition without a name is about.
    default: &'static str,
}

impl Segments {
    /// Adds the bytes of an interval.
    pub fn add(&mut self, segment: PathSegment, histogram: &Histogram) {
        self.latencies.add(segment, |all| all.merge(histogram));
    }

    /// Returns what becomes of the conditions if the run ends now; `None` without conditions.
    pub fn judge(&mut self) -> Option<Verdict> {
        let default = self.default;
        let find = |name: Option<&str>| {
            let name = name.unwrap_or(default);
            let is_meant = |segment: &PathSegment| segment.name() == name || name_with_direction(*segment) == name;
            let meant = PathSegment::ALL.into_iter().filter(is_meant);
            meant.map(|segment| (Some(name_with_direction(segment)), vec![segment])).collect()
        };
        self.latencies.judge(find).cloned()
    }
}

/// Reports what became of the conditions, and returns the exit status of a run that is complete.
pub fn exit(verdict: Option<&Verdict>) -> Exit {
    if let Some(verdict) = verdict {
        fail_if::announce(verdict, ("byte", "bytes"));
    }
    fail_if::exit(verdict, Exit::Done)
}

fn name_with_direction(segment: PathSegment) -> String {
    match segment.direction() {
        Some(direction) => format!("{} {}", direction.name(), segment.name()),
        None => segment.name().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(
        conditions: &str,
        of: fn(&str) -> Result<Conditions, String>,
        default: &'static str,
    ) -> (bool, Vec<String>) {
        let mut segments = Segments { latencies: Latencies::new(&[of(conditions).unwrap()]), default };
        for (segment, ns) in PathSegment::ALL.into_iter().zip((1..).map(|number| number * 1_000)) {
            let mut histogram = Histogram::default();
            histogram.record(ns);
            segments.add(segment, &histogram);
        }
        let verdict = segments.judge().unwrap();
        (verdict.failed, verdict.conditions.into_iter().filter_map(|one| one.of).collect())
    }

    #[test]
    fn conditions_are_about_the_segments_of_hosts_and_of_paths_by_their_names() {
        // In the order of a path, the network is the seventh segment, and from socket to socket the fifteenth.
        assert_eq!(judged("network max>6us", of_path, "end-to-end"), (true, vec!["network".into()]));
        assert_eq!(judged("network max>7us", of_path, "end-to-end"), (false, vec!["network".into()]));
        assert_eq!(judged("p50>14us", of_path, "end-to-end"), (true, vec!["end-to-end".into()]));
        assert_eq!(judged("max>13us", of_host, "total"), (true, vec!["tx total".into(), "rx total".into()]));
        assert_eq!(judged("rx application max>12us", of_host, "total"), (false, vec!["rx application".into()]));
        assert!(of_host("network max>1us").unwrap_err().contains("'network' is not a segment"));
    }
}
