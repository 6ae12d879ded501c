//! Looks at connections until the time is over, the program has ended, or Ctrl-C.

use std::{
    ffi::{OsStr, OsString},
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use anyhow::anyhow;
use dwell_app::progress::Bar;
use dwell_engine::why::{Evidence, Target};
use dwell_socket::{
    clock::monotonic_ns,
    outside::{self, Selected, Survey},
};

use super::layers::Stamping;
use crate::{
    exit::{Exit, Failure},
    stop::Stop,
};

/// The longest time between two checks whether to stop.
const TURN: Duration = Duration::from_millis(20);

/// Looks at the connections of a target.
pub fn at(selected: &Selected, name: &str, duration: Duration, stop: &Stop) -> Result<Evidence, Failure> {
    let mut survey = Survey::start(selected.clone()).map_err(refused)?;
    let stamping = Stamping::start(selected);
    let bar = Bar::new(duration.as_millis() as u64, "ms");
    let begun = Instant::now();
    while !stop.is_asked() && !survey.has_ended() {
        turn(&mut survey)?;
        bar.advance_to(begun.elapsed().as_millis() as u64);
    }
    drop(bar);
    let mut evidence = survey.evidence(name);
    stamping.end(&mut evidence);
    Ok(evidence)
}

/// Runs a program and looks at its connections. Returns the program too: it runs on when the time is over, and is to be
/// waited for when the verdict is told.
pub fn at_program(program: &OsStr, arguments: &[OsString], stop: &Stop) -> Result<(Evidence, Child), Failure> {
    let shown = program.display();
    let child = Command::new(program).args(arguments).spawn();
    let mut child = child.map_err(|error| Failure::usage(anyhow!("cannot run {shown}: {error}")))?;
    let looked = watch(&mut child, &shown.to_string(), stop);
    if looked.is_err() {
        end_of(&mut child)?;
    }
    Ok((looked?, child))
}

/// Waits for the end of a program.
pub fn end_of(child: &mut Child) -> Result<(), Failure> {
    child.wait().map(drop).map_err(|error| Failure::new(Exit::Host, error))
}

fn watch(child: &mut Child, name: &str, stop: &Stop) -> Result<Evidence, Failure> {
    let selected = Selected::Process(child.id());
    let mut survey = match Survey::start(selected.clone()) {
        // It has ended before anything could be seen.
        Err(outside::Error::NoProcess { .. }) => {
            let target = Target { name: name.to_owned(), ..Target::default() };
            return Ok(Evidence { target, ..Evidence::default() });
        }
        started => started.map_err(refused)?,
    };
    let stamping = Stamping::start(&selected);
    while !stop.is_asked() && !has_ended(child)? {
        turn(&mut survey)?;
    }
    let mut evidence = survey.evidence(name);
    stamping.end(&mut evidence);
    Ok(evidence)
}

fn has_ended(child: &mut Child) -> Result<bool, Failure> {
    child.try_wait().map(|status| status.is_some()).map_err(|error| Failure::new(Exit::Host, error))
}

/// Why a target cannot be looked at.
fn refused(error: outside::Error) -> Failure {
    match error {
        outside::Error::NoProcess { .. } | outside::Error::NoMembers { .. } => Failure::usage(error),
        outside::Error::Namespace { pid } => Failure::new(
            Exit::Host,
            anyhow!("process {pid} is in another network namespace, which only root may look into; run dwell as root"),
        ),
        error => Failure::new(Exit::Host, error),
    }
}

fn turn(survey: &mut Survey) -> Result<(), Failure> {
    let due_ns = survey.poll().map_err(|error| Failure::new(Exit::Incomplete, error))?;
    thread::sleep(Duration::from_nanos(due_ns.saturating_sub(monotonic_ns())).min(TURN));
    Ok(())
}
