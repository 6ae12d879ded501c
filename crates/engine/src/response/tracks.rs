//! Means that `auto` picks from, each from what an epoch's record has of it.

use crate::response::Epoch;

/// Widths of empty stretches are counted in buckets of half an octave; one of
/// this many parts the gaps within batches from those between.
const JUMP_BUCKETS: usize = 4;

/// A mean and how many values it is of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Mean {
    pub ns: f64,
    pub count: u32,
}

pub(crate) fn mean(sum_ns: u64, count: u32) -> Option<Mean> {
    (count > 0).then(|| Mean { ns: sum_ns as f64 / f64::from(count), count })
}

/// All responses whose ends were seen or concluded.
pub(crate) fn all(epoch: &Epoch) -> Option<Mean> {
    mean(epoch.all_ns, epoch.all)
}

/// Without those of whose end only the next request told.
pub(crate) fn seen(epoch: &Epoch) -> Option<Mean> {
    mean(epoch.all_ns.saturating_sub(epoch.hidden_ns), epoch.all.saturating_sub(epoch.hidden))
}

/// From a request to the last progress before the next one.
pub(crate) fn turns(epoch: &Epoch) -> Option<Mean> {
    mean(epoch.gaps_ns.saturating_sub(epoch.think_ns), epoch.gaps)
}

/// From a request to the one `depth` later.
pub(crate) fn lag(epoch: &Epoch) -> Option<Mean> {
    mean(epoch.lag_ns, epoch.lags)
}

/// From batch to batch, and the part of gaps that are near to being of the other
/// kind. Gaps between requests are parted at the widest empty stretch of their
/// logarithmic histogram; without one, each starts a batch.
pub(crate) fn log_gap(epoch: &Epoch) -> Option<(Mean, f64)> {
    let counts = epoch.gap_log.map(u32::from);
    let filled: Vec<usize> = (0..counts.len()).filter(|i| counts[*i] > 0).collect();
    let widest = filled.windows(2).map(|pair| (pair[1] - pair[0], pair[1])).max_by_key(|(width, _)| *width);
    let first = match widest {
        Some((width, above)) if width >= JUMP_BUCKETS => above,
        _ => 0,
    };
    let total: u32 = counts.iter().sum();
    let batches: u32 = counts[first..].iter().sum();
    let near = if first > 0 { counts[first] } else { 0 };
    Some((mean(epoch.gaps_ns, batches)?, f64::from(near) / f64::from(total)))
}
