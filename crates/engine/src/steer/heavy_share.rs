//! How many connections of a server are heavy: as few as send it a wanted part of its packets.

use super::{
    OutOfRange,
    range::in_range,
    zero_rtt::{HeavyConfig, MOST_HEAVY, heavy_of},
};
use crate::abi;

/// What the window of a server's heavy hitters shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeavyWindow {
    /// Of all connections; 0 until a whole interval was seen.
    pub packets: u64,
    /// Of each connection that is kept, the heaviest first.
    pub of_heaviest: Vec<u32>,
}

impl HeavyWindow {
    /// Of a table of the kernel's.
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
    /// Part of all packets that so many connections of each server, less one, have sent.
    captured: Option<[f64; MOST_HEAVY as usize]>,
}

/// The part of the way that what is known goes to what was seen, each time.
const SMOOTHING: f64 = 1.0 / 8.0;
/// Fewer are enough only if they have so much more than is wanted: else the number would change all the
/// time where the wanted part lies between two.
const TO_SPARE: f64 = 1.02;

impl HeavyShare {
    /// The least part that can be wanted.
    pub const LEAST: f64 = 0.0001;

    /// As few connections of a server as have this part of its packets ([`HeavyShare::LEAST`] to 1), and at most so
    /// many.
    ///
    /// # Errors
    ///
    /// The first number that is out of its range.
    pub fn new(wanted: f64, most: u32) -> Result<HeavyShare, OutOfRange> {
        in_range("share", wanted, HeavyShare::LEAST, 1.0)?;
        in_range("most", most.into(), 1.0, MOST_HEAVY.into())?;
        Ok(HeavyShare { wanted, most, top: most, captured: None })
    }

    /// The part that is wanted.
    pub fn wanted(&self) -> f64 {
        self.wanted
    }

    /// How many are heavy: all that may be, until something is known.
    pub fn top(&self) -> u32 {
        self.top
    }

    /// The part of all servers' packets that those have. It is an estimate, and no less than the truth:
    /// who takes another's place in a table is counted with it.
    pub fn captured(&self) -> Option<f64> {
        Some(self.captured?[self.top as usize - 1])
    }

    /// Looks at the windows of all servers; to be called each interval. A window that is not full tells
    /// nothing, and without any all stays as it is.
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
        let seen = sums.map(|of_rank| {
            sum += of_rank;
            (sum as f64 / packets as f64).min(1.0)
        });
        let known = self.captured.get_or_insert(seen);
        for (known, seen) in known.iter_mut().zip(seen) {
            *known += (seen - *known) * SMOOTHING;
        }
        let enough = self.least(self.wanted);
        self.top = match enough < self.top {
            true => self.least((self.wanted * TO_SPARE).min(1.0)).min(self.top),
            false => enough,
        };
        self.top
    }

    /// The least number that has this part, or the most that there may be.
    fn least(&self, wanted: f64) -> u32 {
        let captured = self.captured.iter().flatten().take(self.most as usize);
        let fewer = captured.take_while(|part| **part < wanted).count() as u32;
        (fewer + 1).min(self.most)
    }
}
