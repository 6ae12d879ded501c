//! The estimator `auto`: selects an estimate by what the flow shows.

use crate::response::{
    Epoch,
    config::RUN_GAP_NS,
    estimate::{Estimate, LEAST_FULL, Method, Reason},
    tracks,
    turns::{self, UNKNOWN, Window},
};

/// A client keeps its window full if this number of consecutive requests are alone in a packet, each after the end of a
/// response,
const ALONE: u32 = 32;
/// and if it waits for no more than this part of the time.
const PROMPT: f64 = 0.05;
/// A client that waits for this multiple of the response latency before most of its requests hides the ends of
/// responses.
const THINKING: f64 = 4.0;

/// The doubt that remains if only the alternation of client and server shows that one request is in progress at a time.
const UNPROVED: f64 = 0.3;

/// The size of a packet with several requests, headers included, relative to a packet with one.
const JOINED: f64 = 1.4;

/// The part of ends that may be unseen where ends follow one another closely.
const UNSEEN: f64 = 0.02;

/// Two means that are no further apart than by this factor agree.
const AGREE: f64 = 1.2;

/// The part of ends that may be guessed where they are a witness.
const GUESSED: f64 = 0.2;

/// The part of ends that are not seen, from which on requests may not be answered, if the sides do not take turns.
const TALKING: f64 = 0.1;

/// For how long an ACK of QUIC may wait, unless its client has said otherwise where nobody can read it (RFC 9000, section 18.2).
const QUIC_ACK_DELAY_NS: f64 = 25e6;

/// Fewer runs do not show by themselves that they are answers.
const FEW_RUNS: u64 = 16;

/// At most one in this number of requests may be followed by progress at once.
const SOON: u32 = 10;

/// Estimates from gaps alone need at least this number of gaps.
const LEAST_GAPS: u32 = 8;
/// The approximate number of consecutive packets at one pace that reveals a timer.
const STEADY: u8 = 16;

/// Returns the estimate of an epoch that `auto` recorded.
pub(super) fn select(epoch: &Epoch) -> Estimate {
    if turns::is_one_at_a_time(epoch) {
        let made = turns::estimate(epoch);
        return Estimate { reason: made.reason.or(disagrees(epoch)), ..made };
    }
    if turns::is_unanswered(epoch) {
        let reason = upload(epoch).or(Some(Reason::Unanswered));
        return Estimate { reason, ..Estimate::new(Method::Turns, None, 1.0) };
    }
    let chosen = if is_blind(epoch) {
        by_gaps(epoch)
    } else if keeps_window_full(epoch) {
        by_lag(epoch)
    } else if is_single_file(epoch) {
        by_single_file(epoch)
    } else {
        by_runs(epoch)
    };
    Estimate {
        reason: (epoch.shared == 1)
            .then_some(Reason::Multiplexed)
            .or_else(|| upload(epoch))
            .or_else(|| too_deep(epoch))
            .or_else(|| timer(epoch))
            .or(chosen.reason)
            .or_else(|| turns::is_unlike(epoch).then(|| disagrees(epoch)).flatten())
            .or_else(|| fault(epoch))
            .or_else(|| (turns::is_ambiguous(epoch) && turns::is_late(epoch)).then_some(Reason::DelayedAck)),
        ..chosen
    }
}

/// Returns a reason if packets may be requests or parts of them, and it matters which.
fn disagrees(epoch: &Epoch) -> Option<Reason> {
    let ns = |mean: Option<tracks::Mean>| mean.map_or(f64::INFINITY, |mean| mean.ns);
    let (whole, parts) = (ns(tracks::mean(epoch.answered_ns, epoch.answered)), ns(tracks::all(epoch)));
    let agree = whole.max(parts) <= AGREE * whole.min(parts);
    let guessed = part(epoch.missed, epoch.requests) > GUESSED;
    (turns::is_ambiguous(epoch) && (guessed || !agree)).then_some(Reason::Multiplexed)
}

pub(super) fn part(count: u32, of: u32) -> f64 {
    f64::from(count) / f64::from(of.max(1))
}

