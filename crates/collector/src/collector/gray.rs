//! Gray failures: what a collector does with the judgement of the engine.

use std::collections::{BTreeMap, BTreeSet};

use dwell_app::log::log;
use dwell_engine::{
    gray::{Config, Event, Gathered, Judge, SPARSEST, Subject},
    layers::{PathSegment, join::Window},
};
use dwell_fleet::wire::IntervalReport;
use dwell_records::{Clock, GrayFailure, Record};
use dwell_store::GrayRow;

use super::{Collector, unix};
use crate::{Error, hosts::Hosts};

/// Intervals that are made up for at most, after a time in which nothing could be judged: all that a judge remembers.
const MOST_INTERVALS: u64 = 400;
/// An interval is judged without the agents that have not reported a later one so long after its end: more intervals than are
/// between reports that come just often enough, and longer than a busy machine takes.
const MOST_WAIT: u64 = SPARSEST + 1;
const LEAST_WAIT_NS: u64 = 20_000_000_000;
/// Gray failures that a metric names.
const MOST_NAMED: usize = 100;

impl Collector {
    /// Sets how gray failures are found; without that, none is looked for.
    pub fn set_gray(&mut self, config: Option<Config>) {
        let (now_ns, window_ns) = (self.time.now_ns(), self.config.window_ns);
        self.gray = config.map(|config| {
            if config.interval_ns < window_ns {
                log(format_args!(
                    "gray failures are searched for in intervals of {}, as those of paths are no shorter (--interval)",
                    seconds(window_ns)
                ));
            }
            Gray::new(Config { interval_ns: config.interval_ns.max(window_ns), ..config }, now_ns)
        });
    }

    /// Judges the intervals that have ended, with what was joined.
    pub(super) fn judge_gray(&mut self, windows: &[Window], until_ns: u64) -> Vec<(u64, Event)> {
        let until_ns = until_ns.min(self.time.now_ns());
        let Some(gray) = &mut self.gray else { return Vec::new() };
        gray.add_paths(windows);
        gray.judge(until_ns, &self.hosts)
    }

    /// Reports that what has not ended is not looked at any more.
    pub(super) fn stop_gray(&mut self, now_ns: u64) -> Result<(), Error> {
        let events = self.gray.as_mut().map(|gray| gray.stop(now_ns, &self.hosts));
        self.report_gray(&events.unwrap_or_default())
    }

    /// Stores, logs and prints gray failures that begin or end.
    pub(super) fn report_gray(&mut self, events: &[(u64, Event)]) -> Result<(), Error> {
        let to_unix_ns = self.time.to_unix_ns();
        let Collector { store, hosts, gray: Some(gray), print, .. } = self else { return Ok(()) };
        if events.is_empty() {
            return Ok(());
        }
        let reported: Vec<_> = events.iter().map(|(_, event)| gray.report(event, hosts, to_unix_ns)).collect();
        let failures: Vec<_> =
            events.iter().zip(&reported).map(|(event, of)| (of.since_ns, gray.failure(*event, of.names()))).collect();
        store.write(|to| {
            failures.iter().try_for_each(|(since_ns, failure)| {
                to.gray(&GrayRow { time_ns: unix(failure.time_ns, to_unix_ns), since_ns: *since_ns, failure })
            })
        })?;
        failures.iter().for_each(|(_, failure)| log(format_args!("gray failure: {failure}")));
        let Some(print) = print else { return Ok(()) };
        print.output.source_mut().clock = Clock::with_offset(to_unix_ns.into());
        for (_, failure) in &failures {
            print.output.write(&Record::Gray(failure))?;
        }
        Ok(print.output.flush()?)
    }
}

fn seconds(ns: u64) -> String {
    format!("{} s", ns as f64 / 1e9)
}

/// What is remembered of a gray failure that has been reported and has not ended.
#[derive(Debug, Clone)]
struct Reported {
    /// When it began, in Unix time as it was then.
    since_ns: i64,
    names: [Option<String>; 2],
}

impl Reported {
    fn names(&self) -> [Option<&str>; 2] {
        self.names.each_ref().map(Option::as_deref)
    }
}

/// Gathers what agents report and what is joined, and judges it, interval by interval of the collector's time.
#[derive(Debug)]
pub(super) struct Gray {
    interval_ns: u64,
    judge: Judge,
    /// Intervals that are not judged yet, by their ends.
    gathered: BTreeMap<u64, Gathered>,
    /// The end of the last interval that was judged.
    judged_ns: u64,
    /// The end of the last interval of each host that others wait for.
    reported: BTreeMap<u32, u64>,
    /// Intervals that were judged without a host that was waited for, and the hosts that have not caught up since.
    unwaited: u64,
    absent: BTreeSet<u32>,
    /// Figures that came too late.
    late: u64,
    /// What was left out of intervals that were judged.
    omitted: u64,
    /// Intervals of hosts that report too rarely, and those hosts.
    rare: u64,
    rare_hosts: BTreeSet<u32>,
    begun: [u64; GrayFailure::KINDS.len()],
    open: BTreeMap<Subject, Reported>,
    /// What ended as its host was forgotten, and is not reported yet.
    forgotten: Vec<Event>,
}

