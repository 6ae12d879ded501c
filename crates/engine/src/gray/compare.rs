//! The subjects that have one figure, compared with each other and with their past.

use std::collections::BTreeMap;

use super::{
    Finding, LEAST_PEERS, LEAST_RATIO, Measure, Roles, Subject,
    series::{Code, SLOTS, Series, decode, middle, steps},
};
use crate::baseline::{LEAST_BASELINE, LEAST_RECENT, MOST_RECENT, chance};

/// What exceeds the middle of the changes of all peers by no more than this multiple of their spread does not differ, whatever the
/// budget. The spread is the median absolute deviation, scaled to the standard deviation of a normal distribution (Hampel 1974).
const SPREADS: f64 = 3.0;
const TO_DEVIATION: f64 = 1.4826;
/// The mean spread is over this many times of [`MOST_RECENT`] intervals each: an hour with intervals of 10 s.
const SPREADS_IN_MEAN: f64 = 12.0;
/// A change may have been so many intervals ago, at most half as many as are compared. With one split at a fixed age, an abrupt
/// change before or after it would be within one side, where it looks like neighbours that are alike, and hides itself.
const SPLITS: [usize; 6] = [15, 20, 30, 45, 60, 90];
/// In groups of more subjects than this, the median of all stands for that of all others.
const FEW: usize = 64;
/// So many peers are looked at: with more, the median would not be much more certain.
const ENOUGH: usize = 256;

/// The subjects of which one figure is known.
#[derive(Debug)]
pub(super) struct Group {
    measure: Measure,
    series: BTreeMap<Subject, Series>,
    /// The mean spread of changes in the past, in steps, by [`Circle`]: that of few peers at one time is unsure.
    spreads: [Option<f64>; 2],
}

/// With whom a subject is compared. Of those whose past counts as the floor, only a change by orders of magnitude shows: they say
/// nothing of what happens to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Circle {
    /// All: of a subject whose past is at the floor, or where too few are above it.
    All,
    /// Those whose past is above the floor.
    AboveFloor,
}

impl Circle {
    const BOTH: [Circle; 2] = [Circle::All, Circle::AboveFloor];

    fn has(self, series: &Series) -> bool {
        series.past().is_some_and(|past| self == Circle::All || past > 0)
    }
}

/// A subject whose recent figure is larger than its past and its peers explain.
#[derive(Debug, Clone, Copy)]
pub(super) struct Differing {
    /// What is known of it.
    pub(super) finding: Finding,
    /// The codes of what was expected, and of the peers' middle.
    pub(super) expected: i32,
    pub(super) peers: i32,
    /// With whom it was compared.
    pub(super) circle: Circle,
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
    /// All subjects that were judged.
    pub(super) subjects: Vec<Subject>,
}

/// The levels of peers in an interval, each computed once where it is that of all.
#[derive(Debug, Default)]
pub(super) struct Levels(BTreeMap<(Measure, Circle), Option<(Code, usize)>>);

impl Levels {
    /// Returns the median of the last intervals of the peers of a subject, and their number.
    pub(super) fn of(
        &mut self,
        (group, circle): (&Group, Circle),
        tick: u64,
        subject: Subject,
        roles: Roles<'_>,
    ) -> Option<(Code, usize)> {
        match group.series.len() <= FEW {
            true => group.level(tick, circle, Some(subject), roles),
            false => {
                let known = self.0.entry((group.measure, circle));
                *known.or_insert_with(|| group.level(tick, circle, None, roles))
            }
        }
    }
}

/// The changes of those with whom subjects are compared, and what all of them show, once it was asked for.
struct Sample {
    circle: Circle,
    changes: Vec<Change>,
    peers: Option<Peers>,
    common: Option<Vec<Option<i32>>>,
}

impl Sample {
    /// Returns what all show but for those that differ, which are no measure of what is usual, now or at its end.
    fn usual(&self, suspects: &[Suspect]) -> Peers {
        let is_usual = |change: &&Change| suspects.binary_search_by_key(&change.subject, |one| one.subject()).is_err();
        let usual: Vec<Change> = self.changes.iter().filter(is_usual).copied().collect();
        Peers::of(if usual.len() >= LEAST_PEERS { &usual } else { &self.changes }, None)
    }
}

/// A subject that differs enough.
#[derive(Debug, Clone, Copy)]
struct Suspect {
    change: Change,
    circle: Circle,
    excess: i32,
    /// The probability that chance alone makes that, in one comparison.
    chance: f64,
}

impl Suspect {
    fn subject(&self) -> Subject {
        self.change.subject
    }
}