/// Returns whether each end was only inferred from the request that followed it, so that nothing is known about ends.
fn is_blind(epoch: &Epoch) -> bool {
    epoch.sizes_only == 1 && epoch.hidden + epoch.missed >= epoch.all
}

fn keeps_window_full(epoch: &Epoch) -> bool {
    turns::window(epoch) == Window::Open
        && epoch.depth > 1
        && epoch.streak >= ALONE
        && (epoch.think_ns as f64) < PROMPT * epoch.gaps_ns as f64
}

/// Returns whether, without visible headers, one request is in progress at a time and its response comes in pieces:
/// there are more ends than requests, requests come one by one, and progress does not follow them at once.
fn is_single_file(epoch: &Epoch) -> bool {
    epoch.sizes_only == 1
        && epoch.depth == 1
        && epoch.surplus > 0
        && epoch.turns == epoch.requests
        && SOON * epoch.soon <= epoch.requests
        && epoch.gaps >= LEAST_GAPS
}

/// Estimates from turns: the last progress before a request ended the response to the previous one.
fn by_single_file(epoch: &Epoch) -> Estimate {
    Estimate::new(Method::SizeRuns, tracks::turns(epoch), UNPROVED)
}

fn by_lag(epoch: &Epoch) -> Estimate {
    let bursts = 1.0 - part(epoch.turns, epoch.requests);
    Estimate::new(Method::Lag, tracks::lag(epoch), bursts)
}

/// Estimates from runs of progress. Ends that were only inferred from the next request count if the client reacts at
/// once to the ends that were seen.
fn by_runs(epoch: &Epoch) -> Estimate {
    let method = if epoch.sizes_only == 1 { Method::SizeRuns } else { Method::AckRuns };
    let thinks = waits(epoch) > 0.1;
    let mean = if thinks { tracks::seen(epoch) } else { tracks::all(epoch) };
    let unsure = if thinks { part(epoch.hidden, epoch.all) } else { 0.0 };
    let doubt =
        part(epoch.surplus, epoch.requests) + unsure / 2.0 + guessed(epoch) + part(epoch.minor, epoch.requests) / 4.0;
    let made = Estimate::new(method, mean, doubt);
    let few = method == Method::AckRuns && made.batches < FEW_RUNS;
    let made = if few { turns::as_sides_take_turns(epoch, made) } else { made };
    let late = (method == Method::SizeRuns && late_by(epoch) > UNKNOWN).then_some(Reason::DelayedAck);
    Estimate { reason: is_dense(epoch).then_some(Reason::Multiplexed).or(late).or(made.reason), ..made }
}

/// Returns by how much the mean of a QUIC connection may be off, as ACKs of single packets may wait.
fn late_by(epoch: &Epoch) -> f64 {
    let sooner = (f64::from(epoch.carried) * QUIC_ACK_DELAY_NS / epoch.all_ns.max(1) as f64).min(1.0);
    sooner / (2.0 - sooner)
}

/// Returns whether several requests are under way and ends follow one another so soon that progress of two answers looks
/// like that of one: by the time between requests, or of a full window's answers. If ends were not seen, half as soon is
/// enough.
fn is_dense(epoch: &Epoch) -> bool {
    let requests_ns = tracks::mean(epoch.gaps_ns, epoch.gaps).map_or(f64::INFINITY, |gap| gap.ns);
    let answers_ns = tracks::all(epoch).map_or(f64::INFINITY, |all| all.ns / f64::from(epoch.depth.max(1)));
    let unseen = epoch.missed + epoch.requests.saturating_sub(epoch.all);
    let soon = if part(unseen, epoch.requests) > UNSEEN { 2.0 } else { 1.0 };
    epoch.depth > 1 && requests_ns.min(answers_ns / soon) < RUN_GAP_NS
}

