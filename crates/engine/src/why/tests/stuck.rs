//! Data that stays where it is.

use super::*;

/// A firewall of this host drops its large packets: 300 kB wait, nothing is in flight, and what the kernel tried to send counts as sent.
#[test]
fn data_that_this_host_itself_drops_cannot_leave() {
    let mut socket = Socket::new(Role::Server);
    socket.request();
    let mut drop_all = |polls: u64| {
        socket.polls(polls, |info| {
            (info.notsent_bytes, info.send_window, info.cwnd) = (Some(300_000), Some(64_000), 10);
            info.busy_us = info.busy_us.map(|us| us + 1_000);
            let is_tried = info.busy_us.is_some_and(|us| us % 400_000 == 0);
            info.bytes_sent = info.bytes_sent.map(|bytes| bytes + if is_tried { 1_000 } else { 0 });
        });
        socket.evidence()
    };
    // That may be a moment.
    assert_eq!(cause(&drop_all(500)), None);
    let verdict = decide(&drop_all(7_500));
    assert_eq!(verdict.outcome, Outcome::Slow(Cause::StalledPeer), "{verdict:?}");
    assert!(verdict.sentence.starts_with("Data cannot leave this host"), "{}", verdict.sentence);
    assert!(verdict.remedies[0].command.contains("nft list ruleset"), "{:?}", verdict.remedies);
}

/// Whatever keeps it: where somebody waits and not a byte moves, nothing is healthy.
#[test]
fn connections_that_wait_and_on_which_nothing_moves_are_not_healthy() {
    let stood = with(&[(Part::Transfer, 1.0)], |sums| (sums.sent_bytes, sums.received_bytes) = (0, 0));
    assert_eq!(decide(&stood).outcome, Outcome::NotEnough);
    assert_eq!(decide(&evidence(&[(Part::Transfer, 1.0)])).outcome, Outcome::Healthy);
}

/// Another connection's peer is gone, for longer.
#[test]
fn a_peer_that_is_gone_is_not_data_that_cannot_leave() {
    let mut gone = evidence(&[(Part::Timeout, 0.9), (Part::Transfer, 0.1)]);
    (gone.sums.stalled_ns, gone.stuck, gone.sums.stuck_ns) = (9_000_000_000, 1, 1_000_000_000);
    let verdict = decide(&gone);
    assert_eq!(verdict.outcome, Outcome::Slow(Cause::StalledPeer));
    assert!(verdict.sentence.starts_with("The peer does not answer"), "{}", verdict.sentence);
}

/// One segment each 1.4 s, as the application has asked for.
#[test]
fn data_that_waits_for_the_limit_of_its_rate_can_leave() {
    let mut paced = Socket::new(Role::Client);
    paced.polls(5_000, |info| {
        (info.notsent_bytes, info.send_window) = (Some(100_000), Some(64_000));
        (info.max_pacing_rate, info.pacing_rate) = (Some(1_000), Some(1_000));
    });
    assert_ne!(cause(&paced.evidence()), Some(Cause::StalledPeer));
}
