//! What begins a request, and what is a part of one or of something else.

use dwell_engine::{
    abi::{self, dwell_arrival},
    response::{Config, Flow, Reason, estimate},
};

use super::{Path, assert_right};
use crate::support::{MS, US, epochs};

#[test]
fn frames_and_messages_share_a_connection() {
    let mut path = Path::new(MS, 0);
    for i in 0..300 {
        path.turn(&[211], 20 * MS, 5000, 30 * US);
        if i % 10 == 0 {
            path.turn(&[35], MS, 40, 30 * US);
        }
    }
    let as_if = |change: fn(&mut dwell_arrival)| {
        let mut packets = path.packets.clone();
        packets.iter_mut().filter(|packet| packet.payload_bytes > 0).for_each(change);
        Path { packets, ..Path::new(MS, 0) }.estimates()
    };
    let made = [
        as_if(|packet| packet.content = abi::DWELL_CONTENT_FRAMES as u8),
        as_if(|packet| packet.content = abi::DWELL_CONTENT_MESSAGE as u8),
        as_if(|packet| {
            let is_control = packet.payload_bytes == 35;
            packet.content = if is_control { abi::DWELL_CONTENT_TLS_CONTROL } else { 0 } as u8;
        }),
    ];
    for made in made.concat() {
        assert_eq!(made.reason, Some(Reason::Multiplexed), "{made:?}");
    }
}

#[test]
fn small_requests_that_carry_the_end_of_an_answer_are_requests() {
    // Two full segments are acknowledged at once, the rest by the next request.
    let mut path = Path::new(MS, 0);
    for _ in 0..400 {
        path.send(60);
        path.now_ns += 25 * MS;
        path.came_ns = path.now_ns;
        path.ack += 2896;
        path.send(0);
        path.ack += 104;
        path.now_ns += 20 * US;
    }
    assert_right(&path, 25 * MS);
}

#[test]
fn requests_that_may_be_parts_of_one_are_not_believed() {
    // Two packets each time. Half of the answers come 20 ms later, the others in two parts, after 20 and 80 ms; or all come in three.
    for parts_ms in [[&[20][..], &[20, 60]], [&[20, 2, 30], &[20, 2, 30]]] {
        let mut path = Path::new(MS, 0);
        for i in 0..300 {
            path.send(120);
            path.send(400);
            for after_ms in parts_ms[i % 2] {
                path.now_ns += after_ms * MS;
                path.came_ns = path.now_ns;
                path.ack += 4000;
                path.send(0);
            }
            path.now_ns += 3 * MS;
        }
        let made = path.estimates();
        assert!(made.len() >= 8, "{}", made.len());
        for made in made {
            assert_eq!(made.reason, Some(Reason::Multiplexed), "{made:?}");
        }
    }
}

#[test]
fn a_body_after_100_continue_belongs_to_its_request() {
    let mut path = Path::new(MS, 0);
    let mut heads = Vec::new();
    for _ in 0..120 {
        heads.push(path.packets.len());
        path.turn(&[300], 21 * MS, 25, 50 * US);
        path.turn(&[900], 60 * MS, 5000, 50 * US);
    }
    for head in heads {
        path.packets[head].content = abi::DWELL_CONTENT_TEXT as u8;
    }
    assert_right(&path, 81 * MS + 50 * US);
}

#[test]
fn a_handshake_in_two_segments_is_no_request() {
    let mut path = Path::new(MS, 0);
    path.turn(&[1448, 400], 22 * MS, 4000, 30 * US);
    path.packets[2].content = abi::DWELL_CONTENT_TLS_HANDSHAKE as u8;
    path.turn(&[300], 70 * MS, 9000, 30 * US);
    let epoch = epochs(&Config::default(), &path.packets)[0];
    assert_eq!(epoch.answered, 1);
    assert!(epoch.answered_ns.abs_diff(70 * MS) < US, "{}", epoch.answered_ns);
}

#[test]
fn a_handshake_of_tls_is_no_request() {
    let mut path = Path::new(MS, 0);
    for (size, bytes) in [(517, 4000), (80, 510)] {
        path.turn(&[size], 2 * MS, bytes, 30 * US);
        let at = path.packets.iter().rposition(|packet| packet.payload_bytes == size).unwrap();
        path.packets[at].content = abi::DWELL_CONTENT_TLS_HANDSHAKE as u8;
    }
    path.turn(&[300], 30 * MS, 9000, 30 * US);
    let config = Config::default();
    let made = estimate(&config, &epochs(&config, &path.packets)[0]);
    assert!(made.is_valid() && made.batches == 1, "{made:?}");
    assert!(made.response_ns.unwrap().abs_diff(30 * MS) < US, "{made:?}");
}

#[test]
fn requests_in_several_packets_are_one_wherever_they_are() {
    for (which, sizes) in [(0, [300, 500]), (1, [220, 180]), (40, [300, 300]), (41, [250, 1200])] {
        for bytes in [150, 9000] {
            let mut path = Path::new(MS, 0);
            for i in 0..450 {
                let sizes = if i == which { &sizes[..] } else { &[300] };
                path.turn(sizes, 20 * MS + i * 7919 % 997 * US, bytes, 30 * US);
            }
            assert_right(&path, 20 * MS + 500 * US);
        }
    }
}

#[test]
fn a_large_request_whose_answer_was_counted_as_an_epoch_ended_is_followed_by_others() {
    // No packet has PSH, and the client pauses for longer than it takes to count an answer without the next request.
    let mut path = Path::new(MS, 0);
    for _ in 0..100 {
        path.turn(&[1400], 30 * MS, 9000, 130 * MS);
    }
    let config = Config::default();
    let mut flow = Flow::new(&config);
    let mut ended = Vec::new();
    for packet in &path.packets {
        ended.extend(flow.end(packet.time_ns - 20 * MS)); // as a sweep of the table does
        ended.extend(flow.step(packet));
    }
    assert!(ended.len() >= 8, "{}", ended.len());
    for (number, epoch) in ended.iter().enumerate() {
        assert!(epoch.answered >= 5, "epoch {number}: {}", epoch.answered);
    }
}
