//! Goals of experiments: what must hold, and the exit status that follows.

use dwell_app::Exit;

/// A goal of an experiment, and whether it was met.
#[derive(Debug)]
pub struct Goal {
    /// `None` where the run could not decide it.
    pub holds: Option<bool>,
    /// The goal in words, with the figure that was measured.
    pub what: String,
}

impl Goal {
    /// A goal that the run decided.
    pub fn decided(holds: bool, what: String) -> Goal {
        Goal { holds: Some(holds), what }
    }

    /// The exit status of a run: [`Exit::False`] if a goal is missed, [`Exit::Incomplete`] if one is undecided.
    pub fn exit(goals: &[Goal]) -> Exit {
        if goals.iter().any(|goal| goal.holds == Some(false)) {
            Exit::False
        } else if goals.iter().any(|goal| goal.holds.is_none()) {
            Exit::Incomplete
        } else {
            Exit::Done
        }
    }

    /// One line for people: the verdict, then the goal.
    pub fn line(&self) -> String {
        let verdict = match self.holds {
            Some(true) => "ok   ",
            Some(false) => "FAILS",
            None => "-    ",
        };
        format!("{verdict} {}", self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_that_is_missed_outranks_one_that_is_undecided() {
        let goal = |holds| Goal { holds, what: String::new() };
        let exit = |goals: &[Option<bool>]| Goal::exit(&goals.iter().map(|holds| goal(*holds)).collect::<Vec<_>>());
        assert_eq!(exit(&[Some(true)]), Exit::Done);
        assert_eq!(exit(&[None, Some(true)]), Exit::Incomplete);
        assert_eq!(exit(&[None, Some(false)]), Exit::False);
    }
}
