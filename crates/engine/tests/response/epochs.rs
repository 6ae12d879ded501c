//! Boundaries of epochs, and clocks that misbehave.

use dwell_engine::{
    abi,
    response::{Answers, Bucket, Config, Estimator, Flow, Method, Reason, estimate},
};

use crate::support::{MS, SECOND, START, epochs, sealed, syn, tcp};

fn second(estimator: Estimator) -> Config {
    Config { estimator, ..Config::default() }
}

#[test]
fn states_are_as_small_as_promised() {
    assert!(size_of::<abi::dwell_pirate_state>() <= 154);
    assert!(size_of::<abi::dwell_auto_state>() <= 384);
}

#[test]
fn a_gap_over_the_border_belongs_to_the_later_epoch() {
    let config = second(Estimator::Pirate);
    let packets = [900, 950, 1050].map(|ms| sealed(START + ms * MS, 300));
    let ended = epochs(&config, &packets);
    assert_eq!(ended.len(), 2);
    assert_eq!((ended[0].start_ns, ended[0].packets), (START, 2));
    assert_eq!((ended[0].gaps, ended[0].gaps_ns), (1, 50 * MS));
    assert_eq!((ended[1].start_ns, ended[1].packets), (START + SECOND, 1));
    assert_eq!((ended[1].gaps, ended[1].gaps_ns), (1, 100 * MS));
}

#[test]
fn epochs_are_aligned_to_the_clock_that_is_asked_for() {
    let config = Config { phase_ns: 7 * SECOND + 300 * MS, ..second(Estimator::Pirate) };
    let packets = [650, 750, 1650, 1750].map(|ms| sealed(START + ms * MS, 300));
    let ended = epochs(&config, &packets);
    let starts = ended.iter().map(|epoch| (epoch.start_ns, epoch.packets));
    let border = |seconds| START + seconds * SECOND - 300 * MS;
    assert_eq!(starts.collect::<Vec<_>>(), [(border(0), 1), (border(1), 2), (border(2), 1)]);
}

#[test]
fn epochs_without_packets_leave_no_record() {
    let packets = [0, 5500].map(|ms| sealed(START + ms * MS, 300));
    let ended = epochs(&second(Estimator::Pirate), &packets);
    let starts: Vec<u64> = ended.iter().map(|epoch| epoch.start_ns - START).collect();
    assert_eq!(starts, [0, 5 * SECOND]);
}

#[test]
fn the_clock_ends_an_epoch_only_when_it_is_over() {
    for estimator in [Estimator::Auto, Estimator::Pirate, Estimator::Gap(MS), Estimator::SynAck] {
        let mut flow = Flow::new(&second(estimator));
        assert!(flow.end(u64::MAX).is_none());
        assert!(flow.step(&sealed(START + 10, 300)).is_none());
        assert!(flow.end(START + SECOND - 1).is_none());
        assert_eq!(flow.end(START + SECOND).unwrap().packets, 1);
        assert!(flow.end(u64::MAX).is_none());
        assert!(flow.step(&sealed(START + SECOND + 1, 300)).is_none());
        assert_eq!(flow.end(u64::MAX).unwrap().start_ns, START + SECOND);
    }
}

#[test]
fn a_packet_that_is_late_makes_no_gap() {
    let config = second(Estimator::Pirate);
    let packets = [10, 30, 20, 40].map(|ms| sealed(START + ms * MS, 300));
    let ended = epochs(&config, &packets);
    assert_eq!((ended[0].packets, ended[0].gaps, ended[0].gaps_ns), (4, 2, 30 * MS));
}

#[test]
fn a_late_packet_of_the_last_epoch_is_counted_in_this_one() {
    let packets = [990, 1010, 995, 1020].map(|ms| sealed(START + ms * MS, 300));
    let ended = epochs(&second(Estimator::Pirate), &packets);
    let packets: Vec<u32> = ended.iter().map(|epoch| epoch.packets).collect();
    assert_eq!(packets, [1, 3]);
}

