//! Sides that speak without being asked: what the client says one way, what the server pushes, and chats. No epoch of them
//! is believed that is wrong, and requests in pieces and answers in pieces still are.

use dwell_engine::{
    abi::dwell_arrival,
    response::{Config, estimate},
};
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};

use crate::support::{MS, SECOND, START, US, epochs, syn, tcp};

const LENGTH_NS: u64 = 40 * SECOND;
const ONE_WAY_NS: u64 = 5 * MS;

/// A message, at the client's end.
#[derive(Debug, Clone, Copy)]
enum Message {
    Sent(u32),
    Came(u32),
}

/// When a side speaks on its own.
#[derive(Debug, Clone, Copy)]
enum Clock {
    /// Pauses are exponentially distributed, with this mean.
    Random(u64),
    /// Pauses differ by at most a fifth.
    Steady(u64),
}

/// A connection in the clear whose protocol is not known.
struct Talk {
    random: Xoshiro256PlusPlus,
    messages: Vec<(u64, Message)>,
    /// When each request was sent, and when its answer had come.
    answers: Vec<(u64, u64)>,
}

/// What estimates of epochs are worth.
#[derive(Debug, Default)]
struct Outcome {
    epochs: usize,
    believed: usize,
    /// Believed, and off by more than a fifth.
    wrong: usize,
}

impl Talk {
    fn new(seed: u64) -> Talk {
        Talk { random: Xoshiro256PlusPlus::seed_from_u64(seed), messages: Vec::new(), answers: Vec::new() }
    }

    fn between(&mut self, range_ms: (u64, u64)) -> u64 {
        self.random.random_range(range_ms.0 * MS..=range_ms.1 * MS)
    }

    fn side(mut self, clock: Clock, message: Message) -> Talk {
        let mut now_ns = START + 50 * MS;
        while now_ns < START + LENGTH_NS {
            now_ns += match clock {
                Clock::Random(mean_ns) => (mean_ns as f64 * -(1.0 - self.random.random::<f64>()).ln()) as u64,
                Clock::Steady(ns) => ns + self.random.random_range(0..ns / 5),
            };
            self.messages.push((now_ns, message));
        }
        self
    }

    /// Adds a client with one request under way at a time, whose requests have this number of writes, and answers so many
    /// pieces; both are as far apart as given.
    fn requests(self, service_ms: (u64, u64), think_ms: (u64, u64), writes: (u32, u64), pieces: (u32, u64)) -> Talk {
        self.uneven_requests(service_ms, think_ms, (writes.0..=writes.0, writes.1), (pieces.0..=pieces.0, pieces.1))
    }

    fn uneven_requests(
        mut self,
        service_ms: (u64, u64),
        think_ms: (u64, u64),
        (writes, apart_ns): (std::ops::RangeInclusive<u32>, u64),
        (pieces, between_ns): (std::ops::RangeInclusive<u32>, u64),
    ) -> Talk {
        let mut now_ns = START + 50 * MS;
        while now_ns < START + LENGTH_NS {
            let asked_ns = now_ns;
            for write in 0..self.random.random_range(writes.clone()) {
                now_ns += if write > 0 { apart_ns } else { 0 };
                self.messages.push((now_ns, Message::Sent(120)));
            }
            now_ns += 2 * ONE_WAY_NS + self.between(service_ms);
            for piece in 0..self.random.random_range(pieces.clone()) {
                now_ns += if piece > 0 { between_ns } else { 0 };
                self.messages.push((now_ns, Message::Came(300)));
            }
            self.answers.push((asked_ns, now_ns));
            now_ns += 60 * US + self.between(think_ms);
        }
        self
    }

    /// Returns what the client sends. It acknowledges what comes at once.
    fn packets(&self) -> Vec<dwell_arrival> {
        self.packets_acknowledged_after(30 * US)
    }

