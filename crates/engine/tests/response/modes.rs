//! Algorithm 2, and the estimates from its modes.

use dwell_engine::response::{Config, Epoch, Epsilon, Estimator, Flow, Reason, Rto, brief_edges, estimate};
use proptest::prelude::*;

use crate::support::{MS, SECOND, START, US, at_gaps, epochs, pirate, sealed, tcp};

fn one(config: &Config, gaps_ns: &[u64]) -> Epoch {
    let ended = epochs(config, &at_gaps(gaps_ns));
    assert_eq!(ended.len(), 1);
    ended[0]
}

fn counts(epoch: &Epoch) -> Vec<u32> {
    epoch.mode[..usize::from(epoch.modes)].iter().map(|mode| mode.count).collect()
}

#[test]
fn the_example_of_the_paper_gives_950_us() {
    let mut gaps = vec![100 * US; 40];
    gaps.extend(vec![150 * US; 20]);
    gaps.extend(vec![250 * US; 10]);
    let config = pirate(10 * US);
    let epoch = one(&config, &gaps);
    assert_eq!(counts(&epoch), [40, 20, 10]);
    let made = estimate(&config, &epoch);
    assert_eq!(made.response_ns, Some(950 * US));
    assert_eq!((made.ibg_ns, made.batches), (Some(250 * US), 10));
}

#[test]
fn edges_of_modes_are_rounded_outward() {
    for ns in [0, 1, 4095, 4096, 4097, 123_457, 59 * SECOND + 1, (1 << 36) - 1] {
        let (low, high) = brief_edges(ns);
        assert!(low <= ns && ns <= high, "{low} {ns} {high}");
        assert!((high - low) as f64 <= ns as f64 / 2047.0, "{low} {ns} {high}");
        assert!(ns > 4096 || (low == ns && high == ns));
    }
    assert_eq!(brief_edges(u64::MAX).0, brief_edges((1 << 36) - 1).0);
}

#[test]
fn sums_are_exact_up_to_gaps_of_a_minute() {
    let gaps = [60 * SECOND + 1, 60 * SECOND - 7, 17, 18];
    let epoch = one(&pirate(US), &gaps);
    assert_eq!(counts(&epoch), [2, 2]);
    assert_eq!(epoch.mode[0].sum_ns, 35);
    assert_eq!(epoch.mode[1].sum_ns, 120 * SECOND - 6);
    assert!(epoch.mode[1].max_ns > 60 * SECOND);
}

#[test]
fn a_full_mode_discards_and_keeps_its_mean() {
    let mut flow = Flow::new(&pirate(US));
    let beyond = (1 << 24) + 10;
    for i in 0..=beyond {
        assert!(flow.step(&sealed(START + 3 * i, 300)).is_none());
    }
    let epoch = flow.end(u64::MAX).unwrap();
    assert_eq!(counts(&epoch), [(1 << 24) - 1]);
    assert_eq!(epoch.mode[0].sum_ns, 3 * ((1 << 24) - 1));
    assert_eq!(epoch.discarded, 11);
}

#[test]
fn modes_that_come_to_touch_become_one() {
    // 100 and 130 are more than 20 apart; 115 is close to both.
    let epoch = one(&pirate(20), &[100, 130, 500, 115]);
    assert_eq!(counts(&epoch), [3, 1]);
    let merged = epoch.mode[0];
    assert_eq!((merged.min_ns, merged.max_ns, merged.sum_ns), (100, 130, 345));
}

#[test]
fn a_gap_without_a_mode_is_discarded_but_time_goes_on() {
    let config = Config { modes: 2, ..pirate(10) };
    let epoch = one(&config, &[100, 1000, 5000, 105, 7000]);
    assert_eq!(counts(&epoch), [2, 1]);
    assert_eq!(epoch.discarded, 2);
    assert_eq!(epoch.mode[0].sum_ns, 205);
}

#[test]
fn epsilon_may_be_a_part_of_the_edge() {
    let config = Config { epsilon: Epsilon::Relative(0.5), ..pirate(0) };
    let epoch = one(&config, &[100 * US, 149 * US, 300 * US]);
    assert_eq!(counts(&epoch), [2, 1]);
}

