//! Flows that look like requests and responses but are not, or that cannot be followed, each with packets built by
//! hand.

use dwell_engine::{
    abi::{self, dwell_arrival},
    response::{Config, Epoch, Estimate, Estimator, Method, Reason, estimate},
};

use crate::support::{MS, SECOND, START, US, epochs, sealed, syn, tcp};

const PUSH: u8 = 8;

/// Returns the estimates of all epochs except the last one, which is incomplete.
pub fn made(estimator: Estimator, packets: &[dwell_arrival]) -> Vec<Estimate> {
    let config = Config { estimator, ..Config::default() };
    let mut ended = epochs(&config, packets);
    if ended.len() > 1 {
        ended.pop();
    }
    ended.iter().map(|epoch| estimate(&config, epoch)).collect()
}

fn last_epoch(packets: &[dwell_arrival]) -> Epoch {
    *epochs(&Config::default(), packets).last().unwrap()
}

#[track_caller]
pub fn assert_all(made: &[Estimate], reason: Reason) {
    assert!(!made.is_empty());
    for (epoch, made) in made.iter().enumerate() {
        assert_eq!(made.reason, Some(reason), "epoch {epoch}: {made:?}");
    }
}

#[track_caller]
pub fn assert_near(made: &[Estimate], truth_ns: u64) {
    assert!(!made.is_empty());
    for made in made {
        let ns = made.response_ns.unwrap();
        assert!(made.is_valid(), "{made:?}");
        assert!(ns.abs_diff(truth_ns) * 50 < truth_ns, "{made:?}");
    }
}

/// The client of one connection.
struct Client {
    packets: Vec<dwell_arrival>,
    now_ns: u64,
    seq: u32,
    ack: u32,
}

impl Client {
    fn new() -> Client {
        Client { packets: vec![syn(START, 0), tcp(START + MS, 1, 0, 1)], now_ns: START + 2 * MS, seq: 1, ack: 1 }
    }

    fn wait(&mut self, ns: u64) -> &mut Client {
        self.now_ns += ns;
        self
    }

    fn send(&mut self, payload: u32) -> &mut Client {
        self.send_flags(payload, 0)
    }

    fn send_flags(&mut self, payload: u32, flags: u8) -> &mut Client {
        let mut packet = tcp(self.now_ns, self.seq, payload, self.ack);
        packet.tcp_flags |= flags;
        self.packets.push(packet);
        self.seq += payload;
        self
    }

    /// Ends the connection, from this side.
    fn end(&mut self, flags: u8) -> &mut Client {
        self.send_flags(0, flags);
        self.seq += 1;
        self
    }

    fn done(&self) {}

    /// Acknowledges this number of additional bytes.
    fn receive(&mut self, bytes: u32) -> &mut Client {
        self.ack += bytes;
        self.send(0)
    }

    fn seconds(&self) -> u64 {
        (self.now_ns - START) / SECOND
    }
}

#[test]
fn an_upload_of_any_segment_size() {
    for payload in [1440, 1388, 1208, 8948, 2 * 1440] {
        for push_each in [0, 64] {
            let mut client = Client::new();
            for i in 0..3000 {
                let flags = if push_each > 0 && i % push_each == 63 { PUSH } else { 0 };
                client.send_flags(payload, flags);
                client.wait(if i % 10 == 9 { 9 * MS } else { 20 * US });
            }
            for estimator in [Estimator::Auto, Estimator::Pirate, Estimator::Gap(300 * US)] {
                assert_all(&made(estimator, &client.packets), Reason::BulkUpload);
            }
        }
    }
}

#[test]
fn a_stream_of_any_packet_size() {
    for bytes in [1492, 1440, 1280] {
        let packets: Vec<_> = (0..2000).map(|i| sealed(START + i * MS, bytes)).collect();
        assert_all(&made(Estimator::Auto, &packets), Reason::Paced);
    }
}

#[test]
fn an_upload_in_bursts_that_a_capture_joined() {
    // The result of segmentation offload: any multiple of 1440.
    let mut client = Client::new();
    for i in 0..2000 {
        client.send(1440 * (1 + i * 7 % 40)).wait(MS);
    }
    let made = made(Estimator::Auto, &client.packets);
    assert!(made.iter().all(|made| !made.is_valid()), "{made:?}");
}

