//! Counts of bytes over time, in bounded memory.

/// The number of points that are kept.
const POINTS: usize = 128;

/// A count of bytes over time, which never decreases. Its memory is fixed: when it is full, every second point is
/// dropped. Between two points, a straight line is assumed.
#[derive(Debug, Clone)]
pub struct Curve {
    points: [Point; POINTS],
    length: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Point {
    time_ns: u64,
    bytes: u64,
}

/// The time at which a count was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrossingTime {
    /// The time on the straight line between the two points.
    pub at_ns: u64,
    /// The count was not yet reached at this time.
    pub after_ns: u64,
    /// The count was reached by this time.
    pub by_ns: u64,
}

impl Default for Curve {
    fn default() -> Curve {
        Curve { points: [Point::default(); POINTS], length: 0 }
    }
}

impl Curve {
    /// Adds a point: the count is `bytes` at `time_ns`. A lower count than before counts as no change.
    pub fn push(&mut self, time_ns: u64, bytes: u64) {
        let point = match self.known().last() {
            Some(last) => Point { time_ns: time_ns.max(last.time_ns), bytes: bytes.max(last.bytes) },
            None => Point { time_ns, bytes },
        };
        // Of a period without change, only the start and the end are kept.
        let level = match self.known() {
            [.., first, second] => first.bytes == point.bytes && second.bytes == point.bytes,
            _ => false,
        };
        if level {
            self.length = self.length.saturating_sub(1);
        } else if self.length >= POINTS {
            self.thin();
        }
        if let Some(slot) = self.points.get_mut(self.length) {
            *slot = point;
            self.length += 1;
        }
    }

    /// Returns when `bytes` were reached. `None` if that was before the first point, or has not happened yet.
    pub fn reached(&self, bytes: u64) -> Option<CrossingTime> {
        let known = self.known();
        let after = known.partition_point(|point| point.bytes < bytes);
        let to = known.get(after)?;
        let from = known.get(after.checked_sub(1)?)?;
        let time = to.time_ns.saturating_sub(from.time_ns);
        let part = u128::from(time) * u128::from(bytes.saturating_sub(from.bytes))
            / u128::from(to.bytes.saturating_sub(from.bytes).max(1));
        Some(CrossingTime {
            at_ns: from.time_ns.saturating_add(part as u64).min(to.time_ns),
            after_ns: from.time_ns,
            by_ns: to.time_ns,
        })
    }

    /// Drops points that are no longer needed because nothing below `bytes` will be queried again.
    pub fn forget(&mut self, bytes: u64) {
        let below = self.known().partition_point(|point| point.bytes < bytes);
        let Some(unwanted) = below.checked_sub(1).filter(|&unwanted| unwanted > 0) else {
            return;
        };
        for from in unwanted..self.length {
            self.copy(from, from.saturating_sub(unwanted));
        }
        self.length = self.length.saturating_sub(unwanted);
    }

    /// Drops all points.
    pub fn clear(&mut self) {
        self.length = 0;
    }

    fn known(&self) -> &[Point] {
        self.points.get(..self.length).unwrap_or_default()
    }

    /// Drops every second point, but keeps the first and the last.
    fn thin(&mut self) {
        let mut kept = 0;
        for from in 0..self.length {
            if from.is_multiple_of(2) || from + 1 == self.length {
                self.copy(from, kept);
                kept += 1;
            }
        }
        self.length = kept;
    }

    /// Unlike `copy_within`, this cannot panic.
    fn copy(&mut self, from: usize, to: usize) {
        if let Some(&point) = self.points.get(from)
            && let Some(slot) = self.points.get_mut(to)
        {
            *slot = point;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_two_points_the_line_is_straight() {
        let mut curve = Curve::default();
        curve.push(100, 0);
        curve.push(200, 1000);
        let when = curve.reached(250).unwrap();
        assert_eq!((when.at_ns, when.after_ns, when.by_ns), (125, 100, 200));
        assert_eq!(curve.reached(1001), None, "not yet");
        assert_eq!(curve.reached(0), None, "nobody knows since when");
    }

    #[test]
    fn bytes_after_a_pause_arrived_at_its_end() {
        let mut curve = Curve::default();
        for time in [0, 10, 20, 30, 40] {
            curve.push(time, 100);
        }
        curve.push(50, 200);
        assert_eq!(curve.length, 3);
        assert_eq!(curve.reached(101).unwrap().after_ns, 40);
        assert_eq!(curve.reached(150).unwrap().at_ns, 45);
    }

    #[test]
    fn more_points_than_fit_cost_resolution_and_no_time() {
        let mut curve = Curve::default();
        for time in 0..10_000 {
            curve.push(time, time * 7);
            assert!(curve.length <= POINTS);
        }
        for bytes in [70, 6_993, 35_000, 69_992] {
            let when = curve.reached(bytes).unwrap();
            assert!(when.at_ns.abs_diff(bytes / 7) <= 1, "{bytes}: {when:?}");
            assert!(when.after_ns <= bytes / 7 && bytes / 7 <= when.by_ns);
        }
    }

    #[test]
    fn dropped_points_leave_the_rest_unchanged() {
        let mut curve = Curve::default();
        for time in 0..100 {
            curve.push(time, time * 10);
        }
        let before = curve.reached(555);
        curve.forget(555);
        assert_eq!(curve.reached(555), before);
        assert_eq!(curve.reached(541), None);
        assert_eq!(curve.length, 45);
    }

    #[test]
    fn a_count_that_falls_counts_as_unchanged() {
        let mut curve = Curve::default();
        curve.push(0, 100);
        curve.push(10, 200);
        curve.push(20, 150);
        curve.push(5, 300);
        assert_eq!(curve.reached(200).unwrap().by_ns, 10);
        assert_eq!(curve.reached(300).unwrap().by_ns, 20);
    }
}
