//! Requests that are under way on one connection at the same time, which polls of its socket do not tell apart.

use super::*;

/// Whether several requests may have been under way on a connection at the same time: their labels say so, or clients sent another
/// one before they were answered, after one in ten answers.
pub fn may_be(evidence: &Evidence) -> bool {
    const ONE_IN: u64 = 10;
    let Sums { went_on, service, answer, .. } = &evidence.sums;
    let goes_on = *went_on >= FEW_WAITS && went_on * ONE_IN >= service.count.max(answer.count);
    evidence.source == Source::Sockets && (goes_on || evidence.requests.may_be_parallel())
}
