//! Flow events of a table that holds far more flows than the ring buffer.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use dwell_engine::{
    measure::{Event, FlowChange},
    rtt::{Config, Counter},
};
use dwell_probes::rtt::{Options, Probe};
use dwell_testbed::skip::lacks_root;

const FLOWS: u32 = 60_000;

/// A SYN, in an Ethernet frame.
fn syn(client: u32) -> Vec<u8> {
    let mut frame = vec![0; 14 + 20 + 20];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14..26].copy_from_slice(&[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
    frame[26..30].copy_from_slice(&(0x0a00_0000 + client).to_be_bytes());
    frame[30..34].copy_from_slice(&[192, 0, 2, 1]);
    frame[34..38].copy_from_slice(&[0x9c, 0x40, 0, 80]);
    frame[46..48].copy_from_slice(&[0x50, 0x02]);
    frame
}

#[test]
fn root_no_flow_event_is_lost_at_the_end() {
    if lacks_root() {
        return;
    }
    let config = Config { flow_events: true, ..Config::default() };
    let mut probe = Probe::load(&Options { replay: true, ..Options::new(config) }).unwrap();
    let (mut opened, mut closed) = (0, 0);
    let mut count = |event| {
        if let Event::Flow(flow) = event {
            match flow.change {
                FlowChange::Open => opened += 1,
                FlowChange::Close(_) => closed += 1,
                FlowChange::FirstRtt(..) => {}
            }
        }
    };
    for client in 0..FLOWS {
        probe.replay_packet(&syn(client), 1_000_000 + u64::from(client)).unwrap();
        if client % 10_000 == 0 {
            probe.drain(&mut count).unwrap();
        }
    }
    assert_eq!(probe.counters().unwrap().slots_taken(), u64::from(FLOWS), "the table has room for all");
    probe.finish().unwrap();
    probe.drain(&mut count).unwrap();
    let counters = probe.counters().unwrap();
    assert_eq!(counters.get(Counter::EventsLost), 0);
    assert_eq!((opened, closed), (FLOWS, FLOWS));
    assert_eq!(counters.slots_taken(), 0);
}

/// Where flow events are not wanted, nothing else frees slots.
#[test]
fn root_idle_flows_make_room_for_others_once_few_slots_are_free() {
    if lacks_root() {
        return;
    }
    const SECOND_NS: u64 = 1_000_000_000;
    let config = Config { max_flows: 16_384, idle_timeout_ns: SECOND_NS, ..Config::default() };
    let mut probe = Probe::load(&Options { replay: true, ..Options::new(config) }).unwrap();
    assert_eq!(probe.slots(), 20_480, "a quarter more than flows");
    let taken = |probe: &mut Probe| probe.counters().unwrap().slots_taken();
    for (clients, left) in [(0..17_000, 16_900..=17_000), (17_000..18_500, 1..=1)] {
        for client in clients {
            probe.replay_packet(&syn(client), SECOND_NS + u64::from(client)).unwrap();
        }
        // All but the first are idle.
        probe.replay_packet(&syn(0), 10 * SECOND_NS).unwrap();
        probe.make_room().unwrap();
        assert!(left.contains(&taken(&mut probe)), "{}", taken(&mut probe));
    }
}