#[test]
fn an_idle_gap_enters_no_mode() {
    let config = Config { idle_ns: SECOND, ..pirate(10 * US) };
    let epoch = one(&config, &[MS, 2 * SECOND, MS]);
    assert_eq!((counts(&epoch), epoch.idle), (vec![2], 1));
}

#[test]
fn timeouts_are_no_gap_between_batches() {
    let mut gaps = [MS, 5 * MS].repeat(20);
    gaps.push(210 * MS);
    let config = pirate(500 * US);
    let epoch = one(&config, &gaps);
    assert_eq!(estimate(&config, &epoch).response_ns, Some(6 * MS));
    let off = Config { rto: Rto::From(SECOND), ..config.clone() };
    assert_eq!(estimate(&off, &epoch).response_ns, Some(330 * MS));
    let low = Config { rto: Rto::From(4 * MS), ..config };
    assert_eq!(estimate(&low, &epoch).ibg_ns, Some(MS));
}

#[test]
fn a_floor_keeps_one_outlier_from_being_all() {
    let mut gaps = [MS, 5 * MS].repeat(20);
    gaps.push(50 * MS);
    let config = pirate(500 * US);
    let epoch = one(&config, &gaps);
    let alone = estimate(&config, &epoch);
    assert_eq!(alone.response_ns, Some(170 * MS));
    assert_eq!(alone.reason, Some(Reason::TooFew));
    let floor = Config { floor: 0.1, ..config };
    assert_eq!(estimate(&floor, &epoch).response_ns, Some(6 * MS));
}

#[test]
fn transport_acks_make_no_gaps() {
    let packets: Vec<_> = (0..10u32)
        .flat_map(|i| {
            let now = START + u64::from(i) * 10 * MS;
            let ack = 1000 * i;
            [tcp(now, 300 * i, 300, ack), tcp(now + MS, 300 * i + 300, 0, ack + 1000)]
        })
        .collect();
    let epoch = epochs(&pirate(US), &packets)[0];
    assert_eq!((counts(&epoch), epoch.mode[0].sum_ns), (vec![9], 90 * MS));
    assert_eq!(epoch.packets, 20);
    let with_acks = Config { coalesce_acks: false, ..pirate(US) };
    assert_eq!(counts(&epochs(&with_acks, &packets)[0]), [10, 9]);
}

#[test]
fn without_headers_acks_are_recognized_by_size() {
    let packets = [300, 52, 300, 52, 300].iter().zip(0u64..);
    let packets: Vec<_> = packets.map(|(bytes, i)| sealed(START + i * MS, *bytes)).collect();
    let epoch = epochs(&pirate(US), &packets)[0];
    assert_eq!((counts(&epoch), epoch.mode[0].sum_ns), (vec![2], 4 * MS));
}

#[test]
fn only_gaps_after_small_packets_part_batches() {
    // An upload with three packets per request: 1500, 1500, 700; the link pauses after a full packet once.
    let mut now = START;
    let mut packets = Vec::new();
    for i in 0..20 {
        for (bytes, gap_ns) in [(1500, 100 * US), (1500, 100 * US), (700, 8 * MS)] {
            packets.push(sealed(now, bytes));
            now += if i == 10 && bytes == 1500 { 40 * MS } else { gap_ns };
        }
    }
    let epoch = epochs(&pirate(MS / 2), &packets)[0];
    let marked: Vec<u32> = epoch.mode[..3].iter().map(|mode| mode.marked).collect();
    assert_eq!(marked, [0, 1, 0]);
    assert_eq!(estimate(&pirate(MS / 2), &epoch).ibg_ns, Some(8 * MS));
    let unmarked = Config { mark_small: false, ..pirate(MS / 2) };
    let epoch = epochs(&unmarked, &packets)[0];
    assert_eq!(estimate(&unmarked, &epoch).ibg_ns, Some(40 * MS));
}

#[test]
fn a_fixed_threshold_measures_from_start_to_start() {
    let config = Config { estimator: Estimator::Gap(300 * US), ..pirate(0) };
    // Batches of three; it is unknown whether the first packet starts one.
    let epoch = one(&config, &[100 * US, 100 * US, 5 * MS].repeat(10));
    assert_eq!((epoch.gaps, epoch.gaps_ns), (10, 52 * MS));
    assert_eq!(estimate(&config, &epoch).response_ns, Some(5_200 * US));
}

