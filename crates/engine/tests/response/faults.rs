//! Invalid estimates have a reason.

use dwell_engine::{
    abi::dwell_arrival,
    response::{Config, Estimate, Estimator, Reason, estimate},
};

use crate::{
    doubts::{assert_all, made},
    support::{MS, START, US, epochs, sealed, syn, tcp},
};

#[track_caller]
fn assert_fault(packets: &[dwell_arrival], reason: Reason) -> Estimate {
    let config = Config::default();
    let ended = epochs(&config, packets);
    let made = estimate(&config, &ended[ended.len() / 2]);
    assert_eq!(made.reason, Some(reason), "{made:?}\n{:?}", ended[ended.len() / 2]);
    assert!(!made.is_valid());
    made
}

#[test]
fn an_upload_clocked_by_acks() {
    let packets: Vec<_> = (0..2000u32).map(|i| tcp(START + u64::from(i) * MS, 1 + 1448 * i, 1448, 1)).collect();
    assert_fault(&packets, Reason::BulkUpload);
}

#[test]
fn a_stream_that_is_paced() {
    let packets: Vec<_> = (0..2000).map(|i| sealed(START + i * MS, 1500)).collect();
    assert_fault(&packets, Reason::Paced);
}

#[test]
fn a_timer() {
    let packets: Vec<_> = (0..200).map(|i| sealed(START + i * 10 * MS, 300)).collect();
    let made = assert_fault(&packets, Reason::TimerDriven);
    assert!(made.response_ns.unwrap().abs_diff(10 * MS) < US);
}

/// Generates requests that are answered after `service_ns`, with the next request `think_ns` later.
fn one_by_one(service_ns: u64, think_ns: u64) -> Vec<dwell_arrival> {
    let mut packets = vec![syn(START, 0), tcp(START + MS, 1, 0, 1)];
    let mut now = START + 2 * MS;
    for i in 0..200u32 {
        packets.push(tcp(now, 1 + 300 * i, 300, 1 + 5000 * i));
        now += service_ns;
        packets.push(tcp(now, 301 + 300 * i, 0, 5001 + 5000 * i));
        now += think_ns;
    }
    packets
}

#[test]
fn a_client_that_thinks_is_fine() {
    let config = Config::default();
    for (service_ns, think_ns) in [(10 * MS, 2 * MS), (MS, 20 * MS), (MS, 200 * MS)] {
        let epoch = epochs(&config, &one_by_one(service_ns, think_ns))[1];
        let made = estimate(&config, &epoch);
        assert!(made.is_valid(), "{made:?}");
        assert!(made.response_ns.unwrap().abs_diff(service_ns) < 2 * US);
    }
}

#[test]
fn ends_hidden_in_the_next_request_are_unknown_if_the_client_thinks() {
    // There are no timestamps. Every other response is so small that only the next request, 10 ms later, acknowledges it.
    let (mut packets, mut now) = (vec![syn(START, 0), tcp(START + MS, 1, 0, 1)], START + 2 * MS);
    for i in 0..150u32 {
        packets.push(tcp(now, 1 + 300 * i, 300, 1 + 5000 * i));
        if i % 2 == 0 {
            packets.push(tcp(now + 5 * MS, 301 + 300 * i, 0, 5001 + 5000 * i));
        }
        now += 15 * MS;
    }
    assert_fault(&packets, Reason::DelayedAck);
}

#[test]
fn responses_in_pieces_end_with_the_last() {
    let mut packets = vec![syn(START, 0), tcp(START + MS, 1, 0, 1)];
    let (mut now, mut ack) = (START + 2 * MS, 1);
    for i in 0..200u32 {
        packets.push(tcp(now, 1 + 300 * i, 300, ack));
        for _ in 0..3 {
            now += 3 * MS;
            ack += 5000;
            packets.push(tcp(now, 301 + 300 * i, 0, ack));
        }
        now += 10 * US;
    }
    let config = Config::default();
    let made = estimate(&config, &epochs(&config, &packets)[1]);
    assert!(made.is_valid() && made.response_ns.unwrap().abs_diff(9 * MS) < 2 * US, "{made:?}");
}

/// Repeats each ACK four times.
fn repeat_acks(packets: &mut Vec<dwell_arrival>) {
    let acks: Vec<_> = packets.iter().filter(|packet| packet.payload_bytes == 0).copied().collect();
    for ack in acks {
        packets.extend((1..5).map(|i| dwell_arrival { time_ns: ack.time_ns + i, ..ack }));
    }
    packets.sort_by_key(|packet| packet.time_ns);
}

#[test]
fn repeated_acks() {
    let mut pairs = vec![syn(START, 0), tcp(START + MS, 1, 0, 1)];
    for i in 0..200u32 {
        let (now, seq, ack) = (START + 2 * MS + u64::from(i) * 20 * MS, 1 + 600 * i, 1 + 1000 * i);
        pairs.extend([tcp(now, seq, 300, ack), tcp(now + 10 * US, seq + 300, 300, ack)]);
        pairs.extend([10, 15].map(|ms| tcp(now + ms * MS, seq + 600, 0, ack + if ms == 10 { 500 } else { 1000 })));
    }
    repeat_acks(&mut pairs);
    assert_fault(&pairs, Reason::Lossy);

    // One request at a time ends with the last progress, whatever is repeated.
    let mut packets = one_by_one(10 * MS, 10 * US);
    repeat_acks(&mut packets);
    let config = Config::default();
    let made = estimate(&config, &epochs(&config, &packets)[1]);
    assert!(made.is_valid() && made.response_ns.unwrap().abs_diff(10 * MS) < US, "{made:?}");
}

#[test]
fn too_few() {
    assert_fault(&[tcp(START, 1, 300, 1)], Reason::TooFew);
}

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
