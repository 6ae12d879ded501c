//! Segments that pass late: overtaken, or lost and sent again.

use super::*;

/// A transfer as it passes the host of its receiver, a round trip of 24 ms from its sender: of eight segments the second to the
/// fourth pass after the others.
struct Late {
    /// So much later.
    late_ns: u64,
    /// By how many milliseconds the clock of the sender is ahead of that of the others when it sends them.
    sent_ms: i32,
    /// When they pass once more.
    copies_ns: Option<u64>,
    has_stamps: bool,
}

impl Late {
    const OVERTAKEN: Late = Late { late_ns: 12 * MS, sent_ms: -5, copies_ns: None, has_stamps: true };

    fn verdict(self) -> Verdict {
        let mut wire = Wire::new();
        wire.stamps = self.has_stamps.then_some([(100, 900), (900, 100)]);
        wire.handshake_at_server(24 * MS);
        for round in 1..=100 {
            let (first, clock) = (wire.sent[0], 1_000 * round);
            let mut pass = |numbers: &[u32], after_ns: u64, clock: u32| {
                wire.now_ns += after_ns;
                wire.stamps = self.has_stamps.then_some([(clock, 900), (900, clock)]);
                numbers.iter().for_each(|it| wire.packet(10_000, End::Client, first + it * 1_000, "A", 1_000, 1_000));
            };
            pass(&[0, 4, 5, 6, 7], 0, clock);
            pass(&[1, 2, 3], self.late_ns, clock.wrapping_add_signed(self.sent_ms));
            if let Some(after_ns) = self.copies_ns {
                pass(&[1, 2, 3], after_ns, clock + 24);
            }
            wire.sent[0] = first + 8_000;
            wire.ack(10_000, End::Server);
            wire.now_ns += 50 * MS;
        }
        wire.verdict()
    }
}

#[test]
fn data_that_passes_late_at_the_receiver_was_overtaken_by_all_of_what_passed_before() {
    for late in [
        Late::OVERTAKEN,
        Late { has_stamps: false, ..Late::OVERTAKEN },
        // In a queue that is longer than the path.
        Late { late_ns: 60 * MS, ..Late::OVERTAKEN },
    ] {
        let verdict = late.verdict();
        assert_eq!(cause(&verdict), Some(Cause::Reordering), "{verdict:?}");
    }
}

#[test]
fn copies_of_what_has_passed_late_were_sent_for_nothing() {
    let verdict = Late { copies_ns: Some(12 * MS), ..Late::OVERTAKEN }.verdict();
    assert_eq!(cause(&verdict), Some(Cause::Reordering), "{verdict:?}");
    let needless = verdict.facts.iter().find(|fact| fact.what.contains("had already")).unwrap();
    assert_eq!(needless.value, Some(Value::Share(1.0)), "without a report of the receiver");
}

#[test]
fn what_was_sent_later_than_the_data_that_showed_its_gap_was_lost_before() {
    for late in [
        Late { late_ns: 12 * MS, sent_ms: 24, ..Late::OVERTAKEN },
        Late { late_ns: 24 * MS, has_stamps: false, ..Late::OVERTAKEN },
    ] {
        let verdict = late.verdict();
        assert_eq!(cause(&verdict), Some(Cause::Loss), "{verdict:?}");
    }
}

#[test]
fn data_that_passes_in_order_and_again_was_lost_beyond_the_capture() {
    let mut wire = Wire::new();
    wire.handshake(24 * MS);
    for _ in 0..100 {
        for _ in 0..8 {
            wire.data(10_000, End::Client, 1_000);
        }
        wire.again(26 * MS, End::Client, 3_000);
        wire.ack(24 * MS, End::Server);
    }
    let verdict = wire.verdict();
    assert_eq!(cause(&verdict), Some(Cause::Loss), "{verdict:?}");
}
