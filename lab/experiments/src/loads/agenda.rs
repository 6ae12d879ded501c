//! What a connection of a load is to ask next, whatever carries it.

use std::collections::VecDeque;

use super::{Dialect, Task, pace::Pace};

/// How all connections of a load behave.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    /// Requests that may be outstanding.
    pub(super) depth: usize,
    /// A round follows the round before it without waiting for its last answers.
    pub(super) endless: bool,
    /// Requests that may go at the same time go in one write.
    pub(super) coalesce: bool,
    /// Between the numbers of two requests of one connection.
    pub(super) stride: u64,
}

/// The rounds of a connection: what has been drawn, what may go, and what has been answered.
pub(super) struct Agenda {
    pub(super) dialect: Box<dyn Dialect>,
    pub(super) manner: Manner,
    pace: Pace,
    next_id: u64,
    /// The next round, which has its time in the schedule.
    coming: Vec<Task>,
    /// Of the round that is under way.
    tasks: Vec<Task>,
    /// Tasks that may be sent as soon as fewer than the depth are outstanding.
    may_go: VecDeque<usize>,
    unanswered: usize,
    outstanding: usize,
}

impl Agenda {
    pub(super) fn new(dialect: Box<dyn Dialect>, manner: Manner, pace: Pace, first_id: u64) -> Self {
        let mut agenda = Self {
            dialect,
            manner,
            pace,
            next_id: first_id,
            coming: Vec::new(),
            tasks: Vec::new(),
            may_go: VecDeque::new(),
            unanswered: 0,
            outstanding: 0,
        };
        agenda.draw_round();
        agenda
    }

    /// When the next round starts; None while one is under way.
    pub(super) fn next_round_ns(&self) -> Option<u64> {
        (self.unanswered == 0).then(|| self.pace.next_ns())
    }

    /// The number of the next request, whenever it goes.
    pub(super) fn next_id(&self) -> u64 {
        self.next_id
    }

    pub(super) fn task(&self, task: usize) -> Task {
        self.tasks[task]
    }

    /// Starts a round if it is time for one.
    pub(super) fn start_round(&mut self, now_ns: u64) -> bool {
        let due = self.next_round_ns().is_some_and(|next| next <= now_ns);
        if due {
            self.tasks.clear();
            self.begin_round();
        }
        due
    }

    fn draw_round(&mut self) {
        self.coming = self.dialect.round();
        self.pace.schedule(self.coming.len());
    }

    fn begin_round(&mut self) {
        let first = self.tasks.len();
        for (n, task) in (first..).zip(&mut self.coming) {
            task.parent = task.parent.map(|parent| first + parent);
            if task.parent.is_none() {
                self.may_go.push_back(n);
            }
        }
        self.unanswered += self.coming.len();
        self.tasks.append(&mut self.coming);
        self.draw_round();
    }

    /// The task that is sent now, and its number; None where there is none, or as many as may be are outstanding.
    pub(super) fn next(&mut self) -> Option<(usize, u64)> {
        if self.outstanding >= self.manner.depth {
            return None;
        }
        if self.may_go.is_empty() && self.manner.endless {
            self.begin_round();
        }
        let task = self.may_go.pop_front()?;
        let id = self.next_id;
        self.next_id += self.manner.stride;
        self.outstanding += 1;
        Some((task, id))
    }

    /// A task has been answered, so that others may go.
    pub(super) fn answered(&mut self, task: usize) {
        self.outstanding -= 1;
        self.unanswered -= 1;
        self.may_go.extend(children(&self.tasks, task));
    }

    /// If that was the last answer of its round: starts the next round if it is time for one.
    pub(super) fn conclude_round(&mut self, done_ns: u64) -> bool {
        if self.unanswered > 0 {
            return false;
        }
        self.pace.finished(done_ns);
        self.start_round(done_ns)
    }
}

fn children(tasks: &[Task], parent: usize) -> impl Iterator<Item = usize> {
    // Where the last task has no parent, none has: an endless stretch, which would be long to search.
    let is_tree = tasks.last().is_some_and(|last| last.parent.is_some());
    let searched = if is_tree { parent + 1..tasks.len() } else { 0..0 };
    searched.filter(move |&n| tasks[n].parent == Some(parent))
}
