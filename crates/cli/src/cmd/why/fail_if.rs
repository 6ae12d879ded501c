//! `--fail-if`: verdicts with which `dwell why` has the exit status 1.

use dwell_engine::why::{Cause, Outcome, Verdict};

use crate::{
    exit::Exit,
    log::{alarm, log},
};

/// What a verdict must not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailCondition {
    /// Any cause.
    Slow,
    /// This cause, the first or a further one.
    Cause(Cause),
}

/// Parses `slow` or the name of a cause. An error lists the names.
pub fn parse(text: &str) -> Result<FailCondition, String> {
    let named = Cause::ALL.into_iter().find(|cause| cause.name() == text).map(FailCondition::Cause);
    named.or((text == "slow").then_some(FailCondition::Slow)).ok_or_else(|| {
        let names = Cause::ALL.map(Cause::name).join(", ");
        format!("write slow for any cause, or one of {names}")
    })
}

/// Reports whether a verdict has one of these, or there is none, and returns the exit status that follows. A run that could not do
/// all of its work keeps its own.
pub fn exit(failing: &[FailCondition], verdict: &Verdict, exit: Exit) -> Exit {
    let has = |failing: &FailCondition| match failing {
        FailCondition::Slow => matches!(verdict.outcome, Outcome::Slow(_)),
        FailCondition::Cause(cause) => verdict.ranked.iter().any(|ranked| ranked.cause == *cause),
    };
    let name = |failing: &FailCondition| match failing {
        FailCondition::Slow => "slow",
        FailCondition::Cause(cause) => cause.name(),
    };
    let or_own = |status| if exit == Exit::Done { status } else { exit };
    match (verdict.outcome, failing.iter().find(|failing| has(failing))) {
        (Outcome::NoTraffic | Outcome::NotEnough, _) if failing.is_empty() => or_own(Exit::Incomplete),
        (Outcome::Slow(_) | Outcome::Healthy, _) if failing.is_empty() => exit,
        (Outcome::NoTraffic | Outcome::NotEnough, _) => {
            alarm("there is no verdict, so this run has failed");
            or_own(Exit::False)
        }
        (_, Some(found)) => {
            alarm(format!("the verdict has {}, so this run has failed", name(found)));
            or_own(Exit::False)
        }
        (_, None) => {
            log(format!("the verdict has none of {}", failing.iter().map(name).collect::<Vec<_>>().join(", ")));
            exit
        }
    }
}
