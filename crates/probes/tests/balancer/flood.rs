//! Floods among connections, in the native core, where time is an argument.

use dwell_engine::{
    balance::{Balancer, Reason},
    response::Watch,
};
use dwell_probes::balancer::{Forward, Protocol, Vip, VipKey};

use crate::{
    both::native,
    packets::{Client, address, real, v4},
    zero_rtt::{key, long, zero_vip},
};

const MS: u64 = 1_000_000;
/// The number of slots of the connection table.
const PLACES: u32 = 4096;

fn balancer() -> Balancer {
    let mut balancer = native(Watch::default(), PLACES * 4 / 5);
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
