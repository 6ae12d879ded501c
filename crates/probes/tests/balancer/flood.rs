//! Floods among connections, in the native core, where time is an argument.

use dwell_engine::{
    balance::{Balancer, Reason},
    response::Watch,
};
use dwell_probes::balancer::{Forward, Protocol, Real, Vip, VipKey};

use crate::{
    packets::{Client, address, real, v4},
    parity::native,
    zero_rtt::{key, long, zero_vip},
};

const MS: u64 = 1_000_000;
/// The number of slots of the connection table.
const PLACES: u32 = 4096;

fn balancer() -> Balancer {
    balancer_with(PLACES)
}

/// A balancer whose connection table has this number of slots.
fn balancer_with(places: u32) -> Balancer {
    let mut balancer = native(Watch::default(), places * 4 / 5);
    for number in 1..=2 {
        let real = real(address("10.0.0.5"), Forward::L2, 70 + number);
        balancer.set_real(number, &real);
    }
    balancer
}

fn lead_to(balancer: &mut Balancer, real: u32) {
    let key = VipKey { address: v4().dst, protocol: Protocol::Tcp, port: Some(80) };
    let vip = Vip { number: 1, measured: true, ..Vip::default() };
    balancer.set_vip(&key, &vip, &[real; 7]);
}

#[test]
fn a_flood_that_sends_each_syn_three_times_evicts_no_connection() {
    let mut balancer = balancer();
    lead_to(&mut balancer, 1);
    let mut records = 0;
    let mut pass = |balancer: &mut Balancer, frame: &[u8], time_ns| {
        let (decision, _) = balancer.packet(frame, 1, time_ns, false, |_| records += 1);
        (decision.real, decision.reason)
    };
    // One has asked, the other only begun: a browser that connects beforehand.
    let known: Vec<Client> = (1..=50).map(|port| Client { port, ..v4() }).collect();
    let begun: Vec<Client> = (101..=150).map(|port| Client { port, ..v4() }).collect();
    for client in &known {
        for frame in [client.syn(), client.data(0), client.data(9), client.data(0)] {
            pass(&mut balancer, &frame, MS);
        }
    }
    for client in &begun {
        for frame in [client.syn(), client.data(0)] {
            pass(&mut balancer, &frame, MS);
        }
    }
    lead_to(&mut balancer, 2);
    // More than there are places, for 12 s: a third as many a second, each sent three times.
    let mut full = 0;
    for flow in 0..4 * PLACES {
        let port = 1000 + (flow % 60_000) as u16;
        let client = Client { port, src: address(&format!("192.0.2.{}", 1 + flow / 60_000)), ..v4() };
        let at_ns = 2000 * MS + u64::from(flow) * 3000 * MS / u64::from(PLACES);
        for again in 0..3 {
            let (_, why) = pass(&mut balancer, &client.syn(), at_ns + again * 300 * MS);
            full += u32::from(why == Reason::Full);
        }
    }
    assert!(full < 3 * PLACES, "half-open flows make room: {full}");
    for client in known.iter().chain(&begun) {
        let port = client.port;
        let told = pass(&mut balancer, &client.data(9), 15_000 * MS);
        assert_eq!(told, (Some(1), Reason::Connection), "{port}");
    }
    assert!(records <= 100, "the flood has told {records} epochs");
}

/// All packets come from one socket: each connection ID that its client chose is a connection of its own.
#[test]
fn a_flood_that_sends_each_initial_three_times_leaves_room_for_others() {
    let mut balancer = balancer();
    lead_to(&mut balancer, 1);
    let vip = Vip { number: 2, zero_slot: Some(1), ..Vip::default() };
    balancer.set_vip(&key(&v4()), &vip, &[1; 7]);
    balancer.set_zero(&key(&v4()), 1, &zero_vip());
    let mut why = |frame: &[u8], time_ns| balancer.packet(frame, 1, time_ns, false, drop).0.reason;
    // For 12 s, a third as many a second as there are places, each again after 300 and 600 ms.
    let mut full = 0;
    for step in 0..4 * PLACES {
        let at_ns = 2000 * MS + u64::from(step) * 3000 * MS / u64::from(PLACES);
        for again in 0..3 {
            if let Some(flow) = step.checked_sub(again * PLACES / 10) {
                let drawn = flow.to_be_bytes().repeat(2);
                full += u32::from(why(&long(&v4(), &drawn), at_ns) == Reason::Full);
            }
        }
        if step % 16 == 0 {
            let port = 1000 + (step / 16) as u16;
            let other = Client { port, ..v4() };
            full += u32::from(why(&other.syn(), at_ns) == Reason::Full);
        }
    }
    assert!(full < PLACES, "what a flood began makes room: {full}");
}