/// Returns the part of ends that were not seen. They count half if a client waits for a whole batch, because then all
/// of it has clearly ended, but not when.
fn guessed(epoch: &Epoch) -> f64 {
    let by_batches = u64::from(epoch.turns) * u64::from(epoch.depth);
    let guessed = part(epoch.missed.saturating_sub(epoch.plain), epoch.requests);
    if 2 * by_batches < 3 * u64::from(epoch.requests) { guessed / 2.0 } else { guessed }
}

/// Estimates from gaps alone, with half the confidence of the other methods.
fn by_gaps(epoch: &Epoch) -> Estimate {
    let Some((mean, near)) = tracks::log_gap(epoch) else {
        return Estimate::new(Method::LogGap, None, 1.0);
    };
    let made = Estimate::new(Method::LogGap, Some(mean), 0.5 + near / 2.0);
    let few = mean.count < LEAST_GAPS;
    Estimate { reason: made.reason.or(few.then_some(Reason::TooFew)), ..made }
}

/// Returns the number of turns after an end that was seen.
fn seen_turns(epoch: &Epoch) -> u32 {
    epoch.turns.saturating_sub(epoch.hidden)
}

/// Returns how long the client waits after an end that was seen, in multiples of the response latency.
fn waits(epoch: &Epoch) -> f64 {
    let wait_ns = epoch.think_ns as f64 / f64::from(seen_turns(epoch).max(1));
    tracks::seen(epoch).map_or(0.0, |seen| wait_ns / seen.ns.max(1.0))
}

/// Returns the reason if most packets continue a write and are not requests.
fn upload(epoch: &Epoch) -> Option<Reason> {
    let is_upload = epoch.full >= LEAST_FULL && epoch.full > 3 * epoch.requests && 2 * epoch.full > epoch.packets;
    is_upload.then_some(if epoch.sizes_only == 1 { Reason::Paced } else { Reason::BulkUpload })
}

/// Returns the reason if there are more concurrent requests than can be followed.
fn too_deep(epoch: &Epoch) -> Option<Reason> {
    (epoch.deep == 1 && !is_blind(epoch)).then_some(Reason::TooDeep)
}

/// Returns the reason if packets come at a constant pace over several epochs.
fn timer(epoch: &Epoch) -> Option<Reason> {
    (epoch.sizes_only == 1 && epoch.steady >= STEADY).then_some(Reason::TimerDriven)
}

/// Returns any other reason against an estimate.
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
    if is_mixed(epoch) || is_joined(epoch) || is_talk(epoch) {
        return Some(Reason::Multiplexed);
    }
    let unclear = epoch.extra == 0 && turns::window(epoch) == Window::Unclear;
    (unclear || is_greeted(epoch)).then_some(Reason::Unsure)
}

/// Returns whether the largest request could contain several of the smallest, where nothing shows the content of a
/// packet.
fn is_joined(epoch: &Epoch) -> bool {
    epoch.sizes_only == 1 && epoch.smallest > 0 && f64::from(epoch.largest) > JOINED * f64::from(epoch.smallest)
}

/// Returns whether ends came before their requests, or most requests may not be requests.
fn is_mixed(epoch: &Epoch) -> bool {
    (epoch.early > 1 && part(epoch.early, epoch.requests) > 0.05) || is_mostly_minor(epoch)
}

/// Returns whether most requests are far smaller than others and may not be requests.
pub(super) fn is_mostly_minor(epoch: &Epoch) -> bool {
    epoch.minor >= 8 && 4 * epoch.minor > 3 * epoch.requests
}

/// Returns whether the sides do not take turns, and the client mostly speaks neither at once after an answer nor often for
/// one of its own.
fn is_talk(epoch: &Epoch) -> bool {
    turns::is_talk(epoch) && 2 * epoch.slow > seen_turns(epoch) && part(epoch.missed, epoch.requests) > TALKING
}

/// Returns whether a flow started with two or three packets and continued one by one: the first packets may have been
/// requests, or a greeting and one request.
fn is_greeted(epoch: &Epoch) -> bool {
    epoch.once == 1 && (2..4).contains(&epoch.depth) && epoch.streak >= ALONE
}
