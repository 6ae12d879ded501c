//! The subjects that have one figure, compared with each other and with their past.

use std::collections::BTreeMap;

use super::{
    Finding, LEAST_PEERS, LEAST_RATIO, Measure, Subject,
    series::{Code, SLOTS, Series, decode, middle, steps},
};
use crate::baseline::{LEAST_BASELINE, LEAST_RECENT, chance};

/// An increase must exceed the middle of those of all peers by this multiple of their spread. The spread is the median
/// absolute deviation, scaled to the standard deviation of a normal distribution (Hampel 1974).
const SPREADS: f64 = 3.0;
const TO_DEVIATION: f64 = 1.4826;
/// In groups of more subjects than this, the median of all stands for that of all others.
const FEW: usize = 64;

/// The subjects of which one figure is known.
#[derive(Debug)]
pub(super) struct Group {
    measure: Measure,
    series: BTreeMap<Subject, Series>,
}

/// A subject whose recent figure is larger than its past and its peers explain.
#[derive(Debug, Clone, Copy)]
pub(super) struct Differing {
    /// What is known of it.
    pub(super) finding: Finding,
    /// The codes of what was expected, and of the peers' middle.
    pub(super) expected: i32,
    pub(super) peers: i32,
    /// By how much it exceeds what was expected.
    pub(super) excess: i32,
    /// Whether chance alone hardly makes that.
    pub(super) is_sure: bool,
}

/// What was compared in an interval.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// Those that differ enough, surely or not.
    pub(super) differing: Vec<Differing>,
    /// All subjects that were compared.
    pub(super) subjects: Vec<Subject>,
}

/// What all subjects show, once it was asked for.
#[derive(Default)]
struct OfAll {
    peers: Option<Peers>,
    common: Option<Vec<Option<i32>>>,
}

/// The change of a subject: its recent median, and the median of its past.
#[derive(Debug, Clone, Copy)]
struct Change {
    subject: Subject,
    now: Code,
    past: Code,
}

impl Change {
    fn steps(&self) -> i32 {
        i32::from(self.now) - i32::from(self.past)
    }
}

impl Group {
    pub(super) fn new(measure: Measure) -> Group {
        Group { measure, series: BTreeMap::new() }
    }

    /// Begins an interval. Returns the subjects of which no value is left.
    pub(super) fn turn(&mut self, tick: u64) -> Vec<Subject> {
        let mut gone = Vec::new();
        for (number, (subject, series)) in self.series.iter_mut().enumerate() {
            if !series.turn(tick, number) {
                gone.push(*subject);
            }
        }
        gone.iter().for_each(|subject| drop(self.series.remove(subject)));
        gone
    }

    /// Sets the value of a subject in this interval. Returns false if it is not known yet.
    pub(super) fn set(&mut self, tick: u64, subject: Subject, code: Code) -> bool {
        self.series.get_mut(&subject).map(|series| series.set(tick, code)).is_some()
    }

    /// Adds a subject with its first value.
    pub(super) fn add(&mut self, tick: u64, subject: Subject, code: Code) {
        self.series.entry(subject).or_default().set(tick, code);
    }

    /// Removes subjects, and returns them.
    pub(super) fn remove(&mut self, is_gone: impl Fn(&Subject) -> bool) -> Vec<Subject> {
        let gone: Vec<_> = self.series.keys().copied().filter(is_gone).collect();
        gone.iter().for_each(|subject| drop(self.series.remove(subject)));
        gone
    }

    pub(super) fn of(&self, subject: &Subject) -> Option<&Series> {
        self.series.get(subject)
    }

    pub(super) fn of_mut(&mut self, subject: &Subject) -> Option<&mut Series> {
        self.series.get_mut(subject)
    }

    /// Returns the median of the last intervals of all subjects that are judged, but for one, and their number.
    pub(super) fn level(&self, tick: u64, but: Subject, is_out: &dyn Fn(Subject) -> bool) -> Option<(Code, usize)> {
        let others = self.series.iter().filter(|(subject, _)| **subject != but && !is_out(**subject));
        let mut levels: Vec<Code> = others.filter_map(|(_, series)| series.lately(tick)).collect();
        middle(&mut levels).map(|level| (level, levels.len()))
    }

    /// Compares all subjects. What chance makes less than `budget` times in so many comparisons is sure.
    pub(super) fn differing(
        &self,
        tick: u64,
        comparisons: f64,
        budget: f64,
        is_out: &dyn Fn(Subject) -> bool,
    ) -> Compared {
        let mut compared = Compared::default();
        let rise = steps(LEAST_RATIO);
        let has_risen = |series: &Series| {
            let least = series.past().map(|past| i32::from(past) + rise);
            least.is_some_and(|least| series.reaches(tick, least))
        };
        // Hardly ever does one.
        if self.series.values().any(has_risen) {
            self.compare(tick, (comparisons, budget), is_out, &mut compared);
        }
        compared
    }

