//! Algorithm 3 of the paper (ELEMENT, EuroSys 2019).

use super::{Controller, Hold, Setting, State};

/// The parameters, with the paper's letters and with the paper's values as defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ElementConfig {
    /// D_thr: the target delay.
    pub threshold_ns: u64,
    /// Δ: the relative change of the target buffer size per step.
    pub step: f64,
    /// β: the greatest target buffer size, in congestion windows.
    pub windows: f64,
    /// γ: the size of the socket's buffer as a multiple of the target; only with `wireless`.
    pub buffer_factor: f64,
    /// δ: the greatest number of sleeps per call.
    pub sleeps: u8,
    /// λ: the ratio of the lengths of consecutive sleeps.
    pub sleep_factor: f64,
    /// Sets the socket's buffer as well, for networks with a highly variable rate.
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

/// Delays writing calls, by sleeping in them, while more bytes are unsent than its target.
#[derive(Debug, Clone)]
pub struct Element {
    config: ElementConfig,
    mean_ns: Option<f64>,
    aim_bytes: Option<f64>,
    next_ns: u64,
}

impl Element {
    /// Creates a controller for a socket without history.
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
