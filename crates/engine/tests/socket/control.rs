//! Controllers with a simulated socket and network.

use dwell_engine::socket::{
    Estimator, Meter, Reading, TcpInfo,
    control::{Controller, Element, Lowat, Setting, State},
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
                controller.update(&State { delay, waiting_ns: meter.waiting_ns(reading.time_ns), ..state(&reading) });
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
fn a_slower_flow_is_kept_busy_by_fewer_segments() {
    for (rate, most_ms) in [(2_000_000, 13.0), (4_000_000, 9.0)] {
        let mut sender = Sender::new(rate, 100);
        let (delay, lost) = run(&mut sender, &mut Lowat::new(25 * MS), 10);
        assert!(delay < most_ms, "{rate} bit/s: {delay} ms");
        assert_eq!(lost, 0.0, "{rate} bit/s");
    }
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
        set.extend(controller.update(&state(&reading)).notsent_lowat);
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
        set.push(controller.update(&state(&reading)).notsent_lowat);
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
fn large_writes_are_cut_into_whole_segments_of_half_the_limit() {
    let first = |rate_bits| {
        let reading = Sender::new(rate_bits, 0).reading(1);
        Lowat::new(25 * MS).update(&state(&reading))
    };
    let slow = first(10_000_000);
    assert_eq!((slow.notsent_lowat, slow.piece_bytes), (Some(4 * MSS), Some(2 * MSS)));
    // Half a millisecond is 12,500 bytes.
    let faster = first(200_000_000);
    assert_eq!((faster.notsent_lowat.map(|bytes| bytes / 100), faster.piece_bytes), (Some(125), Some(4 * MSS)));
    let fast = first(2_000_000_000);
    assert_eq!(fast.piece_bytes, Some(0), "the kernel's own pieces are shorter than the limit");
}

#[test]
fn a_setting_that_would_change_little_is_left() {
    let mut controller = Lowat::new(25 * MS);
    let sender = Sender::new(10_000_000, 0);
    let mut settings = 0;
    for look in 0..1000 {
        let reading = sender.reading(look * 10_000);
        settings += usize::from(controller.update(&state(&reading)).notsent_lowat.is_some());
    }
    assert_eq!(settings, 1);
}

const WINDOWS_BYTES: f64 = 2.1 * 100.0 * 1448.0;

/// Updates a controller at a time. Returns its setting.
fn element(controller: &mut Element, time_ms: u64, average_ms: f64, send_buffer: u32) -> Setting {
    let reading = Sender::new(10_000_000, 0).reading(time_ms * 1000);
    controller.update(&State { average_ns: Some(average_ms * MS as f64), send_buffer, ..state(&reading) })
}

#[test]
fn element_divides_its_target_by_a_power_of_the_ratio_of_delay_and_threshold() {
    let mut controller = Element::new(25 * MS, false);
    // It starts at the size of the send buffer; 16 times the threshold to the power of 1/4 is 2.
    let first = element(&mut controller, 1000, 400.0, 200_000);
    assert_eq!(first, Setting { hold_above: Some(100_000), ..Setting::default() });
    // It is updated when more than a round trip of 50 ms has passed.
    for time_ms in [1001, 1030, 1050] {
        assert_eq!(element(&mut controller, time_ms, 400.0, 200_000), Setting::default());
    }
    assert_eq!(element(&mut controller, 1051, 25.0, 200_000).hold_above, Some(100_000), "at the threshold");
    let third = element(&mut controller, 1102, 25.0 / 16.0, 200_000).hold_above;
    assert_eq!(third, Some(200_000));
    let last = element(&mut controller, 1153, 0.0, 200_000).hold_above;
    assert_eq!(last, Some(WINDOWS_BYTES as u64), "at most β congestion windows");
}

#[test]
fn element_knows_nothing_before_the_first_delay() {
    let mut controller = Element::new(25 * MS, false);
    let reading = Sender::new(10_000_000, 0).reading(1_000_000);
    assert_eq!(controller.update(&State { send_buffer: 200_000, ..state(&reading) }), Setting::default());
}

#[test]
fn element_sets_the_buffer_of_wireless_networks_to_its_target_times_gamma() {
    let mut controller = Element::new(25 * MS, true);
    assert_eq!(element(&mut controller, 1000, 400.0, 200_000).send_buffer, Some(110_000));
}

#[test]
fn element_sleeps_up_to_nine_times_and_longer_each_time() {
    let sleeps: Vec<f64> = (0..).map_while(Element::sleep_ns).map(|ns| ns as f64 / MS as f64).collect();
    // cnt runs to δ + 1.
    assert_eq!(sleeps.len(), 9);
    for (sleep, number) in sleeps.iter().zip(1..) {
        assert!((sleep - f64::from(number).powf(1.5)).abs() < 1e-3, "{number}: {sleep}");
    }
}

/// The state of a socket of which only the last poll is known.
fn state(reading: &Reading) -> State<'_> {
    State { reading, delay: None, waiting_ns: None, average_ns: None, send_buffer: 0 }
}

/// A controller that leaves the socket as it is.
struct Nothing;

impl Controller for Nothing {
    fn update(&mut self, _state: &State<'_>) -> Setting {
        Setting::default()
    }
}