    fn compare(
        &self,
        tick: u64,
        (comparisons, budget): (f64, f64),
        is_out: &dyn Fn(Subject) -> bool,
        compared: &mut Compared,
    ) {
        let judged = self.series.iter().filter(|(subject, _)| !is_out(**subject));
        let changes = judged.filter_map(|(subject, series)| {
            Some(Change { subject: *subject, now: series.recent(tick)?, past: series.past()? })
        });
        let changes: Vec<Change> = changes.collect();
        if changes.len() <= LEAST_PEERS {
            return;
        }
        compared.subjects = changes.iter().map(|change| change.subject).collect();
        let mut of_all = OfAll::default();
        for change in changes.iter().filter(|change| self.is_large(change, 0)) {
            let Some(found) = self.differs(tick, change, &changes, &mut of_all) else { continue };
            let per_week = found.finding.per_week * comparisons;
            let finding = Finding { per_week, ..found.finding };
            compared.differing.push(Differing { finding, is_sure: per_week <= budget, ..found });
        }
    }

    /// Compares one subject. `None` if it does not differ enough; otherwise with the probability of one comparison.
    fn differs(&self, tick: u64, change: &Change, changes: &[Change], of_all: &mut OfAll) -> Option<Differing> {
        let but = (changes.len() <= FEW).then_some(change.subject);
        let peers = match but {
            Some(_) => Peers::of(changes, but),
            None => *of_all.peers.get_or_insert_with(|| Peers::of(changes, None)),
        };
        let excess = change.steps() - peers.center;
        let is_outside = f64::from(excess) > SPREADS * TO_DEVIATION * f64::from(peers.spread);
        if !is_outside || !self.is_large(change, peers.center) {
            return None;
        }
        let chance = match but {
            Some(_) => self.chance(tick, change.subject, &self.common(tick, changes, but)),
            None => {
                let common = of_all.common.get_or_insert_with(|| self.common(tick, changes, None));
                self.chance(tick, change.subject, common)
            }
        };
        let expected = i32::from(change.past) + peers.center;
        let finding = Finding {
            subject: change.subject,
            measure: self.measure,
            value: decode(change.now.into()),
            past: decode(change.past.into()),
            expected: decode(expected),
            peers_value: decode(peers.level),
            peers: changes.len() - 1,
            paths: None,
            per_week: chance?,
        };
        Some(Differing { finding, expected, peers: peers.level, excess, is_sure: false })
    }

    /// Returns whether an increase matters, over the past and over the past changed as by so many steps.
    fn is_large(&self, change: &Change, common: i32) -> bool {
        let (now, past) = (i32::from(change.now), i32::from(change.past));
        let exceeds = |reference: i32| {
            let by = decode(now).saturating_sub(decode(reference));
            now - reference >= steps(LEAST_RATIO) && by >= self.measure.least()
        };
        exceeds(past) && exceeds(past + common)
    }

    /// Returns what the subjects had in common in each interval, by age: the median change from their pasts. `None` where too few
    /// are known.
    fn common(&self, tick: u64, changes: &[Change], but: Option<Subject>) -> Vec<Option<i32>> {
        let peers: Vec<_> = changes
            .iter()
            .filter(|change| Some(change.subject) != but)
            .filter_map(|change| Some((self.series.get(&change.subject)?, change.past)))
            .collect();
        let mut values = Vec::with_capacity(peers.len());
        let at = |age| {
            values.clear();
            let known = peers.iter().filter_map(|(series, past)| Some((series.at(tick, age)?, *past)));
            values.extend(known.map(|(code, past)| i32::from(code) - i32::from(past)));
            (values.len() >= LEAST_PEERS).then(|| middle(&mut values)).flatten()
        };
        (0..SLOTS).map(at).collect()
    }

    /// Returns the probability that chance alone makes the recent values of a subject differ from those of its past, without what
    /// all have in common in each interval: a fleet that wanders would hide it. `None` if too little is known.
    fn chance(&self, tick: u64, subject: Subject, common: &[Option<i32>]) -> Option<f64> {
        let series = self.series.get(&subject)?;
        let value = |(age, code): (usize, Code)| Some(decode(i32::from(code) - common[age]?));
        let then: Vec<u64> = series.past_values(tick).filter_map(value).collect();
        let now: Vec<u64> = series.recent_values(tick).filter_map(value).collect();
        let is_enough = then.len() >= LEAST_BASELINE && now.len() >= LEAST_RECENT;
        is_enough.then(|| chance(&then, &now))
    }
}

/// What the peers of a subject show, in steps.
#[derive(Debug, Clone, Copy)]
struct Peers {
    /// The median of their changes, and the median deviation from that.
    center: i32,
    spread: i32,
    /// The median of their recent values.
    level: i32,
}

impl Peers {
    fn of(changes: &[Change], but: Option<Subject>) -> Peers {
        let others = || changes.iter().filter(|change| Some(change.subject) != but);
        let mut values: Vec<i32> = others().map(Change::steps).collect();
        let center = middle(&mut values).unwrap_or(0);
        values.iter_mut().for_each(|value| *value = (*value - center).abs());
        let spread = middle(&mut values).unwrap_or(0);
        let mut levels: Vec<i32> = others().map(|change| i32::from(change.now)).collect();
        Peers { center, spread, level: middle(&mut levels).unwrap_or(0) }
    }
}
