//! Algorithm 3 of the paper (ELEMENT, EuroSys 2019).

use super::{Controller, Hold, Setting, State};

/// Its parameters, by the paper's letters, with the paper's values as defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ElementConfig {
    /// D_thr: the delay that is aimed at.
    pub threshold_ns: u64,
    /// Δ: by what part the aim of the buffer changes at a time.
    pub step: f64,
    /// β: the aim of the buffer is at most so many congestion windows.
    pub windows: f64,
    /// γ: the socket's buffer is so many times the aim; only with `wireless`.
    pub buffer_factor: f64,
    /// δ: a call sleeps at most so often.
    pub sleeps: u8,
    /// λ: each sleep is so many times as long as the one before.
    pub sleep_factor: f64,
    /// Sets the socket's buffer too, for networks whose rate changes a lot.
    pub wireless: bool,
}

impl Default for ElementConfig {
    fn default() -> ElementConfig {
        ElementConfig {
            threshold_ns: 25_000_000,
            step: 0.25,
            windows: 2.1,
            buffer_factor: 1.1,
            sleeps: 8,
            sleep_factor: 1.5,
            wireless: false,
        }
    }
}

/// Holds calls that write, by sleeping in them, while more is unsent than its aim.
#[derive(Debug, Clone)]
pub struct Element {
    config: ElementConfig,
    mean_ns: Option<f64>,
    aim_bytes: Option<f64>,
    next_ns: u64,
}

impl Element {
    /// For a socket of which nothing is known yet.
    pub fn new(config: ElementConfig) -> Element {
        Element { config, mean_ns: None, aim_bytes: None, next_ns: 0 }
    }
}

impl Controller for Element {
    fn update(&mut self, state: &State<'_>) -> Setting {
        let info = &state.reading.info;
        if let Some(delay) = state.delay {
            let now = delay.ns as f64;
            self.mean_ns = Some(self.mean_ns.map_or(now, |mean| mean + (now - mean) / 8.0));
        }
        let Some(mean) = self.mean_ns else {
            return Setting::default();
        };
        if state.reading.time_ns < self.next_ns {
            return Setting::default();
        }
        self.next_ns = state.reading.time_ns.saturating_add(u64::from(info.rtt_us) * 1000);
        let segment = f64::from(info.send_mss.max(1));
        let most = self.config.windows * f64::from(info.cwnd.max(1)) * segment;
        let aim = self.aim_bytes.unwrap_or(most);
        let changed = if mean > self.config.threshold_ns as f64 {
            aim * (1.0 - self.config.step)
        } else {
            aim * (1.0 + self.config.step)
        };
        let aim = changed.min(most).max(2.0 * segment);
        self.aim_bytes = Some(aim);
        Setting {
            notsent_lowat: None,
            send_buffer: self.config.wireless.then_some((self.config.buffer_factor * (most + aim)) as u32),
            hold_above: Some(Hold {
                unsent_bytes: aim as u64,
                times: self.config.sleeps,
                factor_permille: (self.config.sleep_factor * 1000.0) as u32,
            }),
        }
    }
}
