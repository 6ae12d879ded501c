//! Figures of a socket.

use std::time::Duration;

use dwell_engine::socket::{Account, Peaks, Reading, control::State};

/// Figures of a socket as of its last poll. `None` means unknown, or not known yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Info {
    /// Time of the last poll, on CLOCK_MONOTONIC.
    pub time: Option<Duration>,
    /// Time that the bytes which left most recently had waited in the send buffer.
    pub sender_delay: Option<Duration>,
    /// Time that the oldest byte in the send buffer has waited there so far.
    pub sender_waiting: Option<Duration>,
    /// Time that the bytes which were read most recently had waited in the receive buffer.
    pub receiver_delay: Option<Duration>,
    /// Mean deviation of the sender delay.
    pub jitter: Option<Duration>,
    /// Rate that the other end acknowledged, in bits per second, over about the last second.
    pub throughput_bps: Option<u64>,
    /// Rate that arrived in order, in bits per second, over about the last second.
    pub receive_throughput_bps: Option<u64>,
    /// Smoothed round-trip time.
    pub rtt: Option<Duration>,
    /// Minimum round-trip time.
    pub min_rtt: Option<Duration>,
    /// Congestion window, in segments.
    pub cwnd: Option<u32>,
    /// Slow-start threshold, in segments. `None` before the first loss.
    pub ssthresh: Option<u32>,
    /// Bytes that wait in the send buffer and have not left.
    pub notsent_bytes: Option<u32>,
    /// Number of retransmitted segments.
    pub retransmissions: Option<u32>,
}

impl Info {
    /// Converts the input of a controller; jitter and throughput are `None`.
    pub fn of_state(state: &State<'_>) -> Info {
        Info {
            sender_delay: state.delay.map(|delay| ns(delay.ns)),
            sender_waiting: state.waiting_ns.map(ns),
            ..Info::of_reading(state.reading)
        }
    }

    fn of(account: &Account) -> Info {
        let observed = &account.delays;
        Info {
            sender_delay: observed.sender.map(|delay| ns(delay.ns)),
            sender_waiting: account.waiting_ns.map(ns),
            receiver_delay: observed.receiver.map(|delay| ns(delay.ns)),
            ..Info::of_reading(&account.reading)
        }
    }

    fn of_reading(reading: &Reading) -> Info {
        let info = &reading.info;
        let us = |us: u32| Duration::from_micros(u64::from(us));
        Info {
            time: Some(ns(reading.time_ns)),
            rtt: (info.rtt_us > 0).then(|| us(info.rtt_us)),
            min_rtt: info.min_rtt_us.map(us),
            cwnd: Some(info.cwnd),
            ssthresh: Some(info.ssthresh).filter(|&segments| segments < 0x7fff_ffff),
            notsent_bytes: info.notsent_bytes,
            retransmissions: Some(info.retransmissions),
            ..Info::default()
        }
    }
}

/// Figures of a socket that need more than one poll.
#[derive(Debug, Default)]
pub(super) struct History {
    info: Info,
    /// Time of the poll that last saw bytes leave.
    left_ns: Option<u64>,
    mean_ns: Option<f64>,
    deviation_ns: f64,
    since: Option<WindowStart>,
}

/// Start of the window over which throughput is counted.
#[derive(Debug, Clone, Copy)]
struct WindowStart {
    time_ns: u64,
    acked_bytes: u64,
    received_bytes: u64,
}

/// Shortest window of a throughput.
const WINDOW_NS: u64 = 1_000_000_000;

impl History {
    pub(super) fn info(&self) -> Info {
        self.info
    }

    /// Returns the figures without delays of bytes that left before `time_ns`.
    pub(super) fn since(&self, time_ns: u64) -> Info {
        let is_since = self.left_ns >= Some(time_ns);
        Info {
            sender_delay: self.info.sender_delay.filter(|_| is_since),
            jitter: self.info.jitter.filter(|_| is_since),
            ..self.info
        }
    }

    /// Updates the figures after a poll.
    pub(super) fn update(&mut self, account: &Account) {
        if account.peaks.sender_ns.is_some() {
            self.left_ns = Some(account.reading.time_ns);
        }
        self.info = Info {
            jitter: self.jitter(account.peaks),
            throughput_bps: self.info.throughput_bps,
            receive_throughput_bps: self.info.receive_throughput_bps,
            ..Info::of(account)
        };
        let now = WindowStart {
            time_ns: account.reading.time_ns,
            acked_bytes: account.totals.acked_bytes,
            received_bytes: account.totals.received_bytes,
        };
        let since = *self.since.get_or_insert(now);
        let time_ns = now.time_ns.saturating_sub(since.time_ns);
        if time_ns < WINDOW_NS {
            return;
        }
        let bits = |from: u64, to: u64| {
            let bits = u128::from(to.saturating_sub(from)) * 8;
            (bits * 1_000_000_000 / u128::from(time_ns)) as u64
        };
        self.info.throughput_bps = Some(bits(since.acked_bytes, now.acked_bytes));
        self.info.receive_throughput_bps = Some(bits(since.received_bytes, now.received_bytes));
        self.since = Some(now);
    }

    /// Returns the mean deviation, computed as RFC 6298 does for round-trip times. `seen` are the delays of this poll.
    fn jitter(&mut self, seen: Peaks) -> Option<Duration> {
        let before = self.info.jitter;
        let Some(delay_ns) = seen.sender_ns.map(|delay_ns| delay_ns as f64) else {
            return before;
        };
        let Some(mean_ns) = self.mean_ns else {
            self.mean_ns = Some(delay_ns);
            return before;
        };
        self.deviation_ns += ((delay_ns - mean_ns).abs() - self.deviation_ns) / 4.0;
        self.mean_ns = Some(mean_ns + (delay_ns - mean_ns) / 8.0);
        Some(ns(self.deviation_ns as u64))
    }
}

fn ns(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}