/// A flood: returns the frames of one of its flows, which come 100 ms apart.
type Flood = fn(&Client, u32) -> Vec<Vec<u8>>;

/// Acknowledgements of a connection that never was, a random number in each.
fn acks(client: &Client, flow: u32) -> Vec<Vec<u8>> {
    (0..3_u32).map(|step| client.at((flow + step).wrapping_mul(0x9E37_79B9)).data(0)).collect()
}

/// Acknowledgements that go on as a client's do.
fn steady_acks(client: &Client, flow: u32) -> Vec<Vec<u8>> {
    (0..3_u32).map(|step| client.at((flow << 8) + step * 100).data(100)).collect()
}

/// What a client's first three packets look like.
fn requests(client: &Client, flow: u32) -> Vec<Vec<u8>> {
    let client = client.at(flow << 8);
    vec![client.syn(), client.at(client.seq + 1).data(0), client.at(client.seq + 1).data(100)]
}

fn mixed(client: &Client, flow: u32) -> Vec<Vec<u8>> {
    let floods: [Flood; 4] = [|client, _| vec![client.syn(); 3], acks, steady_acks, requests];
    floods[flow as usize % floods.len()](client, flow)
}

/// An honest client: it has connected, and asks once a second.
struct Honest {
    client: Client,
    began_s: u64,
    real: Option<u32>,
}

/// Ten minutes of a flood that begins twice as many flows per idle timeout as the table has slots. Every 100 s the table
/// leads to the other backend. Honest clients, one a second, ask once a second for 30 s; `settled` of them have been there
/// before, and ask once in 20 s.
fn ten_minutes(flood: Flood, places: u32, settled: u16) {
    const IDLE_S: u64 = 60;
    let mut balancer = balancer_with(places);
    lead_to(&mut balancer, 1);
    let pass = |balancer: &mut Balancer, frame: &[u8], time_ms: u64| {
        let (decision, _) = balancer.packet(frame, 1, time_ms * MS, false, drop);
        (decision.real, decision.reason)
    };
    let mut old: Vec<Client> = (0..settled).map(|port| Client { port: 30_000 + port, ..v4() }).collect();
    // In a bucket, one of two connections with the same 16 bits of hash has no slot.
    old.retain(|client| pass(&mut balancer, &client.syn(), 0).1 == Reason::New);
    assert!(old.len() + 3 > usize::from(settled), "{}", old.len());
    for client in &old {
        for (at_s, frame) in (1..).zip([client.data(0), client.data(9), client.data(9)]) {
            pass(&mut balancer, &frame, 1000 * at_s);
        }
    }
    let per_second = 2 * u64::from(places) / IDLE_S;
    let (mut honest, mut flow, mut full, mut moved) = (Vec::<Honest>::new(), 0_u32, 0, 0);
    for second in 10..610_u64 {
        if second % 100 == 0 {
            lead_to(&mut balancer, 1 + (second / 100 % 2) as u32);
        }
        for step in 0..per_second {
            flow += 1;
            let host = 1 + (flow >> 16);
            let src = address(&format!("198.18.{}.{}", host >> 8, host & 255));
            let client = Client { src, port: flow as u16, ..v4() };
            for (again, frame) in flood(&client, flow).iter().enumerate() {
                pass(&mut balancer, frame, second * 1000 + step * 1000 / per_second + 100 * again as u64);
            }
        }
        let client = Client { port: 20_000 + second as u16, ..v4() };
        let (real, reason) = pass(&mut balancer, &client.syn(), second * 1000 + 500);
        full += u32::from(reason == Reason::Full);
        honest.push(Honest { client, began_s: second, real });
        honest.retain(|honest| honest.began_s + 30 > second);
        for Honest { client, real, began_s } in &honest {
            // One whose table has changed in its first seconds may have to begin again.
            let is_young = began_s / 100 != second / 100 && began_s % 100 >= 96;
            let (now, _) = pass(&mut balancer, &client.data(50), second * 1000 + 600);
            moved += u32::from(now != *real && !is_young);
        }
        balancer.sweep((second * 1000 + 650) * MS, drop);
        if second % 20 == 0 {
            for client in &old {
                let told = pass(&mut balancer, &client.data(9), second * 1000 + 700);
                assert_eq!(told, (Some(1), Reason::Connection), "at {second} s: {}", client.port);
            }
        }
    }
    assert_eq!(moved, 0, "requests of 600 honest clients that went elsewhere");
    assert!(full < 30, "honest clients that found no slot: {full} of 600");
}

