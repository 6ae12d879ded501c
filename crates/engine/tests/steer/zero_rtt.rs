//! Heavy hitters compared with exact counts, load reports, and when a server is overloaded.

use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use dwell_engine::{
    quic_lb::{Load, Stamp},
    steer::zero_rtt::{HeavyConfig, HeavyHitters, LoadUpdate, Loads, OverloadConfig},
};
use proptest::prelude::*;
use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};

pub fn client(number: u32) -> IpAddr {
    Ipv4Addr::from(0x0a00_0000 + number).into()
}

fn heavy(most: u32, interval: u32) -> HeavyHitters {
    HeavyHitters::new(HeavyConfig { most, interval, ..HeavyConfig::default() }).unwrap()
}

/// Numbers from 0 on, where the n-th has a probability proportional to (n + 1)^-skew.
pub struct Zipf(Vec<f64>);

impl Zipf {
    pub fn new(numbers: u32, skew: f64) -> Zipf {
        let mut sum = 0.0;
        let weights = (1..=numbers).map(|n| {
            sum += f64::from(n).powf(-skew);
            sum
        });
        Zipf(weights.collect())
    }

    pub fn draw(&self, random: &mut StdRng) -> u32 {
        let at = random.random::<f64>() * self.0.last().unwrap();
        self.0.partition_point(|sum| *sum <= at) as u32
    }

    /// Returns the probability of a number.
    pub fn part(&self, number: u32) -> f64 {
        let at = number as usize;
        let before = if at == 0 { 0.0 } else { self.0[at - 1] };
        (self.0[at] - before) / self.0.last().unwrap()
    }
}

#[test]
fn the_heaviest_of_a_skewed_stream_are_found() {
    let zipf = Zipf::new(5000, 1.2);
    for seed in 1..6 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut table = heavy(20, 5000);
        let mut window = VecDeque::new();
        let mut exact: HashMap<u32, u32> = HashMap::new();
        let (mut right, mut heaviest, mut captured, mut possible) = (0, 0, 0, 0);
        for i in 0..60_000 {
            let number = zipf.draw(&mut random);
            table.count(client(number), 443, random.next_u32());
            *exact.entry(number).or_default() += 1;
            window.push_back(number);
            if window.len() > 7500 {
                *exact.get_mut(&window.pop_front().unwrap()).unwrap() -= 1;
            }
            if i > 10_000 && i % 500 == 0 {
                let mut order: Vec<(u32, u32)> = exact.iter().map(|(n, c)| (*c, *n)).collect();
                order.sort_unstable_by_key(|(count, number)| (u32::MAX - count, *number));
                right += order[..20].iter().filter(|o| table.contains(client(o.1))).count();
                heaviest += order[..5].iter().filter(|o| table.contains(client(o.1))).count();
                possible += order[..20].iter().map(|o| o.0).sum::<u32>();
                captured += order.iter().filter(|o| table.contains(client(o.1))).map(|o| o.0).sum::<u32>();
            }
        }
        let looks = 99.0;
        assert!(heaviest as f64 >= 0.99 * 5.0 * looks, "{heaviest}");
        assert!(right as f64 > 0.75 * 20.0 * looks, "{right}");
        assert!(f64::from(captured) > 0.95 * f64::from(possible), "{captured} of {possible}");
    }
}

#[test]
fn counts_of_few_are_exact() {
    let mut table = heavy(4, 100);
    for (number, packets) in [(1, 5), (2, 30), (3, 1)] {
        for _ in 0..packets {
            table.count(client(number), 7, u32::MAX);
        }
    }
    let counts: Vec<_> = table.connections().iter().map(|h| (h.client.address, h.client.port, h.packets)).collect();
    assert_eq!(counts, [(client(2), 7, 30), (client(1), 7, 5), (client(3), 7, 1)]);
}

#[test]
fn connections_of_a_client_are_kept_apart_by_port_and_found_by_address() {
    let mut table = heavy(2, 1000);
    table.count(client(1), 5, 0);
    table.count(client(1), 6, 0);
    assert_eq!(table.connections().len(), 2);
    assert!(table.contains(client(1)) && !table.contains(client(2)));
    // The slot of the connection with port 5 is replaced, but the client is still there.
    table.count(client(1), 6, 0);
    table.count(client(2), 5, 0);
    assert!(table.contains(client(1)) && table.contains(client(2)));
}

