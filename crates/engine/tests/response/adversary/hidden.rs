//! What delays all ACKs of a connection alike: a pause of the client, pieces of an answer, or the path. Which of
//! them it is shows in a few ACKs only, if at all.

use rand::SeedableRng;

use super::{Outcome, Random, usual};
use crate::{
    support::{MS, SECOND, US},
    wire::{Acks, Draw, Setting, Stamps, run},
};

/// Runs twelve connections of a server that takes some 10 ms to answer with less than a segment, each changed by `change`.
fn outcome(change: impl Fn(&mut Setting)) -> Outcome {
    let mut outcome = Outcome::default();
    for connection in 0..12 {
        let mut setting = Setting {
            rtt_ns: 2 * MS,
            service_ns: Draw::Between(9 * MS, 11 * MS),
            think_ns: Draw::Always(0),
            answer_bytes: Draw::Always(200),
            acks: Acks::Linux { jiffy_ns: 4 * MS },
            bits_per_second: 1_000_000_000,
            is_probing: false,
            ..usual(&mut Random::seed_from_u64(connection))
        };
        change(&mut setting);
        outcome.judge(&run(&setting, connection, 8 * SECOND), true);
    }
    outcome
}

#[track_caller]
fn assert_not_misled(outcome: &Outcome) {
    assert!(outcome.epochs >= 60, "{outcome:?}");
    assert!(100 * outcome.wrong <= outcome.believed && outcome.far_off == 0, "{outcome:?}");
}

#[test]
fn a_pause_before_each_request_is_not_counted_where_the_handshake_was_not_seen() {
    for think_ms in [5, 13, 30] {
        let joined_late = |answer_bytes| {
            outcome(|setting| {
                setting.is_joined_late = true;
                setting.think_ns = Draw::Always(think_ms * MS);
                setting.answer_bytes = answer_bytes;
            })
        };
        assert_eq!(joined_late(Draw::Always(200)).believed, 0, "{think_ms} ms");
        // An answer now and then of which two segments are acknowledged at once ties the clocks.
        let tied = joined_late(Draw::Either(200, 5000, 0.1));
        assert_not_misled(&tied);
        assert!(5 * tied.believed >= 4 * tied.epochs, "{think_ms} ms: {tied:?}");
    }
}

#[test]
fn a_handshake_whose_echo_is_no_time_ties_no_clocks() {
    assert_not_misled(&outcome(|setting| {
        setting.stamps = Stamps::Cookie;
        setting.think_ns = Draw::Always(9 * MS);
    }));
}

#[test]
fn a_slow_line_is_not_taken_for_a_pause() {
    for (kilobits, bytes) in [(550, 1_224), (800, 970), (1_200, 970), (2_000, 970)] {
        assert_not_misled(&outcome(|setting| {
            setting.bits_per_second = 1_000 * kilobits;
            setting.rtt_ns = 9 * MS;
            setting.service_ns = Draw::Between(MS, 2 * MS);
            setting.answer_bytes = Draw::Always(bytes);
        }));
    }
}

#[test]
fn a_queue_that_comes_and_goes_is_not_taken_for_a_pause() {
    let outcome = outcome(|setting| {
        setting.jitter_ns = 6 * MS;
        setting.service_ns = Draw::Exponential(MS);
        setting.think_ns = Draw::Between(0, 140 * MS);
        setting.answer_bytes = Draw::Between(29, 118);
        setting.acks = Acks::Linux { jiffy_ns: MS };
    });
    assert!(outcome.epochs >= 60 && outcome.far_off == 0, "{outcome:?}");
}

#[test]
fn a_client_that_waits_for_more_segments_is_not_taken_for_a_queue() {
    for timer_ms in [25, 40, 100] {
        assert_not_misled(&outcome(|setting| {
            setting.service_ns = Draw::Between(400 * US, 700 * US);
            setting.think_ns = Draw::Between(0, 65 * MS);
            setting.answer_bytes = Draw::Either(10_341, 62_046, 0.2);
            setting.acks = Acks::Every { segments: 8, timer_ns: timer_ms * MS };
            setting.is_probing = true;
        }));
    }
    // What the server sends again draws an ACK sooner than any timer, and always as late.
    assert_not_misled(&outcome(|setting| {
        setting.rtt_ns = 7 * MS;
        setting.service_ns = Draw::Between(400 * US, MS);
        setting.think_ns = Draw::Always(20 * MS);
        setting.answer_bytes = Draw::Either(609, 3_654, 0.2);
        setting.acks = Acks::Every { segments: 8, timer_ns: 100 * MS };
        setting.is_probing = true;
    }));
}

#[test]
fn pieces_of_answers_are_not_taken_for_a_pause() {
    for between_ms in [2, 7, 15] {
        assert_not_misled(&outcome(|setting| {
            setting.pieces = 3;
            setting.between_ns = Draw::Always(between_ms * MS);
        }));
    }
}
