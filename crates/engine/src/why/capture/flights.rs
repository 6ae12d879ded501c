//! What limits a sender of transfers, where it is no window of the peer and no loss: from how much it has in flight.
//!
//! Without a loss TCP's congestion window does not shrink while data is under way. So a sender with less in flight than it
//! had before is not limited by it, but by itself: by its application, which has nothing to send, or by its send buffer,
//! which takes more only when acknowledgements have made room.

use super::sender::Path;

/// Rounds that are kept; of longer transfers neighbours are merged.
const MAX_ROUNDS: usize = 256;
/// The shortest round.
const SHORTEST_NS: u64 = 1_000_000;
/// Fewer rounds show no pattern.
const MIN_ROUNDS: usize = 6;
/// A flight that is smaller than the largest one by more segments has room in the congestion window.
const FULL_SEGMENTS: u32 = 2;
/// Round trips in which a congestion window has grown by far more.
const FLAT_ROUNDS: usize = 20;
/// The share of the time in which it has room, from which the sender limits itself.
const OFTEN_BELOW: f64 = 0.25;
/// Data that follows an acknowledgement within this part of a round trip was waiting for it.
const PROMPT: u64 = 32;
/// Shorter silences than this part of a round trip may be the pace of the sender. Most of the silence must be in longer ones.
const WAIT: u64 = 8;
const MOST: f64 = 0.5;
/// The share of waits that end with acknowledgements where they wait for them, and where they do not.
const WAITING: f64 = 0.8;
const NOT_WAITING: f64 = 0.25;
/// If more of the time follows acknowledgements so closely, all bursts do.
const COVERED: f64 = 0.5;
/// Fewer bursts may be chance.
const MIN_BURSTS: u64 = 8;
/// A queue that stays filled gives the same rate whatever is in flight, within this share.
const SAME_RATE: f64 = 0.12;
/// What flights must differ by to tell that.
const DIFFERENT: f64 = 0.2;
/// The least difference of round trips that is a queue.
const MIN_QUEUE_NS: f64 = 10e6;

/// What limited transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// The path, which TCP used as well as it could.
    Congestion,
    /// The send buffer: bursts follow acknowledgements, although the congestion window had room before.
    SendBuffer,
    /// The application: bursts come when they like, although the congestion window had room before.
    Application,
    /// A queue on the path that was never empty.
    Queue,
    /// It cannot be told.
    Unknown,
}

/// What is known of the way between a sender and the place of the capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// The connection was captured from its beginning.
    Whole,
    /// Something that did not wait for the sender's application has shown it.
    Path,
    /// The sender's application may have waited in all that has shown it.
    Nothing,
}

/// One round trip of a transfer, or several.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    /// The most that was in flight.
    flight: u32,
    rtt_ns: u64,
    acked: u64,
    took_ns: u64,
}

impl Round {
    fn plus(self, other: Round) -> Round {
        Round {
            flight: self.flight.max(other.flight),
            rtt_ns: self.rtt_ns.midpoint(other.rtt_ns),
            acked: self.acked + other.acked,
            took_ns: self.took_ns + other.took_ns,
        }
    }

    fn rate(&self) -> f64 {
        self.acked as f64 / self.took_ns.max(1) as f64
    }
}

/// What was in flight from one round trip to the next.
#[derive(Debug, Default)]
pub(super) struct Flights {
    rounds: Vec<Round>,
    /// How many round trips one entry stands for, and those of the last one.
    merged: u32,
    pending: u32,
    current: Round,
    began_ns: Option<u64>,
    /// The largest flight since the last loss or pause.
    peak: u32,
    last_ack_ns: Option<u64>,
    last_sent_ns: Option<u64>,
    spent: Spent,
    /// Of it, what counts only if more of the same message follows.
    since_sent: Spent,
    /// Whether the peer has asked for another message since.
    is_asked: bool,
    /// Bursts, and the sum of the time before them in which nothing was sent.
    bursts: u64,
    paused_ns: u64,
    /// Of these, those after a wait, the sum of that, and those of them that follow an acknowledgement closely.
    waits: u64,
    waited_ns: u64,
    prompt: u64,
    /// Those that may follow one as closely, as the way to the sender and back may be as long as it can be at the moment.
    near: u64,
}

