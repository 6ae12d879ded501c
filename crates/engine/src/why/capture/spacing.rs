//! How evenly data leaves. A sender that paces, because its congestion control does or its program has limited the rate, lets one
//! or two segments go at a time, each as long after the one before. Such gaps are no pauses of an application, and data
//! does not leave at once when acknowledgements have made room.

/// Shorter gaps are those of a burst.
const SHORTEST_NS: u64 = 1_000_000;
/// A longer gap is idleness.
const LONGEST_NS: u64 = 1_000_000_000;
/// Classes of gaps per doubling of their length, and their number.
const PER_DOUBLING: usize = 4;
const CLASSES: usize = 10 * PER_DOUBLING;
/// Fewer gaps may be alike by chance.
const MIN_GAPS: u64 = 8;
/// The share of the time in gaps that is in those which are alike within a factor of two.
const EVEN: f64 = 0.8;
/// Segments between two gaps: pacing sends two at least, and one that is left over.
const FEW_SEGMENTS: u64 = 3;
/// The share of gaps before which a full segment left. An application that pauses leaves the rest of what it wrote there.
const FULL: f64 = 0.8;

/// The gaps between the segments of one sender.
#[derive(Debug)]
pub(super) struct Spacing {
    /// The time in gaps of each class.
    classes_ns: [u64; CLASSES],
    gaps: u64,
    /// Gaps that follow a full segment.
    after_full: u64,
    segments: u64,
}

impl Default for Spacing {
    fn default() -> Spacing {
        Spacing { classes_ns: [0; CLASSES], gaps: 0, after_full: 0, segments: 0 }
    }
}

impl Spacing {
    /// Takes segments that leave `gap_ns` after the one before, and whether that was a full one.
    pub(super) fn send(&mut self, gap_ns: u64, is_after_full: bool, segments: u64) {
        self.segments += segments;
        if (SHORTEST_NS..LONGEST_NS).contains(&gap_ns) {
            let class = (gap_ns as f64 / SHORTEST_NS as f64).log2() * PER_DOUBLING as f64;
            self.classes_ns[(class as usize).min(CLASSES - 1)] += gap_ns;
            self.gaps += 1;
            self.after_full += u64::from(is_after_full);
        }
    }

    /// Whether segments leave so evenly that a pace holds them back, or an application that writes as evenly.
    pub(super) fn is_paced(&self) -> bool {
        let all_ns: u64 = self.classes_ns.iter().sum();
        let most_ns = self.classes_ns.windows(PER_DOUBLING).map(|alike| alike.iter().sum::<u64>()).max().unwrap_or(0);
        self.gaps >= MIN_GAPS
            && self.segments <= FEW_SEGMENTS * self.gaps
            && self.after_full as f64 >= self.gaps as f64 * FULL
            && most_ns as f64 >= all_ns as f64 * EVEN
    }
}
