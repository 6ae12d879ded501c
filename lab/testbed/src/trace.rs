use std::{path::Path, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{Bytes, Error, Nanos, Result};

/// A delivery trace in the format of mahimahi. Each line is an opportunity: its time in whole milliseconds since the
/// first packet, not decreasing. An opportunity lets up to 1504 bytes of one or several packets pass; bytes that are
/// not used at its time are lost. After the last line, the trace restarts at the time of that line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<u64>", into = "Vec<u64>")]
pub struct Trace(Arc<[u64]>);

/// The number of bytes that one opportunity lets pass.
const OPPORTUNITY: Bytes = Bytes(1504);

impl Trace {
    /// Parses the text of a trace.
    pub fn parse(text: &str) -> Result<Self> {
        let times = text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
            .map(|(n, line)| {
                line.trim().parse().map_err(|why| Error::invalid(format!("trace line {}: {line:?}", n + 1), why))
            })
            .collect::<Result<Vec<u64>>>()?;
        Self::try_from(times).map_err(|why| Error::invalid("trace", why))
    }

    /// Reads a trace file.
    pub fn read(path: &Path) -> Result<Self> {
        Self::parse(&std::fs::read_to_string(path).map_err(Error::file("read", path))?)
    }

    fn period_ms(&self) -> u64 {
        self.0.last().copied().unwrap_or_default()
    }
}

impl TryFrom<Vec<u64>> for Trace {
    type Error = &'static str;
    fn try_from(times_ms: Vec<u64>) -> std::result::Result<Self, Self::Error> {
        if times_ms.last().is_none_or(|&last| last == 0) {
            return Err("a trace must end at a time above zero");
        }
        if !times_ms.is_sorted() {
            return Err("the times of a trace must not decrease");
        }
        Ok(Self(times_ms.into()))
    }
}

impl From<Trace> for Vec<u64> {
    fn from(trace: Trace) -> Self {
        trace.0.to_vec()
    }
}

/// The position of a link in its trace: the next opportunity, and the bytes left in it.
#[derive(Debug)]
pub(crate) struct TraceCursor {
    trace: Trace,
    start: Nanos,
    round: u64,
    line: usize,
    left: Bytes,
}

impl TraceCursor {
    pub(crate) fn new(trace: Trace, start: Nanos) -> Self {
        Self { trace, start, round: 0, line: 0, left: OPPORTUNITY }
    }

    /// Returns the time at which a packet that arrives at `now`, behind all earlier ones, has passed completely.
    pub(crate) fn serve(&mut self, now: Nanos, bytes: Bytes) -> Nanos {
        let elapsed_ms = now.since(self.start).0.div_ceil(1_000_000);
        let round = elapsed_ms / self.trace.period_ms();
        if round > self.round + 1 {
            (self.round, self.line, self.left) = (round - 1, 0, OPPORTUNITY);
        }
        while self.time() < now {
            self.advance();
        }
        let mut rest = bytes;
        while rest > self.left {
            rest.0 -= self.left.0;
            self.advance();
        }
        self.left.0 -= rest.0;
        self.time()
    }

    fn time(&self) -> Nanos {
        self.start + Nanos::from_millis(self.round * self.trace.period_ms() + self.trace.0[self.line])
    }

    fn advance(&mut self) {
        self.left = OPPORTUNITY;
        self.line += 1;
        if self.line == self.trace.0.len() {
            (self.round, self.line) = (self.round + 1, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    fn cursor(text: &str) -> TraceCursor {
        TraceCursor::new(Trace::parse(text).unwrap(), Nanos::ZERO)
    }

    #[test]
    fn small_packets_share_an_opportunity() {
        let mut cursor = cursor("2\n5\n10\n");
        assert_eq!(cursor.serve(at(0), Bytes(1000)), at(2));
        assert_eq!(cursor.serve(at(1), Bytes(504)), at(2));
        assert_eq!(cursor.serve(at(1), Bytes(1)), at(5));
    }

    #[test]
    fn a_large_packet_takes_several_and_leaves_the_rest() {
        let mut cursor = cursor("2\n5\n10\n");
        assert_eq!(cursor.serve(at(0), Bytes(1504 * 2 + 500)), at(10));
        assert_eq!(cursor.serve(at(0), Bytes(1004)), at(10));
        assert_eq!(cursor.serve(at(0), Bytes(1)), at(12));
    }

    #[test]
    fn an_opportunity_nobody_waited_for_is_lost() {
        let mut cursor = cursor("2\n5\n10\n");
        assert_eq!(cursor.serve(Nanos(2_000_001), Bytes(1)), at(5));
        // A whole idle hour, 360000 rounds, and the start of a round.
        assert_eq!(cursor.serve(at(3_600_000), Bytes(1504)), at(3_600_000));
        assert_eq!(cursor.serve(at(3_600_000), Bytes(1504)), at(3_600_002));
        assert_eq!(cursor.serve(at(3_600_003), Bytes(1504)), at(3_600_005));
    }

    #[test]
    fn a_trace_that_cannot_be_is_refused() {
        assert!(Trace::parse("").is_err());
        assert!(Trace::parse("0\n0\n").is_err());
        assert!(Trace::parse("5\n3\n").is_err());
        let error = Trace::parse("1\nx\n").unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }
}
