//! Which connections are measured, in the native core and in the kernel.

use std::time::Duration;

use dwell_engine::{
    balance::Balancer,
    response::{Record, Watch},
};
use dwell_probes::balancer::{Forward, PlaneOptions, Real, Sampling, Vip};

use super::{MS, TABLE, key};
use crate::{
    options,
    packets::{Client, address, real, v4},
    parity::native,
    tables::loaded,
};

const CONNECTIONS: u16 = 8000;

fn sampled(connections: u32) -> Vip {
    let sampling = Sampling::one_of(connections).unwrap();
    Vip { number: 1, measured: true, sampling, ..Vip::default() }
}

/// A balancer of two backends. Each of many connections has sent a request that waits. Returns the numbers of connections
/// by backend, too.
fn waiting(vip: &Vip) -> (Balancer, [u64; 2]) {
    let mut balancer = native(Watch::default(), 2 * u32::from(CONNECTIONS));
    for number in 1..=2 {
        let backend = real(address("10.0.0.5"), Forward::L2, 70 + number);
        balancer.set_real(number, &Real { sampling: vip.sampling, ..backend });
    }
    balancer.set_vip(&key(), vip, &TABLE);
    let mut opened = [0; 2];
    for port in 0..CONNECTIONS {
        let client = Client { port: 1000 + port, ..v4() };
        for frame in [client.syn(), client.data(100)] {
            let (decision, _) = balancer.packet(&frame, 1, 1000 * MS, false, drop);
            opened[decision.real.unwrap() as usize - 1] += 1;
        }
    }
    (balancer, opened.map(|packets| packets / 2))
}

/// Asserts that a count is the part of all that a sample of independent draws has, within four standard deviations.
fn assert_near(count: u64, all: u64, part: f64) {
    let (expected, deviation) = (all as f64 * part, (all as f64 * part * (1.0 - part)).sqrt());
    assert!((count as f64 - expected).abs() <= 4.0 * deviation, "{count} of {all}, wanted: {expected:.0}");
}

#[test]
fn one_of_eight_connections_is_measured_whatever_its_backend_is() {
    let (mut balancer, opened) = waiting(&sampled(8));
    let mut records = 0;
    let found = balancer.sweep(3000 * MS, |record: Record| {
        assert_eq!(record.vip, 1);
        records += 1;
    });
    for (real, opened) in (1..).zip(opened) {
        assert_near(found.pending(real).count(), opened, 0.125);
    }
    assert_near(records, CONNECTIONS.into(), 0.125);
}

/// Then the backend follows from the client's address alone.
#[test]
fn connections_of_one_client_are_sampled_too() {
    let (mut balancer, opened) = waiting(&Vip { by_source: true, ..sampled(8) });
    let real = if opened[0] == 0 { 2 } else { 1 };
    assert_eq!(opened[real - 1], u64::from(CONNECTIONS));
    let found = balancer.sweep(3000 * MS, drop);
    assert_near(found.pending(real as u32).count(), CONNECTIONS.into(), 0.125);
}

#[test]
fn measured_connections_that_wait_in_silence_stand_for_the_others() {
    for connections in [1, 8] {
        let (mut balancer, opened) = waiting(&sampled(connections));
        let found = balancer.sweep(9000 * MS, drop);
        for (real, opened) in (1..).zip(opened) {
            assert_eq!(found.tracked(real), opened);
            let measured = found.pending(real).count();
            assert_eq!(found.of(real), measured * u64::from(connections));
            assert_near(measured, opened, 1.0 / f64::from(connections));
        }
    }
}

/// A connection that is not measured leaves the state as it finds it: that of the connection that had the slot before.
#[test]
fn a_slot_of_a_connection_that_was_not_measured_serves_one_that_is() {
    let (mut balancer, _) = waiting(&sampled(1024));
    balancer.sweep(1_000_000 * MS, drop);
    balancer.set_vip(&key(), &sampled(1), &TABLE);
    let (mut epochs, mut requests) = (0, 0);
    for port in 0..1000 {
        let client = Client { port: 20_000 + port, ..v4() };
        for frame in [client.syn(), client.data(100)] {
            balancer.packet(&frame, 1, 1_000_100 * MS, false, drop);
        }
    }
    let found = balancer.sweep(1_002_000 * MS, |record| {
        epochs += 1;
        requests += record.epoch.requests;
    });
    assert_eq!((epochs, requests), (1000, 1000));
    assert_eq!(found.pending(1).count() + found.pending(2).count(), 1000);
}

#[test]
fn root_of_connections_that_are_to_be_measured_the_first_are_and_others_once_those_have_gone() {
    const ROOM: u32 = 40;
    const CONNECTIONS: u16 = 100;
    let idle_timeout = Duration::from_secs(1);
    let Some(mut plane) = loaded(&PlaneOptions { max_measured: ROOM, idle_timeout, ..options() }) else { return };
    plane.set_vip(&key(), &sampled(1)).unwrap();
    plane.set_table(1, &TABLE).unwrap();
    for round in 1..=2 {
        for port in 0..CONNECTIONS {
            let client = Client { port: 1000 * round + port, ..v4() };
            for frame in [client.syn(), client.data(100)] {
                plane.replay_packet(&frame).unwrap();
            }
        }
        let found = plane.sweep(|_| ()).unwrap();
        assert_eq!(found.pending(1).count() + found.pending(2).count(), u64::from(ROOM));
        let unmeasured = u64::from(round) * (u64::from(CONNECTIONS) - u64::from(ROOM));
        assert_eq!(plane.counters().unwrap().unmeasured, unmeasured);
        for port in 0..CONNECTIONS {
            let client = Client { port: 1000 * round + port, ..v4() };
            plane.replay_packet(&client.rst()).unwrap();
        }
        // They are forgotten.
        std::thread::sleep(Duration::from_millis(1200));
        plane.sweep(|_| ()).unwrap();
    }
}

#[test]
fn root_the_kernel_measures_a_sample() {
    let Some(mut plane) = loaded(&options()) else { return };
    plane.set_vip(&key(), &sampled(8)).unwrap();
    plane.set_table(1, &TABLE).unwrap();
    for port in 0..500 {
        let client = Client { port: 1000 + port, ..v4() };
        for frame in [client.syn(), client.data(100)] {
            plane.replay_packet(&frame).unwrap();
        }
    }
    // Until the epoch is over, and a quarter of it after that.
    std::thread::sleep(Duration::from_millis(1400));
    let mut records = 0;
    let found = plane.sweep(|_| records += 1).unwrap();
    let measured = found.pending(1).count() + found.pending(2).count();
    assert_eq!(measured, records);
    assert_near(measured, 500, 0.125);
}
