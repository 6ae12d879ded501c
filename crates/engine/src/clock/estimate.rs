//! From exchanges of packets to another host's clock: its offset, its drift, and
//! how far both may be wrong.
//!
//! An exchange pins the offset to an interval: the truth is within half its
//! round trip, however the two ways share it. Of a round the exchange with the
//! least round trip has the narrowest. Over rounds, the offset is a line whose
//! slope is the drift. All lines that meet every interval form a polygon in the
//! plane of offset and drift; how far it reaches at a time is the bound then. The
//! line that is taken is the regression over the same points.
//!
//! As a drift changes slowly (temperature, the discipline of an NTP daemon), an
//! interval widens with its age, and so is forgotten.

use std::{collections::VecDeque, time::Duration};

/// Rounds that a fit looks back on.
const ROUNDS: usize = 32;

const NS_PER_SECOND: f64 = 1e9;

/// A request and its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    /// The request leaves, by the own clock.
    pub t1_ns: u64,
    /// It arrives, by the host's clock.
    pub t2_ns: u64,
    /// The reply leaves, by the host's clock.
    pub t3_ns: u64,
    /// It arrives, by the own clock.
    pub t4_ns: u64,
}

impl Exchange {
    /// The time on the way, both ways; none where the times contradict each
    /// other.
    pub fn round_trip_ns(&self) -> Option<u64> {
        let away = self.t4_ns.checked_sub(self.t1_ns)?;
        away.checked_sub(self.t3_ns.checked_sub(self.t2_ns)?)
    }

    /// By how much the host's clock is ahead, if both ways take the same time.
    pub fn offset_ns(&self) -> i64 {
        let ahead = i128::from(self.t2_ns) - i128::from(self.t1_ns);
        let behind = i128::from(self.t3_ns) - i128::from(self.t4_ns);
        ((ahead + behind) / 2) as i64
    }

    fn middle_ns(&self) -> u64 {
        self.t1_ns + (self.t4_ns - self.t1_ns) / 2
    }
}

/// The exchange of a round that tells most: that with the least round trip.
pub fn best(exchanges: &[Exchange]) -> Option<&Exchange> {
    let told = exchanges.iter().filter(|exchange| exchange.round_trip_ns().is_some());
    told.min_by_key(|exchange| exchange.round_trip_ns())
}

/// How long after so many rounds the next is due: soon at first, so that the drift
/// is known early, and 64 s later on.
pub fn pause(rounds: u64) -> Duration {
    const FIRST: Duration = Duration::from_millis(250);
    FIRST * (1 << rounds.saturating_sub(1).min(8))
}

/// What is taken for granted of two clocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Assumptions {
    /// They drift apart by no more than so many parts in 10^9.
    pub drift_ppb: f64,
    /// That changes in a second by no more than so many parts in 10^9.
    pub wander_ppb_per_s: f64,
}

impl Default for Assumptions {
    /// Crystals are within 100 ppm, and an NTP daemon in its stride steers by no
    /// more than that; it and the temperature change the drift by some 0.1 ppm in
    /// minutes.
    fn default() -> Assumptions {
        Assumptions { drift_ppb: 500_000.0, wander_ppb_per_s: 1.0 }
    }
}

/// What came of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// It held no exchange that tells anything, or none later than the last.
    Useless,
    /// It was the first.
    First,
    /// It agrees with those before.
    Agrees,
    /// It contradicts them: a clock was stepped, or its rate was. The estimate
    /// begins anew.
    Stepped {
        /// How far the offset is outside of what was possible.
        by_ns: i64,
    },
}

/// A time on the other clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Converted {
    /// The time.
    pub ns: u64,
    /// The truth is not further away than this.
    pub bound_ns: u64,
}

/// How fast the host's clock runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drift {
    /// Parts in 10^9 by which it is fast.
    pub ppb: f64,
    /// The truth is not further away than this.
    pub bound_ppb: f64,
}

/// A host's clock as seen from here.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    assumptions: Assumptions,
    now: Option<Line>,
    /// Until the clock was stepped.
    before: Option<Line>,
    steps: u64,
}

impl Clock {
    /// Nothing is known of it yet.
    pub fn new(assumptions: Assumptions) -> Clock {
        Clock { assumptions, ..Clock::default() }
    }

