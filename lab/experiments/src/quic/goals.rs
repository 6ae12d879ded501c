//! Goals of the experiments with QUIC.

use super::{Change, ChangeResult, ClientProgramResult, MoveResult, Policy, PolicyResult, ReplayResult};
use crate::{goal::Goal, print::percent_to};

/// The least share of eligible connections that `zero-rtt` must let use 0-RTT.
const MIN_EARLY_SHARE: f64 = 0.99;

/// The largest share that `source` may let use 0-RTT where addresses are new: it finds one of four servers by chance.
const MAX_EARLY_BY_CHANCE: f64 = 0.5;

/// Under `zero-rtt` nearly all eligible connections use 0-RTT, unless load diverts them: then the first byte must come
/// sooner than under `source`, and more connections use 0-RTT than under `least-loaded`. No policy breaks a connection or
/// executes a request twice. Where addresses are new, `source` must lose 0-RTT, which shows that they are.
pub(super) fn policies(has_new_addresses: bool, runs: &[(Policy, PolicyResult)]) -> Vec<Goal> {
    let mut goals = Vec::new();
    for (policy, run) in runs {
        let name = policy.name();
        if *policy == Policy::ZeroRtt && is_diverted(run) {
            goals.extend(under_load(run, runs));
        } else if *policy == Policy::ZeroRtt {
            goals.push(early(name, run, &format!("{} %", percent_to(0, Some(MIN_EARLY_SHARE))), |share| {
                share >= MIN_EARLY_SHARE
            }));
        } else if *policy == Policy::Source && has_new_addresses {
            let wanted = format!("below {} %, as addresses are new", percent_to(0, Some(MAX_EARLY_BY_CHANCE)));
            goals.push(early(name, run, &wanted, |share| share < MAX_EARLY_BY_CHANCE));
        }
        let (broken, repeated) = (run.broken, run.repeated);
        goals.push(Goal::decided(broken == 0, format!("{name}: {broken} connections broke, wanted: none")));
        goals.push(Goal::decided(
            repeated == 0,
            format!("{name}: {repeated} requests were executed more than once, wanted: none"),
        ));
    }
    goals
}

fn early(name: &str, run: &PolicyResult, wanted: &str, holds: impl Fn(f64) -> bool) -> Goal {
    let share = run.early_share();
    Goal {
        holds: share.map(holds),
        what: format!("{name}: {} % of eligible connections used 0-RTT, wanted: {wanted}", percent_to(2, share)),
    }
}

/// Whether more than one in a hundred connections went to another server than its client's own.
fn is_diverted(run: &PolicyResult) -> bool {
    run.diverted as usize * 100 > run.connections
}

/// The goals of `zero-rtt` where load diverts connections, by the policies that ran too.
fn under_load(run: &PolicyResult, runs: &[(Policy, PolicyResult)]) -> Vec<Goal> {
    let other = |wanted: Policy| runs.iter().find(|(policy, _)| *policy == wanted).map(|(_, run)| run);
    let mut goals = Vec::new();
    if let Some(source) = other(Policy::Source) {
        let [own, theirs] = [run, source].map(|run| run.quantile(0.99));
        let shown = [own, theirs].map(|p99| p99.map_or("-".to_owned(), |p99| format!("{p99:.1?}")));
        goals.push(Goal {
            holds: own.zip(theirs).map(|(own, theirs)| own < theirs),
            what: format!("zero-rtt: p99 of the first byte is {}, wanted: below {} of source", shown[0], shown[1]),
        });
    }
    if let Some(least) = other(Policy::LeastLoaded) {
        let theirs = least.early_share();
        let wanted = format!("more than {} % of least-loaded", percent_to(2, theirs));
        goals.push(early("zero-rtt", run, &wanted, |share| theirs.is_some_and(|theirs| share > theirs)));
    }
    goals
}

/// Under `zero-rtt` every connection survives each of `moves` moves. The other policies must break some, which shows
/// that the moves are real.
pub(super) fn moves(policy: Policy, run: &MoveResult, moves: usize) -> Goal {
    match policy.has_server_ids() {
        true => Goal::decided(
            run.survived == moves,
            format!("{}: {} of {moves} moves survived, wanted: all", policy.name(), run.survived),
        ),
        false => Goal::decided(
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