#[test]
fn no_epoch_is_reported_twice() {
    let mut flow = Flow::new(&second(Estimator::Pirate));
    assert!(flow.step(&sealed(START + 990 * MS, 300)).is_none());
    let told = flow.end(START + SECOND).unwrap();
    // It took longer on another CPU.
    assert!(flow.step(&sealed(START + 995 * MS, 300)).is_none());
    assert!(flow.end(START + SECOND + MS).is_none());
    assert!(flow.step(&sealed(START + 1010 * MS, 300)).is_none());
    let next = flow.end(START + 2 * SECOND).unwrap();
    assert_eq!((told.start_ns, told.packets), (START, 1));
    assert_eq!((next.start_ns, next.packets), (START + SECOND, 2));
    // Nor one that is long past, as long as the clock was not set.
    assert!(flow.step(&sealed(START + 2700 * MS, 300)).is_none());
    let last = flow.end(START + 3 * SECOND).unwrap();
    assert!(flow.step(&sealed(START + 1900 * MS, 300)).is_none());
    let late = flow.end(START + 4 * SECOND).unwrap();
    let starts = [last.start_ns, late.start_ns];
    assert_eq!(starts, [START + 2 * SECOND, START + 3 * SECOND]);
}

#[test]
fn a_clock_set_back_begins_anew() {
    for estimator in [Estimator::Auto, Estimator::Pirate, Estimator::Gap(MS)] {
        let times = [0, 10, 20, 30].map(|ms| START + ms * MS);
        let before = times.map(|time_ns| sealed(time_ns, 300));
        let after = times.map(|time_ns| sealed(time_ns - 500 * SECOND, 300));
        let ended = epochs(&second(estimator), &[before, after].concat());
        assert_eq!(ended.len(), 2);
        assert_eq!(ended[1].start_ns, START - 500 * SECOND);
        assert_eq!((ended[0].gaps, ended[1].gaps), (3, 3), "{estimator:?}");
        assert!(ended[1].gaps_ns <= 30 * MS);
    }
}

#[test]
fn a_clock_set_forward_is_idle_time() {
    let times = [0, 10, 20, 100_020, 100_030].map(|ms| sealed(START + ms * MS, 300));
    let ended = epochs(&second(Estimator::Pirate), &times);
    assert_eq!((ended[1].gaps, ended[1].idle, ended[1].gaps_ns), (1, 1, 10 * MS));
    let ended = epochs(&second(Estimator::Auto), &times);
    assert_eq!(ended[1].gaps, 1);
    assert!(ended[1].gaps_ns.abs_diff(10 * MS) < 256); // in ticks
    assert!(ended[1].all_ns <= 30 * MS);
}

#[test]
fn the_handshake_is_one_sample_a_connection() {
    let config = second(Estimator::SynAck);
    let packets = [syn(START, 0), tcp(START + 30 * MS, 1, 0, 1), tcp(START + 90 * MS, 1, 300, 1)];
    let made = estimate(&config, &epochs(&config, &packets)[0]);
    assert_eq!((made.method, made.response_ns), (Method::SynAck, Some(30 * MS)));
    assert!(made.is_valid());
    let again = [syn(START, 0), syn(START + SECOND / 2, 0), tcp(START + 530 * MS, 1, 0, 1)];
    let made = estimate(&config, &epochs(&config, &again)[0]);
    assert_eq!(made.response_ns, None);
}

#[test]
fn a_response_just_before_the_border_counts_before_it() {
    // the run of ACKs ends at 995 ms; nothing follows until 1100 ms
    let mut packets = vec![syn(START, 0), tcp(START + MS, 1, 0, 1)];
    packets.push(tcp(START + 900 * MS, 1, 300, 1));
    packets.push(tcp(START + 995 * MS, 301, 0, 5001));
    packets.push(tcp(START + 1100 * MS, 301, 300, 5001));
    let ended = epochs(&second(Estimator::Auto), &packets);
    assert_eq!((ended[0].all, ended[0].all_ns.div_ceil(MS)), (1, 95));
    assert_eq!(ended[1].all, 0);
}

