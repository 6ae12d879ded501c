//! Picks an estimate by what the flow shows.

use crate::response::{
    Epoch,
    estimate::{Estimate, Method, Reason},
    tracks,
};

/// A client keeps its window full if so many requests in a row come alone, each
/// after an end.
const ALONE: u32 = 32;
/// And if it sends within this part of the time.
const PROMPT: f64 = 0.05;
/// A client that waits for this many times the response latency before it sends
/// after most of them hides their ends.
const THINKING: f64 = 4.0;

/// The estimate of an epoch that `auto` recorded.
pub(super) fn by_what_it_shows(epoch: &Epoch) -> Estimate {
    let chosen = if is_blind(epoch) {
        by_gaps(epoch)
    } else if keeps_window_full(epoch) {
        by_lag(epoch)
    } else {
        by_runs(epoch)
    };
    Estimate {
        causal_ns: chosen.causal_ns.or_else(|| causal_ns(epoch)),
        reason: fault(epoch).or(chosen.reason),
        ..chosen
    }
}

fn part(count: u32, of: u32) -> f64 {
    f64::from(count) / f64::from(of.max(1))
}

/// No end was seen but by the request that followed it: nothing tells of them.
fn is_blind(epoch: &Epoch) -> bool {
    epoch.sizes_only == 1 && epoch.hidden + epoch.missed >= epoch.all
}

fn keeps_window_full(epoch: &Epoch) -> bool {
    epoch.depth > 1
        && epoch.streak >= ALONE
        && (epoch.think_ns as f64) < PROMPT * epoch.gaps_ns as f64
}

fn by_lag(epoch: &Epoch) -> Estimate {
    let bursts = 1.0 - part(epoch.turns, epoch.requests);
    Estimate::new(Method::Lag, tracks::lag(epoch), bursts)
}

/// Ends that only a request told of count if the client answers at once to those
/// that were seen.
fn by_runs(epoch: &Epoch) -> Estimate {
    let method = if epoch.sizes_only == 1 {
        Method::SizeRuns
    } else {
        Method::AckRuns
    };
    let thinks = waits(epoch) > 0.1;
    let mean = if thinks {
        tracks::seen(epoch)
    } else {
        tracks::all(epoch)
    };
    let unsure = if thinks {
        part(epoch.hidden, epoch.all)
    } else {
        0.0
    };
    let doubt = part(epoch.surplus, epoch.requests) + unsure / 2.0 + guessed(epoch);
    Estimate::new(method, mean, doubt)
}

/// The part of ends that were not seen. They do not count where a client waits
/// for a whole batch: then it is plain that all of it has ended.
fn guessed(epoch: &Epoch) -> f64 {
    let by_batches = u64::from(epoch.turns) * u64::from(epoch.depth);
    if 2 * by_batches < 3 * u64::from(epoch.requests) {
        return 0.0;
    }
    part(epoch.missed, epoch.requests)
}

/// Nothing but gaps: half the confidence of what has more to go by.
fn by_gaps(epoch: &Epoch) -> Estimate {
    match tracks::log_gap(epoch) {
        Some((mean, near)) => Estimate::new(Method::LogGap, Some(mean), 0.5 + near / 2.0),
        None => Estimate::new(Method::LogGap, None, 1.0),
    }
}

/// Turns after an end that was seen.
fn seen_turns(epoch: &Epoch) -> u32 {
    epoch.turns.saturating_sub(epoch.hidden)
}

/// How long the client waits after an end that was seen, in response latencies.
fn waits(epoch: &Epoch) -> f64 {
    let wait_ns = epoch.think_ns as f64 / f64::from(seen_turns(epoch).max(1));
    tracks::seen(epoch).map_or(0.0, |seen| wait_ns / seen.ns.max(1.0))
}

fn causal_ns(epoch: &Epoch) -> Option<u64> {
    tracks::causal(epoch).map(|mean| mean.ns.round() as u64)
}

/// What speaks against any estimate.
fn fault(epoch: &Epoch) -> Option<Reason> {
    let blind = epoch.sizes_only == 1;
    let surplus = part(epoch.surplus, epoch.requests);
    if epoch.full > 3 * epoch.requests.max(1) && 2 * epoch.full > epoch.packets {
        return Some(if blind {
            Reason::Paced
        } else {
            Reason::BulkUpload
        });
    }
    if waits(epoch) > THINKING && 2 * epoch.slow > seen_turns(epoch) {
        return Some(Reason::ThinkTime);
    }
    if 2 * epoch.repeats > epoch.packets {
        return Some(Reason::Lossy);
    }
    if surplus > if blind { 0.1 } else { 0.3 } {
        let mixed = blind && part(epoch.missed, epoch.requests) > 0.1;
        return Some(if mixed {
            Reason::Multiplexed
        } else {
            Reason::Staggered
        });
    }
    (is_blind(epoch) && is_clockwork(epoch)).then_some(Reason::TimerDriven)
}

/// Of at least eight gaps nearly all are of one length, within half an octave.
fn is_clockwork(epoch: &Epoch) -> bool {
    let most = epoch.gap_log.iter().copied().max().unwrap_or(0);
    epoch.gaps >= 8 && part(u32::from(most), epoch.gaps) > 0.95
}
