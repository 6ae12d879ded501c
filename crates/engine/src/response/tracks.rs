//! The means that `auto` selects from, each computed from the record of an epoch.

use crate::response::Epoch;

/// The width of an empty stretch, in buckets of half an octave, that separates gaps within batches from gaps between
/// batches.
const JUMP_BUCKETS: usize = 4;

/// A mean, and the number of values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Mean {
    pub ns: f64,
    pub count: u32,
}

pub(crate) fn mean(sum_ns: u64, count: u32) -> Option<Mean> {
    (count > 0).then(|| Mean { ns: sum_ns as f64 / f64::from(count), count })
}

/// Returns the mean over all responses whose ends were seen or inferred.
pub(crate) fn all(epoch: &Epoch) -> Option<Mean> {
    mean(epoch.all_ns, epoch.all)
}

/// Returns the mean over responses, without those whose end was only inferred from the next request.
pub(crate) fn seen(epoch: &Epoch) -> Option<Mean> {
    mean(epoch.all_ns.saturating_sub(epoch.hidden_ns), epoch.all.saturating_sub(epoch.hidden))
}

/// Returns the mean from a request to the last progress before the next request.
pub(crate) fn turns(epoch: &Epoch) -> Option<Mean> {
    mean(epoch.gaps_ns.saturating_sub(epoch.think_ns), epoch.gaps)
}

/// Returns the mean from a request to the one `depth` later.
pub(crate) fn lag(epoch: &Epoch) -> Option<Mean> {
    mean(epoch.lag_ns, epoch.lags)
}

/// Returns the mean from batch to batch, and the part of gaps that are close to the other kind. Gaps between requests
/// are separated at the widest empty stretch of their logarithmic histogram; without one, each gap starts a batch.
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
