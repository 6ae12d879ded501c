//! Captures that lack something: what they cannot tell is not called healthy, and nobody is accused.

use super::*;

/// Requests that are all answered after the same time, on a connection that began before. The client pauses between them.
fn requests(answer_ns: u64, pause_ns: u64) -> Verdict {
    let mut wire = Wire::new();
    for _ in 0..20 {
        wire.data(pause_ns, End::Client, 100);
        wire.data(answer_ns, End::Server, 200);
    }
    wire.verdict()
}

fn cannot_tell(verdict: &Verdict) {
    assert_eq!((verdict.outcome, verdict.certainty), (Outcome::NotEnough, None), "{verdict:?}");
    assert!(verdict.sentence.contains("does not show"), "{}", verdict.sentence);
    assert!(verdict.unseen[0].remedy.contains("dwell why"), "{:?}", verdict.unseen);
}

#[test]
fn a_wait_that_is_always_the_same_may_be_the_way_or_the_service() {
    cannot_tell(&requests(30 * MS, 10 * MS));
}

#[test]
fn what_is_longer_than_receivers_delay_acknowledgements_is_the_way() {
    let verdict = requests(300 * MS, 10 * MS);
    assert_eq!(cause(&verdict), Some(Cause::Distance), "{verdict:?}");
}

#[test]
fn what_requests_took_longer_than_the_quickest_is_the_service() {
    let mut wire = Wire::new();
    for turn in 0..40 {
        wire.data(10 * MS, End::Client, 100);
        wire.data(if turn % 4 == 0 { 5 * MS } else { 45 * MS }, End::Server, 200);
    }
    let verdict = wire.verdict();
    assert!(matches!(cause(&verdict), Some(Cause::SlowService | Cause::SlowAnswer)), "{verdict:?}");
}

#[test]
fn a_service_whose_kernel_acknowledges_at_once_is_slow_itself() {
    let mut wire = Wire::new();
    for _ in 0..20 {
        wire.data(10 * MS, End::Client, 100);
        wire.ack(MS / 10, End::Server);
        wire.data(80 * MS, End::Server, 200);
    }
    let verdict = wire.verdict();
    assert!(matches!(cause(&verdict), Some(Cause::SlowService | Cause::SlowAnswer)), "{verdict:?}");
}

#[test]
fn a_client_that_pauses_is_not_far_away() {
    let verdict = requests(MS / 10, 24 * MS);
    assert_eq!(cause(&verdict), None, "{verdict:?}");
    assert!(verdict.unseen.iter().any(|unseen| unseen.what.contains("began before")), "{:?}", verdict.unseen);
}

#[test]
fn a_client_that_asks_as_soon_as_it_acknowledges_may_be_far_away_or_pause() {
    // Over the size from which answers were once taken for a transfer.
    let mut wire = Wire::new();
    for _ in 0..500 {
        wire.data(24 * MS, End::Client, 100);
        wire.data(MS / 10, End::Server, 200);
    }
    cannot_tell(&wire.verdict());
}

#[test]
fn a_client_that_acknowledges_late_and_asks_later_is_not_far_away() {
    let mut wire = Wire::new();
    for _ in 0..500 {
        wire.data(60 * MS, End::Client, 100);
        wire.data(MS / 10, End::Server, 200);
        wire.ack(41 * MS, End::Client);
    }
    let verdict = wire.verdict();
    assert_eq!(verdict.outcome, Outcome::Healthy, "{verdict:?}");
}

#[test]
fn answers_that_fit_into_a_window_whose_scale_is_unknown_are_not_limited_by_it() {
    let mut wire = Wire::new();
    for turn in 0..100 {
        let seq = wire.sent[End::Client as usize];
        wire.sent[End::Client as usize] += 100;
        wire.packet(20 * MS, End::Client, seq, "A", 350 + turn % 2 * 150, 100);
        wire.data(MS / 10, End::Server, 300);
    }
    let verdict = wire.verdict();
    let is_window = |part: &Part| matches!(part, Part::ReceiverWindow | Part::Reader);
    assert!(!verdict.parts.iter().any(|(part, _)| is_window(part)), "{verdict:?}");
}

