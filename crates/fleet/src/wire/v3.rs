//! Messages of version 3, where they differ from those of today. Nothing here changes any more.

use super::{Batch, LossCause, LostBatches};

/// Returns a batch as version 3 has it, if that differs: newer causes of a loss become the one that is nearest.
pub(super) fn downgraded(batch: &Batch) -> Option<Box<Batch>> {
    let lost = batch.content.lost.filter(|lost| lost.why == LossCause::Moved)?;
    let mut batch = batch.clone();
    batch.content.lost = Some(LostBatches { why: LossCause::BufferFull, ..lost });
    Some(Box::new(batch))
}