    /// Returns what a client sends that waits for so long before it acknowledges, so that messages of its own may carry that. An ACK
    /// echoes the time of the first message that it acknowledges.
    fn packets_acknowledged_after(&self, wait_ns: u64) -> Vec<dwell_arrival> {
        let mut messages = self.messages.clone();
        messages.sort_by_key(|message| message.0);
        let stamp = |time_ns: u64| 70_000 + ((time_ns - ONE_WAY_NS - START) / MS) as u32;
        let mut packets = vec![dwell_arrival { tsecr: 1460, ..syn(START, 0) }];
        packets.push(dwell_arrival { tsecr: stamp(START + ONE_WAY_NS), ..tcp(START + 2 * ONE_WAY_NS, 1, 0, 1) });
        let (mut seq, mut ack, mut tsecr) = (1, 1, 70_000);
        let mut due_ns = None;
        for (time_ns, message) in messages {
            if let Some(due_ns) = due_ns.take_if(|due_ns| *due_ns <= time_ns) {
                packets.push(dwell_arrival { tsecr, ..tcp(due_ns, seq, 0, ack) });
            }
            match message {
                Message::Sent(bytes) => {
                    let packet = tcp(time_ns, seq, bytes, ack);
                    packets.push(dwell_arrival { tsecr, tcp_flags: packet.tcp_flags | 8, ..packet });
                    seq += bytes;
                    due_ns = None;
                }
                Message::Came(bytes) => {
                    ack += bytes;
                    if due_ns.is_none() {
                        tsecr = stamp(time_ns);
                        due_ns = Some(time_ns + wait_ns);
                    }
                }
            }
        }
        packets
    }

    fn outcome(&self) -> Outcome {
        self.outcome_of(&self.packets())
    }

    fn outcome_of(&self, packets: &[dwell_arrival]) -> Outcome {
        let config = Config::default();
        let mut outcome = Outcome::default();
        for epoch in epochs(&config, packets) {
            let made = estimate(&config, &epoch);
            let ends = epoch.start_ns..epoch.start_ns + epoch.epoch_ns;
            let took: Vec<f64> =
                self.answers.iter().filter(|a| ends.contains(&a.1)).map(|a| (a.1 - a.0) as f64).collect();
            outcome.epochs += 1;
            if !made.is_valid() || made.confidence < 0.7 {
                continue;
            }
            outcome.believed += 1;
            let truth_ns = took.iter().sum::<f64>() / took.len() as f64;
            let error = made.response_ns.unwrap() as f64 / truth_ns - 1.0;
            outcome.wrong += usize::from(took.is_empty() || error.abs() > 0.2);
        }
        outcome
    }
}

/// Several connections of a kind together.
fn outcome(talk: impl Fn(u64) -> Talk) -> Outcome {
    let mut sum = Outcome::default();
    (1..=5).for_each(|seed| sum.add(&talk(seed).outcome()));
    sum
}

#[track_caller]
fn assert_not_wrong(name: &str, talk: impl Fn(u64) -> Talk) {
    let outcome = outcome(talk);
    assert!(50 * outcome.wrong <= outcome.epochs, "{name}: {outcome:?}");
}

#[track_caller]
fn assert_believed(name: &str, talk: impl Fn(u64) -> Talk) {
    let outcome = outcome(talk);
    assert!(10 * outcome.believed >= 9 * outcome.epochs, "{name}: {outcome:?}");
    assert!(100 * outcome.wrong <= outcome.believed, "{name}: {outcome:?}");
}

impl Outcome {
    fn add(&mut self, other: &Outcome) {
        self.epochs += other.epochs;
        self.believed += other.believed;
        self.wrong += other.wrong;
    }
}

const WHOLE: (u32, u64) = (1, 0);

#[test]
fn what_a_client_says_one_way_beside_its_requests_is_not_taken_for_them() {
    for every_ms in [20, 50, 100, 200] {
        for (service_ms, think_ms) in [((5, 40), (0, 30)), ((5, 40), (0, 150)), ((1, 5), (0, 80))] {
            for clock in [Clock::Random(every_ms * MS), Clock::Steady(every_ms * MS)] {
                assert_not_wrong(&format!("{clock:?}, {service_ms:?}, {think_ms:?}"), |seed| {
                    Talk::new(seed).side(clock, Message::Sent(7)).requests(service_ms, think_ms, WHOLE, WHOLE)
                });
            }
        }
    }
}

