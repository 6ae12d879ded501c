//! Connections on which several requests are under way, and those that look like it.

use dwell_engine::{
    abi::dwell_arrival,
    response::{Estimate, Estimator, Reason},
};

use crate::{
    doubts::{assert_all, made},
    support::{MS, START, US, syn, tcp},
};

/// Returns packets of a connection whose requests each follow at once the answer to one of the last, which comes `after_ns`
/// after the last request: again and again these.
fn by_turns(handshake_ns: u64, after_ns: &[u64], turns: usize) -> Vec<dwell_arrival> {
    let mut packets = vec![syn(START, 0), tcp(START + handshake_ns, 1, 0, 1)];
    let (mut now, mut seq, mut ack) = (START + handshake_ns + MS, 1, 1);
    for after_ns in after_ns.iter().cycle().take(turns) {
        packets.push(tcp(now, seq, 60, ack));
        (now, seq, ack) = (now + after_ns, seq + 60, ack + 5000);
        packets.push(tcp(now, seq, 0, ack));
        now += 10 * US;
    }
    packets
}

#[test]
fn answers_that_are_sooner_than_a_round_trip_show_several_requests_however_long_they_go_on() {
    // Three streams: their answers come 3 ms apart, and each asks again.
    assert_all(&made(Estimator::Auto, &by_turns(60 * MS, &[84 * MS, 3 * MS, 3 * MS], 600)), Reason::Multiplexed);
}

#[test]
fn a_slow_handshake_does_not_make_one_request_at_a_time_several() {
    // The way took 300 ms once, and takes 50 since. Now and then an answer takes as long as the handshake did.
    let mut answers = vec![70 * MS; 60];
    answers[40] = 350 * MS;
    let packets = by_turns(300 * MS, &answers, 600);
    let made = made(Estimator::Auto, &packets);
    assert!(made.len() > 40 && made[4..].iter().all(Estimate::is_valid), "{made:?}");
}