#[test]
fn who_comes_late_takes_the_lightest_place_with_one_over_its_count_and_one() {
    for packets in [1u32, 3, 9, 99] {
        let mut random = StdRng::seed_from_u64(packets.into());
        let mut taken = 0;
        for _ in 0..20_000 {
            let mut table = heavy(1, 1 << 20);
            for _ in 0..packets {
                table.count(client(1), 1, 0);
            }
            table.count(client(2), 1, random.next_u32());
            if table.contains(client(2)) {
                assert_eq!(table.connections()[0].packets, packets + 1);
                taken += 1;
            }
        }
        let expected = 20_000.0 / f64::from(packets + 1);
        assert!((f64::from(taken) - expected).abs() < 5.0 * expected.sqrt(), "{packets}: {taken}");
    }
}

#[test]
fn who_is_silent_for_two_intervals_is_not_heavy() {
    let mut table = heavy(8, 50);
    (0..49).for_each(|_| table.count(client(1), 1, 0));
    for i in 0..50 {
        table.count(client(2), 1, 0);
        assert!(table.contains(client(1)), "{i}");
    }
    (0..50).for_each(|_| table.count(client(2), 1, 0));
    assert!(!table.contains(client(1)) && table.contains(client(2)));
}

#[test]
fn fewer_places_than_the_table_has_are_used_if_so_configured() {
    for most in [1, 3, 4, 5, 20, 31, 32] {
        let mut table = heavy(most, 1 << 20);
        (0..100).for_each(|number| table.count(client(number), 1, 1 << 31));
        assert_eq!(table.connections().len() as u32, most);
    }
}

proptest! {
    #[test]
    fn the_window_holds_no_more_than_was_sent(
        packets in prop::collection::vec((0u32..60, 0u16..3, any::<u32>()), 1..2000),
        most in 1u32..=32,
        interval in 16u32..300,
    ) {
        let mut table = heavy(most, interval);
        for (number, port, random) in &packets {
            table.count(client(*number), *port, *random);
            let heavy = table.connections();
            prop_assert!(heavy.len() <= most as usize);
            let sum: u32 = heavy.iter().map(|h| h.packets).sum();
            prop_assert!(sum <= 2 * interval);
            prop_assert!(heavy.iter().all(|h| table.contains(h.client.address)));
        }
    }
}

const NOW: Duration = Duration::from_secs(1_000_000);

fn stamp(seconds: u64, count: u64, wait_ms: u64) -> Stamp {
    Stamp { freshness: seconds << 16 | count, load: Load::from_wait(Duration::from_millis(wait_ms)) }
}

fn config(margin_ms: u64) -> OverloadConfig {
    OverloadConfig { margin: Duration::from_millis(margin_ms), ..OverloadConfig::default() }
}

/// Servers with these waits in ms; `None` for an unknown wait.
fn loads(waits: &[Option<u64>], config: OverloadConfig) -> Loads {
    let mut loads = Loads::new(waits.len(), config).unwrap();
    for (server, wait) in waits.iter().enumerate() {
        if let Some(wait) = wait {
            assert_eq!(loads.update(server, stamp(1_000_000, 1, *wait), NOW), LoadUpdate::Newest);
        }
    }
    loads
}

#[test]
fn the_newest_that_a_server_said_counts_and_nothing_else() {
    let mut loads = loads(&[Some(100), Some(0), Some(10)], config(20));
    assert_eq!(loads.divert(0, 0, NOW), Some(1));
    assert_eq!(loads.update(0, stamp(1_000_000, 0, 5), NOW), LoadUpdate::Old);
    assert_eq!(loads.update(0, stamp(1_000_000, 1, 5), NOW), LoadUpdate::Old);
    assert_eq!(loads.update(0, stamp(1_000_006, 0, 5), NOW), LoadUpdate::Ahead);
    assert_eq!(loads.update(0, stamp(u64::MAX >> 16, 0, 5), NOW), LoadUpdate::Ahead);
    assert_eq!(loads.divert(0, 0, NOW), Some(1));
    assert_eq!(loads.update(0, stamp(1_000_005, 0, 5), NOW), LoadUpdate::Newest);
    assert_eq!(loads.divert(0, 0, NOW), None);
    let mut fresh = Loads::new(1, config(20)).unwrap();
    assert_eq!(fresh.update(0, stamp(999_984, 9, 5), NOW), LoadUpdate::Stale);
    assert_eq!(fresh.update(0, stamp(999_985, 9, 5), NOW), LoadUpdate::Newest);
}

