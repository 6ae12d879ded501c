//! Flows without visible headers: answers in pieces, and several requests in a packet.

use dwell_engine::{
    abi::{self, dwell_arrival},
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

/// Generates a QUIC connection whose requests take 20 ms and are hardly larger than ACKs, each after a pause. Answers are acknowledged
/// by `acks` packets 60 us apart, the last of them this much later than the answer.
fn quic(pause_ns: u64, acks: u64, late_ns: u64) -> Vec<dwell_arrival> {
    let packet = |time_ns, bytes| dwell_arrival { visible: abi::DWELL_VISIBLE_QUIC as u8, ..sealed(time_ns, bytes) };
    let mut packets = vec![packet(START, 1280), packet(START + 10 * MS, 1280), packet(START + 11 * MS, 63)];
    let mut now_ns = START + 12 * MS;
    while now_ns < START + 6 * SECOND {
        packets.push(packet(now_ns, 100));
        let end_ns = now_ns + 20 * MS;
        packets.extend((0..acks).rev().map(|left| packet(end_ns + late_ns - left * 60 * US, 63)));
        now_ns = end_ns + pause_ns;
    }
    packets
}

#[test]
fn small_requests_of_quic_are_not_taken_for_its_acks() {
    for pause_ms in [1, 5, 50] {
        let mut made = made(Estimator::Auto, &quic(pause_ms * MS, 4, 0));
        made.retain(|made| made.is_valid());
        assert!(made.len() >= 4, "{made:?}");
        assert_near(&made, 20 * MS);
    }
}

#[test]
fn the_only_ack_of_an_answer_over_quic_may_have_waited() {
    let made = made(Estimator::Auto, &quic(50 * MS, 1, 25 * MS));
    assert_all(&made[1..], Reason::DelayedAck);
}
