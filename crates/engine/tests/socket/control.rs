//! Controllers with a simulated socket and network.

use dwell_engine::socket::{
    Estimator, Meter, Reading, TcpInfo,
    control::{Controller, Element, ElementConfig, Lowat, Setting, State},
};

const MS: u64 = 1_000_000;
const MSS: u32 = 1448;
const RTT_US: u32 = 50_000;

/// A sender whose bytes leave at a rate, and an application that reacts late.
struct Sender {
    rate: u64,
    /// The application writes this long after there is room.
    late_us: u64,
    lowat: u64,
    buffer: u64,
    written: u64,
    left: u64,
    /// The bytes that could have left but were not there.
    lost: u64,
    /// For a round trip, the kernel reports that the application was the limit.
    limited_until_us: u64,
    room_since: Option<u64>,
    now_us: u64,
}

impl Sender {
    fn new(rate_bits: u64, late_us: u64) -> Sender {
        Sender {
            rate: rate_bits / 8,
            late_us,
            lowat: u64::MAX,
            buffer: 1 << 20,
            written: 0,
            left: 0,
            lost: 0,
            limited_until_us: 0,
            room_since: None,
            now_us: 0,
        }
    }

    /// Advances by a tenth of a millisecond.
    fn tick(&mut self) {
        self.now_us += 100;
        let now_us = self.now_us;
        let unsent = self.written - self.left;
        // As in the kernel: woken at half, then writes until full.
        if 2 * unsent < self.lowat.min(self.buffer) {
            self.room_since.get_or_insert(now_us);
        }
        if self.room_since.is_some_and(|since| now_us >= since + self.late_us) {
            self.room_since = None;
            if unsent < u64::from(MSS) {
                self.limited_until_us = now_us + u64::from(RTT_US);
            }
            self.written += self.lowat.min(self.buffer).saturating_sub(unsent) + u64::from(MSS);
        }
        let could = self.rate / 10_000;
        let leaves = could.min(self.written - self.left);
        self.lost += could - leaves;
        self.left += leaves;
    }

    fn reading(&self, now_us: u64) -> Reading {
        Reading {
            time_ns: now_us * 1000,
            info: TcpInfo {
                state: 1,
                send_mss: MSS,
                cwnd: 100,
                rtt_us: RTT_US,
                app_limited: now_us < self.limited_until_us,
                delivery_rate: Some(self.rate),
                bytes_sent: Some(self.left),
                bytes_retransmitted: Some(0),
                notsent_bytes: Some((self.written - self.left) as u32),
                ..TcpInfo::default()
            },
            ..Reading::default()
        }
    }
}

/// Runs for some seconds. Returns the mean delay in their second half, and the part of the rate that was lost in it.
fn run(sender: &mut Sender, controller: &mut dyn Controller, seconds: u64) -> (f64, f64) {
    let mut meter = Meter::new(Estimator::Exact);
    let ticks = seconds * 10_000;
    let mut half = (*meter.totals(), 0, 0);
    for tick in 1..=ticks {
        sender.tick();
        if tick % 100 == 0 {
            let reading = sender.reading(sender.now_us);
            let delay = meter.observe(&reading).sender;
            let Setting { notsent_lowat, .. } =
                controller.update(&State { reading: &reading, delay, waiting_ns: meter.waiting_ns(reading.time_ns) });
            if let Some(bytes) = notsent_lowat {
                sender.lowat = bytes.into();
            }
        }
        if tick == ticks / 2 {
            half = (*meter.totals(), sender.left, sender.lost);
        }
    }
    let delay = meter.totals().sender.since(&half.0.sender).mean_ns().expect("bytes have left");
    let (left, lost) = (sender.left - half.1, sender.lost - half.2);
    (delay as f64 / MS as f64, lost as f64 / (left + lost) as f64)
}

#[test]
fn a_slow_link_is_kept_busy_by_a_few_segments() {
    let mut sender = Sender::new(10_000_000, 100);
    let (delay, lost) = run(&mut sender, &mut Lowat::new(25 * MS), 10);
    assert!(delay < 6.0, "{delay} ms");
    assert_eq!(lost, 0.0);
    let mut plain = Sender::new(10_000_000, 100);
    let (without, _) = run(&mut plain, &mut Nothing, 10);
    assert!(without > 400.0, "{without} ms");
}

#[test]
fn an_application_that_comes_late_gets_more_room_and_loses_little() {
    // At 200 Mbit/s, four segments are a quarter of a millisecond.
    let mut sender = Sender::new(200_000_000, 3_000);
    let (delay, lost) = run(&mut sender, &mut Lowat::new(25 * MS), 10);
    assert!(lost < 0.05, "{lost}");
    assert!(delay < 15.0, "{delay} ms");
    let mut fixed = Sender::new(200_000_000, 3_000);
    fixed.lowat = 16 << 10;
    let (_, without) = run(&mut fixed, &mut Nothing, 10);
    assert!(without > 0.5, "{without}");
}

