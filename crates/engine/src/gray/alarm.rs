//! Gray failures from their beginning to their end.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Component, END_RATIO, End, Event, Finding, LONGEST_NS, Measure, Roles, Subject,
    compare::{Circle, Compared, Differing, Group, Levels},
    series::{decode, steps},
};
use crate::baseline::MOST_RECENT;

/// A gray failure that has not ended.
#[derive(Debug, Clone)]
pub(super) struct Alarm {
    pub(super) finding: Finding,
    since_ns: u64,
    since: u64,
    /// By how much it exceeds what was expected, in steps.
    excess: i32,
    /// Whether it is of a host by its paths, which are not judged while it lasts.
    is_of_paths: bool,
    /// What has to recover: figures of the subject, or of paths of the host.
    watched: Vec<Watched>,
}

/// A figure that differs.
#[derive(Debug, Clone, Copy)]
struct Watched {
    subject: Subject,
    measure: Measure,
    /// What was expected when it began, and the peers' middle then, as codes.
    expected: i32,
    peers: i32,
    circle: Circle,
}

/// What a figure of a gray failure is now.
struct State {
    is_high: bool,
    value: u64,
    expected: u64,
    peers_value: u64,
    peers: usize,
}

/// Makes gray failures of the subjects that surely differ in one figure. Paths that differ are one of a host, if most of its
/// paths do and more of them than of others: then it is enough that one of them is sure.
pub(super) fn attribute(measure: Measure, compared: &Compared, tick: u64, now_ns: u64) -> Vec<Alarm> {
    let mut differing: Vec<&Differing> = compared.differing.iter().collect();
    let mut alarms = Vec::new();
    while let Some((host, judged)) = worst_host(&differing, compared) {
        let is_of = |one: &&Differing| one.finding.subject.hosts().contains(&Some(host));
        let (of_host, others): (Vec<_>, Vec<_>) = differing.into_iter().partition(is_of);
        differing = others;
        let Some(most) = of_host.iter().filter(|one| one.is_sure).max_by_key(|one| one.excess) else { continue };
        let finding = Finding { subject: Subject::Host(host), paths: Some([of_host.len(), judged]), ..most.finding };
        alarms.push(Alarm::new(measure, finding, most.excess, &of_host, (tick, now_ns)));
    }
    let sure = differing.into_iter().filter(|one| one.is_sure);
    alarms.extend(sure.map(|one| Alarm::new(measure, one.finding, one.excess, &[one], (tick, now_ns))));
    alarms
}