/// Time in transfers.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    total_ns: u64,
    /// With room in the congestion window.
    below_ns: u64,
    /// Close behind acknowledgements.
    covered_ns: u64,
}

impl Flights {
    /// Attributes the time from `from_ns` to `to_ns` in a transfer, with `flight` bytes in flight.
    pub(super) fn spend(&mut self, from_ns: u64, to_ns: u64, flight: u32, mss: u32, path: Path) {
        let time_ns = to_ns.saturating_sub(from_ns);
        let spent = &mut self.since_sent;
        spent.total_ns += time_ns;
        if flight.saturating_add(FULL_SEGMENTS * mss) < self.peak {
            spent.below_ns += time_ns;
        }
        let until_ns = self.last_ack_ns.map_or(0, |ack_ns| ack_ns.saturating_add(prompt_ns(path)));
        spent.covered_ns += until_ns.min(to_ns).saturating_sub(from_ns);
    }

    /// Takes what is in flight after a segment of a transfer was sent.
    pub(super) fn send(&mut self, now_ns: u64, flight: u32, path: Path) {
        let spent = std::mem::take(&mut self.since_sent);
        if !std::mem::take(&mut self.is_asked) {
            self.spent.total_ns += spent.total_ns;
            self.spent.below_ns += spent.below_ns;
            self.spent.covered_ns += spent.covered_ns;
        }
        let silent_ns = self.last_sent_ns.map_or(0, |last| now_ns.saturating_sub(last));
        if silent_ns >= prompt_ns(path) {
            self.bursts += 1;
            self.paused_ns += silent_ns;
        }
        if silent_ns >= prompt_ns(path).max(path.current_ns.max(path.base_ns) / WAIT) {
            self.waits += 1;
            self.waited_ns += silent_ns;
            let after_ack_ns = self.last_ack_ns.map_or(u64::MAX, |ack_ns| now_ns.saturating_sub(ack_ns));
            self.prompt += u64::from(after_ack_ns <= prompt_ns(path));
            self.near += u64::from(after_ack_ns <= prompt_ns(path) + path.own_queue_ns);
        }
        self.last_sent_ns = Some(now_ns);
        self.peak = self.peak.max(flight);
        self.current.flight = self.current.flight.max(flight);
        self.began_ns.get_or_insert(now_ns);
    }

    /// Takes an acknowledgement of a transfer that has arrived.
    pub(super) fn acknowledge(&mut self, now_ns: u64, bytes: u32, path: Path) {
        self.last_ack_ns = Some(now_ns);
        let Some(began_ns) = self.began_ns else {
            return;
        };
        self.current.acked += u64::from(bytes);
        let took_ns = now_ns.saturating_sub(began_ns);
        let rtt_ns = path.current_ns.max(path.base_ns);
        if took_ns >= rtt_ns.max(SHORTEST_NS) {
            self.began_ns = Some(now_ns);
            let round = Round { rtt_ns, took_ns, ..std::mem::take(&mut self.current) };
            self.keep(round);
        }
    }

    /// The peer has all of a message and asks for another, which begins anew: what was in flight before and the time until then
    /// say nothing of the application.
    pub(super) fn ask(&mut self) {
        (self.is_asked, self.peak, self.last_sent_ns) = (true, 0, None);
    }

    /// Something was lost: the congestion window is smaller now.
    pub(super) fn lose(&mut self) {
        self.peak = 0;
    }

    /// Nothing is in flight any more: the round that had begun says nothing.
    pub(super) fn pause(&mut self) {
        (self.current, self.began_ns) = (Round::default(), None);
        (self.last_ack_ns, self.last_sent_ns) = (None, None);
    }

