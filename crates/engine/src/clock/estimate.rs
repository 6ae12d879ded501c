//! Estimates another host's clock from exchanges of packets: its offset, its drift, and the error bounds of both.
//!
//! An exchange confines the offset to an interval: the truth is within half its round trip, whatever the asymmetry of
//! the path. Of the exchanges in a round, the one with the shortest round trip has the narrowest interval. Over rounds,
//! the offset is a line whose slope is the drift. All lines that cross every interval form a polygon in the plane of
//! offset and drift; its extent at a given time is the error bound. The estimate itself is the regression line over the
//! same points.
//!
//! Because drift changes slowly (temperature, the discipline of an NTP daemon), an interval widens with its age until
//! it no longer matters.

use std::{collections::VecDeque, time::Duration};

/// The number of past rounds that the fit uses.
const ROUNDS: usize = 32;

const NS_PER_SECOND: f64 = 1e9;

/// A request and its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    /// The time at which the request left, by the local clock.
    pub t1_ns: u64,
    /// The time at which the request arrived, by the host's clock.
    pub t2_ns: u64,
    /// The time at which the reply left, by the host's clock.
    pub t3_ns: u64,
    /// The time at which the reply arrived, by the local clock.
    pub t4_ns: u64,
}

impl Exchange {
    /// Returns the network time of both directions; `None` if the times contradict each other.
    pub fn round_trip_ns(&self) -> Option<u64> {
        let away = self.t4_ns.checked_sub(self.t1_ns)?;
        away.checked_sub(self.t3_ns.checked_sub(self.t2_ns)?)
    }

    /// Returns how far the host's clock is ahead, assuming that both directions take the same time.
    pub fn offset_ns(&self) -> i64 {
        let ahead = i128::from(self.t2_ns) - i128::from(self.t1_ns);
        let behind = i128::from(self.t3_ns) - i128::from(self.t4_ns);
        ((ahead + behind) / 2) as i64
    }

    fn middle_ns(&self) -> u64 {
        self.t1_ns + (self.t4_ns - self.t1_ns) / 2
    }
}

/// Returns the most informative exchange of a round: the one with the shortest round trip.
pub fn best(exchanges: &[Exchange]) -> Option<&Exchange> {
    let consistent = exchanges.iter().filter(|exchange| exchange.round_trip_ns().is_some());
    consistent.min_by_key(|exchange| exchange.round_trip_ns())
}

/// Returns the pause after this number of rounds: a second at first, so that the drift is known early, and twice as long each time
/// until it is `longest`.
pub fn pause(rounds: u64, longest: Duration) -> Duration {
    const FIRST: Duration = Duration::from_secs(1);
    FIRST.saturating_mul(1 << rounds.saturating_sub(1).min(31)).min(longest)
}

/// Assumptions about two clocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Assumptions {
    /// The greatest drift between them, in parts per 10^9.
    pub drift_ppb: f64,
    /// The greatest change of the drift per second, in parts per 10^9.
    pub wander_ppb_per_s: f64,
}

impl Default for Assumptions {
    /// Crystals are within 100 ppm, and a settled NTP daemon adjusts by no more than that; the daemon and the
    /// temperature change the drift by about 0.1 ppm within minutes.
    fn default() -> Assumptions {
        Assumptions { drift_ppb: 500_000.0, wander_ppb_per_s: 1.0 }
    }
}

/// The result of adding a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// The round had no informative exchange, or none after the last one.
    Useless,
    /// The round was the first.
    First,
    /// The round agrees with the previous ones.
    Agrees,
    /// The round contradicts the previous ones: a clock was stepped, or its rate was changed. The estimate starts anew.
    Stepped {
        /// The distance of the offset from what was possible, in nanoseconds.
        by_ns: i64,
    },
}

/// A time converted from another clock, with its error bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoundedTime {
    /// The time in nanoseconds.
    pub ns: u64,
    /// The greatest possible error in nanoseconds.
    pub bound_ns: u64,
}

/// The rate of the host's clock relative to the local one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drift {
    /// The parts per 10^9 by which the host's clock is fast.
    pub ppb: f64,
    /// The greatest possible error.
    pub bound_ppb: f64,
}

/// The estimate of a host's clock.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    assumptions: Assumptions,
    now: Option<Line>,
    /// The estimate until the clock was stepped.
    before: Option<Line>,
    steps: u64,
}

