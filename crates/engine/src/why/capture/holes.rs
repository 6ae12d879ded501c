//! Gaps in what an end has sent, as they pass the place of a capture. What fills one later was overtaken, or it was lost before
//! and is sent again: the clock of its timestamp tells which, and where there is none the time that it took.

use std::collections::VecDeque;

use super::sequence::{distance, is_after};

/// Gaps that are remembered, and as many ranges that were overtaken.
const MAX_RANGES: usize = 64;

/// A gap that a later segment has shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hole {
    from: u32,
    to: u32,
    /// When that segment passed, and its TSval.
    pub(super) seen_ns: u64,
    stamp: Option<u32>,
}

/// The gaps of one sender.
#[derive(Debug, Default)]
pub(super) struct Holes {
    open: VecDeque<Hole>,
    /// Ranges whose data was overtaken and passed after all.
    late: VecDeque<(u32, u32)>,
}

impl Hole {
    /// Whether what fills it was sent before the segment that has shown it. It is sent again a round trip after that at the
    /// earliest, when the clock of timestamps has ticked. `None` if they do not tell.
    pub(super) fn is_filled_by_older(&self, stamp: Option<u32>, round_trip_ns: u64) -> Option<bool> {
        /// The longest tick of most timestamp clocks.
        const TICK_NS: u64 = 10_000_000;
        let (filler, shower) = (stamp?, self.stamp?);
        (filler != shower || round_trip_ns > TICK_NS).then(|| !is_after(filler, shower))
    }
}

impl Holes {
    /// A segment with this TSval has passed, and what is before it has not.
    pub(super) fn open(&mut self, from: u32, to: u32, seen_ns: u64, stamp: Option<u32>) {
        push(&mut self.open, Hole { from, to, seen_ns, stamp });
    }

    /// Takes data that was not beyond all that had passed. Returns the first gap that it fills or makes smaller.
    pub(super) fn fill(&mut self, seq: u32, end: u32) -> Option<Hole> {
        let mut filled = None;
        for hole in std::mem::take(&mut self.open) {
            if !is_after(end, hole.from) || !is_after(hole.to, seq) {
                push(&mut self.open, hole);
                continue;
            }
            filled.get_or_insert(hole);
            for rest in [Hole { to: seq, ..hole }, Hole { from: end, ..hole }] {
                if is_after(rest.to, rest.from) {
                    push(&mut self.open, rest);
                }
            }
        }
        filled
    }

    /// What has filled a gap was overtaken.
    pub(super) fn overtake(&mut self, seq: u32, end: u32) {
        match self.late.back_mut() {
            Some((_, to)) if *to == seq => *to = end,
            _ => push(&mut self.late, (seq, end)),
        }
    }

    /// Whether data was overtaken and has passed nevertheless, so that it is sent again for nothing.
    pub(super) fn was_overtaken(&self, seq: u32, end: u32) -> bool {
        self.late.iter().any(|(from, to)| !is_after(*from, seq) && !is_after(end, *to))
    }

    /// Forgets the gaps in what is acknowledged. Returns the bytes of each. What was overtaken may still be sent again.
    pub(super) fn acknowledge(&mut self, acked: u32) -> impl Iterator<Item = u32> {
        let is_over = |to: u32| !is_after(to, acked);
        let over: Vec<u32> =
            self.open.iter().filter(|hole| is_over(hole.to)).map(|hole| distance(hole.to, hole.from)).collect();
        self.open.retain(|hole| !is_over(hole.to));
        over.into_iter()
    }
}

fn push<T>(ranges: &mut VecDeque<T>, range: T) {
    if ranges.len() == MAX_RANGES {
        ranges.pop_front();
    }
    ranges.push_back(range);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_bounded_also_where_one_becomes_two() {
        let mut holes = Holes::default();
        for n in 0..200 {
            holes.open(n * 100, n * 100 + 90, 0, None);
            // Within the oldest gap that has room for it.
            let oldest = *holes.open.iter().find(|hole| hole.to - hole.from > 2).unwrap();
            assert!(holes.fill(oldest.from + 1, oldest.from + 2).is_some());
            assert!(holes.open.len() <= MAX_RANGES, "{}", holes.open.len());
        }
        (0..200).for_each(|n| holes.overtake(n * 100, n * 100 + 10));
        assert_eq!(holes.late.len(), MAX_RANGES);
    }
}