/// What metrics show of gray failures.
#[derive(Debug, Default)]
pub struct GrayCounts {
    /// Those that have not ended: the kind, the name and the component of each, and its number.
    pub open: Vec<([String; 3], u64)>,
    /// Those that have begun, by the kind of their subjects.
    pub begun: Vec<(&'static str, u64)>,
}

impl Gray {
    /// Begins to gather from now on.
    pub(super) fn new(config: Config, now_ns: u64) -> Gray {
        Gray {
            interval_ns: config.interval_ns,
            judge: Judge::new(config),
            gathered: BTreeMap::new(),
            judged_ns: now_ns / config.interval_ns * config.interval_ns,
            reported: BTreeMap::new(),
            unwaited: 0,
            absent: BTreeSet::new(),
            late: 0,
            omitted: 0,
            rare: 0,
            rare_hosts: BTreeSet::new(),
            begun: [0; GrayFailure::KINDS.len()],
            open: BTreeMap::new(),
            forgotten: Vec::new(),
        }
    }

    /// Returns the interval in which a time is, if it is not judged yet.
    fn at(&mut self, time_ns: u64) -> Option<&mut Gathered> {
        let end_ns = time_ns.div_ceil(self.interval_ns) * self.interval_ns;
        if end_ns <= self.judged_ns {
            self.late += 1;
            return None;
        }
        Some(self.gathered.entry(end_ns).or_default())
    }

    /// Adds an interval of a host that ended at this time, on the collector's.
    pub(super) fn add_host(&mut self, (host, name): (u32, &str), ended_ns: u64, report: &IntervalReport) {
        // A report may carry flows alone.
        if report.segments.is_empty() {
            return;
        }
        if report.length_ns > SPARSEST * self.interval_ns {
            self.rare += 1;
            if self.rare_hosts.insert(host) {
                let (agent, own) = (seconds(report.length_ns), seconds(self.interval_ns));
                log(format_args!(
                    "{name} reports every {agent}, too rarely to search it for gray failures in intervals of {own} \
                     (--gray-interval)"
                ));
            }
            return;
        }
        // One that lags behind what is judged holds nobody up.
        if ended_ns > self.judged_ns {
            let reported_ns = self.reported.entry(host).or_default();
            *reported_ns = ended_ns.max(*reported_ns);
            self.absent.remove(&host);
        }
        let Some(gathered) = self.at(ended_ns) else { return };
        for segment in &report.segments {
            let figures = &segment.first;
            // Totals are the sums of others, and what no hook explains is nobody's.
            if !figures.segment.is_whole() {
                gathered.times(Subject::Host(host), PathSegment::Host(figures.segment), &figures.histogram);
            }
        }
    }

    /// Adds what was joined.
    pub(super) fn add_paths(&mut self, windows: &[Window]) {
        for window in windows {
            let Some(gathered) = self.at(window.end_ns) else { continue };
            for (key, path) in &window.paths {
                match key.flow {
                    None => gathered.path(key.tx_host, key.rx_host, key.resent, path),
                    // The lower port is the service's: clients have those that are left.
                    Some(flow) if !key.resent => {
                        let service = Subject::Service(flow.src.port.min(flow.dst.port));
                        let end_to_end = path.segment(PathSegment::EndToEnd);
                        gathered.times(service, PathSegment::EndToEnd, end_to_end);
                    }
                    Some(_) => {}
                }
            }
        }
    }

    /// Returns the length of the intervals.
    #[cfg(test)]
    pub(super) fn interval_ns(&self) -> u64 {
        self.interval_ns
    }

    /// Judges the intervals that have ended by this time, and of which the figures of all hosts are known: busy machines report late.
    /// Returns what begins and ends, with the end of its interval.
    pub(super) fn judge(&mut self, until_ns: u64, hosts: &Hosts) -> Vec<(u64, Event)> {
        let forgotten = std::mem::take(&mut self.forgotten);
        let mut events: Vec<_> = forgotten.into_iter().map(|event| (self.judged_ns, event)).collect();
        let missed = (until_ns.saturating_sub(self.judged_ns) / self.interval_ns).saturating_sub(MOST_INTERVALS);
        if missed > 0 {
            // Those that are passed over are no part of the next one.
            self.judged_ns += missed * self.interval_ns;
            self.gathered = self.gathered.split_off(&(self.judged_ns + 1));
        }
        while self.judged_ns + self.interval_ns <= until_ns && self.is_complete(until_ns, hosts) {
            self.judged_ns += self.interval_ns;
            let later = self.gathered.split_off(&(self.judged_ns + 1));
            let ended = std::mem::replace(&mut self.gathered, later);
            let figures = ended.into_values().flat_map(|gathered| {
                self.omitted += gathered.omitted();
                gathered.finish()
            });
            let of_interval = self.judge.interval(self.judged_ns, figures);
            events.extend(of_interval.into_iter().map(|event| (self.judged_ns, event)));
        }
        for (_, event) in events.iter().filter(|(_, event)| event.end.is_none()) {
            self.begun[kind(event.finding.subject)] += 1;
        }
        events
    }