/// The change of a subject: its recent median, and the median of its past.
#[derive(Debug, Clone, Copy)]
struct Change {
    subject: Subject,
    now: Code,
    past: Code,
    noise: f64,
}

impl Change {
    fn of(tick: u64, subject: Subject, series: &Series) -> Option<Change> {
        Some(Change { subject, now: series.recent(tick)?, past: series.past()?, noise: series.noise() })
    }

    fn steps(&self) -> i32 {
        i32::from(self.now) - i32::from(self.past)
    }
}

impl Group {
    pub(super) fn new(measure: Measure) -> Group {
        Group { measure, series: BTreeMap::new(), spreads: [None; 2] }
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
        if tick.is_multiple_of(MOST_RECENT as u64) {
            Circle::BOTH.into_iter().for_each(|circle| self.note_spread(tick - 1, circle));
        }
        gone
    }

    /// Notes how far changes are spread until this interval.
    fn note_spread(&mut self, tick: u64, circle: Circle) {
        let changes: Vec<Change> = self.changes(tick, circle, usize::MAX, |_| true);
        if changes.len() <= LEAST_PEERS {
            return;
        }
        let now = f64::from(Peers::of(&changes, None).spread);
        let spread = &mut self.spreads[circle as usize];
        *spread = Some(spread.map_or(now, |mean| mean + (now - mean) / SPREADS_IN_MEAN));
    }

