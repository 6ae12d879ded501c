//! The paper's estimate from modes of gaps.

use crate::{
    abi::dwell_epoch_mode,
    response::{Config, Epoch, Rto},
};

/// The least retransmission timeout of Linux.
const LEAST_RTO_NS: u64 = 200_000_000;

/// The result of an estimate from modes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FromModes {
    /// The mean duration of a batch, from its start to the start of the next one.
    pub response_ns: f64,
    /// The mean gap between batches.
    pub ibg_ns: f64,
    /// The number of batches.
    pub batches: u32,
}

/// Drops modes that are timeouts, takes the largest remaining mode as the gap between batches, and adds up the gaps of
/// a batch. `None` if no mode remains.
pub(crate) fn from_modes(config: &Config, epoch: &Epoch) -> Option<FromModes> {
    let modes = &epoch.mode[..usize::from(epoch.modes).min(epoch.mode.len())];
    let total: u64 = modes.iter().map(|mode| u64::from(mode.count)).sum();
    let kept = modes.iter().filter(|mode| !is_timeout(config, mode, total)).copied();
    let kept: Vec<dwell_epoch_mode> = kept.collect();
    let floor = (config.floor * total as f64).max(1.0);
    let largest = |needs_mark: bool| {
        kept.iter().rposition(|mode| f64::from(mode.count) >= floor && (!needs_mark || mode.marked == 1))
    };
    let ibg = if config.mark_small { largest(true).or_else(|| largest(false))? } else { largest(false)? };
    let batches = kept[ibg].count;
    let sum: u64 = kept[..=ibg].iter().map(|mode| mode.sum_ns).sum();
    Some(FromModes {
        response_ns: sum as f64 / f64::from(batches),
        ibg_ns: kept[ibg].sum_ns as f64 / f64::from(batches),
        batches,
    })
}

fn is_timeout(config: &Config, mode: &dwell_epoch_mode, total: u64) -> bool {
    match config.rto {
        Rto::From(rto_ns) => mode.min_ns >= rto_ns,
        Rto::Auto => mode.min_ns >= LEAST_RTO_NS && u64::from(mode.count) * 20 < total,
    }
}
