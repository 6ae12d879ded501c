//! Connections that were reset, of which the kernel has a count for each network namespace alone.

use super::*;

/// Returns how many connections were reset, if most of the `waits` for answers ended with their connection and these may be the ones
/// that were.
pub fn instead_of_answers(evidence: &Evidence, waits: &Silences) -> Option<u64> {
    /// Fewer may be anybody's.
    const FEW: u64 = 3;
    let ended = evidence.sums.ended;
    let are_most = ended > 0 && ended * 2 >= waits.count;
    evidence.established_resets.filter(|resets| are_most && *resets >= FEW && resets * 2 >= ended)
}

/// What is known of them.
pub(super) fn facts(evidence: &Evidence, waits: &Silences) -> Vec<Fact> {
    let Some(resets) = instead_of_answers(evidence, waits) else {
        return Vec::new();
    };
    let ended = "of the answers, ends of connections: nothing shows whether there was an answer";
    let of_all = "open connections that were reset in this network namespace, also those of others";
    vec![
        fact(ended, Some(Value::Count(evidence.sums.ended)), "polls"),
        fact(of_all, Some(Value::Count(resets)), "/proc/net/snmp EstabResets"),
    ]
}
