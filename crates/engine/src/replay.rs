//! Intervals in the time of a capture.

/// Divides the time of a capture into intervals of equal length, which start with the first packet. An interval
/// without a packet is skipped.
///
/// Captures of several queues are not quite in order, so a packet that is at most one interval too early belongs to
/// the current interval. A packet that is earlier than that means that the clock was set back, or that a previous
/// packet had a wrong time: the intervals then start anew from this packet.
#[derive(Debug, Clone)]
pub struct Intervals {
    length_ns: u64,
    start_ns: Option<u64>,
}

impl Intervals {
    /// Creates intervals of this length, which must be above 0.
    pub fn new(length_ns: u64) -> Intervals {
        Intervals { length_ns, start_ns: None }
    }

    /// Returns the length of an interval.
    pub fn length_ns(&self) -> u64 {
        self.length_ns
    }

    /// Returns the start of the current interval, or `None` before the first packet.
    pub fn start_ns(&self) -> Option<u64> {
        self.start_ns
    }

    /// Adds a packet. Returns the end of the current interval if the packet is past it, or far before it; the packet
    /// then belongs to the next interval.
    pub fn advance(&mut self, packet_ns: u64) -> Option<u64> {
        let start = *self.start_ns.get_or_insert(packet_ns);
        let past = packet_ns.saturating_sub(start) / self.length_ns;
        if past > 0 {
            self.start_ns = Some(start + past * self.length_ns);
        } else if start.saturating_sub(packet_ns) > self.length_ns {
            self.start_ns = Some(packet_ns);
        } else {
            return None;
        }
        Some(start.saturating_add(self.length_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns which of the packets at these times end an interval of length 10, and where.
    fn ends(times: &[u64]) -> Vec<Option<u64>> {
        let mut intervals = Intervals::new(10);
        times.iter().map(|time| intervals.advance(*time)).collect()
    }

    #[test]
    fn intervals_start_with_the_first_packet_and_stay_aligned() {
        assert_eq!(ends(&[103, 112, 113, 149, 153]), [None, None, Some(113), Some(123), Some(153)]);
    }

    #[test]
    fn a_slightly_late_packet_ends_no_interval() {
        assert_eq!(ends(&[100, 111, 109, 100]), [None, Some(110), None, None]);
    }

    #[test]
    fn a_packet_from_the_far_future_does_not_block_later_intervals() {
        assert_eq!(ends(&[100, 5_000, 105, 114, 115]), [None, Some(110), Some(5_010), None, Some(115)]);
    }

    #[test]
    fn a_packet_from_the_distant_past_does_not_block_later_intervals() {
        assert_eq!(ends(&[1_000, 0, 1_001, 1_009, 1_010]), [None, Some(1_010), Some(10), None, Some(1_010)]);
    }

    #[test]
    fn the_end_of_time_does_not_overflow() {
        assert_eq!(ends(&[5, u64::MAX, 6]), [None, Some(15), Some(u64::MAX)]);
    }
}
