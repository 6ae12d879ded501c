//! The number of heavy connections, chosen by their part of the packets.

use dwell_engine::{
    measure::Endpoint,
    steer::{
        HeavyShare, HeavyWindow,
        zero_rtt::{Heavy, HeavyConfig, HeavyHitters},
    },
};
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::zero_rtt::{Zipf, client};

fn window(packets: u64, of_heaviest: &[u32]) -> HeavyWindow {
    HeavyWindow { packets, of_heaviest: of_heaviest.to_vec() }
}

/// Returns the number after some intervals with the same windows.
fn settled(share: &mut HeavyShare, windows: &[HeavyWindow]) -> u32 {
    (0..100).map(|_| share.step(windows.to_vec())).last().unwrap()
}

#[test]
fn as_few_as_have_the_wanted_part_on_average() {
    // Of 200 packets the first connection has 80, the second 60, the third 30.
    let windows = [window(100, &[50, 20, 10]), window(100, &[30, 40, 20])];
    for (wanted, top, captured) in
        [(0.3, 1, 0.4), (0.39, 1, 0.4), (0.5, 2, 0.7), (0.72, 3, 0.85), (0.9, 20, 0.85), (1.0, 20, 0.85)]
    {
        let mut share = HeavyShare::new(wanted, 20).unwrap();
        assert_eq!((share.top(), share.captured()), (20, None));
        assert_eq!(settled(&mut share, &windows), top, "{wanted}");
        let known = share.captured().unwrap();
        assert!((known - captured).abs() < 1e-9, "{wanted}: {known}");
    }
    let mut few = HeavyShare::new(0.9, 2).unwrap();
    assert_eq!(settled(&mut few, &windows), 2, "no more than may be");
}

#[test]
fn windows_that_are_not_full_are_ignored() {
    let mut share = HeavyShare::new(0.5, 20).unwrap();
    assert_eq!(share.step([window(0, &[3, 1])]), 20);
    assert_eq!(share.captured(), None);
    assert_eq!(share.step([window(0, &[3, 1]), window(10, &[6])]), 1);
    assert_eq!(share.step([]), 1);
    assert_eq!(share.captured(), Some(0.6));
}

/// A connection that replaces a heavy one may not be heavy at once.
#[test]
fn a_window_is_full_though_nobody_in_it_is_kept() {
    let config = HeavyConfig { most: 1, interval: 1000, top: 1 };
    let mut table = HeavyHitters::new(config).unwrap();
    let fill = |table: &mut HeavyHitters, number, packets| {
        for _ in 0..packets {
            table.count(client(number), 1, u32::MAX);
        }
        table.window()
    };
    table.count(client(1), 1, 0);
    assert_eq!(table.window().packets, 0, "not an interval yet");
    assert_eq!(fill(&mut table, 1, 999), window(1000, &[1000]));
    assert_eq!(fill(&mut table, 2, 1000), window(1000, &[]));
    let mut share = HeavyShare::new(0.5, 1).unwrap();
    share.step([table.window()]);
    assert_eq!(share.captured(), Some(0.0));
}

#[test]
fn on_the_edge_the_number_stays_and_a_change_that_lasts_is_followed() {
    let mut share = HeavyShare::new(0.5, 20).unwrap();
    let (less, more) = (window(1000, &[495, 100]), window(1000, &[505, 100]));
    assert_eq!(settled(&mut share, std::slice::from_ref(&less)), 2);
    for round in 0..200 {
        let now = [&less, &more][round % 2].clone();
        assert_eq!(share.step([now]), 2);
    }
    // One interval is not enough.
    assert_eq!(share.step([window(1000, &[60; 10])]), 2);
    let other = [window(1000, &[60; 10])];
    assert_eq!(settled(&mut share, &other), 9);
    assert_eq!(settled(&mut share, &[window(1000, &[900])]), 1);
}

#[test]
fn what_is_out_of_range_is_refused() {
    for (wanted, most, name) in
        [(0.0, 20, "share"), (1.1, 20, "share"), (f64::NAN, 20, "share"), (0.5, 0, "most"), (0.5, 33, "most")]
    {
        assert_eq!(HeavyShare::new(wanted, most).unwrap_err().name, name);
    }
}

/// The heavy connections are the heaviest ones in the table, and their share of the stream is the requested one.
#[test]
fn the_top_of_a_table_has_the_part_of_the_stream_that_was_asked_for() {
    let zipf = Zipf::new(5000, 1.2);
    let exact = |top: u32| -> f64 {
        let mut of = (0..top).map(|number| zipf.part(number));
        of.by_ref().sum()
    };
    for wanted in [0.2, 0.35, 0.5] {
        let mut random = StdRng::seed_from_u64(9);
        let config = HeavyConfig { most: 32, interval: 5000, ..HeavyConfig::default() };
        let mut table = HeavyHitters::new(config).unwrap();
        let mut share = HeavyShare::new(wanted, 32).unwrap();
        for packet in 1..200_000 {
            table.count(client(zipf.draw(&mut random)), 443, random.next_u32());
            if packet % 2000 == 0 {
                table.set_top(share.step([table.window()])).unwrap();
            }
        }
        let top = share.top();
        // The counts of connections that replaced another are too high.
        assert!(exact(top) > wanted - 0.06, "{wanted}: {top} have {}", exact(top));
        assert!(exact(top - 1) < wanted + 0.03, "{wanted}: {top}");
        let heaviest = (0..5000).filter(|number| table.contains(client(*number))).count();
        assert_eq!(heaviest, top as usize, "{wanted}");
        for number in 0..top / 2 {
            assert!(table.contains(client(number)), "{wanted}: {number} of {top}");
        }
    }
}

#[test]
fn a_table_of_connections_has_them_with_their_packets() {
    for count in [0, 1, 5, 32] {
        let heavy: Vec<Heavy> = (0..count)
            .map(|number| Heavy { client: Endpoint { address: client(number), port: 443 }, packets: 100 - number })
            .collect();
        let config = HeavyConfig { most: 32, top: 2, interval: 16 };
        let table = HeavyHitters::of(&heavy, config).unwrap();
        assert_eq!(table.connections(), heavy);
        let found: Vec<u32> = (0..40).filter(|number| table.contains(client(*number))).collect();
        assert_eq!(found, (0..count.min(2)).collect::<Vec<_>>());
        let few = HeavyHitters::of(&heavy, HeavyConfig { most: 3, ..config }).unwrap();
        assert_eq!(few.connections(), heavy[..heavy.len().min(3)]);
    }
}

/// A client with several connections is as heavy as the heaviest of them.
#[test]
fn an_address_has_the_rank_of_its_heaviest_connection() {
    let config = HeavyConfig { most: 8, top: 2, interval: 1 << 20 };
    let mut table = HeavyHitters::new(config).unwrap();
    let mut note = |number, port, packets| {
        (0..packets).for_each(|_| table.count(client(number), port, 0));
    };
    note(1, 1, 3); // a light one first, at a place before the others
    note(2, 1, 20);
    note(3, 1, 10);
    note(1, 2, 15);
    note(4, 1, 5);
    let heavy = |table: &HeavyHitters| (1..6).filter(|n| table.contains(client(*n))).collect::<Vec<_>>();
    assert_eq!(heavy(&table), [1, 2]);
    table.set_top(1).unwrap();
    assert_eq!(heavy(&table), [2]);
    table.set_top(3).unwrap();
    assert_eq!(heavy(&table), [1, 2, 3]);
    table.set_top(32).unwrap();
    assert_eq!(heavy(&table), [1, 2, 3, 4]);
    assert_eq!(table.set_top(0).unwrap_err().name, "top");
}
