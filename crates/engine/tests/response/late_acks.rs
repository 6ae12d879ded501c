//! The last segment of an answer whose ACK comes late: a timer of the client sent it, or the path spread the segments.

use dwell_engine::{
    abi::dwell_arrival,
    response::{Config, estimate},
};
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};

use crate::support::{MS, SECOND, START, US, epochs, syn, tcp};

const SEGMENT: u32 = 1448;
/// Bytes of Ethernet, IP and TCP before a segment's payload.
const HEADERS: u32 = 66;
/// The delay of an empty path, in each direction.
const ONE_WAY_NS: u64 = 10 * MS;
const LENGTH_NS: u64 = 60 * SECOND;
/// What the timer of delayed ACKs waits.
const TIMER_NS: u64 = 40 * MS;

/// How the client acknowledges a segment that comes alone.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Acks {
    AtOnce,
    /// At once, unless its last request followed data within 40 ms: then by a timer or by the next request.
    Linux,
}

/// A segment of an answer: when it leaves the server, and its payload.
type Segment = (u64, u32);

/// A client that pauses, and a server that takes 0.2 to 2 ms.
#[derive(Debug, Clone, Copy)]
struct Load {
    acks: Acks,
    mean_pause_ns: f64,
    /// Of the answers, one of which is drawn each time.
    sizes: &'static [u32],
    tick_ns: u64,
    /// The most by which the server is late with the last segment.
    stall_ns: u64,
    /// Of so many answers, the second segment of one overtakes the first, and the last one is late by 42 ms. 0: of none.
    overtaken: u32,
}

const USUAL: Load =
    Load { acks: Acks::Linux, mean_pause_ns: 60e6, sizes: &[4080], tick_ns: MS, stall_ns: 0, overtaken: 0 };

/// What estimates of epochs are worth.
#[derive(Debug, Default)]
struct Outcome {
    epochs: usize,
    believed: usize,
    /// Believed, and off by more than a fifth.
    wrong: usize,
    /// Believed, and off by more than a factor of 2.
    far_off: usize,
    /// Answers whose ends count as unknown.
    unsure: usize,
}

impl Load {
    /// Runs over a path, which says when the segments of an answer arrive.
    fn run(&self, path: &mut dyn FnMut(&[Segment]) -> Vec<u64>) -> Outcome {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut client = Client::new(self.tick_ns);
        let mut answers = Vec::new();
        let (mut came_ns, mut is_interactive) = (client.packets[1].time_ns, false);
        while came_ns < START + LENGTH_NS {
            let pause_ns = (-self.mean_pause_ns * (1.0 - random.random::<f64>()).ln()) as u64 + 50 * US;
            let asked_ns = came_ns + pause_ns;
            let timer_ns = came_ns + TIMER_NS + random.random_range(0..3 * MS);
            if client.unacknowledged > 0 && timer_ns < asked_ns {
                client.send(timer_ns, 0);
                is_interactive = false;
            }
            is_interactive |= pause_ns < TIMER_NS;
            client.send(asked_ns, 211);
            let leaves_ns = asked_ns + ONE_WAY_NS + random.random_range(200 * US..2 * MS);
            let segments = self.segments(leaves_ns, &mut random);
            let mut arrivals = path(&segments);
            if self.overtaken > 0 && random.random_ratio(1, self.overtaken) {
                client.send(arrivals[0], 0); // repeats what it has; from here on it acknowledges at once
                is_interactive = false;
                *arrivals.last_mut().unwrap() += 42 * MS;
            }
            for (number, (arrives_ns, segment)) in arrivals.into_iter().zip(&segments).enumerate() {
                client.receive(segment);
                came_ns = arrives_ns;
                let is_last = number + 1 == segments.len();
                if client.unacknowledged == 2 || (is_last && (self.acks == Acks::AtOnce || !is_interactive)) {
                    client.send(arrives_ns + 40 * US, 0);
                }
            }
            answers.push((came_ns, came_ns - asked_ns));
        }
        compare(&client.packets, &answers)
    }

