//! Answers to questions of DNS, each of which counts once on however many interfaces of a capture it passes.

use std::collections::VecDeque;

use crate::measure::{Endpoint, Sample};

/// Answers that are compared with those of other interfaces, which pass at about the same time.
const MAX_RECENT: usize = 64;

/// The latest answers.
#[derive(Default)]
pub(super) struct Questions(VecDeque<Question>);

struct Question {
    ends: (Endpoint, Endpoint),
    asked_ns: u64,
    answered_ns: u64,
    interfaces: Vec<u32>,
}

impl Questions {
    /// Takes an answer. Returns how long an earlier one took that is compared with no more.
    pub(super) fn take(&mut self, answer: &Sample) -> Option<u64> {
        let (asked_ns, answered_ns) = (answer.time_ns.saturating_sub(answer.rtt_ns), answer.time_ns);
        let ends = (answer.src, answer.dst);
        let is_same = |other: &&mut Question| {
            let is_there = other.asked_ns <= answered_ns && asked_ns <= other.answered_ns;
            other.ends == ends && is_there && !other.interfaces.contains(&answer.interface)
        };
        if let Some(same) = self.0.iter_mut().find(is_same) {
            // The nearest interface to the client has seen all of the wait.
            same.asked_ns = same.asked_ns.min(asked_ns);
            same.answered_ns = same.answered_ns.max(answered_ns);
            same.interfaces.push(answer.interface);
            return None;
        }
        self.0.push_back(Question { ends, asked_ns, answered_ns, interfaces: vec![answer.interface] });
        (self.0.len() > MAX_RECENT).then(|| self.settle()).flatten()
    }

    /// Returns how long the earliest of them took, and takes it out.
    pub(super) fn settle(&mut self) -> Option<u64> {
        self.0.pop_front().map(|question| question.answered_ns - question.asked_ns)
    }
}
