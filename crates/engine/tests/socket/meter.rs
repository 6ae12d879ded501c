use dwell_engine::socket::{Calls, Estimator, Meter, Reading, TcpInfo};
use proptest::prelude::*;

use crate::kernel::{Age, Counts, MSS, Steps};

const MS: u64 = 1_000_000;

/// An application writes 128 KB whenever they fit into 512 KB, and 10 Mbit/s leave: after a while the delay of each
/// byte is about the duration of the buffer.
fn bulk(age: Age, estimator: Estimator) -> (Meter, Steps, Steps, Vec<(u64, u64)>) {
    let (mut written, mut left) = (Steps::default(), Steps::default());
    let (mut into, mut out) = (0, 0);
    let mut meter = Meter::new(estimator);
    let mut delays = Vec::new();
    meter.observe(&Counts::default().reading(0, age));
    for tick in 1..40_000_u64 {
        let now = tick * MS / 10;
        if into - out <= 384 << 10 {
            into += 128 << 10;
            written.push(now, into);
        }
        if tick % 12 == 11 {
            out = (out + 1500).min(into);
            left.push(now, out);
        }
        if tick % 100 == 99 {
            let counts = Counts {
                written: into,
                left: out,
                acked: out.saturating_sub(60_000),
                again: tick / 1000 * 1500,
                ..Counts::default()
            };
            if let Some(delay) = meter.observe(&counts.reading(now, age)).sender {
                delays.push((now, delay.ns));
            }
        }
    }
    (meter, written, left, delays)
}

fn accuracy(delays: &[(u64, u64)], written: &Steps, left: &Steps) -> f64 {
    let (mut error, mut truth) = (0.0, 0.0);
    for &(now, delay) in delays {
        let byte = left.at(now);
        let when = |steps: &Steps| steps.reached(byte).expect("it has left");
        let waited = when(left) - when(written);
        error += delay.abs_diff(waited) as f64;
        truth += waited as f64;
    }
    1.0 - error / truth
}

#[test]
fn a_full_buffer_is_measured_by_every_method_that_kernels_support() {
    for (age, estimator, least) in
        [(Age::Now, Estimator::Exact, 0.98), (Age::Unsent, Estimator::Exact, 0.98), (Age::Now, Estimator::Paper, 0.97)]
    {
        let (meter, written, left, delays) = bulk(age, estimator);
        assert_eq!(meter.estimator(), estimator);
        assert!(delays.len() > 380, "{age:?}: {}", delays.len());
        let accuracy = accuracy(&delays, &written, &left);
        assert!(accuracy >= least, "{age:?} {estimator:?}: {accuracy}");
        assert!(accuracy < 1.0, "a look each 10 ms cannot be that good");
    }
}

#[test]
fn a_kernel_that_counts_no_bytes_is_estimated_as_in_the_paper_and_says_so() {
    let (meter, _, _, delays) = bulk(Age::Acked, Estimator::Exact);
    assert_eq!(meter.estimator(), Estimator::Paper);
    assert!(!delays.is_empty());
}

#[test]
fn what_leaves_at_once_has_not_waited() {
    let mut meter = Meter::new(Estimator::Exact);
    for look in 0..10 {
        let sent = look * 500;
        let counts = Counts { written: sent, left: sent, ..Counts::default() };
        let observed = meter.observe(&counts.reading(look * 10 * MS, Age::Now));
        match observed.sender {
            None => assert_eq!(look, 0),
            Some(delay) => assert_eq!((delay.ns, delay.least_ns, delay.most_ns, delay.bytes), (0, 0, 10 * MS, 500)),
        }
        assert_eq!(observed.receiver, None);
        assert_eq!(meter.waiting_ns(look * 10 * MS), None);
    }
    assert_eq!(meter.totals().sender.mean_ns(), Some(0));
    assert_eq!(meter.totals().written_bytes, 4500);
}

#[test]
fn what_cannot_leave_is_waiting_and_has_no_delay_yet() {
    let mut meter = Meter::new(Estimator::Exact);
    let look = |meter: &mut Meter, at: u64, written, left| {
        let counts = Counts { written, left, ..Counts::default() };
        meter.observe(&counts.reading(at * MS, Age::Now)).sender
    };
    look(&mut meter, 0, 0, 0);
    for at in 1..30 {
        assert_eq!(look(&mut meter, at * 10, 1000, 0), None);
    }
    // The first of 1,000 bytes that were written in the 10 ms before the first poll.
    assert_eq!(meter.waiting_ns(290 * MS).unwrap() / MS, 289);
    let delay = look(&mut meter, 300, 1000, 1000).unwrap();
    assert_eq!(delay.ns, 290 * MS);
    assert_eq!((delay.least_ns, delay.most_ns), (280 * MS, 300 * MS));
}

