//! Picks an estimate by what the flow shows.

use crate::response::{
    Epoch,
    estimate::{Estimate, LEAST_FULL, Method, Reason},
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

/// What is left in doubt where nothing but the turns of client and server tells
/// that one request is under way.
const UNPROVED: f64 = 0.3;

/// How much larger than one request a packet with several is, headers and all.
const JOINED: f64 = 1.4;

/// Of so many requests, at most one may be followed by progress at once.
const SOON: u32 = 10;

/// Gaps alone are not to be believed if there are fewer.
const LEAST_GAPS: u32 = 8;
/// How many packets in a row, about, come at one pace if a timer sends them.
const STEADY: u8 = 16;

/// The estimate of an epoch that `auto` recorded.
pub(super) fn by_what_it_shows(epoch: &Epoch) -> Estimate {
    let chosen = if is_blind(epoch) {
        by_gaps(epoch)
    } else if keeps_window_full(epoch) {
        by_lag(epoch)
    } else if is_single_file(epoch) {
        by_turns(epoch)
    } else {
        by_runs(epoch)
    };
    Estimate {
        reason: upload(epoch)
            .or_else(|| too_deep(epoch))
            .or_else(|| timer(epoch))
            .or(chosen.reason)
            .or_else(|| fault(epoch)),
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
    epoch.depth > 1 && epoch.streak >= ALONE && (epoch.think_ns as f64) < PROMPT * epoch.gaps_ns as f64
}

/// Without headers, ends more than requests, which come one by one, and progress
/// lets wait for itself after them: one request is under way at a time, and its
/// response comes in pieces.
fn is_single_file(epoch: &Epoch) -> bool {
    epoch.sizes_only == 1
        && epoch.depth == 1
        && epoch.surplus > 0
        && epoch.turns == epoch.requests
        && SOON * epoch.soon <= epoch.requests
        && epoch.gaps >= LEAST_GAPS
}

/// The last progress before a request ended the response to the one before.
fn by_turns(epoch: &Epoch) -> Estimate {
    Estimate::new(Method::SizeRuns, tracks::turns(epoch), UNPROVED)
}

fn by_lag(epoch: &Epoch) -> Estimate {
    let bursts = 1.0 - part(epoch.turns, epoch.requests);
    Estimate::new(Method::Lag, tracks::lag(epoch), bursts)
}

/// Ends that only a request told of count if the client answers at once to those
/// that were seen.
fn by_runs(epoch: &Epoch) -> Estimate {
    let method = if epoch.sizes_only == 1 { Method::SizeRuns } else { Method::AckRuns };
    let thinks = waits(epoch) > 0.1;
    let mean = if thinks { tracks::seen(epoch) } else { tracks::all(epoch) };
    let unsure = if thinks { part(epoch.hidden, epoch.all) } else { 0.0 };
    let doubt =
        part(epoch.surplus, epoch.requests) + unsure / 2.0 + guessed(epoch) + part(epoch.minor, epoch.requests) / 4.0;
    Estimate::new(method, mean, doubt)
}

/// The part of ends that were not seen. They do not count where a client waits
/// for a whole batch: then it is plain that all of it has ended.
fn guessed(epoch: &Epoch) -> f64 {
    let by_batches = u64::from(epoch.turns) * u64::from(epoch.depth);
    if 2 * by_batches < 3 * u64::from(epoch.requests) {
        return 0.0;
    }
    part(epoch.missed.saturating_sub(epoch.plain), epoch.requests)
}

/// Nothing but gaps: half the confidence of what has more to go by.
fn by_gaps(epoch: &Epoch) -> Estimate {
    let Some((mean, near)) = tracks::log_gap(epoch) else {
        return Estimate::new(Method::LogGap, None, 1.0);
    };
    let made = Estimate::new(Method::LogGap, Some(mean), 0.5 + near / 2.0);
    let few = mean.count < LEAST_GAPS;
    Estimate { reason: made.reason.or(few.then_some(Reason::TooFew)), ..made }
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

/// Packets that a write goes on with, not requests, are most of what was sent.
fn upload(epoch: &Epoch) -> Option<Reason> {
    let is_upload = epoch.full >= LEAST_FULL && epoch.full > 3 * epoch.requests && 2 * epoch.full > epoch.packets;
    is_upload.then_some(if epoch.sizes_only == 1 { Reason::Paced } else { Reason::BulkUpload })
}

/// More requests than can be followed.
fn too_deep(epoch: &Epoch) -> Option<Reason> {
    (epoch.deep == 1 && !is_blind(epoch)).then_some(Reason::TooDeep)
}

/// Packets come at one pace, over epochs.
fn timer(epoch: &Epoch) -> Option<Reason> {
    (epoch.sizes_only == 1 && epoch.steady >= STEADY).then_some(Reason::TimerDriven)
}

/// What else speaks against any estimate.
fn fault(epoch: &Epoch) -> Option<Reason> {
    let blind = epoch.sizes_only == 1;
    let surplus = match is_single_file(epoch) {
        true => 0.0, // the ends in between were of pieces
        false => part(epoch.surplus, epoch.requests),
    };
    if waits(epoch) > THINKING && 2 * epoch.slow > seen_turns(epoch) {
        return Some(Reason::ThinkTime);
    }
    if 2 * epoch.repeats > epoch.packets {
        return Some(Reason::Lossy);
    }
    if surplus > if blind { 0.1 } else { 0.3 } {
        let mixed = blind && part(epoch.missed, epoch.requests) > 0.1;
        return Some(if mixed { Reason::Multiplexed } else { Reason::Staggered });
    }
    if is_mixed(epoch) || is_joined(epoch) {
        return Some(Reason::Multiplexed);
    }
    is_greeted(epoch).then_some(Reason::Unsure)
}

/// Requests of which the largest could hold several of the smallest: where nothing
/// shows what is in a packet, it may.
fn is_joined(epoch: &Epoch) -> bool {
    epoch.sizes_only == 1 && epoch.smallest > 0 && f64::from(epoch.largest) > JOINED * f64::from(epoch.smallest)
}

/// Ends came before their requests, or most requests are far smaller than others
/// and may be none.
fn is_mixed(epoch: &Epoch) -> bool {
    let early = epoch.early > 1 && part(epoch.early, epoch.requests) > 0.05;
    early || (epoch.minor >= 8 && 4 * epoch.minor > 3 * epoch.requests)
}

/// Of two or three packets at the begin of a flow, and then one after the other,
/// nothing tells whether the first were requests, or a greeting and one request.
fn is_greeted(epoch: &Epoch) -> bool {
    epoch.once == 1 && (2..4).contains(&epoch.depth) && epoch.streak >= ALONE
}