#[test]
fn a_request_of_several_packets_counts_once() {
    for (segment, push) in [(1440, false), (1440, true), (1448, false), (1208, true)] {
        let mut client = Client::new();
        while client.seconds() < 3 {
            let mut rest = 4000;
            while rest > 0 {
                let size = segment.min(rest);
                rest -= size;
                let last = if push && rest == 0 { PUSH } else { 0 };
                client.send_flags(size, last).wait(10 * US);
            }
            client.wait(10 * MS).receive(5000).wait(20 * US);
        }
        assert_near(&made(Estimator::Auto, &client.packets), 10 * MS + 40 * US);
        let turns = client.packets.len() / if segment == 1208 { 5 } else { 4 };
        let config = Config::default();
        let ended = epochs(&config, &client.packets);
        let requests: u32 = ended.iter().map(|epoch| epoch.requests).sum();
        assert_eq!(requests as usize, turns);
    }
}

#[test]
fn large_requests_one_by_one_are_no_upload() {
    let mut client = Client::new();
    while client.seconds() < 3 {
        client.send(1300).wait(10 * MS).receive(5000).wait(20 * US);
    }
    assert_near(&made(Estimator::Auto, &client.packets), 10 * MS);
}

#[test]
fn ends_before_their_requests_are_no_latencies_of_zero() {
    // Nothing but requests, all after the only progress.
    let mut client = Client::new();
    client.receive(5000);
    for _ in 0..2000 {
        client.wait(MS).send(300);
    }
    for epoch in epochs(&Config::default(), &client.packets) {
        assert_eq!(epoch.all, 0, "{epoch:?}");
    }
    let made = made(Estimator::Auto, &client.packets);
    assert!(made.iter().all(|made| !made.is_valid()), "{made:?}");
}

/// Generates a client that keeps `depth` requests outstanding, or waits for a whole batch of them.
fn deep(depth: u32, in_batches: bool) -> Vec<dwell_arrival> {
    let mut client = Client::new();
    while client.seconds() < 6 {
        for _ in 0..depth {
            client.send(300).wait(US);
        }
        for _ in 0..if in_batches { depth } else { 500 } {
            client.wait(MS).receive(5000).wait(10 * US);
            if !in_batches {
                client.send(300);
            }
        }
        if !in_batches {
            break;
        }
    }
    client.packets
}

#[test]
fn more_outstanding_than_can_be_followed() {
    for in_batches in [false, true] {
        for depth in [17, 32, 64] {
            let made = made(Estimator::Auto, &deep(depth, in_batches));
            assert_all(&made, Reason::TooDeep);
        }
        let made = made(Estimator::Auto, &deep(16, in_batches));
        assert!(made.iter().all(Estimate::is_valid), "{made:?}");
    }
}

#[test]
fn the_end_of_a_tls_handshake_waits_for_nothing() {
    let mut client = Client::new();
    client.send(517).wait(5 * MS).receive(3000);
    client.send(80).wait(10 * US);
    while client.seconds() < 5 {
        client.send(300).wait(20 * MS).receive(5000).wait(100 * US);
    }
    assert_near(&made(Estimator::Auto, &client.packets), 20 * MS);
}

/// Generates a burst, and then one request after the other; the client pauses after every `pause_each` requests.
fn greeting(burst: u32, pause_each: u64) -> Vec<dwell_arrival> {
    let mut client = Client::new();
    for _ in 1..burst {
        client.send(300).wait(10 * US);
    }
    let mut count = 0;
    while client.seconds() < 8 {
        client.send(300).wait(20 * MS).receive(5000).wait(20 * US);
        count += 1;
        if pause_each > 0 && count % pause_each == 0 {
            client.wait(9 * MS);
        }
    }
    client.packets
}

#[test]
fn a_greeting_cannot_be_distinguished_from_a_window_of_two() {
    for burst in [2, 3] {
        let made = made(Estimator::Auto, &greeting(burst, 0));
        assert_all(&made[2..], Reason::Unsure);
    }
}