    fn segments(&self, leaves_ns: u64, random: &mut Xoshiro256PlusPlus) -> Vec<Segment> {
        let size = self.sizes[random.random_range(0..self.sizes.len())];
        let mut segments: Vec<Segment> = (0..size.div_ceil(SEGMENT))
            .map(|i| (leaves_ns + u64::from(i) * 12 * US, SEGMENT.min(size - i * SEGMENT)))
            .collect();
        segments.last_mut().unwrap().0 += random.random_range(0..=self.stall_ns);
        segments
    }
}

struct Client {
    packets: Vec<dwell_arrival>,
    seq: u32,
    ack: u32,
    unacknowledged: u32,
    /// When the first segment left that the next ACK acknowledges.
    left_ns: u64,
    tick_ns: u64,
}

impl Client {
    /// Opens a connection.
    fn new(tick_ns: u64) -> Self {
        let opening = dwell_arrival { tsecr: 1460, ..syn(START, 0) };
        let mut client =
            Self { packets: vec![opening], seq: 1, ack: 1, unacknowledged: 0, left_ns: START + ONE_WAY_NS, tick_ns };
        client.send(START + 2 * ONE_WAY_NS, 0);
        client
    }

    fn receive(&mut self, segment: &Segment) {
        if self.unacknowledged == 0 {
            self.left_ns = segment.0;
        }
        self.unacknowledged += 1;
        self.ack += segment.1;
    }

    fn send(&mut self, time_ns: u64, payload: u32) {
        let tsecr = 70_000 + ((self.left_ns - START) / self.tick_ns) as u32;
        self.packets.push(dwell_arrival { tsecr, ..tcp(time_ns, self.seq, payload, self.ack) });
        self.seq += payload;
        self.unacknowledged = 0;
    }
}

/// Compares estimates with answers: when each ended, and how long it took.
fn compare(packets: &[dwell_arrival], answers: &[(u64, u64)]) -> Outcome {
    let config = Config::default();
    let mut outcome = Outcome::default();
    for epoch in epochs(&config, packets) {
        outcome.unsure += usize::from(epoch.unsure);
        let ended = epoch.start_ns..epoch.start_ns + epoch.epoch_ns;
        let latencies: Vec<u64> =
            answers.iter().filter(|(end, _)| ended.contains(end)).map(|(_, took)| *took).collect();
        if latencies.len() < 4 {
            continue;
        }
        let truth_ns = latencies.iter().sum::<u64>() as f64 / latencies.len() as f64;
        let made = estimate(&config, &epoch);
        outcome.epochs += 1;
        if made.is_valid() && made.confidence >= 0.7 {
            let ratio = made.response_ns.unwrap() as f64 / truth_ns;
            outcome.believed += 1;
            outcome.wrong += usize::from((ratio - 1.0).abs() > 0.2);
            outcome.far_off += usize::from(!(0.5..=2.0).contains(&ratio));
        }
    }
    outcome
}

/// A link of that many bits per second behind another that is faster.
struct Link {
    bits_per_second: u64,
    free_ns: u64,
}

impl Link {
    fn new(bits_per_second: u64) -> Self {
        Self { bits_per_second, free_ns: 0 }
    }

    fn carry(&mut self, at_ns: u64, bytes: u32) -> u64 {
        self.free_ns = self.free_ns.max(at_ns) + u64::from(bytes) * 8 * SECOND / self.bits_per_second;
        self.free_ns
    }

    fn segment(&mut self, (left_ns, payload): &Segment) -> u64 {
        self.carry(*left_ns, payload + HEADERS) + ONE_WAY_NS
    }
}

/// Returns arrivals on a path that is never busy.
fn idle(segments: &[Segment]) -> Vec<u64> {
    let mut link = Link::new(1_000_000_000);
    segments.iter().map(|segment| link.segment(segment)).collect()
}

