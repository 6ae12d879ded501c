//! Algorithm 3 of the paper (ELEMENT, EuroSys 2019), with the paper's parameters.

use super::{Controller, Setting, State};

/// β: the greatest target of unsent bytes, in congestion windows.
const WINDOWS: f64 = 2.1;
/// γ: the size of the socket's buffer as a multiple of the target, on wireless networks.
const BUFFER_FACTOR: f64 = 1.1;
/// δ: once a writing call has slept more often than this, it returns.
const SLEEPS: u32 = 8;
const NS_PER_MS: f64 = 1e6;

/// Delays writing calls, by sleeping in them, while more bytes are unsent than its target.
#[derive(Debug, Clone)]
pub struct Element {
    /// D_thr.
    threshold_ns: f64,
    wireless: bool,
    /// S_target: the target of unsent bytes; 0 at the start.
    target_bytes: f64,
    /// T_last: when the target was calculated.
    last_ns: u64,
}

impl Element {
    /// Creates a controller for a socket without history. `threshold_ns` is the target delay D_thr; with `wireless` it
    /// sets the size of the send buffer too, as the paper has it for LTE and Wi-Fi.
    pub fn new(threshold_ns: u64, wireless: bool) -> Element {
        Element { threshold_ns: threshold_ns as f64, wireless, target_bytes: 0.0, last_ns: 0 }
    }

    /// Returns how long a writing call sleeps that has slept `count` times and still finds more unsent bytes than the
    /// target: n^λ milliseconds for the n-th sleep, with λ = 1.5. `None` once it is to return.
    pub fn sleep_ns(count: u32) -> Option<u64> {
        if count > SLEEPS {
            return None;
        }
        let number = f64::from(count + 1);
        Some((number * number.sqrt() * NS_PER_MS) as u64)
    }
}

impl Controller for Element {
    fn update(&mut self, state: &State<'_>) -> Setting {
        let info = &state.reading.info;
        let rtt_ns = u64::from(info.rtt_us) * 1000;
        let is_due = state.reading.time_ns.saturating_sub(self.last_ns) > rtt_ns;
        let (Some(average_ns), true) = (state.average_ns, is_due) else {
            return Setting::default();
        };
        self.last_ns = state.reading.time_ns;
        let before = if self.target_bytes > 0.0 { self.target_bytes } else { state.send_buffer.into() };
        // Δ is a quarter, so the power is two square roots: libdwell does without the mathematical library.
        let ratio = (average_ns / self.threshold_ns).sqrt().sqrt();
        let most = WINDOWS * f64::from(info.cwnd) * f64::from(info.send_mss);
        // Without any delay the ratio is 0, and the target is the greatest.
        let target = (before / ratio).min(most);
        self.target_bytes = target;
        Setting {
            send_buffer: self.wireless.then_some((BUFFER_FACTOR * target) as u32),
            hold_above: Some(target as u64),
            ..Setting::default()
        }
    }
}