#[test]
fn a_burst_of_requests_that_can_be_read_is_no_window_if_all_of_it_was_answered() {
    for burst in [2, 4] {
        let mut client = Client::new();
        for _ in 0..burst {
            client.send(300);
        }
        client.wait(20 * MS).receive(5000 * burst);
        for _ in 0..200 {
            client.wait(10 * US).send(300).wait(20 * MS).receive(5000);
        }
        for packet in client.packets.iter_mut().filter(|packet| packet.payload_bytes > 0) {
            packet.content = abi::DWELL_CONTENT_TEXT as u8;
        }
        assert_near(&made(Estimator::Auto, &client.packets), 20 * MS);
    }
}

#[test]
fn a_client_that_waits_for_one_at_a_time_is_not_held_to_its_first_burst() {
    for burst in [2, 4, 8] {
        let made = made(Estimator::Auto, &greeting(burst, 10));
        assert_near(&made[1..], 20 * MS);
    }
}

#[test]
fn window_updates_amid_a_response_are_no_requests() {
    // Full segments arrive continuously; every 10 ms the client opens its window.
    let mut client = Client::new();
    while client.seconds() < 5 {
        client.send(300).wait(9 * MS);
        for _ in 0..10 {
            client.wait(9 * MS).receive(20 * 1448).wait(MS).send(39);
        }
        client.receive(700).wait(30 * US);
    }
    assert_near(&made(Estimator::Auto, &client.packets), 109 * MS);
}

#[test]
fn small_frames_in_most_of_a_connection_are_recognized() {
    let mut client = Client::new();
    while client.seconds() < 5 {
        client.send(300).wait(9 * MS);
        for _ in 0..10 {
            client.wait(10 * MS);
            client.ack += 20_000;
            client.send(39);
        }
        client.receive(700).wait(30 * US);
    }
    assert_all(&made(Estimator::Auto, &client.packets), Reason::Multiplexed);
}

#[test]
fn small_requests_between_large_ones_count() {
    // Sizes of memcached's GET and SET.
    let mut client = Client::new();
    while client.seconds() < 3 {
        client.send_flags(1200, PUSH).wait(2 * MS).receive(8).wait(10 * US);
        client.send_flags(20, PUSH).wait(2 * MS).receive(1200).wait(10 * US);
    }
    assert_near(&made(Estimator::Auto, &client.packets), 2 * MS);
}

#[test]
fn packets_that_were_merged_are_several_requests() {
    let mut client = Client::new();
    while client.seconds() < 3 {
        client.send(600);
        client.packets.last_mut().unwrap().segments = 2;
        client.wait(10 * MS).receive(5000);
        client.wait(10 * MS).receive(5000).wait(20 * US);
    }
    let config = Config::default();
    let ended = epochs(&config, &client.packets);
    let sum = |of: fn(&Epoch) -> u32| ended.iter().map(of).sum::<u32>() as usize;
    let batches = (client.packets.len() - 2) / 3;
    assert_eq!(sum(|epoch| epoch.requests), 2 * batches);
    assert_eq!(sum(|epoch| epoch.packets), client.packets.len() + batches);
    assert_near(&made(Estimator::Auto, &client.packets), 15 * MS);
}

#[test]
fn an_upload_that_was_merged_is_one_request() {
    let mut client = Client::new();
    client.send(2 * 1400);
    client.packets.last_mut().unwrap().segments = 2;
    assert_eq!(last_epoch(&client.packets).requests, 1);
}

#[test]
fn timers_of_any_pace() {
    let jitter = |i: u64| (i * 7919 % 101) * 60 * US; // up to 6 ms
    // Heartbeats, 30 and 60 frames per second, voice whose small packets look like ACKs.
    let heartbeat: Vec<_> = (0..50).map(|i| sealed(START + i * 200 * MS, 300)).collect();
    let video = |period_ns: u64, share: u64| -> Vec<_> {
        let at = |i| START + i * period_ns + jitter(i) / share;
        (0..600).map(|i| sealed(at(i), 700)).collect()
    };
    let voice: Vec<_> =
        (0..500).map(|i| sealed(START + i * 20 * MS + jitter(i) / 3, 60 + (i * 31 % 140) as u32)).collect();
    let flows = [heartbeat, video(33_333 * US, 1), video(16_667 * US, 2), voice];
    for (flow, packets) in flows.iter().enumerate() {
        let made = made(Estimator::Auto, packets);
        assert!(made.iter().all(|made| !made.is_valid()), "{flow}: {made:?}");
        assert_all(&made[4..], Reason::TimerDriven);
    }
}

