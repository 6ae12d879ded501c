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
    outside::{self, Selection, Survey},
};

use super::{layers::Stamping, nothing, peers::PeerNames};
use crate::{
    exit::{Exit, Failure},
    stop::Stop,
};

/// The longest time between two checks whether to stop.
const TURN: Duration = Duration::from_millis(20);
/// The time between two checks whether stamps would tell more.
const CHECK: Duration = Duration::from_millis(100);

/// A look: polls from the beginning, and stamps from when polls call for them, as these cost more.
struct Look<'a> {
    survey: Survey,
    selected: &'a Selection,
    stamping: Option<Stamping>,
    learned: PeerNames,
    begun: Instant,
    checked: Duration,
}

impl<'a> Look<'a> {
    fn start(selected: &'a Selection, has_labels: bool, learned: PeerNames) -> Result<Look<'a>, outside::Error> {
        let survey = Survey::start(selected.clone(), has_labels)?;
        Ok(Look { survey, selected, stamping: None, learned, begun: Instant::now(), checked: Duration::ZERO })
    }

    /// Does what is due, and sleeps until the next turn.
    fn turn(&mut self) -> Result<(), Failure> {
        let due_ns = self.survey.poll().map_err(|error| Failure::new(Exit::Incomplete, error))?;
        let elapsed = self.begun.elapsed();
        if elapsed >= self.checked + CHECK {
            self.checked = elapsed;
            self.learned.read();
            self.learned.resolve(self.survey.peers());
            if self.stamping.is_none() && self.survey.calls_for_stamps() {
                self.stamping = Some(Stamping::start(self.selected));
            }
        }
        thread::sleep(Duration::from_nanos(due_ns.saturating_sub(monotonic_ns())).min(TURN));
        Ok(())
    }

    fn end(self, name: &str) -> Evidence {
        let mut evidence = self.survey.evidence(name);
        if let Some(stamping) = self.stamping {
            stamping.end(&mut evidence);
        }
        self.learned.name(&mut evidence);
        evidence
    }
}

/// Looks at the connections of a target.
pub fn at(
    selected: &Selection,
    name: &str,
    has_labels: bool,
    learned: PeerNames,
    duration: Duration,
    stop: &Stop,
) -> Result<Evidence, Failure> {
    let mut look = Look::start(selected, has_labels, learned).map_err(refused)?;
    let bar = Bar::new(duration.as_millis() as u64, "ms");
    while !stop.is_asked() && !look.survey.has_ended() {
        look.turn()?;
        bar.advance_to(look.begun.elapsed().as_millis() as u64);
    }
    drop(bar);
    let mut evidence = look.end(name);
    nothing::hint(selected, &mut evidence);
    Ok(evidence)
}

/// Runs a program and looks at its connections. Returns the program too: it runs on when the time is over, and is to be
/// waited for when the verdict is told.
pub fn at_program(
    program: &OsStr,
    arguments: &[OsString],
    has_labels: bool,
    learned: PeerNames,
    stop: &Stop,
) -> Result<(Evidence, Child), Failure> {
    let shown = program.display();
    let child = Command::new(program).args(arguments).spawn();
    let mut child = child.map_err(|error| Failure::usage(anyhow!("cannot run {shown}: {error}")))?;
    let looked = watch(&mut child, &shown.to_string(), has_labels, learned, stop);
    if looked.is_err() {
        end_of(&mut child)?;
    }
    Ok((looked?, child))
}

/// Waits for the end of a program.
pub fn end_of(child: &mut Child) -> Result<(), Failure> {
    child.wait().map(drop).map_err(|error| Failure::new(Exit::Host, error))
}

fn watch(
    child: &mut Child,
    name: &str,
    has_labels: bool,
    learned: PeerNames,
    stop: &Stop,
) -> Result<Evidence, Failure> {
    let selected = Selection::Process(child.id());
    let mut look = match Look::start(&selected, has_labels, learned) {
        // It has ended before anything could be seen.
        Err(outside::Error::NoProcess { .. }) => {
            let target = Target { name: name.to_owned(), ..Target::default() };
            return Ok(Evidence { target, ..Evidence::default() });
        }
        started => started.map_err(refused)?,
    };
    look.survey.let_end();
    while !stop.is_asked() && !has_ended(child)? {
        look.turn()?;
    }
    Ok(look.end(name))
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
