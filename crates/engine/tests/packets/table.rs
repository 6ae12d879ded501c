//! A full table continues to measure, and reports what it could not follow.

use dwell_engine::{
    measure::{CloseReason, Event, FlowChange, Sample},
    rtt::{Config, Counter, Tracker},
};

use crate::{
    icmp,
    wire::{ETHERNET, Frame, Segment, Side, client, ethernet, frame, observe, server, udp},
};

fn of_16_places() -> Config {
    Config { max_flows: 13, idle_timeout_ns: 10_000_000_000, flow_events: true, ..Config::default() }
}

struct Table {
    tracker: Tracker,
    closed: Vec<CloseReason>,
    samples: usize,
}

impl Table {
    fn new() -> Table {
        Table { tracker: Tracker::new(&of_16_places()), closed: Vec::new(), samples: 0 }
    }

    fn see(&mut self, frame: impl Into<Frame>) {
        observe(&mut self.tracker, &frame.into(), |event| match event {
            Event::Sample(_) => self.samples += 1,
            Event::Flow(flow) => {
                if let FlowChange::Close(reason) = flow.change {
                    self.closed.push(reason);
                }
            }
        });
    }

    fn count(&self, counter: Counter) -> u64 {
        self.tracker.counters().get(counter)
    }

    /// Sends a request, and its answer after 1 ms.
    fn exchange(&mut self, at_ms: f64, port: u16, round: u32) {
        for packet in exchange(at_ms, port, round) {
            self.see(packet);
        }
    }
}

fn exchange(at_ms: f64, port: u16, round: u32) -> [Segment; 2] {
    let (seq, value) = (100 + 50 * round, 1000 + 100 * round);
    [
        client(at_ms).port(port).data(seq, 50).ack(1).ts(value, 1),
        server(at_ms + 1.0).port(port).seq(1).ack(seq + 50).ts(value, value),
    ]
}

#[test]
fn established_flows_survive_a_flood_of_flows_that_nobody_answers() {
    let mut table = Table::new();
    // The first round establishes the flows.
    for round in 0..60 {
        let now_ms = f64::from(round) * 500.0;
        for port in 0..6 {
            table.exchange(now_ms + f64::from(port), 1000 + port, round);
        }
        for n in 0..200u16 {
            let port = 2000 + (round as u16) * 200 + n;
            table.see(client(now_ms + 10.0 + f64::from(n)).port(port).syn(1));
        }
    }
    assert_eq!(table.samples, 6 * 60);
    assert!(table.count(Counter::Untracked) > 5_000);
    assert!(table.count(Counter::FlowsEvicted) > 50);
    assert!(table.closed.iter().all(|reason| *reason == CloseReason::Evicted));
}

#[test]
fn a_flood_that_is_answered_leaves_room_for_flows_that_go_on() {
    let opened = |at_ms: f64, port| {
        let (syn, answer) = (client(at_ms).port(port).syn(1), server(at_ms + 1.0).port(port).syn(1).ack(2));
        [syn, answer].map(Frame::from)
    };
    let pinged = |at_ms: f64, id| {
        let ends = [(Side::Client, Side::Server, false), (Side::Server, Side::Client, true)];
        ends.map(|(from, to, reply)| icmp::echo(at_ms + f64::from(u8::from(reply)), from, to, id, 1, reply))
    };
    let floods: [&dyn Fn(f64, u16) -> [Frame; 2]; 2] = [&opened, &pinged];
    for flood in floods {
        // A second of the flood has room, an idle time has not.
        let mut tracker = Tracker::new(&Config { max_flows: 1000, ..of_16_places() });
        let mut samples = 0;
        let mut see = |frame: Frame| {
            observe(&mut tracker, &frame, |event| {
                let is_honest =
                    |sample: &Sample| [sample.src, sample.dst].iter().any(|end| (1000..1004).contains(&end.port));
                samples += usize::from(matches!(event, Event::Sample(sample) if is_honest(&sample)));
            });
        };
        // Clients that begin while the table is full ask every half second.
        for round in 0..40_u16 {
            let begin_ms = f64::from(round) * 500.0;
            for n in 0..200 {
                flood(begin_ms + 2.0 * f64::from(n), 2000 + round * 200 + n).into_iter().for_each(&mut see);
            }
            for port in (1000..1004).filter(|_| round >= 20) {
                let packets = exchange(begin_ms + 450.0 + f64::from(port - 1000), port, round.into());
                packets.into_iter().for_each(|packet| see(packet.into()));
            }
        }
        assert!(samples >= 76, "{samples} of 80 samples");
    }
}

