//! Flows without visible headers: answers in pieces, and several requests in a packet.

use dwell_engine::{
    abi::dwell_arrival,
    response::{Estimator, Reason},
};

use crate::{
    doubts::{assert_all, assert_near, made},
    support::{MS, SECOND, START, US, sealed},
};

/// Generates encrypted requests one after the other, each answered in four pieces 8 ms apart, the first after 10 ms;
/// the client sends 50 us after the last. The `sizes` alternate.
fn in_pieces(begin_ns: u64, sizes: &[u32], first_ms: u64) -> Vec<dwell_arrival> {
    let mut packets = Vec::new();
    let mut now_ns = begin_ns;
    for number in 0..120 {
        packets.push(sealed(now_ns, sizes[number % sizes.len()]));
        now_ns += first_ms * MS;
        for _ in 0..4 {
            for _ in 0..3 {
                packets.push(sealed(now_ns, 64));
                now_ns += 100 * US;
            }
            now_ns += 8 * MS;
        }
        now_ns -= 8 * MS + 50 * US;
    }
    packets
}

#[test]
fn answers_in_pieces_end_with_the_last_before_the_next_request() {
    // 10 ms, three pauses of 8, and twelve ACKs 100 us apart except for the last.
    let truth_ns = 34 * MS + 1100 * US;
    assert_near(&made(Estimator::Auto, &in_pieces(START, &[160, 170], 10)), truth_ns);
}

/// Ticks are 32 bits of the clock: there is no time before a flow's first request.
#[test]
fn the_clock_of_the_first_request_does_not_matter() {
    for minutes in 0..20 {
        let packets = in_pieces(START + minutes * 60 * SECOND, &[160, 170], 10);
        assert_near(&made(Estimator::Auto, &packets), 34 * MS + 1100 * US);
    }
}

#[test]
fn a_pause_is_no_part_of_a_response() {
    let mut packets = in_pieces(START, &[160, 170], 10);
    packets.extend(in_pieces(START + 12 * SECOND, &[160, 170], 10));
    let mut made = made(Estimator::Auto, &packets);
    made.retain(|made| made.is_valid());
    assert!(made.len() >= 7, "{made:?}");
    assert_near(&made, 34 * MS + 1100 * US);
}

#[test]
fn progress_right_behind_requests_means_that_others_are_in_progress() {
    let made = made(Estimator::Auto, &in_pieces(START, &[160], 0));
    assert_all(&made, Reason::Staggered);
}

#[test]
fn packets_that_may_hold_several_requests_are_distinguished_from_one() {
    let made = made(Estimator::Auto, &in_pieces(START, &[160, 160, 260], 10));
    assert_all(&made, Reason::Multiplexed);
}
