//! Gray failures: which host, path or service of a fleet has become slower than its peers, or loses more.
//!
//! A subject is compared with its own past and, over the same intervals, with its peers: all others of which the same
//! component is known. So roles may differ from host to host, and a rise of the whole fleet is nobody's. Figures of whole
//! intervals are compared by the tests of [`baseline`](crate::baseline), and with how far its peers' changes are spread over the same
//! intervals, both with one budget of false alarms for all subjects, components and intervals of a week (Bonferroni). What that
//! means, and how it was simulated, is in `docs/method/fleet.md`.

mod alarm;
mod compare;
mod gather;
mod series;

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use crate::{
    baseline::Figure,
    layers::{PathSegment, room::Room},
};

use alarm::Alarm;
use compare::{Group, Levels};
pub use gather::Gathered;
pub use series::{PAST, SPARSEST};

/// The least number of peers of a subject that is judged.
pub const LEAST_PEERS: usize = 3;
/// A smaller increase, over the past and over what the peers' change explains, is not a gray failure, however significant.
pub const LEAST_RATIO: f64 = 1.5;
/// The same in nanoseconds, for times.
pub const LEAST_NS: u64 = 100_000;
/// The same in millionths, for shares.
pub const LEAST_SHARE: u64 = 10_000;
/// A gray failure begins when it was found in this many intervals in a row: until then it may turn out that a path that differs
/// is one of many of a host, whose medians follow an abrupt change within some intervals of each other.
const CONFIRMED: u32 = 5;
/// A gray failure ends when less than this ratio is left of it.
pub const END_RATIO: f64 = 1.25;
/// A gray failure that has lasted for this long is what is usual now.
pub const LONGEST_NS: u64 = 24 * 3_600 * 1_000_000_000;
/// Figures that are kept at most, at some 855 bytes each: 56 MB.
pub const MOST_SERIES: usize = 1 << 16;
/// Figures of services at most. Those of paths may take half of all.
const MOST_OF_SERVICES: usize = 1 << 11;
const WEEK_NS: f64 = 7.0 * 24.0 * 3_600.0 * 1e9;

/// What may differ from its peers. Hosts are numbers, as in paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// A host: the segments of its bytes, or most paths that begin or end there.
    Host(u32),
    /// The path from one host to another.
    Path {
        /// The sending host.
        tx_host: u32,
        /// The receiving host.
        rx_host: u32,
    },
    /// A service, by its port, on all hosts.
    Service(u16),
}

impl Subject {
    /// Returns the hosts at its ends.
    fn hosts(self) -> [Option<u32>; 2] {
        match self {
            Subject::Host(host) => [Some(host), None],
            Subject::Path { tx_host, rx_host } => [Some(tx_host), Some(rx_host)],
            Subject::Service(_) => [None, None],
        }
    }
}

/// What of a subject is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Component {
    /// The time in a segment.
    Time(PathSegment),
    /// The share of bytes that TCP sent more than once.
    Retransmitted,
}

/// A figure of a component. Each belongs to one kind of subjects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Measure {
    /// The component.
    pub component: Component,
    /// Which figure of its times; `None` for a share.
    pub figure: Option<Figure>,
}

impl Measure {
    /// Returns the smallest increase that matters.
    fn least(self) -> u64 {
        match self.component {
            Component::Time(_) => LEAST_NS,
            Component::Retransmitted => LEAST_SHARE,
        }
    }
}

/// How gray failures are found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// The length of the intervals.
    pub interval_ns: u64,
    /// The false alarms per week that all subjects together may raise, on average.
    pub budget: f64,
}

/// A subject that differs from its peers. Values are nanoseconds, or millionths of a share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Finding {
    /// Who differs.
    pub subject: Subject,
    /// In what: of all components that differ enough, the one that does by the largest ratio.
    pub measure: Measure,
    /// The median of its recent intervals.
    pub value: u64,
    /// The median of its own past.
    pub past: u64,
    /// What its past would be now, had it changed as its peers have.
    pub expected: u64,
    /// The median of its peers' recent intervals.
    pub peers_value: u64,
    /// The number of peers.
    pub peers: usize,
    /// Of a host by its paths: how many of them differ, and how many were compared.
    pub paths: Option<[usize; 2]>,
    /// An upper bound of how often per week chance alone makes such a finding, among all subjects.
    pub per_week: f64,
}