#[test]
fn what_is_idle_goes_before_what_waits_for_an_answer() {
    let mut table = Table::new();
    // Answered flows that fall silent fill the table.
    for port in 0..200 {
        table.exchange(f64::from(port), 1000 + port, 0);
    }
    let tracked = table.count(Counter::FlowsOpened);
    assert!((12..=16).contains(&tracked), "{tracked} of 16 places");
    assert_eq!(table.closed, []);
    // Eleven seconds later all of them are idle, and a new flow finds room.
    table.exchange(11_500.0, 5000, 0);
    assert_eq!(table.closed, [CloseReason::Idle]);
    assert_eq!(table.count(Counter::FlowsExpired), 1);
    assert_eq!(table.count(Counter::FlowsEvicted), 0);
}

#[test]
fn flows_that_are_over_make_room_at_once() {
    let mut table = Table::new();
    for port in 0..200 {
        let at_ms = f64::from(port) * 10.0;
        table.exchange(at_ms, 1000 + port, 0);
        table.see(client(at_ms + 2.0).port(1000 + port).rst().seq(150));
    }
    assert_eq!(table.count(Counter::Untracked), 0);
    assert_eq!(table.samples, 200);
    assert_eq!(table.closed, vec![CloseReason::Rst; 200]);
}

#[test]
fn answered_queries_make_room_at_once() {
    let dns = |at_ms, port, answer: bool| {
        let flags = if answer { 0x81 } else { 0x01 };
        let message = [0, 7, flags, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, b'x', 0, 0, 1, 0, 1];
        let ip = if answer { udp(Side::Server, 53, port, &message) } else { udp(Side::Client, port, 53, &message) };
        frame(at_ms, ETHERNET, ethernet(&ip))
    };
    let mut table = Table::new();
    for port in 0..200 {
        let at_ms = f64::from(port) * 10.0;
        table.see(dns(at_ms, 1000 + port, false));
        table.see(dns(at_ms + 1.0, 1000 + port, true));
    }
    assert_eq!(table.samples, 200);
    assert_eq!(table.count(Counter::Untracked), 0);
    assert!(table.closed.len() >= 184);
    assert!(table.closed.iter().all(|reason| *reason == CloseReason::Answered));
}

#[test]
fn a_table_that_is_full_of_live_flows_refuses_and_counts() {
    let mut table = Table::new();
    for round in 0..5 {
        for port in 0..200 {
            table.exchange(f64::from(round) * 300.0 + f64::from(port), 1000 + port, round);
        }
    }
    let tracked = table.count(Counter::FlowsOpened);
    assert!((12..=16).contains(&tracked), "{tracked} of 16 places");
    assert_eq!(table.samples as u64, 5 * tracked);
    assert_eq!(table.count(Counter::Untracked), 2 * 5 * (200 - tracked));
    assert_eq!(table.closed, []);
}

#[test]
fn there_are_five_slots_for_four_flows_and_a_way_for_each_slot() {
    for max_flows in [4, 16, 52_428, 65_536, 1_000_000] {
        let config = Config { max_flows, ..Config::default() };
        assert_eq!(config.slots() / 5, max_flows / 4);
        assert!(config.buckets().is_power_of_two() && config.buckets() * 4 >= config.slots());
    }
}

/// Returns how many of the flows that the table was made for find a slot, if their clients differ in the port or in the
/// address.
fn held(max_flows: u32, by_address: bool) -> u64 {
    let mut tracker = Tracker::new(&Config { max_flows, ..Config::default() });
    for number in 0..max_flows as u16 {
        let [ask, _] = exchange(0.0, if by_address { 10_000 } else { 10_000 + number }, 0);
        let mut frame = Frame::from(ask);
        if by_address {
            frame.data[14 + 14..14 + 16].copy_from_slice(&number.to_be_bytes());
        }
        observe(&mut tracker, &frame, |_| ());
    }
    tracker.counters().get(Counter::FlowsOpened)
}

#[test]
fn a_table_holds_the_flows_it_was_made_for() {
    for by_address in [false, true] {
        for max_flows in [16, 256, 4096, 32_768] {
            // It is rare that both buckets of a flow are full.
            let missing = u64::from(max_flows) - held(max_flows, by_address);
            assert!(missing * 1000 <= u64::from(max_flows), "{missing} of {max_flows}");
        }
        // Four slots of five are used, the fullest that rounding up ever leaves a table.
        assert!(held(52_428, by_address) > 51_500);
    }
}