    /// Returns whether all hosts have reported an interval later than the next one that is judged, or have had time to. A host that
    /// has not is not waited for until it reports again.
    fn is_complete(&mut self, until_ns: u64, hosts: &Hosts) -> bool {
        let end_ns = self.judged_ns + self.interval_ns;
        let is_missing = |reported_ns: u64| reported_ns <= end_ns;
        if !self.reported.values().any(|reported_ns| is_missing(*reported_ns)) {
            return true;
        }
        let wait_ns = (MOST_WAIT * self.interval_ns).max(LEAST_WAIT_NS).min((MOST_INTERVALS - 1) * self.interval_ns);
        if until_ns < end_ns + wait_ns {
            return false;
        }
        self.unwaited += 1;
        let (missing, others) = std::mem::take(&mut self.reported).into_iter().partition(|(_, of)| is_missing(*of));
        self.reported = others;
        for host in BTreeMap::into_keys(missing) {
            if self.absent.insert(host) {
                let (name, wait) = (hosts.name(host), seconds(wait_ns));
                log(format_args!("gray failures are searched for without {name}, which has not reported for {wait}"));
            }
        }
        true
    }

    /// Judges what is left, and ends all that has not ended, as the collector does.
    pub(super) fn stop(&mut self, now_ns: u64, hosts: &Hosts) -> Vec<(u64, Event)> {
        self.reported.clear();
        let mut events = self.judge(now_ns, hosts);
        events.extend(self.judge.stop().into_iter().map(|event| (now_ns, event)));
        events
    }

    /// Forgets a host, whose number may become that of another one.
    pub(super) fn forget_host(&mut self, host: u32) {
        self.rare_hosts.remove(&host);
        self.reported.remove(&host);
        self.absent.remove(&host);
        self.forgotten.extend(self.judge.forget_host(host));
    }

    /// Remembers what begins. Returns what is remembered of it, or of what ends: its host may have been forgotten, and Unix time
    /// set meanwhile.
    fn report(&mut self, event: &Event, hosts: &Hosts, to_unix_ns: i64) -> Reported {
        let subject = event.finding.subject;
        if let Some(reported) = event.end.and_then(|_| self.open.remove(&subject)) {
            return reported;
        }
        let names = names(subject, hosts).map(|name| name.map(str::to_owned));
        let reported = Reported { since_ns: unix(event.since_ns, to_unix_ns), names };
        if event.end.is_none() {
            self.open.insert(subject, reported.clone());
        }
        reported
    }

    fn failure<'a>(&self, (time_ns, event): (u64, Event), names: [Option<&'a str>; 2]) -> GrayFailure<'a> {
        GrayFailure { time_ns, interval_ns: self.interval_ns, event, hosts: names }
    }

    /// Returns how many figures came too late, how many were left out because of a limit, how many intervals of hosts were that
    /// report too rarely, and how many intervals were judged without a host that was waited for.
    pub(super) fn left_out(&self) -> [u64; 4] {
        [self.late, self.omitted + self.judge.omitted(), self.rare, self.unwaited]
    }

    /// Returns what metrics show.
    pub(super) fn counts(&self, hosts: &Hosts) -> GrayCounts {
        let named = |finding: &dwell_engine::gray::Finding| {
            let event = Event { finding: *finding, since_ns: 0, end: None };
            let failure = self.failure((0, event), names(finding.subject, hosts));
            [failure.kind().to_owned(), failure.name(), failure.component().to_owned()]
        };
        let mut open: Vec<_> = self.judge.open().take(MOST_NAMED).map(|finding| (named(finding), 1)).collect();
        let others = self.judge.open().count() - open.len();
        if others > 0 {
            open.push((["other"; 3].map(str::to_owned), others as u64));
        }
        GrayCounts { open, begun: GrayFailure::KINDS.into_iter().zip(self.begun).collect() }
    }
}

/// Returns the names of a subject's hosts.
fn names(subject: Subject, hosts: &Hosts) -> [Option<&str>; 2] {
    match subject {
        Subject::Host(host) => [Some(hosts.name(host)), None],
        Subject::Path { tx_host, rx_host } => [Some(hosts.name(tx_host)), Some(hosts.name(rx_host))],
        Subject::Service(_) => [None, None],
    }
}

/// The place of a kind of subjects in [`GrayFailure::KINDS`].
fn kind(subject: Subject) -> usize {
    match subject {
        Subject::Host(_) => 0,
        Subject::Path { .. } => 1,
        Subject::Service(_) => 2,
    }
}
