//! Requests over TLS that are as small as what only manages a connection.

use dwell_engine::{
    abi::{self, dwell_arrival},
    observe::Observation,
    response::{Config, Reason, Tracker, Watch, estimate},
};
use etherparse::PacketBuilder;

use crate::support::{MS, SECOND, START, US, epochs, syn, tcp};

/// Returns the time, sequence number, acknowledgement and payload of what a client sends: a handshake, and requests of records of so
/// many bytes that take 20 ms, each 5 ms after the answer before.
fn packets(sizes: &[usize]) -> Vec<(u64, u32, u32, Vec<u8>)> {
    let record = |kind: u8, bytes: usize| {
        let length = (bytes - 5) as u16;
        [&[kind, 3, 3][..], &length.to_be_bytes(), &vec![0xda; bytes - 5]].concat()
    };
    let (mut seq, mut ack, mut packets) = (1, 1, Vec::new());
    let mut send = |time_ns, came: u32, payload: Vec<u8>| {
        ack += came;
        seq += payload.len() as u32;
        packets.push((time_ns, seq - payload.len() as u32, ack, payload));
    };
    send(START, 0, record(0x16, 517));
    send(START + 2 * MS, 3_000, Vec::new());
    send(START + 3 * MS, 0, record(0x14, 80));
    let mut now_ns = START + 10 * MS;
    for number in 0.. {
        send(now_ns, 0, record(0x17, sizes[number % sizes.len()]));
        now_ns += 20 * MS;
        send(now_ns, 90, Vec::new());
        now_ns += 5 * MS;
        if now_ns > START + 5 * SECOND {
            break;
        }
    }
    packets
}

/// Returns the reason and the mean of each whole epoch.
fn made(sizes: &[usize]) -> Vec<(Option<Reason>, Option<u64>)> {
    let mut tracker = Tracker::new(&Watch { max_flows: 8, ..Watch::default() });
    let mut made = Vec::new();
    for (time_ns, seq, ack, payload) in packets(sizes) {
        let mut data = Vec::new();
        let builder = PacketBuilder::ipv4([192, 0, 2, 1], [198, 51, 100, 1], 64).tcp(40_000, 6379, seq, 1_000).ack(ack);
        builder.write(&mut data, &payload).unwrap();
        let wire_len = data.len() as u32;
        tracker.observe(&Observation { time_ns, interface: 0, link: 101, data: &data, wire_len }, |record| {
            let estimate = estimate(&Config::default(), &record.epoch);
            made.push((estimate.reason, estimate.response_ns));
        });
    }
    made
}

#[test]
fn small_requests_are_requests() {
    for sizes in [&[28][..], &[36], &[29, 60], &[44, 50]] {
        let made = made(sizes);
        assert!(made.len() >= 4, "{sizes:?}: {made:?}");
        for (reason, mean_ns) in made {
            assert!(
                reason.is_none() && mean_ns.unwrap().abs_diff(20 * MS) < 100 * US,
                "{sizes:?}: {reason:?} {mean_ns:?}"
            );
        }
    }
}

#[test]
fn frames_that_manage_a_connection_are_none() {
    let made = made(&[200, 35]);
    assert!(made.iter().all(|(reason, _)| *reason == Some(Reason::Multiplexed)), "{made:?}");
}

/// The first request comes with the end of the handshake, and one ACK is of tickets and of the answer 16 ms after them: that is no queue
/// on the path, and later answers, whose ACKs requests carry after a pause of 20 ms, took 15 ms.
#[test]
fn an_ack_of_tickets_and_an_answer_shows_no_queue() {
    let stamp = |time_ns: u64| 70_000 + ((time_ns - START) / MS) as u32;
    let handshake = (abi::DWELL_CONTENT_TLS_HANDSHAKE | 1 << abi::DWELL_CONTENT_BITS) as u8;
    let packet = |time_ns, seq, bytes, ack, came_ns| dwell_arrival {
        tsecr: stamp(came_ns),
        tcp_flags: 0x18,
        ..tcp(time_ns, seq, bytes, ack)
    };
    let mut packets = vec![dwell_arrival { tsecr: 1460, ..syn(START, 0) }];
    packets.push(packet(START + MS / 2, 1, 0, 1, START));
    packets.push(dwell_arrival { content: handshake, ..packet(START + 2 * MS, 1, 349, 1, START) });
    packets.push(packet(START + 3 * MS, 350, 0, 720, START + 2 * MS));
    packets.push(dwell_arrival { content: handshake, ..packet(START + 4 * MS, 350, 194, 720, START + 2 * MS) });
    packets.push(packet(START + 20 * MS, 544, 0, 1555, START + 4 * MS));
    let (mut seq, mut ack, mut came_ns, mut now_ns) = (544, 1555, START + 4 * MS, START + 45 * MS);
    while now_ns < START + 4 * SECOND {
        packets.push(packet(now_ns, seq, 114, ack, came_ns));
        (seq, ack, came_ns) = (seq + 114, ack + 261, now_ns + 15 * MS);
        now_ns = came_ns + 20 * MS;
    }
    let config = Config::default();
    for epoch in &epochs(&config, &packets)[..3] {
        let made = estimate(&config, epoch);
        assert!(made.is_valid() && made.response_ns.unwrap().abs_diff(15 * MS) <= 3 * MS / 2, "{made:?}");
    }
}
