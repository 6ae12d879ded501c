//! Chooses how many connections of a server are heavy: as few as send a wanted part of its packets.

use super::{
    OutOfRange,
    range::in_range,
    zero_rtt::{HeavyConfig, MOST_HEAVY, heavy_of},
};
use crate::abi;

/// The window of a server's heavy hitters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeavyWindow {
    /// The packets of all connections; 0 until a whole interval has passed.
    pub packets: u64,
    /// The packets of each recorded connection, the heaviest first.
    pub of_heaviest: Vec<u32>,
}

impl HeavyWindow {
    /// Reads the window of a table of the core.
    pub fn of(table: &abi::dwell_heavy, config: HeavyConfig) -> HeavyWindow {
        let packets = u64::from(table.packets) + u64::from(config.interval);
        HeavyWindow {
            packets: if table.turned != 0 { packets } else { 0 },
            of_heaviest: heavy_of(table).iter().map(|heavy| heavy.packets).collect(),
        }
    }
}

/// Chooses how many of a server's connections are heavy.
#[derive(Debug, Clone, PartialEq)]
pub struct HeavyShare {
    wanted: f64,
    most: u32,
    top: u32,
    /// The part of all packets that the n + 1 heaviest connections of each server have sent, by n.
    captured: Option<[f64; MOST_HEAVY as usize]>,
}

/// The weight of a new observation in the moving average.
const SMOOTHING: f64 = 1.0 / 8.0;
/// The number is only reduced if fewer connections exceed the wanted part by this factor. Otherwise it would oscillate
/// if the wanted part lies between two numbers.
const TO_SPARE: f64 = 1.02;

impl HeavyShare {
    /// The least part that can be wanted.
    pub const LEAST: f64 = 0.0001;

    /// Makes as few connections of a server heavy as send this part of its packets ([`HeavyShare::LEAST`] to 1), and at
    /// most `most`.
    ///
    /// # Errors
    ///
    /// The first number that is out of its range.
    pub fn new(wanted: f64, most: u32) -> Result<HeavyShare, OutOfRange> {
        in_range("share", wanted, HeavyShare::LEAST, 1.0)?;
        in_range("most", most.into(), 1.0, MOST_HEAVY.into())?;
        Ok(HeavyShare { wanted, most, top: most, captured: None })
    }

    /// Returns the wanted part.
    pub fn wanted(&self) -> f64 {
        self.wanted
    }

    /// Returns how many connections are heavy: `most` until something is known.
    pub fn top(&self) -> u32 {
        self.top
    }

    /// Returns the part of all servers' packets that heavy connections send. It is an estimate that is at least the
    /// truth, because a connection that replaces another in a table inherits its count.
    pub fn captured(&self) -> Option<f64> {
        Some(self.captured?[self.top as usize - 1])
    }

    /// Updates the number from the windows of all servers, once per interval. Windows that are not full are ignored,
    /// and without any other the number stays.
    pub fn step(&mut self, windows: impl IntoIterator<Item = HeavyWindow>) -> u32 {
        let mut sums = [0u64; MOST_HEAVY as usize];
        let mut packets = 0;
        for window in windows.into_iter().filter(|window| window.packets > 0) {
            packets += window.packets;
            for (sum, of_one) in sums.iter_mut().zip(&window.of_heaviest) {
                *sum += u64::from(*of_one);
            }
        }
        if packets == 0 {
            return self.top;
        }
        let mut sum = 0;
        let current = sums.map(|of_rank| {
            sum += of_rank;
            (sum as f64 / packets as f64).min(1.0)
        });
        let known = self.captured.get_or_insert(current);
        for (known, current) in known.iter_mut().zip(current) {
            *known += (current - *known) * SMOOTHING;
        }
        let enough = self.least(self.wanted);
        self.top = match enough < self.top {
            true => self.least((self.wanted * TO_SPARE).min(1.0)).min(self.top),
            false => enough,
        };
        self.top
    }

    /// Returns the least number of connections that send this part, or `most`.
    fn least(&self, wanted: f64) -> u32 {
        let captured = self.captured.iter().flatten().take(self.most as usize);
        let fewer = captured.take_while(|part| **part < wanted).count() as u32;
        (fewer + 1).min(self.most)
    }
}
