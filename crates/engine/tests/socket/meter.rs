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

/// Most of a frame leaves at once, and its last segment after the acknowledgement of the frame before. Polls are late by
/// up to 16 ms, as on a busy host. Returns the accuracy and the share of delays whose bounds hold.
fn frames_with_late_polls() -> (f64, f64) {
    let (mut written, mut left) = (Steps::default(), Steps::default());
    for frame in 0..3_000_u64 {
        let at = 10 * MS + frame * 33_333_333;
        written.push(at, (frame + 1) * 36_000);
        left.push(at + MS / 100, frame * 36_000 + 34_752);
        left.push(at + 14_300_000, (frame + 1) * 36_000);
    }
    let mut meter = Meter::new(Estimator::Exact);
    let (mut now, mut random) = (0, 1_u64);
    let (mut error, mut truth, mut held, mut polls) = (0.0, 0.0, 0.0, 0.0);
    while now < 99_000 * MS {
        let counts = Counts { written: written.at(now), left: left.at(now), ..Counts::default() };
        if let Some(delay) = meter.observe(&counts.reading(now, Age::Now)).sender {
            let reached = |steps: &Steps| steps.reached(counts.left).expect("bytes that left were reached");
            let waited = reached(&left) - reached(&written);
            error += delay.ns.abs_diff(waited) as f64;
            truth += waited as f64;
            held += f64::from(delay.least_ns <= waited && waited <= delay.most_ns);
            polls += 1.0;
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let late = if random >> 62 == 0 { (random >> 40) % 15_000_000 } else { 0 };
        now += MS + late;
    }
    (1.0 - error / truth, held / polls)
}

#[test]
fn frames_are_measured_even_where_polls_are_late() {
    let (accuracy, held) = frames_with_late_polls();
    assert!(accuracy >= 0.93, "{accuracy}");
    assert!(held >= 1.0, "{held}");
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
fn whether_bytes_waited_between_two_distant_polls_is_known_by_how_long_the_kernel_was_busy() {
    // Milliseconds: between the polls, busy, since the last data, of the round trip.
    for (between, busy, since, rtt, is_known) in [
        (30, None, 0, None, true),
        (100, None, 0, None, false),
        (100, Some(90), 20, Some(7), false),
        (100, Some(8), 20, Some(7), true),
        (400, Some(208), 190, Some(200), true),
        (400, Some(208), 5, Some(200), false),
    ] {
        let mut meter = Meter::new(Estimator::Exact);
        let mut poll = |now, busy_us, left| {
            let counts = Counts { written: left, left, acked: left, ..Counts::default() };
            let mut reading = counts.reading(now, Age::Now);
            reading.info.busy_us = busy_us;
            reading.info.last_data_sent_ms = since;
            reading.info.min_rtt_us = rtt.map(|rtt| rtt * 1_000);
            meter.observe(&reading).sender
        };
        poll(MS, busy.map(|_| 5_000), 0);
        let delay = poll(MS + between * MS, busy.map(|busy| 5_000 + busy * 1_000), 60_000);
        assert_eq!(delay.map(|delay| delay.ns), is_known.then_some(0), "{between} {busy:?} {since} {rtt:?}");
    }
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

/// Polls a meter with the estimator `paper` each 10 ms. Returns the sender's delays in ms.
fn poll_calls(meter: &mut Meter, calls: &mut Calls, poll: u64, counts: Counts) -> Option<u64> {
    let reading = counts.reading(poll * 10 * MS, Age::Now);
    meter.observe_calls(&reading, Some(calls)).sender.map(|delay| delay.ns / MS)
}

#[test]
fn algorithm_1_pairs_the_time_before_a_write_with_the_bytes_before_it() {
    let mut meter = Meter::new(Estimator::Paper);
    let mut calls = Calls::default();
    // The first write finds an empty buffer. The second blocks for 30 ms, in which its first bytes leave.
    calls.begin_write(5 * MS);
    calls.end_write(2 * MSS);
    calls.begin_write(7 * MS);
    let mut delays = Vec::new();
    for poll in 1..8_u64 {
        if poll == 4 {
            calls.end_write(4 * MSS);
        }
        let left = poll.saturating_sub(1).min(6) * MSS;
        let counts = Counts { written: 6 * MSS, left, ..Counts::default() };
        delays.push(poll_calls(&mut meter, &mut calls, poll, counts));
    }
    // seq is 0 before the first write, and 2 MSS before the second: they have left at the first and third poll.
    assert_eq!(delays, [Some(5), None, Some(23), None, None, None, None]);
}

#[test]
fn algorithm_1_gives_a_delay_for_each_write_that_has_left() {
    let mut meter = Meter::new(Estimator::Paper);
    let mut calls = Calls::default();
    for write in 0..4 {
        calls.begin_write(write * MS);
        calls.end_write(MSS);
    }
    let counts = Counts { written: 4 * MSS, left: 4 * MSS, ..Counts::default() };
    assert_eq!(poll_calls(&mut meter, &mut calls, 1, counts), Some(7), "of the last");
    let sender = meter.totals().sender;
    assert_eq!(sender.samples, 4);
    // 10 ms of the first byte, then 9, 8 and 7 ms of a segment each.
    let sum = (10 + (9 + 8 + 7) * MSS) * MS;
    assert_eq!(sender.ns_bytes, sum as f64);
    // Davg, from the first delay on.
    let average = [9.0, 8.0, 7.0].into_iter().fold(10.0, |average, delay| average * 7.0 / 8.0 + delay / 8.0);
    assert!((calls.average_ns().unwrap() - average * MS as f64).abs() < 1.0);
}

#[test]
fn a_write_that_failed_is_none_and_outstanding_writes_are_thinned_out() {
    let mut meter = Meter::new(Estimator::Paper);
    let mut calls = Calls::default();
    calls.begin_write(MS);
    calls.end_write(0);
    calls.begin_write(4 * MS);
    calls.end_write(MSS);
    let mut counts = Counts { written: 1000 * MSS, ..Counts::default() };
    assert_eq!(poll_calls(&mut meter, &mut calls, 1, counts), Some(6));
    for write in 1..1000 {
        calls.begin_write(10 * MS + write * MS / 1000);
        calls.end_write(MSS);
    }
    counts.left = 1000 * MSS;
    assert_eq!(poll_calls(&mut meter, &mut calls, 2, counts), Some(9));
    assert!((65..=129).contains(&meter.totals().sender.samples), "{:?}", meter.totals().sender);
}

#[test]
fn algorithm_2_is_the_age_of_the_first_poll_that_had_more_than_was_read() {
    let mut meter = Meter::new(Estimator::Paper);
    let mut calls = Calls::default();
    let mut delays = Vec::new();
    for poll in 1..8_u64 {
        if poll == 5 {
            // The entries are 1, 2, 3 and 4 MSS at 10, 20, 30 and 40 ms: the third is the first beyond 2 MSS.
            calls.read(48 * MS, 2 * MSS);
            // Nothing beyond 4 MSS has been seen by then.
            calls.read(49 * MS, 2 * MSS);
        }
        let counts = Counts { arrived: poll * MSS, ..Counts::default() };
        let reading = counts.reading(poll * 10 * MS, Age::Now);
        let observed = meter.observe_calls(&reading, Some(&mut calls));
        delays.push(observed.receiver.map(|delay| delay.ns / MS));
    }
    assert_eq!(&delays[4..], [Some(18), None, None]);
    assert_eq!(meter.totals().receiver.samples, 1);
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
            // What left between two polls that are far apart is unknown of the sender alone.
            prop_assert!(observed.sender.is_none() || observed.sender == observed.receiver);
            if let Some(delay) = observed.receiver {
                let truth = left.reached(out).unwrap() - written.reached(out).unwrap();
                prop_assert!(delay.least_ns <= truth && truth <= delay.most_ns, "{truth} {delay:?}");
                prop_assert!(delay.least_ns <= delay.ns && delay.ns <= delay.most_ns);
            }
        }
    }
}
