//! What the server is silent for within an answer: it works, if the client waits for the end.

use super::*;

/// A client that asks again, or closes, so soon after it can have the end of an answer has waited for it.
const SOON_NS: u64 = 10_000_000;
/// The longest silence within an answer that may be the server's work: who waits for longer is usually sent events.
const LONGEST_WORK_NS: u64 = 10_000_000_000;

/// What counts as a message under way.
const UNDER_WAY: [Part; 2] = [Part::Distance, Part::Answer];

/// Times for which the server sent nothing within answers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Within {
    pub(super) waits: Silences,
    /// The part of them in which data of each end was under way: it has not waited for that.
    pub(super) under_way: [Times; 2],
}

impl Within {
    fn plus(&mut self, other: &Within) {
        self.waits.plus(&other.waits);
        self.under_way.iter_mut().zip(&other.under_way).for_each(|(own, more)| own.plus(more));
    }

    /// The part of them in which nothing was under way.
    pub(super) fn silent(&self) -> Silences {
        let sum_ns = self.waits.sum_ns.saturating_sub(total(&self.under_way) as u64);
        Silences { count: if sum_ns > 0 { self.waits.count } else { 0 }, sum_ns, ..self.waits }
    }
}

/// The silences within answers of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Answering {
    /// Those that the client has waited for.
    pub(super) work: Within,
    /// Those of which that is not known yet: that are too long for pauses of a transfer, and others.
    pub(super) unsettled: Within,
    pub(super) pauses: Within,
    /// What had been attributed to the data of each end when the server sent last.
    spent: [Times; 2],
}

fn total(times: &[Times; 2]) -> f64 {
    times.iter().map(Times::total).sum()
}

impl Conversation {
    /// Returns what counts as data under way since the server sent last, if its data leaves now for another reason than that its own
    /// was acknowledged.
    pub(super) fn works_meanwhile(&self, side: usize) -> [Times; 2] {
        let mut meanwhile = <[Times; 2]>::default();
        let goes_on = side != self.client && self.speaker == Some(side);
        if goes_on && self.senders[side].leaves_by_itself(self.last_ns, self.reach[side].base()) {
            let senders = self.senders.iter().zip(&self.answering.spent);
            for (times, (sender, before)) in meanwhile.iter_mut().zip(senders) {
                let spent = sender.spent();
                UNDER_WAY.iter().for_each(|part| times.add(*part, spent.get(*part) - before.get(*part)));
            }
        }
        meanwhile
    }

    /// Settles whether the client has waited within the last answer, once it goes on or closes: it has if it does so as soon as it has
    /// the answer. Pauses of a few milliseconds in what it does not ask on about are those of a transfer.
    pub(in crate::why::capture) fn settle_within(&mut self, goes_on: bool) {
        let unsettled = std::mem::take(&mut self.answering.unsettled);
        let pauses = std::mem::take(&mut self.answering.pauses);
        let after_ns = self.last_ns.saturating_sub(self.last_data_ns);
        let is_soon = after_ns <= self.reach[self.client].base() + SOON_NS;
        match is_soon {
            true => self.answering.work.plus(&unsettled),
            false => self.idle_ns += unsettled.silent().sum_ns as f64,
        }
        let server = 1 - self.client;
        match is_soon && goes_on {
            true => self.answering.work.plus(&pauses),
            false => self.quiet[server][server].plus(&pauses.silent()),
        }
    }

    /// Attributes the silence to the side that ends it, which has not waited for what it had under way meanwhile.
    pub(super) fn break_silence(&mut self, next: usize, meanwhile: [Times; 2]) {
        let ns = std::mem::take(&mut self.silence_ns);
        let all_ns = ns + total(&meanwhile) as u64;
        if all_ns == 0 {
            return;
        }
        let longest_ns = longest_pause_ns(std::mem::take(&mut self.burst_bytes), self.longest_segment);
        match self.speaker {
            Some(speaker) if speaker != next => self.quiet[speaker][next].add(ns),
            // It may have sent the head of its answer at once, and then gone to work, or work piece by piece.
            Some(_) if next != self.client && self.turns[self.client].count > 0 && all_ns <= LONGEST_WORK_NS => {
                let Answering { pauses, unsettled, .. } = &mut self.answering;
                let into = if ns <= longest_ns { pauses } else { unsettled };
                into.plus(&Within { waits: Silences::of(all_ns), under_way: meanwhile });
            }
            Some(_) if ns <= longest_ns => self.quiet[next][next].add(ns),
            _ => self.idle_ns += ns as f64,
        }
        self.goes_on |= next == self.client && self.speaker == Some(next);
    }

    /// Notes that the server has sent data.
    pub(super) fn begin_within(&mut self, side: usize) {
        if side != self.client {
            self.answering.spent = self.senders.each_ref().map(Sender::spent);
        }
    }
}