/// Asserts that no believed epoch is off by more than a factor of 2, and one at most, or one in a hundred, by a fifth: an answer
/// whose end is unknown may count in the next epoch.
#[track_caller]
fn assert_sound(outcome: &Outcome, what: &str) {
    assert!(outcome.epochs >= 25, "{what}: {outcome:?}");
    assert!(outcome.far_off == 0 && outcome.wrong <= 1.max(outcome.believed / 100), "{what}: {outcome:?}");
}

/// Asserts of a client that acknowledges at once that as many ends count as unknown as last segments were `late`.
#[track_caller]
fn assert_doubted(outcome: &Outcome, acks: Acks, late: usize, what: &str) {
    match acks {
        Acks::AtOnce => assert!(100 * outcome.unsure >= 97 * late, "{what}: {late} late, {outcome:?}"),
        Acks::Linux => assert_mostly_refused_if_wrong(outcome, what),
    }
}

/// Asserts that few epochs are believed and off by a fifth, where requests carry ACKs of segments that the path delayed:
/// their ends count by the server's clock, whatever is known of timers.
#[track_caller]
fn assert_mostly_refused_if_wrong(outcome: &Outcome, what: &str) {
    assert!(outcome.epochs >= 25, "{what}: {outcome:?}");
    assert!(7 * outcome.wrong <= outcome.epochs, "{what}: {outcome:?}");
}

#[test]
fn a_last_segment_whose_ack_a_timer_sent_came_with_the_others() {
    for mean_pause_ns in [20e6, 60e6, 150e6] {
        for sizes in [&[4080][..], &[3100], &[7000], &[3000, 4200, 9900, 20_300]] {
            let outcome = Load { mean_pause_ns, sizes, ..USUAL }.run(&mut idle);
            let what = format!("pauses of {mean_pause_ns} ns, {sizes:?}");
            assert_sound(&outcome, &what);
            assert!(20 * outcome.believed >= 17 * outcome.epochs, "{what}: {outcome:?}");
        }
    }
}

#[test]
fn a_slow_link_that_spreads_an_answer_is_not_taken_for_a_timer() {
    for kilobits in [230, 280, 320, 500, 1_000, 3_000, 10_000] {
        for acks in [Acks::AtOnce, Acks::Linux] {
            for sizes in [&[4080][..], &[2920, 4300], &[2897, 4344], &[3000, 4200, 9900]] {
                let mut link = Link::new(kilobits * 1_000);
                let outcome = Load { acks, sizes, ..USUAL }
                    .run(&mut |segments| segments.iter().map(|segment| link.segment(segment)).collect());
                let what = format!("{kilobits} kbit/s, {acks:?}, {sizes:?}");
                match (acks, kilobits) {
                    (Acks::Linux, ..1_000) => assert_mostly_refused_if_wrong(&outcome, &what),
                    _ => assert_sound(&outcome, &what),
                }
            }
        }
    }
}

#[test]
fn a_shaper_that_lets_the_beginning_of_an_answer_pass_is_not_taken_for_a_timer() {
    for kilobits in [160_u64, 200, 256, 320, 500, 1_000] {
        for burst in [1_600_u64, 3_100, 3_500, 4_200, 5_000] {
            for acks in [Acks::AtOnce, Acks::Linux] {
                let bucket_ns = burst * 8 * SECOND / (kilobits * 1_000);
                let mut full_ns = 0; // when the bucket is full again
                let outcome = Load { acks, ..USUAL }.run(&mut |segments| {
                    let mut pass = |(left_ns, payload): &Segment| {
                        let takes_ns = u64::from(payload + HEADERS) * 8 * SECOND / (kilobits * 1_000);
                        full_ns = full_ns.max(*left_ns) + takes_ns;
                        full_ns.saturating_sub(bucket_ns).max(*left_ns) + ONE_WAY_NS
                    };
                    segments.iter().map(&mut pass).collect()
                });
                let what = format!("{kilobits} kbit/s, a burst of {burst} bytes, {acks:?}");
                match (acks, kilobits) {
                    (Acks::Linux, ..1_000) => assert_mostly_refused_if_wrong(&outcome, &what),
                    _ => assert_sound(&outcome, &what),
                }
            }
        }
    }
}