/// The beginning or the end of a gray failure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Event {
    /// Who differs, or differed; at the end with the figures of then.
    pub finding: Finding,
    /// When it was noticed.
    pub since_ns: u64,
    /// Why it has ended; `None` if it begins.
    pub end: Option<End>,
}

/// Why a gray failure has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It does not differ any more.
    Recovered,
    /// Nothing is known of it any more.
    Gone,
    /// It has lasted for [`LONGEST_NS`], and is what is usual now.
    Usual,
    /// Nobody looks any more.
    Stopped,
}

/// Judges the subjects of a fleet, interval by interval.
#[derive(Debug)]
pub struct Judge {
    config: Config,
    /// The number of the interval. It begins high, so that there is an age for each slot of a series.
    tick: u64,
    groups: BTreeMap<Measure, Group>,
    series: usize,
    /// Room for the figures of paths, each of which takes it of two hosts.
    of_paths: Room,
    of_services: usize,
    alarms: BTreeMap<Subject, Alarm>,
    /// In how many intervals, up to the last one, a subject was found that has no gray failure yet.
    found: BTreeMap<Subject, u32>,
    omitted: u64,
}

/// Who is judged, and with whom others are compared, while these gray failures last.
#[derive(Debug, Clone, Copy)]
struct Roles<'a>(&'a BTreeMap<Subject, Alarm>);

impl Roles<'_> {
    /// Returns whether a gray failure of a subject may begin: not while it has one, or is a path of a host whose paths differ.
    fn is_judged(self, subject: Subject) -> bool {
        !self.0.contains_key(&subject) && !self.is_covered(subject)
    }

    /// Returns whether others are compared with a subject. One that differs in some figures still is what is usual in the others:
    /// among few, nobody would have enough peers otherwise.
    fn is_peer(self, subject: Subject, measure: Measure) -> bool {
        !self.0.get(&subject).is_some_and(|alarm| alarm.is_by(measure)) && !self.is_covered(subject)
    }

    fn is_covered(self, subject: Subject) -> bool {
        let has_paths = |host: u32| self.0.get(&Subject::Host(host)).is_some_and(Alarm::is_of_paths);
        matches!(subject, Subject::Path { .. }) && subject.hosts().into_iter().flatten().any(has_paths)
    }
}

impl Judge {
    /// Creates a judge that knows nothing yet.
    pub fn new(config: Config) -> Judge {
        Judge {
            config,
            tick: series::SLOTS as u64,
            groups: BTreeMap::new(),
            series: 0,
            of_paths: Room::new(MOST_SERIES),
            of_services: 0,
            alarms: BTreeMap::new(),
            found: BTreeMap::new(),
            omitted: 0,
        }
    }

    /// Adds the figures of an interval that has ended at this time, and returns what begins or ends with it. Intervals
    /// without figures are to be added too.
    pub fn interval(&mut self, end_ns: u64, figures: impl IntoIterator<Item = (Subject, Measure, u64)>) -> Vec<Event> {
        self.tick += 1;
        self.turn();
        for (subject, measure, value) in figures {
            self.set(subject, measure, value);
        }
        let mut events = self.end_alarms(end_ns);
        events.extend(self.begin_alarms(end_ns));
        events
    }

    /// Ends all gray failures, as nobody looks any more.
    pub fn stop(&mut self) -> Vec<Event> {
        let alarms = std::mem::take(&mut self.alarms);
        alarms.into_values().map(|alarm| alarm.event(Some(End::Stopped))).collect()
    }

    /// Returns the gray failures that have not ended.
    pub fn open(&self) -> impl Iterator<Item = &Finding> {
        self.alarms.values().map(|alarm| &alarm.finding)
    }

    /// Returns how many figures were left out, because [`MOST_SERIES`] were kept, or the share of a host or of services.
    pub fn omitted(&self) -> u64 {
        self.omitted
    }