    /// Learns from a round.
    pub fn add(&mut self, round: &[Exchange]) -> Fit {
        let Some(best) = best(round) else {
            return Fit::Useless;
        };
        let Some(line) = &mut self.now else {
            self.now = Some(Line::new(self.assumptions, best));
            return Fit::First;
        };
        if best.middle_ns() <= line.origin_ns {
            return Fit::Useless;
        }
        match line.contradiction(best) {
            None => {
                line.add(best);
                Fit::Agrees
            }
            Some(by_ns) => {
                self.before = self.now.replace(Line::new(self.assumptions, best));
                self.steps += 1;
                Fit::Stepped { by_ns }
            }
        }
    }

    /// What the own clock shows when the host's shows this. None before the first
    /// round, and for times between the rounds before and after a step.
    pub fn convert(&self, host_ns: u64) -> Option<Converted> {
        let line = self.now.as_ref()?;
        if host_ns >= line.first_host_ns {
            return line.to_own(host_ns);
        }
        match &self.before {
            None => line.to_own(host_ns),
            Some(before) => (host_ns <= before.last_host_ns).then(|| before.to_own(host_ns))?,
        }
    }

    /// What the host's clock shows when the own one shows this; none as above.
    pub fn to_host(&self, own_ns: u64) -> Option<Converted> {
        let line = self.now.as_ref()?;
        if own_ns >= line.first_ns {
            return line.to_host(own_ns);
        }
        match &self.before {
            None => line.to_host(own_ns),
            Some(before) => (own_ns <= before.origin_ns).then(|| before.to_host(own_ns))?,
        }
    }

    /// How fast the host's clock runs, once a round was added.
    pub fn drift(&self) -> Option<Drift> {
        self.now.as_ref().map(Line::drift)
    }

    /// How often a clock was stepped.
    pub fn steps(&self) -> u64 {
        self.steps
    }
}

/// What a round says, relative to the line's base and origin.
#[derive(Debug, Clone, Copy)]
struct Point {
    at_ns: u64,
    offset_ns: f64,
    half_ns: f64,
}

/// A line, in nanoseconds and parts of one.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    offset_ns: f64,
    drift: f64,
}

impl Candidate {
    fn at(&self, since_ns: f64) -> f64 {
        self.offset_ns + self.drift * since_ns
    }
}

/// The offset over time, while no clock is stepped.
#[derive(Debug, Clone)]
struct Line {
    assumptions: Assumptions,
    points: VecDeque<Point>,
    /// Subtracted from all offsets, which have more digits than a float.
    base_ns: i64,
    /// The last round, from which time is counted.
    origin_ns: u64,
    first_ns: u64,
    first_host_ns: u64,
    last_host_ns: u64,
    likely: Candidate,
    /// The corners of all that is possible.
    possible: Vec<Candidate>,
}

impl Line {
    fn new(assumptions: Assumptions, first: &Exchange) -> Line {
        let mut line = Line {
            assumptions,
            points: VecDeque::new(),
            base_ns: first.offset_ns(),
            origin_ns: 0,
            first_ns: first.middle_ns(),
            first_host_ns: first.t2_ns,
            last_host_ns: 0,
            likely: Candidate { offset_ns: 0.0, drift: 0.0 },
            possible: Vec::new(),
        };
        line.add(first);
        line
    }

    fn point(&self, exchange: &Exchange) -> Point {
        let round_trip = exchange.round_trip_ns().unwrap_or_default();
        Point {
            at_ns: exchange.middle_ns(),
            offset_ns: exchange.offset_ns().wrapping_sub(self.base_ns) as f64,
            // Halves are lost in rounding.
            half_ns: round_trip as f64 / 2.0 + 1.0,
        }
    }

    fn add(&mut self, exchange: &Exchange) {
        let point = self.point(exchange);
        self.points.push_front(point);
        self.points.truncate(ROUNDS);
        self.origin_ns = point.at_ns;
        self.last_host_ns = exchange.t3_ns;
        self.restrict();
        self.regress();
    }

    /// How far outside of what is possible an exchange is.
    fn contradiction(&self, exchange: &Exchange) -> Option<i64> {
        let point = self.point(exchange);
        let (low, high) = self.reach(self.since(point.at_ns));
        let (least, most) = (point.offset_ns - point.half_ns, point.offset_ns + point.half_ns);
        if least > high {
            Some((least - high).ceil() as i64)
        } else if most < low {
            Some((most - low).floor() as i64)
        } else {
            None
        }
    }