#[test]
fn percentiles_are_those_of_single_answers() {
    // Nine answers of 10 ms, one of 200 ms; then as many of 2 ms that counts are halved again and again.
    for (usual_ns, rare_ns, turns, seconds) in [(10 * MS, 200 * MS, 40, 10), (MS, 40 * MS, 1500, 60)] {
        let mut packets = vec![syn(START, 0), tcp(START + MS, 1, 0, 1)];
        let (mut now, mut seq) = (START + 2 * MS, 1);
        for turn in 0..turns {
            packets.push(tcp(now, seq, 300, 1 + 5000 * turn));
            seq += 300;
            now += if turn % 10 == 7 { rare_ns } else { usual_ns };
            packets.push(tcp(now, seq, 0, 1 + 5000 * (turn + 1)));
            now += 10_000;
        }
        let config = Config { epoch_ns: seconds * SECOND, ..Config::default() };
        let ended = epochs(&config, &packets);
        let made = estimate(&config, &ended[0]);
        let answers = Answers::of(&ended[0], &made).unwrap();
        let (p50, p99) = (answers.quantile(0.5), answers.quantile(0.99));
        assert!(p50.least_ns <= usual_ns && usual_ns <= p50.most_ns.unwrap(), "{p50:?}");
        assert!(p99.least_ns <= rare_ns && rare_ns <= p99.most_ns.unwrap(), "{p99:?}");
        assert!(p99.most_ns.unwrap() * 3 <= p99.least_ns * 4, "{p99:?}");
        let counted: u64 = answers.buckets().map(|bucket| bucket.count).sum();
        assert_eq!(counted, u64::from(ended[0].answered));
    }
}

/// Returns packets of a client whose requests are answered after these times, each by 5000 bytes.
fn answered_after(latencies_ns: &[u64]) -> Vec<abi::dwell_arrival> {
    let mut packets = vec![syn(START, 0), tcp(START + MS, 1, 0, 1)];
    let (mut now, mut seq, mut ack) = (START + 2 * MS, 1, 1);
    for latency_ns in latencies_ns {
        packets.push(tcp(now, seq, 300, ack));
        now += latency_ns;
        seq += 300;
        ack += 5000;
        packets.push(tcp(now, seq, 0, ack));
        now += 10_000;
    }
    packets.push(tcp(now, seq, 300, ack));
    packets
}

#[test]
fn bounds_of_percentiles_hold_up_to_the_longest_response() {
    for (idle_s, long_ms) in [(5, 4900), (5, 2200), (60, 50_000)] {
        let config = Config { epoch_ns: 1000 * SECOND, idle_ns: idle_s * SECOND, ..Config::default() };
        let latencies: Vec<u64> = (0..40).map(|i| if i % 10 == 7 { long_ms * MS } else { 100 * MS }).collect();
        let ended = epochs(&config, &answered_after(&latencies));
        let made = estimate(&config, &ended[0]);
        let p99 = Answers::of(&ended[0], &made).unwrap().quantile(0.99);
        let (ns, most_ns) = (p99.ns.unwrap(), p99.most_ns.unwrap());
        assert!(p99.least_ns <= long_ms * MS && long_ms * MS <= most_ns, "{p99:?}");
        assert!(p99.least_ns <= ns && ns <= most_ns && most_ns == idle_s * SECOND, "{p99:?}");
    }
}

#[test]
fn answers_that_take_longer_than_the_idle_gap_are_told() {
    let config = Config { epoch_ns: 1000 * SECOND, ..Config::default() };
    let of = |latencies_ns: &[u64]| epochs(&config, &answered_after(latencies_ns))[0];
    // With one answer of 8 s, ten of 100 ms have a mean of 0.8 s.
    let mut latencies = vec![100 * MS; 10];
    latencies.insert(5, 8 * SECOND);
    for (latencies, overlong) in [(&latencies[..], 1), (&[8 * SECOND; 3][..], 3)] {
        let epoch = of(latencies);
        assert_eq!((u32::from(epoch.overlong), epoch.answered), (overlong, latencies.len() as u32 - overlong));
        assert_eq!(estimate(&config, &epoch).reason, Some(Reason::TooLong));
    }
    // One of a hundred that take 2 s changes the mean less, but the longest percent is longer than can be told.
    let mut latencies = vec![2 * SECOND; 99];
    latencies.insert(50, 8 * SECOND);
    let epoch = of(&latencies);
    let made = estimate(&config, &epoch);
    assert!(made.is_valid() && made.confidence < 0.98 && made.batches == 99, "{made:?}");
    let answers = Answers::of(&epoch, &made).unwrap();
    let (p90, rest) = (answers.quantile(0.9), answers.quantile(0.995));
    assert!(p90.least_ns <= 2 * SECOND && p90.most_ns.is_some_and(|most_ns| most_ns >= 2 * SECOND), "{p90:?}");
    assert_eq!((rest.ns, rest.least_ns, rest.most_ns), (None, 5 * SECOND, None));
    let longer = Bucket { least_ns: 5 * SECOND, ns: 5 * SECOND, most_ns: None, count: 1 };
    assert_eq!(answers.buckets().last(), Some(longer));
}