impl Clock {
    /// Creates an estimate without data.
    pub fn new(assumptions: Assumptions) -> Clock {
        Clock { assumptions, ..Clock::default() }
    }

    /// Adds a round.
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

    /// Converts a time of the host's clock to the local clock. `None` before the first round, and for times between the
    /// rounds before and after a step.
    pub fn convert(&self, host_ns: u64) -> Option<BoundedTime> {
        let line = self.now.as_ref()?;
        if host_ns >= line.first_host_ns {
            return line.to_own(host_ns);
        }
        match &self.before {
            None => line.to_own(host_ns),
            Some(before) => (host_ns <= before.last_host_ns).then(|| before.to_own(host_ns))?,
        }
    }

    /// Converts a local time to the host's clock. `None` before the first round, and for times between the rounds
    /// before and after a step.
    pub fn to_host(&self, own_ns: u64) -> Option<BoundedTime> {
        let line = self.now.as_ref()?;
        if own_ns >= line.first_ns {
            return line.to_host(own_ns);
        }
        match &self.before {
            None => line.to_host(own_ns),
            Some(before) => (own_ns <= before.origin_ns).then(|| before.to_host(own_ns))?,
        }
    }

    /// Returns the drift of the host's clock, or `None` before the first round.
    pub fn drift(&self) -> Option<Drift> {
        self.now.as_ref().map(Line::drift)
    }

    /// Returns how many times a clock was stepped.
    pub fn steps(&self) -> u64 {
        self.steps
    }
}

/// The result of one round, relative to the line's base and origin.
#[derive(Debug, Clone, Copy)]
struct Point {
    at_ns: u64,
    offset_ns: f64,
    half_ns: f64,
}

/// A line: an offset in nanoseconds and a slope.
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

/// The offset over time, as long as no clock is stepped.
#[derive(Debug, Clone)]
struct Line {
    assumptions: Assumptions,
    points: VecDeque<Point>,
    /// Subtracted from all offsets, which have more digits than a float.
    base_ns: i64,
    /// The time of the last round, from which time is counted.
    origin_ns: u64,
    first_ns: u64,
    first_host_ns: u64,
    last_host_ns: u64,
    likely: Candidate,
    /// The corners of the polygon of all possible lines.
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
            // The division loses a half at most.
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

    /// Returns how far an exchange is outside of what is possible.
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

    /// Cuts off everything that contradicts a round, starting with the latest round. An old round that would leave
    /// nothing is dropped: the drift has changed.
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

    /// Least squares, weighted by the inverse square of each point's width.
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

    /// Returns the possible range of the offset at a time.
    fn reach(&self, since_ns: f64) -> (f64, f64) {
        let wander = self.wander_ns(since_ns);
        let (low, high) = extremes(self.possible.iter().map(|line| line.at(since_ns)));
        (low - wander, high + wander)
    }

    /// Returns the likely offset at a time, and its greatest possible error.
    fn offset(&self, since_ns: f64) -> (f64, f64) {
        let (low, high) = self.reach(since_ns);
        let likely = self.likely.at(since_ns).clamp(low, high);
        (likely, (high - likely).max(likely - low))
    }

    fn to_own(&self, host_ns: u64) -> Option<BoundedTime> {
        let shown = i128::from(host_ns) - i128::from(self.base_ns) - i128::from(self.origin_ns);
        let shown = shown as f64;
        let since = (shown - self.likely.offset_ns) / (1.0 + self.likely.drift);
        let (offset, bound) = self.offset(since);
        // The time at which the offset is evaluated is itself uncertain by the offset.
        let most = self.assumptions.drift_ppb / NS_PER_SECOND;
        converted(self.origin_ns, shown - offset, bound * (1.0 + most))
    }

    fn to_host(&self, own_ns: u64) -> Option<BoundedTime> {
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

    /// Returns how far a line may have bent in this time.
    fn wander_ns(&self, since_ns: f64) -> f64 {
        let seconds = since_ns / NS_PER_SECOND;
        self.assumptions.wander_ppb_per_s * seconds * seconds / 2.0
    }
}

fn converted(from_ns: u64, add_ns: f64, bound_ns: f64) -> Option<BoundedTime> {
    Some(BoundedTime {
        ns: from_ns.checked_add_signed(add_ns.round() as i64)?,
        bound_ns: (bound_ns.ceil() as u64).saturating_add(1),
    })
}

fn extremes(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
}

/// Returns the part of a convex polygon where the linear function `inside` is not negative.
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
