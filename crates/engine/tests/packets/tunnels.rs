//! Flows of the same addresses and ports in different VLANs and tunnels.

use dwell_engine::rtt::{Aggregate, Config, Counter, Groups};

use crate::{
    links::{WRAPS, Wrapped, udp},
    wire::{Frame, Segment, client, frame, run, server, small},
};

type Wrap<'a> = &'a dyn Fn(&[u8]) -> Wrapped;

fn wrapped(segment: Segment, wrap: Wrap) -> Frame {
    let (link, data) = wrap(&segment.ip_packet());
    frame(segment.at_ms, link, data)
}

/// Wraps IP packets in Ethernet with these tags, each of type and ID.
fn tagged(tags: &[(u16, u16)], ip: &[u8]) -> Wrapped {
    let tags = tags.iter().flat_map(|(kind, id)| [kind.to_be_bytes(), id.to_be_bytes()].concat()).collect::<Vec<_>>();
    (1, [&[2; 12][..], &tags, &[8, 0], ip].concat())
}

/// Two connections of the same addresses, ports and numbers at once: one round trip of 20 ms in the first enclosure, one
/// of 30 ms in the second.
fn twins(first: Wrap, second: Wrap) -> Vec<Frame> {
    let ask = |at_ms| client(at_ms).data(100, 50).ack(1).ts(5, 1);
    let answer = |at_ms| server(at_ms).ack(150).ts(9, 5);
    vec![
        wrapped(ask(10.0), first),
        wrapped(ask(15.0), second),
        wrapped(answer(30.0), first),
        wrapped(answer(45.0), second),
    ]
}

const BOTH: [&str; 2] = ["tcp-timestamp to server: 20 ms at 30", "tcp-timestamp to server: 30 ms at 45"];

#[test]
fn equal_flows_in_different_vlans_do_not_mix() {
    let sevens = |ip: &[u8]| tagged(&[(0x8100, 7)], ip);
    let eights = |ip: &[u8]| tagged(&[(0x8100, 8)], ip);
    let stacked = |ip: &[u8]| tagged(&[(0x88a8, 7), (0x8100, 8)], ip);
    let swapped = |ip: &[u8]| tagged(&[(0x88a8, 8), (0x8100, 7)], ip);
    let plain = |ip: &[u8]| tagged(&[], ip);
    let wraps: [(Wrap, &str); 5] =
        [(&sevens, "vlan 7"), (&eights, "vlan 8"), (&stacked, "vlan 7.8"), (&swapped, "vlan 8.7"), (&plain, "none")];
    for (first, name) in wraps {
        for (second, other) in wraps.into_iter().filter(|(_, other)| *other != name) {
            let run = run(&small(), twins(first, second));
            assert_eq!(run.lines(), BOTH, "{name} and {other}");
            let names: Vec<_> = run.samples.iter().map(|sample| sample.tunnel.to_string()).collect();
            assert_eq!(names, [name, other]);
            assert!(run.samples.iter().all(|sample| sample.interface == 1));
        }
    }
}

#[test]
fn a_priority_tag_is_no_vlan() {
    let priority = |ip: &[u8]| tagged(&[(0x8100, 0xe000)], ip);
    let plain = |ip: &[u8]| tagged(&[], ip);
    let scene = [
        wrapped(client(10.0).data(100, 50).ack(1).ts(5, 1), &priority),
        wrapped(server(30.0).ack(150).ts(9, 5), &plain),
    ];
    assert_eq!(run(&small(), scene).lines(), BOTH[..1]);
}

#[test]
fn each_kind_of_enclosure_keeps_flows_apart_but_mpls() {
    let plain = |ip: &[u8]| tagged(&[], ip);
    // the header of SLL2 names another interface
    for (name, wrap) in WRAPS.into_iter().filter(|(name, _)| *name != "SLL2") {
        let is_tunnel =
            ["VLAN", "QinQ", "tags", "PPPoE", "IP in", "GRE", "VXLAN", "Geneve"].iter().any(|kind| name.contains(kind));
        let found = run(&small(), twins(&plain, &wrap));
        if is_tunnel {
            assert_eq!(found.lines(), BOTH, "{name}");
            assert!(!found.samples[1].tunnel.is_none() && found.samples[0].tunnel.is_none(), "{name}");
        } else {
            assert_eq!(found.samples.len(), 1, "{name}");
        }
    }
}