    /// Returns the changes of peers: of all, or of every second one, third one and so on, if that is `enough`.
    fn changes(&self, tick: u64, circle: Circle, enough: usize, is_peer: impl Fn(Subject) -> bool) -> Vec<Change> {
        let peers = self.series.iter().filter(|(subject, series)| circle.has(series) && is_peer(**subject));
        let peers: Vec<_> = peers.collect();
        let every = peers.len().div_ceil(enough).max(1);
        let some = peers.into_iter().step_by(every);
        some.filter_map(|(subject, series)| Change::of(tick, *subject, series)).collect()
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

    /// Returns the median of the last intervals of all peers, but for one, and their number.
    fn level(&self, tick: u64, circle: Circle, but: Option<Subject>, roles: Roles<'_>) -> Option<(Code, usize)> {
        let is_peer = |subject| Some(subject) != but && roles.is_peer(subject, self.measure);
        let is_of = |series| circle == Circle::All || circle.has(series);
        let others = self.series.iter().filter(|(subject, series)| is_of(series) && is_peer(**subject));
        let mut levels: Vec<Code> = others.filter_map(|(_, series)| series.lately(tick)).collect();
        middle(&mut levels).map(|level| (level, levels.len()))
    }

    /// Compares all subjects. What chance makes less than `budget` times in so many comparisons is sure.
    pub(super) fn differing(&self, tick: u64, comparisons: f64, budget: f64, roles: Roles<'_>) -> Compared {
        // Before the rest, as few have.
        let risen = self.series.iter().filter(|(subject, series)| series.has_risen() && roles.is_judged(**subject));
        let risen = risen.filter_map(|(subject, series)| Change::of(tick, *subject, series));
        let large: Vec<Change> = risen.filter(|change| self.is_large(change, 0)).collect();
        match large.is_empty() {
            true => Compared::default(),
            false => self.compare(tick, &large, (comparisons, budget), roles),
        }
    }

    fn compare(&self, tick: u64, large: &[Change], (comparisons, budget): (f64, f64), roles: Roles<'_>) -> Compared {
        let is_peer = |subject| roles.is_peer(subject, self.measure);
        let mut samples = Circle::BOTH.map(|circle| {
            let changes = self.changes(tick, circle, ENOUGH, is_peer);
            Sample { circle, changes, peers: None, common: None }
        });
        let [all, above] = samples.each_ref().map(|sample| sample.changes.len());
        if all <= LEAST_PEERS {
            return Compared::default();
        }
        let most = budget / comparisons;
        let suspects = large.iter().filter_map(|change| {
            let is_above = change.past > 0 && above > LEAST_PEERS;
            let sample = &mut samples[if is_above { Circle::AboveFloor } else { Circle::All } as usize];
            self.suspect(tick, change, sample, most)
        });
        let suspects: Vec<Suspect> = suspects.collect();
        if suspects.is_empty() {
            return Compared::default();
        }
        let known = self.series.iter().filter(|(_, series)| series.past().is_some() && series.recent(tick).is_some());
        let known: Vec<(&Subject, &Series)> = known.collect();
        let peers_and_one = Circle::BOTH
            .map(|circle| known.iter().filter(|(subject, series)| circle.has(series) && is_peer(**subject)).count());
        let usual = samples.each_ref().map(|sample| sample.usual(&suspects));
        let differing = suspects.into_iter().map(|Suspect { change, circle, excess, chance }| {
            let peers = usual[circle as usize];
            let (expected, per_week) = (i32::from(change.past) + peers.center, chance * comparisons);
            let finding = Finding {
                subject: change.subject,
                measure: self.measure,
                value: decode(change.now.into()),
                past: decode(change.past.into()),
                expected: decode(expected),
                peers_value: decode(peers.level),
                peers: peers_and_one[circle as usize] - 1,
                paths: None,
                per_week,
            };
            Differing { finding, expected, peers: peers.level, circle, excess, is_sure: per_week <= budget }
        });
        let differing = differing.collect();
        let subjects = known.into_iter().map(|(subject, _)| *subject).filter(|subject| roles.is_judged(*subject));
        Compared { differing, subjects: subjects.collect() }
    }

    /// Compares one subject. `None` if it does not differ enough. A probability that exceeds `most` may be too low.
    fn suspect(&self, tick: u64, change: &Change, sample: &mut Sample, most: f64) -> Option<Suspect> {
        let Sample { circle, changes, peers, common } = sample;
        let but = (changes.len() <= FEW).then_some(change.subject);
        let peers = match but {
            Some(_) => Peers::of(changes, but),
            None => *peers.get_or_insert_with(|| Peers::of(changes, None)),
        };
        let excess = change.steps() - peers.center;
        // Who varies more than others from interval to interval, or has fewer of them, changes by more.
        let noisier = if peers.noise > 0.0 { (change.noise / peers.noise).max(1.0) } else { 1.0 };
        let deviation = noisier
            * TO_DEVIATION
            * f64::from(peers.spread).max(self.spreads[*circle as usize].unwrap_or(0.0)).max(1.0);
        let excess_deviations = f64::from(excess) / deviation;
        if excess_deviations <= SPREADS || !self.is_large(change, peers.center) {
            return None;
        }
        let among_peers = libm::erfc(excess_deviations / std::f64::consts::SQRT_2) / 2.0;
        let of_itself = match but {
            _ if among_peers > most => Some(0.0),
            Some(_) => self.chance(tick, change.subject, &self.common(tick, changes, but)),
            None => {
                let common = common.get_or_insert_with(|| self.common(tick, changes, None));
                self.chance(tick, change.subject, common)
            }
        };
        Some(Suspect { change: *change, circle: *circle, excess, chance: of_itself?.max(among_peers) })
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

    /// Returns the probability that chance alone makes the last values of a subject differ from those before, without what all have
    /// in common in each interval: a fleet that wanders would hide it. Of several moments at which it may have changed, the
    /// clearest counts. `None` if too little is known.
    fn chance(&self, tick: u64, subject: Subject, common: &[Option<i32>]) -> Option<f64> {
        let series = self.series.get(&subject)?;
        let value = |(age, code): (usize, Code)| Some(decode(i32::from(code) - common[age]?));
        let values = |ages| series.values(tick, ages).filter_map(value).collect::<Vec<u64>>();
        let of_split = |age: usize| {
            let (then, now) = (values(age..SLOTS), values(0..age));
            let is_enough = then.len() >= LEAST_BASELINE && now.len() >= LEAST_RECENT;
            is_enough.then(|| chance(&then, &now))
        };
        let least = SPLITS.into_iter().filter_map(of_split).min_by(f64::total_cmp)?;
        Some((least * SPLITS.len() as f64).min(1.0))
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
    /// The median of how much they vary.
    noise: f64,
}

impl Peers {
    fn of(changes: &[Change], but: Option<Subject>) -> Peers {
        let others = || changes.iter().filter(|change| Some(change.subject) != but);
        let mut values: Vec<i32> = others().map(Change::steps).collect();
        let center = middle(&mut values).unwrap_or(0);
        values.iter_mut().for_each(|value| *value = (*value - center).abs());
        let spread = middle(&mut values).unwrap_or(0);
        let mut levels: Vec<i32> = others().map(|change| i32::from(change.now)).collect();
        let mut noises: Vec<f64> = others().map(|change| change.noise).collect();
        noises.sort_unstable_by(f64::total_cmp);
        let noise = noises.get(noises.len().saturating_sub(1) / 2).copied().unwrap_or(0.0);
        Peers { center, spread, level: middle(&mut levels).unwrap_or(0), noise }
    }
}