#[test]
fn an_application_that_was_late_once_gets_twice_the_room() {
    let mut controller = Lowat::new(25 * MS);
    let mut sender = Sender::new(100_000_000, 0);
    let mut set = Vec::new();
    for look in 0..10 {
        // Four polls in the following round trip, for which the kernel reports the same.
        sender.limited_until_us = if (1..5).contains(&look) { u64::MAX } else { 0 };
        let reading = sender.reading(1 + look * 10_000);
        let delay = None;
        let waiting_ns = None;
        let state = State { reading: &reading, delay, waiting_ns };
        set.extend(controller.update(&state).notsent_lowat);
    }
    // Half a millisecond of 100 Mbit/s: it starts there, and is doubled at once.
    assert_eq!(set.iter().max(), Some(&(2 * set[0])), "{set:?}");
}

#[test]
fn while_the_network_has_a_queue_nobody_is_late() {
    let mut controller = Lowat::new(25 * MS);
    let mut sender = Sender::new(100_000_000, 0);
    let mut set = Vec::new();
    for (look, queue_us) in (0..6).zip([0, 0, 0, 20_000, 20_000, 20_000]) {
        sender.limited_until_us = u64::MAX;
        let mut reading = sender.reading(1 + look * 60_000);
        reading.info.min_rtt_us = Some(RTT_US);
        reading.info.rtt_us = RTT_US + queue_us;
        let delay = None;
        let waiting_ns = None;
        let state = State { reading: &reading, delay, waiting_ns };
        set.push(controller.update(&state).notsent_lowat);
    }
    let [Some(first), Some(second), Some(third), None, None, Some(last)] = set[..] else {
        panic!("{set:?}");
    };
    assert_eq!((second, third), (2 * first, 4 * first));
    assert!(last < third, "{set:?}");
}

#[test]
fn no_more_waits_than_leaves_in_the_targets_time() {
    // It could never be in time: 60 ms late.
    let mut sender = Sender::new(50_000_000, 60_000);
    let (delay, _) = run(&mut sender, &mut Lowat::new(25 * MS), 10);
    assert!(delay < 27.0, "{delay} ms");
    assert!(sender.lowat > 140_000, "{}", sender.lowat);
}

#[test]
fn when_the_rate_falls_the_buffer_does() {
    let mut sender = Sender::new(100_000_000, 3_000);
    let mut controller = Lowat::new(25 * MS);
    run(&mut sender, &mut controller, 4);
    let before = sender.lowat;
    sender.rate /= 20;
    let (delay, lost) = run(&mut sender, &mut controller, 6);
    assert!(sender.lowat < before / 4, "{before} {}", sender.lowat);
    assert!(delay < 15.0, "{delay} ms");
    assert!(lost < 0.05, "{lost}");
}

#[test]
fn on_a_fast_path_there_is_room_for_half_a_millisecond() {
    let mut sender = Sender::new(30_000_000_000, 20);
    run(&mut sender, &mut Lowat::new(25 * MS), 2);
    assert!(sender.lowat >= 1_800_000, "{}", sender.lowat);
}

#[test]
fn a_setting_that_would_change_little_is_left() {
    let mut controller = Lowat::new(25 * MS);
    let sender = Sender::new(10_000_000, 0);
    let mut settings = 0;
    for look in 0..1000 {
        let reading = sender.reading(look * 10_000);
        let state = State { reading: &reading, delay: None, waiting_ns: None };
        settings += usize::from(controller.update(&state).notsent_lowat.is_some());
    }
    assert_eq!(settings, 1);
}

#[test]
fn element_holds_writes_above_an_aim_that_falls_while_the_delay_is_too_long() {
    let mut controller = Element::new(ElementConfig::default());
    let sender = Sender::new(10_000_000, 0);
    let aim = |controller: &mut Element, look: u64, delay_ms: u64| {
        let reading = sender.reading(look * 10_000);
        let delay = dwell_engine::socket::Delay { ns: delay_ms * MS, ..Default::default() };
        let state = State { reading: &reading, delay: Some(delay), waiting_ns: None };
        controller.update(&state)
    };
    let first = aim(&mut controller, 0, 100).hold_above.unwrap();
    // β congestion windows, less Δ.
    assert_eq!(first.unsent_bytes, (2.1 * 100.0 * 1448.0 * 0.75) as u64);
    assert_eq!((first.times, first.factor_permille), (8, 1500));
    // One update per round-trip time of 50 ms.
    for look in 1..5 {
        assert_eq!(aim(&mut controller, look, 100), Setting::default());
    }
    let second = aim(&mut controller, 5, 100).hold_above.unwrap();
    assert_eq!(second.unsent_bytes, first.unsent_bytes * 3 / 4);
    let mut last = second;
    for look in 6..200 {
        if let Some(hold) = aim(&mut controller, look, 1).hold_above {
            assert_eq!(hold.unsent_bytes.max(1), hold.unsent_bytes);
            last = hold;
        }
    }
    assert_eq!(last.unsent_bytes, (2.1 * 100.0 * 1448.0) as u64);
}

/// A controller that leaves the socket as it is.
struct Nothing;

impl Controller for Nothing {
    fn update(&mut self, _state: &State<'_>) -> Setting {
        Setting::default()
    }
}