#[test]
fn a_server_that_always_takes_as_long_is_no_timer() {
    let mut packets = Vec::new();
    let mut now = START;
    while now < START + 3 * SECOND {
        packets.push(sealed(now, 300));
        packets.push(sealed(now + 5 * MS, 60));
        now += 5 * MS + 30 * US;
    }
    let made = made(Estimator::Auto, &packets);
    assert!(made.iter().all(|made| made.method == Method::SizeRuns));
    assert_near(&made, 5 * MS);
}

#[test]
fn a_keepalive_leaves_acks_what_they_are() {
    let mut packets = Vec::new();
    let mut now = START;
    while now < START + 5 * SECOND {
        packets.push(sealed(now, 300));
        packets.push(sealed(now + 5 * MS, 112));
        now += 5 * MS + 30 * US;
        if packets.len() == 100 {
            packets.push(sealed(now, 60));
            now += 10 * MS;
        }
    }
    let made = made(Estimator::Auto, &packets);
    assert!(made.iter().all(|made| made.method == Method::SizeRuns), "{made:?}");
    assert_near(&made, 5 * MS);
}

#[test]
fn a_flow_that_began_with_a_small_packet_learns_its_acks() {
    let mut packets = vec![sealed(START, 40)];
    let mut now = START + MS;
    while now < START + 5 * SECOND {
        packets.push(sealed(now, 300));
        packets.push(sealed(now + 5 * MS, 112));
        now += 5 * MS + 30 * US;
    }
    assert_near(&made(Estimator::Auto, &packets)[2..], 5 * MS);
}

#[test]
fn ends_that_no_ack_showed_make_no_depth() {
    // Two consecutive answers so small that the next request acknowledges them.
    let mut packets = Vec::new();
    let mut now = START;
    for i in 0..600 {
        packets.push(sealed(now, 300));
        if !(5..7).contains(&i) {
            packets.push(sealed(now + 10 * MS, 60));
        }
        now += 10 * MS + 30 * US;
    }
    let made = made(Estimator::Auto, &packets);
    assert!(made.iter().all(|made| made.method == Method::SizeRuns));
    assert_near(&made, 10 * MS);
}

#[test]
fn datagrams_that_can_be_seen_are_no_acks() {
    // Small queries, then a large one, as in memcached over UDP.
    let packets: Vec<_> = (0..20)
        .map(|i| {
            let payload = if i % 5 == 0 { 1000 } else { 40 };
            dwell_arrival {
                payload_bytes: payload,
                visible: abi::DWELL_VISIBLE_UDP as u8,
                ..sealed(START + i * i * MS, 28 + payload)
            }
        })
        .collect();
    for estimator in [Estimator::Auto, Estimator::Pirate, Estimator::Gap(US)] {
        let config = Config { estimator, ..Config::default() };
        assert_eq!(epochs(&config, &packets)[0].requests, 20, "{estimator:?}");
    }
}

#[test]
fn a_request_before_the_progress_that_it_follows_is_no_pause() {
    // Packets of two CPUs: the third request has an earlier time than the ACK that was processed first.
    let mut client = Client::new();
    client.send(300).wait(10 * US).send(300).wait(10 * US).send(300);
    client.wait(5 * MS).receive(5000);
    client.now_ns -= 20 * US;
    client.send(300);
    client.wait(5 * MS).receive(5000).wait(5 * MS).receive(5000);
    client.wait(5 * MS).receive(5000).wait(10 * MS);
    let epoch = last_epoch(&client.packets);
    assert_eq!((epoch.missed, epoch.surplus, epoch.early), (0, 0, 0));
}

