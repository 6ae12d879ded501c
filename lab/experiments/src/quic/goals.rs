//! Goals of the experiments with QUIC.

use super::{Change, ChangeResult, ClientProgramResult, MoveResult, Policy, PolicyResult, ReplayResult};
use crate::{goal::Goal, print::percent_to};

/// The least share of eligible connections that `zero-rtt` must let use 0-RTT.
const MIN_EARLY_SHARE: f64 = 0.99;

/// Under `zero-rtt` nearly all eligible connections use 0-RTT, and no policy breaks a connection.
pub(super) fn policies(runs: &[(Policy, PolicyResult)]) -> Vec<Goal> {
    let mut goals = Vec::new();
    for (policy, run) in runs {
        if *policy == Policy::ZeroRtt {
            let share = run.early_share();
            goals.push(Goal {
                holds: share.map(|share| share >= MIN_EARLY_SHARE),
                what: format!(
                    "zero-rtt: {} % of eligible connections used 0-RTT, wanted: {} %",
                    percent_to(2, share),
                    percent_to(0, Some(MIN_EARLY_SHARE))
                ),
            });
        }
        goals.push(Goal::decided(
            run.broken == 0,
            format!("{}: {} connections broke, wanted: none", policy.name(), run.broken),
        ));
    }
    goals
}

/// Under `zero-rtt` every connection survives each of `moves` moves. The other policies must break some, which shows
/// that the moves are real.
pub(super) fn moves(policy: Policy, run: &MoveResult, moves: usize) -> Goal {
    match policy {
        Policy::ZeroRtt => Goal::decided(
            run.survived == moves,
            format!("zero-rtt: {} of {moves} moves survived, wanted: all", run.survived),
        ),
        _ => Goal::decided(
            run.broken > 0,
            format!("{}: {} connections broke, wanted: some, as moves are real", policy.name(), run.broken),
        ),
    }
}

/// No request is executed twice, and an attacker who seizes the servers' state afterwards decrypts nothing. Replays
/// must get as far as the ticket lookup, and a copy of earlier state must decrypt all: both show that the attack is
/// real.
pub(super) fn replay(run: &ReplayResult) -> Vec<Goal> {
    let ReplayResult { recorded, missed, repeated, elsewhere, copied, stolen, .. } = run;
    let found: u64 = stolen.iter().map(|theft| theft.found).sum();
    vec![
        Goal::decided(
            *repeated == 0 && *elsewhere == 0,
            format!("{repeated} requests were executed again, wanted: none"),
        ),
        Goal::decided(*missed > 0, format!("{missed} replays reached the ticket lookup, wanted: some")),
        Goal::decided(
            found == 0,
            format!("the state left on servers has the sessions of {found} requests, wanted: none"),
        ),
        Goal::decided(
            copied.read == *recorded,
            format!(
                "{} of {recorded} requests were decrypted with an earlier copy, wanted: all, as decryption is real",
                copied.read
            ),
        ),
    ]
}

/// No lasting connection breaks, and each returning client is answered.
pub(super) fn changes(lasting: u16, all: &[(Change, ChangeResult)]) -> Vec<Goal> {
    let sum = |of: fn(&ChangeResult) -> usize| all.iter().map(|(_, result)| of(result)).sum::<usize>();
    let (broken, failed) = (sum(|result| result.broken), sum(|result| result.failed));
    vec![
        Goal::decided(broken == 0, format!("{broken} of {lasting} lasting connections broke, wanted: none")),
        Goal::decided(failed == 0, format!("{failed} connections got no answer, wanted: none")),
    ]
}

/// The program exits with status 0.
pub(super) fn client(command: &[String], run: &ClientProgramResult) -> Goal {
    let ClientProgramResult { succeeded, issued, accepted, refused } = run;
    Goal::decided(
        *succeeded,
        format!("{}; servers issued {issued} tickets, accepted {accepted}, refused {refused}", command.join(" ")),
    )
}