/// Algorithm 2 in its simplest form, with edges rounded as in the core.
#[derive(Debug, Clone, PartialEq)]
struct Plain {
    min: u64,
    max: u64,
    count: u32,
    sum: u64,
}

fn reference(gaps: &[u64], epsilon: u64, limit: usize) -> (Vec<Plain>, u32) {
    let (mut modes, mut discarded): (Vec<Plain>, u32) = (Vec::new(), 0);
    for gap in gaps {
        let (low, high) = brief_edges(*gap);
        let near = |mode: &Plain| mode.min <= gap + epsilon && *gap <= mode.max + epsilon;
        if let Some(mode) = modes.iter_mut().find(|mode| near(mode)) {
            mode.count += 1;
            mode.sum += gap;
            mode.min = mode.min.min(low);
            mode.max = if *gap > mode.max { high } else { mode.max };
        } else if modes.len() < limit {
            modes.push(Plain { min: low, max: high, count: 1, sum: *gap });
            modes.sort_by_key(|mode| mode.min);
        } else {
            discarded += 1;
        }
        let touch = |pair: &[Plain]| pair[0].max + epsilon >= pair[1].min;
        if let Some(at) = modes.windows(2).position(touch) {
            let above = modes.remove(at + 1);
            modes[at].max = above.max;
            modes[at].count += above.count;
            modes[at].sum += above.sum;
        }
    }
    (modes, discarded)
}

proptest! {
    #[test]
    fn modes_are_those_of_the_plain_algorithm(
        gaps in prop::collection::vec(prop_oneof![0u64..2000, 0..MS, 0..60 * SECOND], 0..200),
        epsilon in prop_oneof![0u64..100, 0..MS],
        limit in 1usize..=10,
    ) {
        let config = Config { modes: limit as u8, ..pirate(epsilon) };
        let epoch = one(&config, &gaps);
        let (modes, discarded) = reference(&gaps, epsilon, limit);
        let found: Vec<Plain> = epoch.mode[..usize::from(epoch.modes)]
            .iter()
            .map(|m| Plain { min: m.min_ns, max: m.max_ns, count: m.count, sum: m.sum_ns })
            .collect();
        prop_assert_eq!(found, modes);
        prop_assert_eq!(epoch.discarded, discarded);
        prop_assert_eq!(epoch.gaps + epoch.discarded, gaps.len() as u32);
    }

    #[test]
    fn no_packets_break_any_estimator(
        packets in prop::collection::vec(
            (any::<u64>(), any::<u8>(), 0u32..70_000, 0u32..3000, any::<u32>(), any::<u32>(), 0u8..3, any::<u8>()),
            0..300,
        ),
        near in any::<bool>(),
    ) {
        for estimator in [Estimator::Auto, Estimator::Pirate, Estimator::Gap(MS), Estimator::SynAck] {
            let config = Config { estimator, ..Config::default() };
            let mut now = START;
            let packets: Vec<_> = packets
                .iter()
                .map(|(time, step, bytes, payload, seq, ack, visible, flags)| {
                    now = if near { now.wrapping_add(time >> 40).wrapping_sub(u64::from(*step)) } else { *time };
                    dwell_engine::abi::dwell_arrival {
                        visible: *visible,
                        tcp_flags: *flags & 7,
                        bytes: *bytes,
                        payload_bytes: *payload.min(bytes),
                        ..tcp(now, *seq & 0xffff, 0, *ack & 0xfffff)
                    }
                })
                .collect();
            let ended = epochs(&config, &packets);
            prop_assert_eq!(ended.iter().map(|e| e.packets as usize).sum::<usize>(), packets.len());
            for epoch in ended {
                let made = estimate(&config, &epoch);
                prop_assert!((0.0..=1.0).contains(&made.confidence), "{made:?}");
                prop_assert!(made.response_ns.is_some() || !made.is_valid());
                prop_assert!(epoch.hidden <= epoch.all);
                let logged: u32 = epoch.gap_log.iter().map(|count| u32::from(*count)).sum();
                prop_assert!(estimator != Estimator::Auto || logged == epoch.gaps);
            }
        }
    }
}