#[test]
fn what_was_in_the_buffer_before_the_first_poll_has_no_delay() {
    let mut meter = Meter::new(Estimator::Exact);
    let looks = [(0, 100_000, 0), (10, 100_000, 50_000), (20, 100_000, 100_000)];
    for (at, written, left) in looks {
        let counts = Counts { written, left, ..Counts::default() };
        let observed = meter.observe(&counts.reading(at * MS, Age::Now));
        assert_eq!(observed.sender, None, "nobody knows when they were written");
    }
}

#[test]
fn a_reader_that_pauses_is_where_bytes_wait() {
    let mut meter = Meter::new(Estimator::Exact);
    for look in 0..100_u64 {
        let arrived = look * 10_000;
        let counts = Counts {
            arrived,
            // 200 ms behind.
            read: look.saturating_sub(20) * 10_000,
            ..Counts::default()
        };
        let observed = meter.observe(&counts.reading(look * 10 * MS, Age::Now));
        if look > 20 {
            let delay = observed.receiver.unwrap();
            assert_eq!((delay.ns, delay.bytes), (200 * MS, 10_000));
        }
    }
    assert_eq!(meter.totals().received_bytes, 990_000);
}

#[test]
fn algorithm_1_gives_a_delay_a_write_that_has_left() {
    let mut meter = Meter::new(Estimator::Paper);
    let mut calls = Calls::default();
    calls.record_write(5 * MS, 2 * MSS);
    calls.record_write(7 * MS, 4 * MSS);
    let mut looks = Vec::new();
    for look in 1..10_u64 {
        let counts = Counts { written: 4 * MSS, left: look.saturating_sub(2).min(4) * MSS, ..Counts::default() };
        let reading = counts.reading(look * 10 * MS, Age::Now);
        let observed = meter.observe_calls(&reading, Some(&mut calls));
        looks.push(observed.sender.map(|delay| delay.ns / MS));
    }
    // The one byte of the SYN makes 2 MSS left at the fourth poll, and 4 at the sixth.
    let expected = [None, None, None, Some(35), None, Some(53), None, None, None];
    assert_eq!(looks, expected);
}

#[test]
fn algorithm_2_is_when_what_was_read_had_come() {
    let mut meter = Meter::new(Estimator::Paper);
    let mut calls = Calls::default();
    let mut looks = Vec::new();
    for look in 1..8_u64 {
        if look == 5 {
            calls.record_read(48 * MS, 2 * MSS);
        }
        let counts = Counts { arrived: look * MSS, ..Counts::default() };
        let reading = counts.reading(look * 10 * MS, Age::Now);
        let observed = meter.observe_calls(&reading, Some(&mut calls));
        looks.push(observed.receiver.map(|delay| delay.ns / MS));
    }
    let expected = [None, None, None, None, Some(28), None, None];
    assert_eq!(looks, expected);
}

#[test]
fn nothing_is_made_of_counts_that_make_no_sense() {
    let mut meter = Meter::new(Estimator::Exact);
    let strange = [0, 1, u64::MAX, 3, u64::MAX / 2, 0];
    for (at, &count) in strange.iter().enumerate() {
        let reading = Reading {
            time_ns: count,
            info: TcpInfo {
                bytes_sent: Some(count),
                bytes_retransmitted: Some(strange[(at + 2) % 6]),
                notsent_bytes: Some(u32::MAX),
                bytes_acked: Some(count),
                bytes_received: Some(count),
                unacked: u32::MAX,
                send_mss: u32::MAX,
                ..TcpInfo::default()
            },
            unacknowledged: Some(count),
            readable: Some(u64::MAX),
        };
        meter.observe(&reading);
        meter.waiting_ns(count);
    }
}

proptest! {
    /// Whatever an application and a network do, and however rarely they are polled, the delay of the latest byte that
    /// moved on is within its bounds.
    #[test]
    fn the_truth_is_within_the_bounds(
        steps in proptest::collection::vec((1..30_u64, 0..40_000_u64, 0..40_000_u64, any::<bool>()), 1..900),
        unsent in any::<bool>(),
    ) {
        let (mut written, mut left) = (Steps::default(), Steps::default());
        let (mut into, mut out, mut now) = (0, 0, 0);
        let mut meter = Meter::new(Estimator::Exact);
        let age = if unsent { Age::Unsent } else { Age::Now };
        let look = |meter: &mut Meter, now, into, out| {
            let counts = Counts { written: into, left: out, arrived: into, read: out, ..Counts::default() };
            meter.observe(&counts.reading(now, age))
        };
        look(&mut meter, 0, 0, 0);
        for (time, write, leave, looks) in steps {
            now += time * MS;
            into += write;
            out = (out + leave).min(into);
            written.push(now, into);
            left.push(now, out);
            if !looks {
                continue;
            }
            let observed = look(&mut meter, now, into, out);
            prop_assert_eq!(observed.sender, observed.receiver);
            if let Some(delay) = observed.sender {
                let truth = left.reached(out).unwrap() - written.reached(out).unwrap();
                prop_assert!(delay.least_ns <= truth && truth <= delay.most_ns, "{truth} {delay:?}");
                prop_assert!(delay.least_ns <= delay.ns && delay.ns <= delay.most_ns);
            }
        }
    }
}
