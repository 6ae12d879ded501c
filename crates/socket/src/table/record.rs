//! The encoding of an [`Account`] as words.

use std::net::{IpAddr, Ipv6Addr};

use dwell_engine::{
    layers::Ends,
    measure::Endpoint,
    socket::{Account, Delays, Estimator, Peaks, Reading, Sum, TcpInfo, Totals, Viewpoint, control::Setting},
};

/// Number of words of an account, with some room to spare.
pub(super) const WORDS: usize = 80;

/// A sink or a source of words.
pub(super) trait Words {
    /// Reads the next word into `word`, or writes it from there.
    fn next(&mut self, word: &mut u64);
}

/// Returns an account without any measurement.
pub(crate) fn blank() -> Account {
    let nobody = Endpoint { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), port: 0 };
    Account {
        cookie: 0,
        pid: None,
        fd: None,
        ends: Ends { src: nobody, dst: nobody },
        viewpoint: Viewpoint::Inside,
        estimator: Estimator::Exact,
        reading: Reading::default(),
        delays: Delays::default(),
        peaks: Peaks::default(),
        waiting_ns: None,
        totals: Totals::default(),
        setting: Setting::default(),
        ended: false,
    }
}

/// Transfers an account from or to `words`, in one order. Peaks and the end are not part of it.
pub(super) fn transfer(account: &mut Account, words: &mut impl Words) {
    field(words, &mut account.cookie);
    field(words, &mut account.pid);
    field(words, &mut account.fd);
    endpoint(words, &mut account.ends.src);
    endpoint(words, &mut account.ends.dst);
    field(words, &mut account.estimator);
    field(words, &mut account.waiting_ns);
    reading(words, &mut account.reading);
    delay(words, &mut account.delays.sender);
    delay(words, &mut account.delays.receiver);
    sum(words, &mut account.totals.sender);
    sum(words, &mut account.totals.receiver);
    field(words, &mut account.totals.written_bytes);
    field(words, &mut account.totals.acked_bytes);
    field(words, &mut account.totals.received_bytes);
    setting(words, &mut account.setting);
}

fn reading(words: &mut impl Words, reading: &mut Reading) {
    field(words, &mut reading.time_ns);
    field(words, &mut reading.unacknowledged);
    field(words, &mut reading.readable);
    info(words, &mut reading.info);
}

fn info(words: &mut impl Words, info: &mut TcpInfo) {
    field(words, &mut info.state);
    field(words, &mut info.app_limited);
    field(words, &mut info.send_mss);
    field(words, &mut info.receive_mss);
    field(words, &mut info.unacked);
    field(words, &mut info.rtt_us);
    field(words, &mut info.rtt_variation_us);
    field(words, &mut info.ssthresh);
    field(words, &mut info.cwnd);
    field(words, &mut info.retransmissions);
    field(words, &mut info.bytes_acked);
    field(words, &mut info.bytes_received);
    field(words, &mut info.segments_in);
    field(words, &mut info.notsent_bytes);
    field(words, &mut info.min_rtt_us);
    field(words, &mut info.data_segments_in);
    field(words, &mut info.delivery_rate);
    field(words, &mut info.receiver_limited_us);
    field(words, &mut info.buffer_limited_us);
    field(words, &mut info.bytes_sent);
    field(words, &mut info.bytes_retransmitted);
    field(words, &mut info.out_of_order);
}

fn delay(words: &mut impl Words, delay: &mut Option<dwell_engine::socket::Delay>) {
    let mut parts = delay.unwrap_or_default();
    let mut is_known = delay.is_some();
    field(words, &mut is_known);
    field(words, &mut parts.ns);
    field(words, &mut parts.least_ns);
    field(words, &mut parts.most_ns);
    field(words, &mut parts.bytes);
    *delay = is_known.then_some(parts);
}

fn sum(words: &mut impl Words, sum: &mut Sum) {
    field(words, &mut sum.samples);
    field(words, &mut sum.bytes);
    field(words, &mut sum.ns_bytes);
}

fn setting(words: &mut impl Words, setting: &mut Setting) {
    field(words, &mut setting.notsent_lowat);
    field(words, &mut setting.send_buffer);
    field(words, &mut setting.piece_bytes);
    field(words, &mut setting.hold_above);
}

fn endpoint(words: &mut impl Words, end: &mut Endpoint) {
    let bits = match end.address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    let mut high = (bits >> 64) as u64;
    let mut low = bits as u64;
    field(words, &mut high);
    field(words, &mut low);
    let v6 = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
    end.address = v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4);
    field(words, &mut end.port);
}

fn field<F: Field>(words: &mut impl Words, field: &mut F) {
    let mut word = field.word();
    words.next(&mut word);
    *field = F::from_word(word);
}

/// A value that fits a word. Every word decodes to some value, as the words of another process cannot be trusted.
trait Field {
    fn word(&self) -> u64;
    fn from_word(word: u64) -> Self;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Field for $number {
            fn word(&self) -> u64 {
                *self as u64
            }
            fn from_word(word: u64) -> $number {
                word as $number
            }
        }

        /// Encodes `None` as 0 and a number as itself plus one.
        impl Field for Option<$number> {
            fn word(&self) -> u64 {
                self.map_or(0, |number| (number as u64).wrapping_add(1))
            }
            fn from_word(word: u64) -> Option<$number> {
                (word != 0).then(|| word.wrapping_sub(1) as $number)
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64, i32);

impl Field for bool {
    fn word(&self) -> u64 {
        u64::from(*self)
    }
    fn from_word(word: u64) -> bool {
        word != 0
    }
}

impl Field for f64 {
    fn word(&self) -> u64 {
        self.to_bits()
    }
    fn from_word(word: u64) -> f64 {
        let number = f64::from_bits(word);
        if number.is_finite() { number } else { 0.0 }
    }
}

impl Field for Estimator {
    fn word(&self) -> u64 {
        *self as u64
    }
    fn from_word(word: u64) -> Estimator {
        if word == Estimator::Paper as u64 { Estimator::Paper } else { Estimator::Exact }
    }
}
