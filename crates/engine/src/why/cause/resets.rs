//! Connections that were reset, of which the kernel has a count for each network namespace alone.

use super::*;

/// Returns how many connections were reset, if most of the waits for answers of this end ended with their connection and these may be
/// the ones that were.
pub fn instead_of_answers(evidence: &Evidence, role: Role) -> Option<u64> {
    /// Fewer may be anybody's.
    const FEW: u64 = 3;
    let (ended, waits) = match role {
        Role::Server => (evidence.sums.ended[0], evidence.sums.service),
        Role::Client => (evidence.sums.ended[1], evidence.sums.answer),
    };
    let are_most = ended > 0 && ended * 2 >= waits.count;
    evidence.established_resets.filter(|resets| are_most && *resets >= FEW && resets * 2 >= ended)
}

/// What is known of them.
pub(super) fn facts(evidence: &Evidence, role: Role) -> Vec<Fact> {
    let Some(resets) = instead_of_answers(evidence, role) else {
        return Vec::new();
    };
    let ended = "of the answers, ends of connections: nothing shows whether there was an answer";
    let of_all = "open connections that were reset in this network namespace, also those of others";
    vec![
        fact(ended, Some(Value::Count(evidence.sums.ended[usize::from(role == Role::Client)])), "polls"),
        fact(of_all, Some(Value::Count(resets)), "/proc/net/snmp EstabResets"),
    ]
}