#[test]
fn one_direction_alone_is_not_called_healthy() {
    let mut wire = Wire::new();
    for _ in 0..200 {
        wire.data(10 * MS, End::Client, 1_000);
    }
    let verdict = wire.verdict();
    cannot_tell(&verdict);
    assert!(verdict.unseen.iter().any(|unseen| unseen.what.starts_with("what one end")), "{:?}", verdict.unseen);
}

#[test]
fn the_direction_of_the_server_alone_is_not_called_healthy_though_it_has_a_handshake() {
    let mut wire = Wire::new();
    wire.sent[0] += 1;
    wire.packet(0, End::Server, wire.sent[1], "SA", 1_000, 0);
    wire.sent[1] += 1;
    for _ in 0..20 {
        wire.sent[0] += 100;
        wire.ack(10 * MS, End::Server);
        wire.data(30 * MS, End::Server, 200);
    }
    let verdict = wire.verdict();
    cannot_tell(&verdict);
    assert_eq!(verdict.parts.iter().map(|(part, _)| *part).collect::<Vec<_>>(), [Part::Unexplained], "{verdict:?}");
}

/// The other one's packets are acknowledged, so that it was there, though nothing that it acknowledged was captured.
#[test]
fn one_direction_alone_with_a_loss_is_no_peer_that_is_gone() {
    for end in [End::Client, End::Server] {
        let (own, other) = (end as usize, 1 - end as usize);
        let mut wire = Wire::new();
        wire.packet(0, end, wire.sent[own], if own == 0 { "S" } else { "SA" }, 1_000, 0);
        wire.sent = wire.sent.map(|sent| sent + 1);
        for _ in 0..20 {
            wire.sent[other] += 100;
            wire.data(50 * MS, end, 900);
            wire.again(1_200 * MS, end, 900);
        }
        cannot_tell(&wire.verdict());
    }
}

#[test]
fn a_capture_that_lacks_many_packets_is_not_judged_and_the_end_of_a_connection_is_no_packet_that_it_lacks() {
    let transfer = |keeps: fn(u32) -> bool| {
        let mut wire = Wire::new();
        wire.handshake(10 * MS);
        for number in 0..400 {
            match keeps(number) {
                true => wire.data(MS, End::Client, 1_000),
                false => wire.sent[0] += 1_000,
            }
            if number % 2 == 1 {
                wire.ack(0, End::Server);
            }
        }
        for end in [End::Client, End::Server] {
            wire.packet(MS, end, wire.sent[end as usize], "FA", 1_000, 0);
            wire.sent[end as usize] += 1;
            wire.ack(MS, if matches!(end, End::Client) { End::Server } else { End::Client });
        }
        wire.verdict()
    };
    let lacks = |verdict: &Verdict| verdict.unseen.iter().any(|unseen| unseen.what.contains("the capture lacks"));
    let halved = transfer(|number| number % 4 > 1);
    cannot_tell(&halved);
    assert!(lacks(&halved), "{:?}", halved.unseen);
    let all = transfer(|_| true);
    assert!(!lacks(&all), "{:?}", all.unseen);
}

#[test]
fn a_peer_that_is_gone_says_nothing_and_that_is_no_missing_direction() {
    let mut wire = Wire::new();
    wire.data(0, End::Client, 1_000);
    for again in 0..4 {
        wire.again((200 << again) * MS, End::Client, 1_000);
    }
    let verdict = wire.verdict();
    assert_eq!(cause(&verdict), Some(Cause::StalledPeer), "{verdict:?}");
}

#[test]
fn a_handshake_of_tls_that_never_ends_is_slow() {
    let mut wire = Wire::new();
    wire.handshake(10 * MS);
    wire.hello(MS);
    wire.ack(10 * MS, End::Server);
    wire.ack(3_000 * MS, End::Server);
    let verdict = wire.verdict();
    assert_eq!(cause(&verdict), Some(Cause::SlowSetUp), "{verdict:?}");
}

#[test]
fn one_request_that_was_lost_was_slow_because_of_that() {
    let mut wire = Wire::new();
    wire.handshake(10 * MS);
    wire.data(MS, End::Client, 100);
    wire.again(220 * MS, End::Client, 100);
    wire.data(11 * MS, End::Server, 200);
    wire.ack(10_000, End::Client);
    let verdict = wire.verdict();
    assert_eq!(cause(&verdict), Some(Cause::TailLoss), "{verdict:?}");
}