#[test]
fn what_a_server_pushes_beside_its_answers_is_not_taken_for_them() {
    for every_ms in [30, 100, 500, 1000] {
        for (service_ms, think_ms) in
            [((5, 40), (0, 100)), ((1, 5), (0, 80)), ((20, 80), (0, 0)), ((5, 20), (150, 450))]
        {
            for clock in [Clock::Random(every_ms * MS), Clock::Steady(every_ms * MS)] {
                assert_not_wrong(&format!("{clock:?}, {service_ms:?}, {think_ms:?}"), |seed| {
                    Talk::new(seed).side(clock, Message::Came(80)).requests(service_ms, think_ms, WHOLE, WHOLE)
                });
            }
        }
    }
}

#[test]
fn a_chat_has_no_latency() {
    for (ours_ms, theirs_ms) in [(50, 200), (200, 50), (30, 20), (1000, 100)] {
        let clocks = [Clock::Random as fn(u64) -> Clock, Clock::Steady];
        for (ours, theirs) in clocks.into_iter().flat_map(|ours| clocks.map(|theirs| (ours, theirs))) {
            let (ours, theirs) = (ours(ours_ms * MS), theirs(theirs_ms * MS));
            assert_not_wrong(&format!("{ours:?}, {theirs:?}"), |seed| {
                Talk::new(seed).side(ours, Message::Sent(90)).side(theirs, Message::Came(500))
            });
        }
    }
}

#[test]
fn of_what_is_believed_where_sides_speak_unasked_hardly_anything_is_wrong() {
    let mut sum = Outcome::default();
    for seed in 1..=8 {
        let talk = |number: u64| Talk::new(100_000 * number + seed);
        let asks = |talk: Talk| talk.requests((5, 50), (0, 60), WHOLE, WHOLE);
        let (often, seldom) = (Clock::Random(80 * MS), Clock::Random(250 * MS));
        let talks = [
            asks(talk(1).side(seldom, Message::Sent(46))),
            asks(talk(2).side(often, Message::Sent(46))),
            asks(talk(3).side(seldom, Message::Came(46))),
            asks(talk(4).side(often, Message::Came(46))),
            asks(
                talk(5)
                    .side(Clock::Steady(250 * MS), Message::Sent(46))
                    .side(Clock::Steady(350 * MS), Message::Came(46)),
            ),
            talk(6).side(Clock::Random(60 * MS), Message::Sent(90)).side(Clock::Random(180 * MS), Message::Came(120)),
            talk(7).side(Clock::Random(280 * MS), Message::Sent(90)).side(Clock::Random(110 * MS), Message::Came(120)),
        ];
        for talk in talks {
            sum.add(&talk.outcome());
            sum.add(&talk.outcome_of(&talk.packets_acknowledged_after(40 * MS)));
        }
    }
    assert!(100 * sum.wrong <= sum.believed, "{sum:?}");
}

#[test]
fn requests_and_answers_in_pieces_are_believed() {
    for think_ms in [(0, 0), (0, 80), (200, 200)] {
        for (writes, pieces) in [(WHOLE, WHOLE), ((2, 50 * US), WHOLE), ((3, 20 * MS), WHOLE), (WHOLE, (3, 3 * MS))] {
            assert_believed(&format!("{think_ms:?}, {writes:?}, {pieces:?}"), |seed| {
                Talk::new(seed).requests((5, 40), think_ms, writes, pieces)
            });
        }
    }
}

#[test]
fn pieces_of_any_number_are_believed_of_a_client_in_a_loop() {
    assert_believed("answers", |seed| Talk::new(seed).uneven_requests((5, 40), (0, 0), (1..=1, 0), (1..=4, 4 * MS)));
}

#[test]
fn the_rest_of_a_request_is_not_taken_for_one_where_a_connection_was_joined_within_it() {
    let config = Config::default();
    let packets = Talk::new(1).requests((5, 40), (0, 80), (5, 150 * MS), WHOLE).packets();
    for skipped in 2..40 {
        let first = epochs(&config, &packets[skipped..])[0];
        let all_ns = u64::from(first.answered) * 600 * MS;
        assert!(first.answered_ns >= all_ns, "after {skipped} packets: {} in {} ns", first.answered, first.answered_ns);
    }
}