#[test]
fn a_last_segment_that_waits_for_other_flows_is_not_taken_for_a_timer() {
    // A fair queue lets two segments pass at once, and then waits for a round of the others, while there are any.
    for spell_ns in [500 * MS, 3 * SECOND, 20 * SECOND] {
        for round_ns in [20 * MS, 42 * MS, 60 * MS] {
            for acks in [Acks::AtOnce, Acks::Linux] {
                let mut late = 0;
                let outcome = Load { acks, ..USUAL }.run(&mut |segments| {
                    let is_busy = (segments[0].0 - START) / spell_ns % 2 == 1;
                    let mut arrivals = idle(segments);
                    if is_busy {
                        *arrivals.last_mut().unwrap() += round_ns;
                        late += 1;
                    }
                    arrivals
                });
                assert_doubted(
                    &outcome,
                    acks,
                    late,
                    &format!("spells of {spell_ns} ns, rounds of {round_ns} ns, {acks:?}"),
                );
            }
        }
    }
}

#[test]
fn a_last_segment_behind_bursts_of_others_is_not_taken_for_a_timer() {
    // Bursts of 64 KB share a line of 10 Mbit/s with answers whose segments come 0.3 ms apart.
    for percent in [20, 50, 80, 95] {
        for acks in [Acks::AtOnce, Acks::Linux] {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
            let (mut line, mut burst_ns) = (Link::new(10_000_000), START);
            let outcome = Load { acks, ..USUAL }.run(&mut |segments| {
                let mut pass = |(number, (left_ns, payload)): (usize, &Segment)| {
                    let at_ns = left_ns + number as u64 * 300 * US;
                    while burst_ns < at_ns {
                        line.carry(burst_ns, 64_000);
                        burst_ns += (-5.12e9 / f64::from(percent) * (1.0 - random.random::<f64>()).ln()) as u64;
                    }
                    line.segment(&(at_ns, *payload))
                };
                segments.iter().enumerate().map(&mut pass).collect()
            });
            assert_sound(&outcome, &format!("{percent} % of other traffic, {acks:?}"));
        }
    }
}

#[test]
fn a_last_segment_that_a_radio_sends_again_is_not_taken_for_a_timer() {
    for one_in in [5, 20, 100] {
        for acks in [Acks::AtOnce, Acks::Linux] {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(13);
            let mut late = 0;
            let outcome = Load { acks, ..USUAL }.run(&mut |segments| {
                let mut arrivals = idle(segments);
                if random.random_ratio(1, one_in) {
                    *arrivals.last_mut().unwrap() += random.random_range(38 * MS..60 * MS);
                    late += 1;
                }
                arrivals
            });
            assert_doubted(&outcome, acks, late, &format!("one in {one_in}, {acks:?}"));
        }
    }
}

#[test]
fn a_last_segment_that_the_server_sends_late_is_known_by_its_clock() {
    for (tick_ns, stall_ns) in [(MS, 45 * MS), (US, 45 * MS), (4 * MS, 4 * MS), (10 * MS, 10 * MS), (10 * MS, 45 * MS)]
    {
        for acks in [Acks::AtOnce, Acks::Linux] {
            let outcome = Load { acks, tick_ns, stall_ns, ..USUAL }.run(&mut idle);
            assert_sound(&outcome, &format!("a tick of {tick_ns} ns, up to {stall_ns} ns late, {acks:?}"));
        }
    }
}

#[test]
fn after_repeated_acks_a_late_one_is_not_taken_for_the_timers() {
    for overtaken in [2, 3, 5, 10] {
        let outcome = Load { overtaken, mean_pause_ns: 20e6, ..USUAL }.run(&mut idle);
        assert_sound(&outcome, &format!("one in {overtaken}"));
    }
}