#[test]
fn a_flood_of_acknowledgements_takes_no_place_for_long() {
    ten_minutes(acks, PLACES, 200);
    ten_minutes(steady_acks, PLACES, 200);
}

#[test]
fn a_flood_of_requests_takes_no_place_for_long() {
    ten_minutes(requests, PLACES, 200);
}

#[test]
fn a_flood_of_all_kinds_takes_no_place_for_long() {
    ten_minutes(mixed, PLACES, 200);
}

#[test]
fn a_flood_of_all_kinds_breaks_none_of_ten_thousand_connections() {
    ten_minutes(mixed, 4 * PLACES, 10_000);
}

#[test]
fn a_flood_of_short_headers_takes_no_place_at_all() {
    let mut balancer = balancer();
    lead_to(&mut balancer, 1);
    let vip = Vip { number: 2, zero_slot: Some(1), ..Vip::default() };
    balancer.set_vip(&key(&v4()), &vip, &[1; 7]);
    balancer.set_zero(&key(&v4()), 1, &zero_vip());
    let mut pass = |frame: &[u8], time_ns| balancer.packet(frame, 1, time_ns, false, drop).0.reason;
    for step in 0..4 * PLACES {
        let at_ns = 2000 * MS + u64::from(step) * 3000 * MS / u64::from(PLACES);
        let client = Client { port: 1000 + (step % 60_000) as u16, ..v4() };
        let forged = [&[0x41][..], &step.wrapping_mul(0x9E37_79B9).to_be_bytes().repeat(5)].concat();
        assert_eq!(pass(&client.udp(&forged), at_ns), Reason::Unroutable);
        if step % 64 == 0 {
            let drawn = (1 << 24 | step).to_be_bytes().repeat(2);
            assert_eq!(pass(&long(&v4(), &drawn), at_ns), Reason::New);
        }
    }
    let found = balancer.sweep(14_000 * MS, drop);
    assert_eq!(found.tracked(1) + found.tracked(2), u64::from(4 * PLACES / 64));
}

#[test]
fn a_backend_that_leaves_is_soon_empty_in_spite_of_a_flood() {
    let mut balancer = balancer();
    lead_to(&mut balancer, 1);
    let pass = |balancer: &mut Balancer, frame: &[u8], time_ms: u64| {
        let (decision, _) = balancer.packet(frame, 1, time_ms * MS, false, drop);
        decision.real
    };
    // Of a hundred connections, half end, and the others fall silent.
    for port in 1..=100 {
        let client = Client { port, ..v4() };
        let last = if port % 2 == 0 { client.fin() } else { client.data(9) };
        for (at_s, frame) in [client.syn(), client.data(0), client.data(9), last].iter().enumerate() {
            assert_eq!(pass(&mut balancer, frame, 1000 * at_s as u64), Some(1));
        }
    }
    lead_to(&mut balancer, 2);
    balancer.set_real(1, &Real { leaving: true, ..real(address("10.0.0.5"), Forward::L2, 71) });
    let per_second = 2 * PLACES / 60;
    let mut tracked = Vec::new();
    for second in 4..94 {
        for step in 0..per_second {
            let flow = second * per_second + step;
            let src = address(&format!("198.18.{}.{}", flow >> 8 & 255, flow & 255));
            let client = Client { src, port: (flow >> 4) as u16, ..v4() };
            for (again, frame) in mixed(&client, flow).iter().enumerate() {
                let real = pass(&mut balancer, frame, u64::from(second) * 1000 + 100 * again as u64);
                assert_eq!(real, Some(2));
            }
        }
        tracked.push(balancer.sweep((u64::from(second) * 1000 + 900) * MS, drop).tracked(1));
    }
    assert_eq!(tracked.last(), Some(&0), "{tracked:?}");
}