    /// Cuts away what contradicts a round, the latest first. An old one that
    /// leaves nothing is forgotten: the drift has changed.
    fn restrict(&mut self) {
        let most = self.assumptions.drift_ppb / NS_PER_SECOND;
        let Some(last) = self.points.front() else {
            return;
        };
        let corner = |side: f64, drift| Candidate { offset_ns: last.offset_ns + side * last.half_ns, drift };
        self.possible = vec![corner(-1.0, -most), corner(1.0, -most), corner(1.0, most), corner(-1.0, most)];
        for at in 1..self.points.len() {
            let point = self.points[at];
            let since = self.since(point.at_ns);
            let half = point.half_ns + self.wander_ns(since);
            let below = cut(&self.possible, |line| line.at(since) - (point.offset_ns - half));
            let both = cut(&below, |line| point.offset_ns + half - line.at(since));
            if both.is_empty() {
                self.points.truncate(at);
                return;
            }
            self.possible = both;
        }
    }

    /// Least squares, where a point counts as much as it is narrow.
    fn regress(&mut self) {
        let weighted = |value: &dyn Fn(&Point, f64) -> f64| -> f64 {
            let terms = self.points.iter().map(|point| {
                let since = self.since(point.at_ns);
                let half = point.half_ns + self.wander_ns(since);
                value(point, since) / (half * half)
            });
            terms.sum()
        };
        let total = weighted(&|_, _| 1.0);
        let middle = weighted(&|_, since| since) / total;
        let mean = weighted(&|point, _| point.offset_ns) / total;
        let spread = weighted(&|_, since| (since - middle).powi(2));
        let slope = weighted(&|point, since| (since - middle) * (point.offset_ns - mean));
        let drift = if spread > 0.0 { slope / spread } else { 0.0 };
        self.likely = Candidate { offset_ns: mean - drift * middle, drift };
    }

    /// What is possible at a time.
    fn reach(&self, since_ns: f64) -> (f64, f64) {
        let wander = self.wander_ns(since_ns);
        let (low, high) = extremes(self.possible.iter().map(|line| line.at(since_ns)));
        (low - wander, high + wander)
    }

    /// What is likely at a time, and how far the truth may be from it.
    fn offset(&self, since_ns: f64) -> (f64, f64) {
        let (low, high) = self.reach(since_ns);
        let likely = self.likely.at(since_ns).clamp(low, high);
        (likely, (high - likely).max(likely - low))
    }

    fn to_own(&self, host_ns: u64) -> Option<Converted> {
        let shown = i128::from(host_ns) - i128::from(self.base_ns) - i128::from(self.origin_ns);
        let shown = shown as f64;
        let since = (shown - self.likely.offset_ns) / (1.0 + self.likely.drift);
        let (offset, bound) = self.offset(since);
        // The time at which the offset is taken is uncertain by the offset.
        let most = self.assumptions.drift_ppb / NS_PER_SECOND;
        converted(self.origin_ns, shown - offset, bound * (1.0 + most))
    }

    fn to_host(&self, own_ns: u64) -> Option<Converted> {
        let (offset, bound) = self.offset(self.since(own_ns));
        converted(own_ns.checked_add_signed(self.base_ns)?, offset, bound)
    }

    fn drift(&self) -> Drift {
        let (low, high) = extremes(self.possible.iter().map(|line| line.drift));
        let likely = self.likely.drift.clamp(low, high);
        Drift { ppb: likely * NS_PER_SECOND, bound_ppb: (high - likely).max(likely - low) * NS_PER_SECOND }
    }

    fn since(&self, own_ns: u64) -> f64 {
        (i128::from(own_ns) - i128::from(self.origin_ns)) as f64
    }

    /// How far a line may have bent in a time.
    fn wander_ns(&self, since_ns: f64) -> f64 {
        let seconds = since_ns / NS_PER_SECOND;
        self.assumptions.wander_ppb_per_s * seconds * seconds / 2.0
    }
}

fn converted(from_ns: u64, add_ns: f64, bound_ns: f64) -> Option<Converted> {
    Some(Converted {
        ns: from_ns.checked_add_signed(add_ns.round() as i64)?,
        bound_ns: (bound_ns.ceil() as u64).saturating_add(1),
    })
}

fn extremes(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
}

/// The part of a convex polygon where `inside` is not negative; it is linear.
fn cut(corners: &[Candidate], inside: impl Fn(&Candidate) -> f64) -> Vec<Candidate> {
    let mut kept = Vec::with_capacity(corners.len() + 1);
    for (at, here) in corners.iter().enumerate() {
        let next = &corners[(at + 1) % corners.len()];
        let (a, b) = (inside(here), inside(next));
        if a >= 0.0 {
            kept.push(*here);
        }
        if (a >= 0.0) != (b >= 0.0) {
            let share = a / (a - b);
            kept.push(Candidate {
                offset_ns: here.offset_ns + share * (next.offset_ns - here.offset_ns),
                drift: here.drift + share * (next.drift - here.drift),
            });
        }
    }
    kept
}
