//! Properties that hold for any packets in any order.

use dwell_engine::{
    measure::{Endpoint, Sample},
    rtt::{Config, Counter, RateLimit},
};
use proptest::prelude::*;

use crate::wire::{Frame, Run, Segment, Side, run, segment, small};

/// Generates segments that often answer each other: few ports, sequence numbers and TSvals.
fn segments() -> impl Strategy<Value = Vec<Segment>> {
    let one = (
        any::<bool>(),
        0u32..400,
        0u16..2,
        0u32..8,
        0usize..3,
        0u32..8,
        prop::option::weighted(0.5, (0u32..12, 0u32..12)),
        0u8..24,
    );
    prop::collection::vec(one, 1..80).prop_map(|list| {
        list.into_iter()
            .map(|(client, at, port, seq, bytes, ack, ts, kind)| {
                let side = if client { Side::Client } else { Side::Server };
                let mut it = segment(side, f64::from(at) * 2.5)
                    .port(40_000 + port)
                    .data(1000 + seq * 50, bytes * 50)
                    .ack(1000 + ack * 50);
                it.ts = ts.map(|(value, echo)| (1000 + value, 1000 + echo));
                match kind {
                    0 => Segment { ack: None, ..it.syn(999) },
                    1 => it.syn(999),
                    2 => it.fin(1000 + seq * 50),
                    3 => it.rst(),
                    4 => it.sack(1000 + ack * 50 + 50, 1000 + ack * 50 + 100),
                    _ => it,
                }
            })
            .collect()
    })
}

fn configs() -> impl Strategy<Value = Config> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(handshake, acks, limited)| Config {
        include_handshake: handshake,
        stamp_acks: acks,
        rate_limit: RateLimit::Interval(if limited { 20_000_000 } else { 0 }),
        ..small()
    })
}

fn in_order(mut scene: Vec<Segment>) -> Vec<Segment> {
    scene.sort_by(|x, y| x.at_ms.total_cmp(&y.at_ms));
    scene
}

fn span_ns(scene: &[Segment]) -> u64 {
    let times = || scene.iter().map(|packet| Frame::from(*packet).time_ns);
    times().max().unwrap() - times().min().unwrap()
}

/// Returns everything that does not depend on times and sequence numbers.
fn outline(run: &Run) -> Vec<(u64, u64, Endpoint, Endpoint, bool, String)> {
    run.samples
        .iter()
        .map(|it: &Sample| {
            let method = it.method.to_string();
            (it.rtt_ns, it.min_rtt_ns, it.src, it.dst, it.handshake, method)
        })
        .collect()
}

/// Returns whether stamps collided in a slot. The slots depend on what the tests change, so such scenes prove nothing.
fn lost_stamps(run: &Run) -> bool {
    run.count(Counter::StampsOverwritten) > 0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_sample_is_longer_than_the_time_that_passed(scene in segments(), config in configs()) {
        // In arbitrary order: times also step back.
        let run = run(&config, scene.clone());
        for sample in &run.samples {
            prop_assert!(sample.rtt_ns <= span_ns(&scene));
            prop_assert!(sample.min_rtt_ns <= sample.rtt_ns.max(1));
        }
        prop_assert_eq!(run.count(Counter::Samples), run.samples.len() as u64);
    }

    #[test]
    fn no_sample_begins_before_the_first_packet(scene in segments(), config in configs()) {
        let scene = in_order(scene);
        let start_ns = Frame::from(scene[0]).time_ns;
        for sample in run(&config, scene).samples {
            prop_assert!(sample.time_ns - sample.rtt_ns >= start_ns);
        }
    }

    #[test]
    fn shifting_all_times_changes_nothing(
        scene in segments(),
        config in configs(),
        shift_ms in 0u32..2_000_000_000,
    ) {
        let scene = in_order(scene);
        let later = scene.iter().cloned().map(|mut packet| {
            packet.at_ms += f64::from(shift_ms);
            packet
        });
        prop_assert_eq!(outline(&run(&config, later)), outline(&run(&config, scene.clone())));
    }

    #[test]
    fn adding_to_sequence_numbers_and_tsvals_changes_nothing(
        scene in segments(),
        config in configs(),
        to_seq: [u32; 2],
        to_ts: [u32; 2],
    ) {
        // Where short segments have their stamps depends on the lower bits of their numbers.
        let to_seq = to_seq.map(|by| by & !0xffff);
        let scene = in_order(scene);
        let moved = scene.iter().cloned().map(|mut packet| {
            let (mine, theirs) = (packet.from as usize, packet.from.peer() as usize);
            packet.seq = packet.seq.wrapping_add(to_seq[mine]);
            packet.ack = packet.ack.map(|ack| ack.wrapping_add(to_seq[theirs]));
            packet.sack = packet.sack.map(|(from, to)| {
                (from.wrapping_add(to_seq[theirs]), to.wrapping_add(to_seq[theirs]))
            });
            packet.ts = packet.ts.map(|(value, echo)| {
                (value.wrapping_add(to_ts[mine]), echo.wrapping_add(to_ts[theirs]))
            });
            packet
        });
        let (moved, unmoved) = (run(&config, moved), run(&config, scene.clone()));
        prop_assume!(!lost_stamps(&moved) && !lost_stamps(&unmoved));
        prop_assert_eq!(outline(&moved), outline(&unmoved));
    }

    #[test]
    fn exchanging_the_hosts_mirrors_the_samples(scene in segments(), config in configs()) {
        let scene = in_order(scene);
        // Exchanges the addresses, but not the ports.
        let exchanged = scene.iter().cloned().map(|packet| {
            let mut frame = Frame::from(packet);
            for at in [26 + 3, 30 + 3] {
                frame.data[at] = 3 - frame.data[at];
            }
            frame
        });
        let mirror = |end: Endpoint| {
            let std::net::IpAddr::V4(v4) = end.address else { panic!("IPv4 only") };
            let mut octets = v4.octets();
            octets[3] = 3 - octets[3];
            Endpoint { address: octets.into(), ..end }
        };
        let (exchanged, scene) = (run(&config, exchanged), run(&config, scene.clone()));
        prop_assume!(!lost_stamps(&exchanged) && !lost_stamps(&scene));
        let mirrored: Vec<_> = outline(&scene)
            .into_iter()
            .map(|(rtt, least, src, dst, handshake, method)| {
                (rtt, least, mirror(src), mirror(dst), handshake, method)
            })
            .collect();
        prop_assert_eq!(outline(&exchanged), mirrored);
    }

    #[test]
    fn interfaces_keep_flows_apart(one in segments(), two in segments(), config in configs()) {
        let on = |interface: u32, scene: &[Segment]| -> Vec<Frame> {
            scene
                .iter()
                .map(|packet| Frame { interface, ..(*packet).into() })
                .collect()
        };
        let (one, two) = (in_order(one), in_order(two));
        let mut both = [on(1, &one), on(2, &two)].concat();
        both.sort_by_key(|frame| frame.time_ns);
        let both = run(&config, both);
        prop_assume!(!lost_stamps(&both));
        for (interface, scene) in [(1, one), (2, two)] {
            let alone = run(&config, on(interface, &scene));
            let of_it: Vec<_> = both
                .samples
                .iter()
                .filter(|sample| sample.interface == interface)
                .copied()
                .collect();
            prop_assert_eq!(&of_it, &alone.samples);
        }
    }
}