    /// Forgets a host with its paths, as its number may become that of another one. Returns what ends with it.
    pub fn forget_host(&mut self, host: u32) -> Vec<Event> {
        let is_of = |subject: &Subject| subject.hosts().contains(&Some(host));
        let (ended, alarms): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.alarms).into_iter().partition(|(subject, _)| is_of(subject));
        self.alarms = alarms;
        self.found.retain(|subject, _| !is_of(subject));
        let gone: Vec<_> = self.groups.values_mut().flat_map(|group| group.remove(is_of)).collect();
        gone.into_iter().for_each(|subject| self.give_back(subject));
        ended.into_values().map(|alarm| alarm.event(Some(End::Gone))).collect()
    }

    /// Begins an interval, and drops figures of which no value is left.
    fn turn(&mut self) {
        let tick = self.tick;
        let gone: Vec<_> = self.groups.values_mut().flat_map(|group| group.turn(tick)).collect();
        gone.into_iter().for_each(|subject| self.give_back(subject));
    }

    fn give_back(&mut self, subject: Subject) {
        self.series -= 1;
        match subject {
            Subject::Host(_) => {}
            Subject::Path { tx_host, rx_host } => {
                [tx_host, rx_host].iter().for_each(|host| self.of_paths.give_back(*host));
            }
            Subject::Service(_) => self.of_services -= 1,
        }
    }

    fn set(&mut self, subject: Subject, measure: Measure, value: u64) {
        let code = series::encode(value);
        let group = self.groups.entry(measure).or_insert_with(|| Group::new(measure));
        if group.set(self.tick, subject, code) {
            return;
        }
        let parts = self.of_paths.hosts();
        let has_room = match subject {
            Subject::Host(_) => true,
            Subject::Path { tx_host, rx_host } => {
                !self.of_paths.is_full() && [tx_host, rx_host].iter().all(|host| self.of_paths.has_room(*host, parts))
            }
            Subject::Service(_) => self.of_services < MOST_OF_SERVICES,
        };
        if !has_room || self.series >= MOST_SERIES {
            self.omitted += 1;
            return;
        }
        self.series += 1;
        match subject {
            Subject::Host(_) => {}
            Subject::Path { tx_host, rx_host } => [tx_host, rx_host].iter().for_each(|host| self.of_paths.take(*host)),
            Subject::Service(_) => self.of_services += 1,
        }
        group.add(self.tick, subject, code);
    }

    /// Returns the number of comparisons of a week.
    fn comparisons(&self) -> f64 {
        self.series as f64 * WEEK_NS / self.config.interval_ns as f64
    }

    fn end_alarms(&mut self, now_ns: u64) -> Vec<Event> {
        let (tick, mut events, mut levels) = (self.tick, Vec::new(), Levels::default());
        let subjects: Vec<_> = self.alarms.keys().copied().collect();
        for subject in subjects {
            let Some(alarm) = self.alarms.get(&subject) else { continue };
            let end = alarm.end((tick, now_ns), &self.groups, &mut levels, Roles(&self.alarms));
            let Some((end, finding)) = end else { continue };
            if let Some(alarm) = self.alarms.remove(&subject) {
                if end == End::Recovered {
                    alarm.blank(tick, &mut self.groups);
                }
                events.push(Event { finding, ..alarm.event(Some(end)) });
            }
        }
        events
    }

    fn begin_alarms(&mut self, now_ns: u64) -> Vec<Event> {
        let comparisons = self.comparisons();
        let mut found: BTreeMap<Subject, Vec<Alarm>> = BTreeMap::new();
        for (measure, group) in &self.groups {
            let differing = group.differing(self.tick, comparisons, self.config.budget, Roles(&self.alarms));
            for alarm in alarm::attribute(*measure, &differing, self.tick, now_ns) {
                found.entry(alarm.finding.subject).or_default().push(alarm);
            }
        }
        let (mut events, before) = (Vec::new(), std::mem::take(&mut self.found));
        // A path that differs is of a host that does, if that is found now by another figure.
        let hosts: BTreeSet<u32> = found
            .iter()
            .filter(|(_, alarms)| alarms.iter().any(Alarm::is_of_paths))
            .filter_map(|(subject, _)| subject.hosts()[0])
            .collect();
        for (subject, alarms) in found {
            let is_path = matches!(subject, Subject::Path { .. });
            let is_covered = is_path && subject.hosts().into_iter().flatten().any(|host| hosts.contains(&host));
            let Some(alarm) = Alarm::together(alarms).filter(|_| !is_covered) else { continue };
            let times = before.get(&subject).map_or(1, |times| times + 1);
            if times < CONFIRMED {
                self.found.insert(subject, times);
                continue;
            }
            // A host that differs already may do so by its paths too.
            match self.alarms.entry(subject) {
                Entry::Occupied(mut open) => open.get_mut().join(alarm),
                Entry::Vacant(none) => events.push(none.insert(alarm).event(None)),
            }
        }
        events
    }
}

#[cfg(test)]
mod tests;