#[test]
fn another_connection_of_the_same_ports_begins_anew() {
    let mut client = Client::new();
    for _ in 0..8 {
        client.send(300).wait(10 * US);
    }
    client.wait(10 * MS);
    client.packets.push(syn(client.now_ns, 77_777));
    (client.seq, client.ack) = (77_778, 900);
    client.wait(MS).send(0).wait(MS);
    for _ in 0..20 {
        client.send(300).wait(20 * MS).receive(5000).wait(20 * US);
    }
    let epoch = last_epoch(&client.packets);
    assert_eq!((epoch.depth, epoch.requests, epoch.missed), (1, 20, 0));
    for estimator in [Estimator::Pirate, Estimator::Gap(US)] {
        let config = Config { estimator, ..Config::default() };
        let again = [syn(START + 900 * MS, 9), tcp(START + 901 * MS, 10, 300, 1)];
        let packets = [vec![tcp(START, 1, 300, 1)], again.to_vec()].concat();
        assert_eq!(epochs(&config, &packets)[0].gaps, 0, "{estimator:?}");
    }
}

#[test]
fn a_syn_that_is_sent_again_forgets_nothing() {
    let mut client = Client::new();
    client.packets.insert(1, syn(START + US, 0));
    for _ in 0..20 {
        client.send(300).wait(20 * MS).receive(5000).wait(20 * US);
    }
    assert_eq!(last_epoch(&client.packets).requests, 20);
    let sizes_only = last_epoch(&client.packets).sizes_only;
    assert_eq!(sizes_only, 0);
}

#[test]
fn gaps_alone_do_not_believe_timers_and_thinkers_either() {
    let mut thinker = Client::new();
    while thinker.seconds() < 5 {
        thinker.send(300).wait(MS).receive(5000).wait(20 * MS);
    }
    let timer: Vec<_> = (0..500).map(|i| sealed(START + i * 10 * MS, 300)).collect();
    for estimator in [Estimator::Pirate, Estimator::Gap(300 * US)] {
        let thinks = made(estimator, &thinker.packets);
        assert_all(&thinks, Reason::ThinkTime);
        assert!(thinks[0].response_ns.unwrap().abs_diff(21 * MS) < MS);
        let timed = made(estimator, &timer);
        assert_all(&timed, Reason::TimerDriven);
        assert!(timed[0].response_ns.unwrap().abs_diff(10 * MS) < MS);
        let mut client = Client::new();
        while client.seconds() < 5 {
            client.send(300).wait(10 * MS).receive(5000).wait(20 * US);
        }
        assert_near(&made(estimator, &client.packets), 10 * MS);
    }
}

#[test]
fn one_answer_is_enough() {
    // In pieces, and before a long pause.
    let mut client = Client::new();
    client.send(300).wait(10 * MS).receive(5000);
    for _ in 0..4 {
        client.wait(10 * MS).receive(5000);
    }
    assert_near(&made(Estimator::Auto, &client.packets), 50 * MS);
    let mut client = Client::new();
    client.send(300).wait(MS).receive(5000).wait(500 * MS).send(300);
    assert_near(&made(Estimator::Auto, &client.packets), MS);
}

#[test]
fn gaps_alone_need_more_of_them() {
    for (gaps, too_few) in [(3, true), (4, false)] {
        let mut client = Client::new();
        for _ in 0..=gaps {
            client.send(300).wait(10 * MS).receive(5000).wait(20 * US);
        }
        for estimator in [Estimator::Pirate, Estimator::Gap(300 * US)] {
            let reason = made(estimator, &client.packets)[0].reason;
            assert_eq!(reason == Some(Reason::TooFew), too_few, "{estimator:?}");
        }
    }
}

#[test]
fn names_of_reasons_stay() {
    let names = Reason::ALL.map(Reason::name);
    assert_eq!(
        names,
        [
            "too few",
            "think time",
            "timer driven",
            "bulk upload",
            "paced",
            "staggered",
            "lossy",
            "multiplexed",
            "too many outstanding",
            "delayed ACK",
            "unanswered",
            "too long",
            "coarse clock",
            "low confidence",
        ]
    );
    let guide = include_str!("../../../../docs/guide/response.md");
    for name in names {
        assert!(guide.contains(&format!("| {name} |")), "{name}");
    }
}

