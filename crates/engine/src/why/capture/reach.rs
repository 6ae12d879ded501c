//! How far the ends of a connection are from the place of the capture.

use crate::rtt::native::Segment;

/// What has shown a way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShownBy {
    /// A packet of a transfer or of TCP's handshake, which waited for nobody.
    Prompt,
    /// A packet without data, which the receiver may have delayed.
    Bare,
    /// One with data, which may have waited for its application.
    Data,
}

impl ShownBy {
    pub(super) fn of(segment: &Segment, is_transfer: bool) -> ShownBy {
        match (segment.payload_bytes, is_transfer) {
            (_, true) => ShownBy::Prompt,
            (0, false) => ShownBy::Bare,
            (_, false) => ShownBy::Data,
        }
    }
}

/// The way from the place of the capture to an end and back.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reach {
    base_ns: Option<u64>,
    smoothed_ns: f64,
    /// Whether something has shown it that waited for nobody.
    pub(super) is_prompt: bool,
    /// The shortest that a packet without data has shown, or one that waited for nobody. It may have been delayed, but not for
    /// longer than receivers delay acknowledgements.
    pub(super) bare_ns: Option<u64>,
}

impl Reach {
    pub(super) fn add(&mut self, sample_ns: u64, smooths: bool, shown_by: ShownBy) {
        self.is_prompt |= shown_by == ShownBy::Prompt;
        if shown_by != ShownBy::Data {
            self.bare_ns = Some(self.bare_ns.map_or(sample_ns, |bare| bare.min(sample_ns)));
        }
        self.base_ns = Some(self.base_ns.map_or(sample_ns, |base| base.min(sample_ns)));
        if smooths {
            let sample = sample_ns as f64;
            self.smoothed_ns = match self.smoothed_ns > 0.0 {
                true => self.smoothed_ns + (sample - self.smoothed_ns) / 8.0,
                false => sample,
            };
        }
    }

    pub(super) fn base(&self) -> u64 {
        self.base_ns.unwrap_or(0)
    }

    pub(super) fn current(&self) -> u64 {
        (self.smoothed_ns as u64).max(self.base())
    }

    /// Returns the least that the way can take, where data may have waited for its application.
    pub(super) fn least(&self) -> u64 {
        /// Receivers delay an acknowledgement by 40 to 50 ms.
        const DELAYED_NS: u64 = 50_000_000;
        self.bare_ns.unwrap_or(self.base()).saturating_sub(DELAYED_NS).min(self.base())
    }
}