    fn keep(&mut self, round: Round) {
        self.merged = self.merged.max(1);
        match self.rounds.last_mut() {
            Some(last) if self.pending > 0 => *last = last.plus(round),
            _ => self.rounds.push(round),
        }
        self.pending = (self.pending + 1) % self.merged;
        if self.rounds.len() > MAX_ROUNDS && self.pending == 0 {
            let pairs = self.rounds.chunks(2).map(|pair| pair.iter().copied().reduce(Round::plus).unwrap_or_default());
            self.rounds = pairs.collect();
            self.merged *= 2;
        }
    }

    /// Returns what limited the transfers. `knows_base` says that the shortest round trip is known, because the connection
    /// was captured from its beginning or rested meanwhile.
    pub(super) fn limit(&self, knows_base: bool) -> Limit {
        let spent = self.spent;
        let is_below = share(spent.below_ns, spent.total_ns) >= OFTEN_BELOW && self.bursts >= MIN_BURSTS;
        if is_below && share(spent.covered_ns, spent.total_ns) <= COVERED {
            return match share(self.prompt, self.waits) {
                _ if self.waits < MIN_BURSTS || share(self.waited_ns, self.paused_ns) < MOST => Limit::Unknown,
                prompt if prompt >= WAITING => Limit::SendBuffer,
                _ if share(self.near, self.waits) <= NOT_WAITING => Limit::Application,
                _ => Limit::Unknown,
            };
        }
        match knows_base {
            true => Limit::Congestion,
            false if self.rounds.len() < MIN_ROUNDS => Limit::Unknown,
            false => self.of_unknown_base(),
        }
    }

    /// Whether it was always as full as ever, and did not grow, so that no congestion window was the limit, which grows by half a
    /// segment per round trip at least; and whether data followed acknowledgements, so that the application was not. That shows only
    /// at the sender: elsewhere an application that writes at equal times is always as late after the acknowledgement before.
    pub(super) fn is_flat(&self, mss: u32) -> bool {
        const FULL: f64 = 0.1;
        let (first, second) = self.rounds.split_at(self.rounds.len() / 2);
        let most = |of: &[Round]| of.iter().map(|round| round.flight).max().unwrap_or(0);
        self.rounds.len() >= FLAT_ROUNDS
            && self.spent.below_ns as f64 <= self.spent.total_ns as f64 * FULL
            && most(second) <= most(first) + FULL_SEGMENTS * mss
            && self.waits >= MIN_BURSTS
            && share(self.prompt, self.waits) >= WAITING
    }

    /// Returns the number of waits in which nothing was sent, and their sum.
    pub(super) fn pauses(&self) -> (u64, u64) {
        (self.waits, self.waited_ns)
    }

    /// Where the shortest round trip is not known: a queue that is never empty gives the same rate whatever is in flight. If
    /// the rate falls with what is in flight, it was empty meanwhile, and the shortest round trip that was seen is that of
    /// the path.
    fn of_unknown_base(&self) -> Limit {
        let mut rounds = self.rounds.clone();
        rounds.sort_by_key(|round| round.flight);
        let part = (rounds.len() / 4).max(1);
        let (low, high) = (&rounds[..part], &rounds[rounds.len() - part..]);
        let mean = |of: &[Round], figure: fn(&Round) -> f64| of.iter().map(figure).sum::<f64>() / of.len() as f64;
        let flight = |of| mean(of, |round| f64::from(round.flight));
        let differs = flight(low) < flight(high) * (1.0 - DIFFERENT);
        let is_same_rate = mean(low, Round::rate) > mean(high, Round::rate) * (1.0 - SAME_RATE);
        let rtt = |of| mean(of, |round| round.rtt_ns as f64);
        match (differs, is_same_rate) {
            (true, true) if rtt(high) - rtt(low) >= MIN_QUEUE_NS => Limit::Queue,
            (true, false) => Limit::Congestion,
            _ => Limit::Unknown,
        }
    }
}

fn share(of: u64, all: u64) -> f64 {
    of as f64 / all.max(1) as f64
}

/// The time within which data follows an acknowledgement that it has waited for.
fn prompt_ns(path: Path) -> u64 {
    (path.current_ns.max(path.base_ns) / PROMPT).max(SHORTEST_NS)
}