#[test]
fn a_request_that_fills_a_hole_was_sent_when_the_hole_was_seen() {
    // The second of three is lost before the vantage point, and retransmitted after 200 ms.
    let mut client = Client::new();
    client.send(300).wait(10 * US);
    let lost = tcp(client.now_ns, client.seq, 300, 1);
    client.seq += 300;
    client.send(300).wait(10 * MS).receive(5000).wait(190 * MS);
    client.packets.push(dwell_arrival { time_ns: client.now_ns, ..lost });
    client.wait(5 * MS).receive(5000).wait(5 * MS).receive(5000);
    client.wait(5 * MS).send(300);
    let epoch = last_epoch(&client.packets);
    let ends = [10 * MS, 205 * MS, 210 * MS];
    let truth_ns = ends.iter().sum::<u64>();
    assert_eq!(epoch.all, 3);
    assert!(epoch.all_ns.abs_diff(truth_ns) < MS, "{}", epoch.all_ns);
}

/// The FIN of a server that does not answer takes a number, as a byte would.
#[test]
fn a_connection_that_ends_without_an_answer_gives_no_estimate() {
    const FIN: u8 = 1;
    // The client gives up after 2 s, or the server closes, or the client gives up and no FIN comes.
    let endings: [fn(&mut Client); 3] = [
        |client| client.wait(2 * SECOND).end(FIN).wait(10 * MS).receive(1).done(),
        |client| client.wait(300 * MS).receive(1).wait(20 * US).end(FIN).done(),
        |client| client.wait(2 * SECOND).end(FIN).done(),
    ];
    for (number, end) in endings.into_iter().enumerate() {
        for answered in [&[][..], &[400], &[1, 1]] {
            for upload in [1, 40] {
                let mut client = Client::new();
                for bytes in answered {
                    client.send(200).wait(10 * MS).receive(*bytes).wait(20 * US);
                }
                (0..upload).for_each(|_| client.send(20_000 / upload).done());
                end(&mut client);
                let config = Config::default();
                let ended = epochs(&config, &client.packets);
                let what = format!("ending {number}, {answered:?}, {upload}: {ended:?}");
                assert_eq!(ended.iter().map(|epoch| u32::from(epoch.unanswered)).sum::<u32>(), 1, "{what}");
                let made: Vec<Estimate> = ended.iter().map(|epoch| estimate(&config, epoch)).collect();
                let valid = made.iter().filter(|made| made.is_valid());
                assert!(valid.clone().all(|made| made.response_ns.unwrap() < 11 * MS), "{what}");
                assert_eq!(valid.count() > 0, !answered.is_empty(), "{what}");
                let last = made.last().unwrap();
                assert!(last.is_valid() || last.reason == Some(Reason::Unanswered), "{what}: {last:?}");
            }
        }
    }
}

/// A byte is an answer if another follows, or a request; and the end of a connection that was answered is none.
#[test]
fn answers_of_one_byte_count_once_what_follows_shows_that_they_are() {
    const FIN: u8 = 1;
    let mut client = Client::new();
    client.send(10).wait(5 * MS).receive(1).wait(700 * MS).send(10).wait(5 * MS).receive(1).wait(MS);
    client.end(FIN).wait(5 * MS).receive(1);
    let ended = epochs(&Config::default(), &client.packets);
    assert_eq!(ended.iter().map(|epoch| epoch.answered).sum::<u32>(), 2, "{ended:?}");
    assert!(ended.iter().all(|epoch| epoch.unanswered == 0), "{ended:?}");
    assert_near(&made(Estimator::Auto, &client.packets), 5 * MS);
}

/// A connection that closes acknowledges one byte more, and what of several answers at once was not told apart still waits.
#[test]
fn the_end_of_a_connection_is_no_answer() {
    let mut client = Client::new();
    for _ in 0..3 {
        for _ in 0..3 {
            for _ in 0..4 {
                client.wait(12 * US).send(285);
            }
            client.wait(300 * US).receive(27_361).wait(800 * US).receive(204_188).wait(12 * US);
        }
        client.wait(100 * MS);
    }
    client.wait(500 * MS).receive(1);
    let made = made(Estimator::Auto, &client.packets);
    let longest = made.iter().filter_map(|made| made.response_ns).max();
    assert!(longest.is_none_or(|ns| ns < 2 * MS), "{made:?}");
}