#[test]
fn equation_1_by_table() {
    let of = |waits: &[u64]| -> Vec<Option<u64>> { waits.iter().copied().map(Some).collect() };
    let ten = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100];
    for (waits, server, margin, expected) in [
        // Above the percentile: 9 and 10 of ten.
        (of(&ten), 9, 20, Some(0)),
        (of(&ten), 8, 20, Some(0)),
        (of(&ten), 7, 20, None),
        // By more than the margin.
        (of(&ten), 9, 89, Some(0)),
        (of(&ten), 9, 91, None),
        // With few servers, the highest is above.
        (of(&[0, 30]), 1, 20, Some(0)),
        (of(&[0, 30]), 0, 20, None),
        (of(&[5, 90, 5, 5]), 1, 20, Some(0)),
        (of(&[50]), 0, 20, None),
        // All are alike, or nearly all.
        (of(&[50; 10]), 3, 0, None),
        (of(&[50, 50, 50, 50, 50, 50, 50, 90, 90, 90]), 8, 20, None),
        (of(&[50, 50, 50, 50, 50, 50, 50, 50, 90, 90]), 8, 20, Some(0)),
        // Unknown loads do not count.
        (vec![None, Some(90), None, Some(10), None], 1, 20, Some(3)),
        (vec![None, Some(90), None, Some(10), None], 0, 20, None),
        (vec![None, Some(90), None, None], 1, 20, None),
    ] {
        let loads = loads(&waits, config(margin));
        assert_eq!(loads.divert(server, 0, NOW), expected, "{waits:?} {server} {margin}");
    }
}

#[test]
fn of_those_that_wait_least_the_first_from_a_place_on_is_taken() {
    let waits = [Some(90), Some(0), Some(40), Some(0), Some(0)];
    let loads = loads(&waits, config(20));
    let taken: Vec<_> = (0..5).map(|from| loads.divert(0, from, NOW)).collect();
    assert_eq!(taken, [Some(1), Some(1), Some(3), Some(3), Some(4)]);
}

#[test]
fn a_server_that_is_out_is_given_nothing() {
    let mut loads = loads(&[Some(90), Some(0), Some(40), Some(60)], config(20));
    loads.set_usable(1, false);
    assert_eq!(loads.divert(0, 0, NOW), Some(2));
    loads.set_usable(1, true);
    assert_eq!(loads.divert(0, 0, NOW), Some(1));
}

#[test]
fn what_was_heard_long_ago_is_not_known() {
    let mut loads = loads(&[Some(90), Some(0), Some(40), Some(60)], config(20));
    let later = NOW + Duration::from_secs(8);
    assert_eq!(loads.load(1, later), Load::from_wait(Duration::ZERO));
    assert_eq!(loads.load(1, later + Duration::from_secs(3)), Load::UNKNOWN);
    loads.update(0, stamp(1_000_008, 0, 90), later);
    loads.update(2, stamp(1_000_008, 0, 40), later);
    assert_eq!(loads.divert(0, 0, NOW + Duration::from_secs(10)), Some(1));
    assert_eq!(loads.divert(0, 0, NOW + Duration::from_secs(11)), Some(2));
    assert_eq!(loads.divert(0, 0, NOW + Duration::from_secs(19)), None);
}

#[test]
fn all_slots_are_examined() {
    for count in [1usize, 2, 63, 1023, 1024] {
        for server in [0, count / 2, count - 1] {
            let mut waits = vec![Some(50); count];
            waits[server] = Some(0);
            let busy = (server + 1) % count;
            waits[busy] = Some(90);
            let loads = loads(&waits, config(20));
            for from in [0, count / 3, count - 1] {
                let expected = (count > 1).then_some(server);
                assert_eq!(loads.divert(busy, from, NOW), expected, "{count} {server} {from}");
            }
        }
    }
}

#[test]
fn configurations_out_of_range_are_refused_by_name() {
    let name =
        |most, interval| HeavyHitters::new(HeavyConfig { most, interval, ..HeavyConfig::default() }).unwrap_err().name;
    assert_eq!((name(0, 100), name(33, 100)), ("most", "most"));
    assert_eq!((name(1, 15), name(1, u32::MAX)), ("interval", "interval"));
    let name = |config| Loads::new(4, config).unwrap_err().name;
    let good = OverloadConfig::default();
    assert_eq!(name(OverloadConfig { percentile: 1.1, ..good }), "percentile");
    assert_eq!(name(OverloadConfig { percentile: f64::NAN, ..good }), "percentile");
    assert_eq!(name(OverloadConfig { stale: Some(Duration::ZERO), ..good }), "stale");
    assert_eq!(Loads::new(1025, good).unwrap_err().name, "servers");
}
