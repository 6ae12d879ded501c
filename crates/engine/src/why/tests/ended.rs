//! Requests without an answer, and connections that are over.

use super::*;

/// A server takes requests and answers none; the client gives up, or goes on to wait.
#[test]
fn a_service_that_hangs_is_not_healthy() {
    for role in [Role::Client, Role::Server] {
        let hung = |closes: bool| {
            let mut socket = Socket::new(role);
            (socket.reading.info.bytes_acked, socket.reading.info.last_data_sent_ms) = (Some(1), 0);
            socket.connection = Connection::new(role, &socket.reading);
            socket.polls(10, |_| {});
            socket.polls(1, |info| match role {
                Role::Client => (info.bytes_sent, info.bytes_acked) = (Some(78), Some(79)),
                Role::Server => info.bytes_received = Some(78),
            });
            socket.polls(8_000, |_| {});
            if closes {
                let state = if role == Role::Client { 5 } else { 8 };
                socket.polls(50, |info| info.state = state);
            }
            socket.evidence()
        };
        let verdict = decide(&hung(true));
        let slow = if role == Role::Client { Cause::SlowAnswer } else { Cause::SlowService };
        assert_eq!(verdict.outcome, Outcome::Slow(slow), "{verdict:?}");
        let verdict = decide(&hung(false));
        assert_eq!(verdict.outcome, Outcome::NoTraffic, "{verdict:?}");
        let said = "Nothing was answered: on a connection the client spoke last, 8.0 s ago";
        assert!(verdict.sentence.starts_with(said), "{verdict:?}");
        // Beside others that are answered at once.
        let mut quick = Socket::new(role);
        (0..200).for_each(|_| match role {
            Role::Client => quick.turns(1, 3),
            Role::Server => {
                quick.request();
                quick.polls(2, |_| {});
                quick.answer();
            }
        });
        let mut both = hung(false);
        both.add(&quick.connection, key(role, 80), CountKind::Whole);
        let verdict = decide(&both);
        assert_eq!((verdict.outcome, verdict.certainty), (Outcome::Healthy, Some(Certainty::Possible)), "{verdict:?}");
        assert!(verdict.sentence.contains("may be owed an answer"), "{verdict:?}");
    }
}

/// Each is over before the next poll: its wait is known, and the segment of its answer is not.
#[test]
fn short_connections_that_wait_less_than_counts_are_healthy() {
    let mut evidence = Evidence { observed_ns: 10_000_000_000, ..Evidence::default() };
    for _ in 0..100 {
        let mut socket = Socket::new(Role::Server);
        socket.request();
        socket.polls(3, |_| {});
        socket.connection.end();
        evidence.add(&socket.connection, key(Role::Server, 80), CountKind::Whole);
    }
    evidence.answer_segments = 20;
    assert_eq!((evidence.sums.service.count, cause(&evidence)), (100, None), "{:?}", evidence.sums.service);
}

/// The last wait of a look may be cut: it is no answer more, and no answer is shorter than it was for its sake.
#[test]
fn a_wait_that_is_cut_by_the_end_of_the_look_is_no_answer_of_another_length() {
    let mut answers = ByLength::default();
    (0..3).for_each(|_| answers.add(&Silences::of(10_000_000)));
    let mut cut = answers;
    cut.add(&Silences::of(300_000_000));
    cut.count_as(&answers);
    assert_eq!(cut.up_to(20_000_000), answers.up_to(20_000_000));
    let all = cut.up_to(u64::MAX);
    assert!(all.mean_ns() <= Some(310e6 / 3.0) && all.sum_ns == 330_000_000, "{all:?}");
    assert!(cut.up_to(u64::MAX).count > 3, "as many as it takes for no mean to be longer than the longest");
}
