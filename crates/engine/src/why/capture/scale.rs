//! The scale of windows where the handshake that states it was not captured: the least one with which the sender never
//! sent more than it was allowed to. A sender that fills that window again and again is limited by it.

/// The largest scale (RFC 7323).
const LARGEST: usize = 14;
/// A window of fewer segments may be filled by chance.
const MIN_SEGMENTS: u32 = 16;
/// A window that varies by this share and by as many segments, and is filled meanwhile, is not filled by chance: what is in flight
/// follows it, in whole segments.
const VARIES: f64 = 0.25;
const VARIES_SEGMENTS: u32 = 2;

/// What an acknowledgement offers: its number, and the window without scale.
pub(super) type Offer = (u32, u16);

/// What windows would be by each scale.
#[derive(Debug, Default)]
pub(super) struct Scales {
    /// The last offer that has passed.
    passed: Option<Offer>,
    /// The least possible scale.
    least: usize,
    /// For each scale the time in which the window had no room for a segment.
    limited_ns: [f64; LARGEST + 1],
    /// The smallest and the largest window while there was none with the least possible scale.
    range: Option<(u16, u16)>,
}

impl Scales {
    /// Takes an acknowledgement that passes.
    pub(super) fn pass(&mut self, offer: Offer) {
        self.passed = Some(offer);
    }

    /// Takes data up to a sequence number, which was sent within the window.
    pub(super) fn send(&mut self, end: u32) {
        let Some((number, window)) = self.passed.filter(|(_, window)| *window > 0) else {
            return;
        };
        let ahead = end.wrapping_sub(number);
        let is_sane = (ahead as i32) > 0 && u64::from(ahead) <= u64::from(window) << LARGEST;
        while is_sane && self.least < LARGEST && u64::from(ahead) > u64::from(window) << self.least {
            self.least += 1;
            self.range = None;
        }
    }

    /// Attributes time in which data up to `next` was in flight, and the sender knew this offer. A segment needs `room`. A
    /// message that fits into a window of hardly a segment says nothing, unless it fills that.
    pub(super) fn spend(&mut self, ns: u64, (number, window): Offer, next: u32, room: u32) {
        let (used, room) = (u64::from(next.wrapping_sub(number)), u64::from(room));
        let is_limited = |scale: usize| {
            let size = u64::from(window) << scale;
            size < used + room && (size >= 2 * room || size <= used)
        };
        for (scale, limited_ns) in self.limited_ns.iter_mut().enumerate() {
            if is_limited(scale) {
                *limited_ns += ns as f64;
            }
        }
        if is_limited(self.least) {
            let (low, high) = self.range.unwrap_or((window, window));
            self.range = Some((low.min(window), high.max(window)));
        }
    }

    /// Returns the time in which the peer's window limited the sender, if that can be told. `is_flat` says that neither the
    /// congestion window nor the sender itself was the limit.
    pub(super) fn limited_ns(&self, mss: u32, is_flat: bool) -> Option<f64> {
        let (low, high) = self.range?;
        let bytes = |window: u16| u64::from(window) << self.least;
        let is_large = bytes(high) >= u64::from(MIN_SEGMENTS * mss);
        let varies = f64::from(low) <= f64::from(high) * (1.0 - VARIES)
            && bytes(high) - bytes(low) >= u64::from(VARIES_SEGMENTS * mss);
        (is_large || varies || is_flat).then_some(self.limited_ns[self.least])
    }
}
