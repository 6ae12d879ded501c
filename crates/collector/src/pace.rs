//! How many rows to insert at once, and how long a server may take: both follow what the link and the server can do.

use std::time::Duration;

/// Rows of one insert at most. Each insert becomes a file or more, which the server merges later.
const MAX_ROWS: usize = 10_000;
/// Rows below which an insert is not made smaller because it was slow: then the server gets more time.
const MIN_ROWS: usize = 100;
/// Time that the server may take for an insert: the limit to begin with, and the longest.
const LIMIT: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(300));
/// An insert that takes less than this share of the limit leaves room for a larger one.
const EASY: f64 = 0.2;

/// The size of inserts and their time limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    rows: usize,
    limit: Duration,
}

impl Pace {
    pub fn new() -> Pace {
        Pace { rows: MAX_ROWS, limit: LIMIT.0 }
    }

    /// Rows of one insert.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Time that the server may take.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// An insert of this many rows took this long.
    pub fn succeeded(&mut self, rows: usize, took: Duration) {
        if took > self.limit.mul_f64(EASY) {
            return;
        }
        if rows >= self.rows {
            self.rows = MAX_ROWS.min(self.rows * 2);
        }
        self.limit = LIMIT.0.max(self.limit / 2);
    }

    /// An insert of this many rows was not done within the limit.
    pub fn was_slow(&mut self, rows: usize) {
        if rows > MIN_ROWS {
            self.rows = MIN_ROWS.max(rows / 2);
        } else {
            self.limit = LIMIT.1.min(self.limit * 2);
        }
    }

    /// The server refused this many rows as too many.
    pub fn was_too_large(&mut self, rows: usize) {
        self.rows = MIN_ROWS.max(rows / 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_link_gets_small_inserts_and_then_more_time() {
        let mut pace = Pace::new();
        let mut sizes = vec![pace.rows()];
        while pace.rows() > MIN_ROWS {
            pace.was_slow(pace.rows());
            sizes.push(pace.rows());
        }
        assert_eq!(sizes, [10_000, 5_000, 2_500, 1_250, 625, 312, 156, 100]);
        assert_eq!(pace.limit(), LIMIT.0);
        (0..10).for_each(|_| pace.was_slow(MIN_ROWS));
        assert_eq!((pace.rows(), pace.limit()), (MIN_ROWS, LIMIT.1));
    }

    #[test]
    fn a_link_that_recovers_gets_large_inserts_again() {
        let mut pace = Pace { rows: 100, limit: LIMIT.1 };
        pace.succeeded(100, LIMIT.1 / 2);
        assert_eq!(pace, Pace { rows: 100, limit: LIMIT.1 }, "it is just fast enough");
        pace.succeeded(40, Duration::from_secs(1));
        assert_eq!(pace.rows(), 100, "there was nothing more to send");
        for _ in 0..10 {
            pace.succeeded(pace.rows(), Duration::from_secs(1));
        }
        assert_eq!(pace, Pace::new());
    }
}