#[test]
fn outer_addresses_count_in_either_order_and_a_gre_key_counts() {
    let within = |addresses: [u8; 8], flags: u8, key: &'static [u8]| {
        move |ip: &[u8]| {
            let gre = [&[flags, 0, 8, 0], key, ip].concat();
            let total = (20 + gre.len() as u16).to_be_bytes();
            let head = [&[0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 47, 0, 0][..], &addresses].concat();
            (1, [&[2; 12][..], &[8, 0], &head, &gre].concat())
        }
    };
    let there = within([192, 0, 2, 1, 192, 0, 2, 2], 0, &[]);
    let back = within([192, 0, 2, 2, 192, 0, 2, 1], 0, &[]);
    let elsewhere = within([192, 0, 2, 5, 192, 0, 2, 6], 0, &[]);
    let keyed = within([192, 0, 2, 1, 192, 0, 2, 2], 0x20, &[0, 0, 0, 9]);
    let other = within([192, 0, 2, 1, 192, 0, 2, 2], 0x20, &[0, 0, 0, 10]);
    let ask = client(10.0).data(100, 50).ack(1).ts(5, 1);
    let scene = [wrapped(ask, &there), wrapped(server(30.0).ack(150).ts(9, 5), &back)];
    assert_eq!(run(&small(), scene).lines(), BOTH[..1]);
    for (first, second) in [(&there as Wrap, &elsewhere as Wrap), (&there, &keyed), (&keyed, &other)] {
        assert_eq!(run(&small(), twins(first, second)).lines(), BOTH);
    }
}

/// A network's number may differ by direction, as where it says who sent.
#[test]
fn the_number_of_an_overlay_network_is_not_in_the_key() {
    let numbered = |number: u8| {
        move |ip: &[u8]| {
            let frame = [&[2; 12][..], &[8, 0], ip].concat();
            let overlay = udp(4, 8472, &[&[8, 0, 0, 0, 0, 0, number, 0], &frame[..]].concat());
            (1, [&[2; 12][..], &[8, 0], &overlay].concat())
        }
    };
    let (there, back) = (numbered(7), numbered(8));
    let ask = client(10.0).data(100, 50).ack(1).ts(5, 1);
    let scene = [wrapped(ask, &there), wrapped(server(30.0).ack(150).ts(9, 5), &back)];
    assert_eq!(run(&small(), scene).lines(), BOTH[..1]);
}

#[test]
fn what_else_goes_to_the_port_of_an_overlay_stays_a_datagram() {
    for (port, payload) in [
        (4789, &[0x40; 40][..]),
        (4789, &[8, 0, 0, 0, 0, 0, 7, 1, 2, 2, 2, 2, 2, 2, 2, 2]),
        (8472, &[8]),
        (6081, &[0x40, 0, 0x65, 0x58, 0, 0, 7, 0]),
        (6081, &[0, 0, 0x88, 0xbe, 0, 0, 7, 0]),
    ] {
        let data = [&[2; 12][..], &[8, 0], &udp(4, port, payload)].concat();
        let run = run(&small(), [frame(10.0, 1, data)]);
        let skipped = [Counter::NotIp, Counter::Truncated, Counter::Malformed].map(|counter| run.count(counter));
        assert_eq!(skipped, [0; 3], "{port} {payload:?}");
    }
}

#[test]
fn flow_events_and_groups_name_the_vlan() {
    let sevens = |ip: &[u8]| tagged(&[(0x8100, 7)], ip);
    let eights = |ip: &[u8]| tagged(&[(0x8100, 8)], ip);
    let run = run(&Config { flow_events: true, ..small() }, twins(&sevens, &eights));
    let names: Vec<_> = run.flows.iter().map(|flow| (flow.tunnel.to_string(), flow.interface)).collect();
    let (seven, eight) = (("vlan 7".to_owned(), 1), ("vlan 8".to_owned(), 1));
    assert_eq!(names, [seven.clone(), eight.clone(), seven, eight]);
    let mut groups = Groups::new(Aggregate { max_groups: 9, ..Aggregate::default() });
    run.samples.iter().for_each(|sample| groups.add(sample));
    assert_eq!(groups.take(0).len(), 2);
}