/// Returns the host with most of the paths that differ, and how many of its paths were compared: if at least two of them differ,
/// more than half of them do, and no other host has as many.
fn worst_host(differing: &[&Differing], compared: &Compared) -> Option<(u32, usize)> {
    let paths = |subject: Subject| matches!(subject, Subject::Path { .. }).then(|| subject.hosts()).into_iter();
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    for host in differing.iter().flat_map(|one| paths(one.finding.subject)).flatten().flatten() {
        *counts.entry(host).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    let mut hosts = counts.into_iter().filter(|(_, count)| *count == most);
    let (host, count) = hosts.next().filter(|_| hosts.next().is_none())?;
    let of_host = compared.subjects.iter().filter(|subject| subject.hosts().contains(&Some(host)));
    let judged = of_host.count();
    (count >= 2 && count * 2 > judged).then_some((host, judged))
}

impl Alarm {
    fn new(measure: Measure, finding: Finding, excess: i32, differing: &[&Differing], now: (u64, u64)) -> Alarm {
        let watched = differing.iter().map(|one| Watched {
            subject: one.finding.subject,
            measure,
            expected: one.expected,
            peers: one.peers,
            circle: one.circle,
        });
        let is_of_paths = finding.paths.is_some();
        Alarm { finding, since: now.0, since_ns: now.1, excess, is_of_paths, watched: watched.collect() }
    }

    /// Makes one gray failure of several of one subject, each by another figure: named is the largest.
    pub(super) fn together(alarms: Vec<Alarm>) -> Option<Alarm> {
        let watched = alarms.iter().flat_map(|alarm| alarm.watched.clone()).collect();
        let is_of_paths = alarms.iter().any(Alarm::is_of_paths);
        let largest = alarms.into_iter().max_by_key(|alarm| alarm.excess)?;
        Some(Alarm { watched, is_of_paths, ..largest })
    }

    /// Adds what differs of the same subject later.
    pub(super) fn join(&mut self, later: Alarm) {
        let is_known = |one: &Watched| self.watched.iter().any(|other| other.is_same(one));
        let new: Vec<_> = later.watched.into_iter().filter(|one| !is_known(one)).collect();
        self.watched.extend(new);
        self.is_of_paths |= later.is_of_paths;
    }

    /// Returns whether it is of a host by its paths.
    pub(super) fn is_of_paths(&self) -> bool {
        self.is_of_paths
    }

    /// Returns whether this figure is among those that differ.
    pub(super) fn is_by(&self, measure: Measure) -> bool {
        self.watched.iter().any(|watched| watched.measure == measure)
    }

    pub(super) fn event(&self, end: Option<End>) -> Event {
        Event { finding: self.finding, since_ns: self.since_ns, end }
    }

    /// Returns why it has ended, if it has, and the figures of now. It lasts while more than half of what differs does.
    pub(super) fn end(
        &self,
        (tick, now_ns): (u64, u64),
        groups: &BTreeMap<Measure, Group>,
        levels: &mut Levels,
        roles: Roles<'_>,
    ) -> Option<(End, Finding)> {
        let states = self.watched.iter().map(|watched| (watched, watched.state(tick, groups, levels, roles)));
        let states: Vec<_> = states.filter_map(|(watched, state)| Some((watched, state?))).collect();
        let high = states.iter().filter(|(_, state)| state.is_high).count();
        let mut finding = self.finding;
        let named = finding.measure;
        // Of what is named, or else of anything that is known.
        let state = states.iter().find(|(watched, _)| watched.measure == named).or(states.first());
        if let Some((_, state)) = state {
            finding.value = state.value;
            finding.expected = state.expected;
            finding.peers_value = state.peers_value;
            finding.peers = state.peers;
        }
        let is_gone = || self.watched.iter().all(|watched| watched.idle(groups) >= MOST_RECENT);
        let end = match states.len() {
            0 if is_gone() => End::Gone,
            known if known > 0 && high * 2 <= known => End::Recovered,
            _ if now_ns.saturating_sub(self.since_ns) >= LONGEST_NS => End::Usual,
            _ => return None,
        };
        Some((end, finding))
    }

    /// Forgets the values of its time.
    pub(super) fn blank(&self, tick: u64, groups: &mut BTreeMap<Measure, Group>) {
        let count = (tick - self.since) as usize + MOST_RECENT;
        let of: BTreeSet<_> = self.watched.iter().map(|watched| (watched.measure, watched.subject)).collect();
        for (measure, subject) in of {
            if let Some(series) = groups.get_mut(&measure).and_then(|group| group.of_mut(&subject)) {
                series.blank(tick, count);
            }
        }
    }
}

impl Watched {
    /// Returns what the figure is now; `None` if the last intervals have none.
    fn state(
        &self,
        tick: u64,
        groups: &BTreeMap<Measure, Group>,
        levels: &mut Levels,
        roles: Roles<'_>,
    ) -> Option<State> {
        let group = groups.get(&self.measure)?;
        let now = i32::from(group.of(&self.subject)?.lately(tick)?);
        // Where no peer is left, they are as they were.
        let level = levels.of((group, self.circle), tick, self.subject, roles);
        let (level, peers) = level.map_or((self.peers, 0), |(level, peers)| (level.into(), peers));
        let expected = self.expected + level - self.peers;
        let by = decode(now).saturating_sub(decode(expected));
        Some(State {
            is_high: now - expected >= steps(END_RATIO) && by >= self.measure.least() / 2,
            value: decode(now),
            expected: decode(expected),
            peers_value: decode(level),
            peers,
        })
    }

    fn is_same(&self, other: &Watched) -> bool {
        (self.subject, self.measure) == (other.subject, other.measure)
    }

    fn idle(&self, groups: &BTreeMap<Measure, Group>) -> usize {
        let series = groups.get(&self.measure).and_then(|group| group.of(&self.subject));
        series.map_or(usize::MAX, |series| series.idle())
    }
}

impl Component {
    /// Returns the name in output.
    pub fn name(self) -> &'static str {
        match self {
            Component::Time(segment) => segment.name(),
            Component::Retransmitted => "retransmitted",
        }
    }

    /// Returns the names of all, each once.
    pub fn names() -> impl Iterator<Item = &'static str> {
        use crate::layers::PathSegment;
        let names: BTreeSet<_> = PathSegment::ALL.into_iter().map(PathSegment::name).collect();
        names.into_iter().chain([Component::Retransmitted.name()])
    }
}
