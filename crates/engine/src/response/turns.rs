//! Estimates of clients that have one request under way at a time, from the turns that the core recorded.

use crate::{
    abi,
    response::{
        Epoch,
        auto::{is_mostly_minor, part},
        config::RUN_GAP_NS,
        estimate::{Estimate, LEAST_FULL, Method, Reason},
        tracks,
    },
};

/// Requests in bursts are answered one by one if their answers come in this part of the runs that would need. Packets
/// of like size may be requests of their own; packets of different sizes are hardly more than one request.
const ALIKE: f64 = 0.25;
const UNLIKE: f64 = 0.9;
/// One request of two packets among this many turns does not show that packets are requests of their own.
const ONE_PAIR: u32 = 4;
/// Up to this part of those runs, the requests are certainly not answered one by one.
const ONE: f64 = 0.1;
/// A burst opened a window if one answer to it came before the next request, and none if all did: the bytes that came for
/// each request of the burst, relative to usual answers, below the first of these and above the second.
const ONE_ANSWERED: f64 = 0.6;
const ALL_ANSWERED: f64 = 0.85;
/// More than all of them: sizes differ too much to tell.
const TOO_MUCH: f64 = 1.25;
/// The part of turns that may show that several requests were under way.
const OVERLAPPING: f64 = 0.05;
/// The part of packets that may only manage the connection.
const FRAMES: f64 = 0.02;
/// The part of the sum of all answers that too long ones may have.
const UNSURE: f64 = 0.2;
/// By how much the mean may be off, as far as ends are unknown and the server's clock is coarse: a little less than a fifth.
pub(super) const UNKNOWN: f64 = 0.19;
/// What does not matter of that.
const SLIGHT: f64 = 0.02;
/// The doubt above which an estimate is not valid.
const COARSE: f64 = 0.4;
/// The error, in ticks of the server's clock, of an end that was computed from it, if it is the same for all ends of an
/// epoch; relative to the mean it is a doubt.
const TICK_ERROR: f64 = 0.6;
/// An end that is unknown by more than this multiple of what answers take at least is no slow answer of a client that reacts at
/// once to all others, as far as anyone knows.
const OUTLIER: f64 = 8.0;
/// A client reacts at once if at most this part of its requests comes after a pause.
const PAUSING: f64 = 0.1;
/// How far clocks of hosts may part, relative to the time since they were compared.
const DRIFT: f64 = 60e-6;
/// The most doubt that ends within a tick of the clock leave if none is later: a client may pause for less than that.
const MOST_CARRIED: f64 = 0.25;
/// The longest tick for less than which a client hardly pauses before each request.
const LONGEST_TICK_NS: u32 = 1_000_000;
/// Turns in a row in which both sides said no more than a request and an answer, of sides that did not speak unasked before.
const TAKES_TURNS: u8 = 3;
/// Turns in a row in which a side said no more, where the other one has spoken unasked.
const SPOKE: u8 = 12;
/// The most confidence until then.
const UNPROVED: f64 = 0.65;
/// Full packets for each request from which on a connection is an upload with messages in between.
const UPLOAD: u32 = 64;

/// Returns whether the client has one request under way at a time, as far as TCP's headers show.
pub(super) fn is_one_at_a_time(epoch: &Epoch) -> bool {
    let window = window(epoch);
    epoch.sizes_only == 0 && answers(epoch) > 0 && window == Window::None && !is_pipelined(epoch)
}

/// Returns the number of answers, with those that took too long for the mean.
fn answers(epoch: &Epoch) -> u32 {
    epoch.answered.saturating_add(epoch.overlong.into())
}

/// Returns whether all requests of which the outcome is known went unanswered.
pub(super) fn is_unanswered(epoch: &Epoch) -> bool {
    epoch.unanswered > 0 && answers(epoch) == 0
}

/// Whether a burst opened a window of requests that the client keeps full.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Window {
    None,
    Open,
    Unclear,
}

pub(super) fn window(epoch: &Epoch) -> Window {
    let answered = f64::from(epoch.window_bytes) / f64::from(epoch.usual_bytes).max(1.0);
    if epoch.window == 0 || epoch.usual_bytes == 0 || (ALL_ANSWERED..TOO_MUCH).contains(&answered) {
        Window::None
    } else if answered < ONE_ANSWERED {
        Window::Open
    } else {
        Window::Unclear
    }
}

/// Returns whether the packets of bursts were requests of their own: then they bring as many runs of progress.
fn is_pipelined(epoch: &Epoch) -> bool {
    let limit = if is_unlike(epoch) { UNLIKE } else { ALIKE };
    epoch.extra > 0
        && more_runs(epoch) > limit * f64::from(epoch.extra)
        && (epoch.text == 1 || epoch.extra > 1 || epoch.answered < ONE_PAIR)
}

/// Returns whether the packets of bursts are mostly of different sizes, as head and body of a request are.
pub(super) fn is_unlike(epoch: &Epoch) -> bool {
    2 * u32::from(epoch.alike) < u32::from(epoch.bursts)
}

/// Returns whether packets may be requests of their own or parts of one: each request came in several, none was seen alone, and
/// there are more runs than of answers to one request each.
pub(super) fn is_ambiguous(epoch: &Epoch) -> bool {
    epoch.text == 0 && epoch.usual_bytes == 0 && epoch.extra > 0 && more_runs(epoch) > ONE * f64::from(epoch.extra)
}

/// Returns the runs of progress of answers beyond the first of each.
fn more_runs(epoch: &Epoch) -> f64 {
    f64::from(epoch.runs.saturating_sub(epoch.answered))
}

/// Returns whether the packets of bursts may be requests of their own whose answers follow one another so soon that they
/// are one run of progress.
fn is_dense(epoch: &Epoch) -> bool {
    let (bursts, extra) = (u32::from(epoch.bursts).max(1), f64::from(epoch.extra));
    let apart_ns = mean_ns(epoch) / (1.0 + extra / f64::from(bursts));
    epoch.text == 0
        && 2 * u32::from(epoch.alike) >= bursts
        && share(epoch.alike, epoch) > OVERLAPPING
        && apart_ns < RUN_GAP_NS
}

/// Estimates from turns.
pub(super) fn estimate(epoch: &Epoch) -> Estimate {
    let made = Estimate::new(Method::Turns, mean(epoch), doubt(epoch));
    as_sides_take_turns(epoch, Estimate { reason: fault(epoch), ..made })
}

/// Returns an estimate with no more confidence than there may be that the sides take turns.
pub(super) fn as_sides_take_turns(epoch: &Epoch, made: Estimate) -> Estimate {
    let (asked, answered) = (epoch.whole & 15, epoch.whole >> 4);
    let client = u32::from(epoch.speaks) & abi::DWELL_SPEAKS_CLIENT != 0;
    let server = u32::from(epoch.speaks) & abi::DWELL_SPEAKS_SERVER != 0;
    let takes_turns = epoch.text == 1
        || match (client, server) {
            (false, false) => asked.min(answered) >= TAKES_TURNS,
            (true, false) => answered >= SPOKE,
            (false, true) => asked >= SPOKE,
            (true, true) => false,
        };
    let most = if takes_turns { 1.0 } else { UNPROVED };
    Estimate { confidence: made.confidence.min(most), ..made }
}

/// Returns the mean latency of the answers, at least 1 ns.
fn mean_ns(epoch: &Epoch) -> f64 {
    (epoch.answered_ns as f64 / f64::from(epoch.answered.max(1))).max(1.0)
}

/// Returns the tick of the server's clock relative to the mean.
fn ticks(epoch: &Epoch) -> f64 {
    f64::from(epoch.server_tick_ns) / mean_ns(epoch)
}

fn share(count: u16, epoch: &Epoch) -> f64 {
    part(count.into(), epoch.answered)
}

/// Returns by how much the answers may have ended sooner than counted, relative to how long they took: an ACK may have been
/// delayed. If the client sends at once after the ends that are known, it does so after the others, unless those that are
/// known because a request carried their ACK in time are most of them.
fn sooner(epoch: &Epoch) -> f64 {
    let shown = epoch.answered.saturating_sub(u32::from(epoch.unsure) + u32::from(epoch.carried));
    let is_guess = epoch.server_tick_ns > 0 && u32::from(epoch.unsure) > shown;
    let unknown_ns = epoch.unknown_ns.min(epoch.answered_ns) as f64;
    let others_ns = (epoch.answered_ns as f64 - unknown_ns) / f64::from(epoch.answered.max(1));
    let is_outlier = unknown_ns / f64::from(epoch.unsure.max(1)) > OUTLIER * others_ns;
    if epoch.unasked > 0 || pauses(epoch) || is_guess || is_outlier {
        unknown_ns / epoch.answered_ns.max(1) as f64
    } else {
        0.0
    }
}

/// Returns the mean that is off by the same factor from the least and from the most that it may be. Nothing is taken for unasked
/// only because it may be.
fn mean(epoch: &Epoch) -> Option<tracks::Mean> {
    let least = if is_unasked(epoch) { 1.0 } else { 1.0 - sooner(epoch) };
    tracks::mean(epoch.answered_ns, epoch.answered)
        .map(|mean| tracks::Mean { ns: mean.ns * 2.0 * least / (least + 1.0), ..mean })
}

/// Returns by how much that mean may be off.
fn unknown(epoch: &Epoch) -> f64 {
    let sooner = sooner(epoch);
    if is_unasked(epoch) { sooner / (1.0 - sooner).max(UNKNOWN) } else { sooner / (2.0 - sooner) }
}

/// Returns whether late ACKs, or sides that may speak unasked, leave the mean too open.
fn is_unknown(epoch: &Epoch) -> bool {
    unknown(epoch) > SLIGHT && unknown(epoch) + 2.0 * clock(epoch) > UNKNOWN
}

/// Returns whether late ACKs leave the mean too open.
pub(super) fn is_late(epoch: &Epoch) -> bool {
    is_unknown(epoch) && !is_unasked(epoch)
}

/// Returns whether the sides do not seem to take turns: at most requests or answers, one of them may have spoken unasked.
pub(super) fn is_talk(epoch: &Epoch) -> bool {
    2 * u32::from(epoch.unasked) > epoch.answered
}

/// Returns whether most of what is unknown may have been said unasked.
fn is_unasked(epoch: &Epoch) -> bool {
    epoch.unasked > 0 && 2 * u32::from(epoch.unasked) >= u32::from(epoch.unsure)
}

/// Returns the least part of the sum of all latencies that answers have which took too long for the mean.
fn overlong(epoch: &Epoch) -> f64 {
    let least_ns = f64::from(epoch.overlong) * epoch.idle_ns as f64;
    least_ns / (epoch.answered_ns as f64 + least_ns).max(1.0)
}

/// Returns whether the client often waits after an end that is known, also where only the server's clock shows it.
fn pauses(epoch: &Epoch) -> bool {
    let known = epoch.answered.saturating_sub(epoch.unsure.into());
    let moved = epoch.moved.saturating_sub(epoch.unsure).into();
    known < 4 || part(epoch.slow.max(moved), known) >= PAUSING
}

/// Returns the part of the mean that ends within a tick of the server's clock may add: a client that pauses may do so
/// for less than a tick too.
fn within_tick(epoch: &Epoch) -> f64 {
    let ticks = ticks(epoch);
    let carried = share(epoch.carried, epoch);
    if share(epoch.moved, epoch) > PAUSING || pauses(epoch) || epoch.server_tick_ns > LONGEST_TICK_NS {
        1.5 * ticks * carried
    } else {
        (1.5 * ticks.min(1.0) * carried).min(MOST_CARRIED)
    }
}

/// Returns the doubt that remains: 0 to 1.
fn doubt(epoch: &Epoch) -> f64 {
    clock(epoch) + other_doubt(epoch)
}

/// Returns the doubt that a clock leaves whose tick is long, compared with the mean.
fn clock(epoch: &Epoch) -> f64 {
    let drift = DRIFT * f64::from(epoch.anchor_age_ms) * 1e6 / mean_ns(epoch);
    share(epoch.moved, epoch) * (TICK_ERROR * ticks(epoch) + drift) + within_tick(epoch)
}

fn other_doubt(epoch: &Epoch) -> f64 {
    let early = if epoch.text == 1 { 0.0 } else { share(epoch.early_turns, epoch) };
    let overlap = early + share(epoch.loose, epoch);
    unknown(epoch) + overlong(epoch) + overlap + f64::from(epoch.reopened) / f64::from(epoch.answered + 1)
}

/// Returns whether several requests that can be read often have one end here.
fn is_joined(epoch: &Epoch) -> bool {
    epoch.text == 1 && share(epoch.bursts, epoch) > OVERLAPPING
}

fn fault(epoch: &Epoch) -> Option<Reason> {
    let packets = epoch.requests.max(epoch.answered);
    let overlaps = |count: u16| count > 2 && share(count, epoch) > OVERLAPPING;
    let frames = epoch.frames > 1 && part(epoch.frames.into(), packets) > FRAMES;
    if epoch.full >= LEAST_FULL && epoch.full > UPLOAD * epoch.answered && 2 * epoch.full > epoch.packets {
        Some(Reason::BulkUpload)
    } else if epoch.shared == 1
        || frames
        || (epoch.text == 0 && is_mostly_minor(epoch))
        || (epoch.text == 0 && overlaps(epoch.early_turns))
        || overlaps(epoch.loose)
        || is_talk(epoch)
        || is_dense(epoch)
        || is_joined(epoch)
    {
        Some(Reason::Multiplexed)
    } else if overlong(epoch) > UNSURE {
        Some(Reason::TooLong)
    } else if is_unknown(epoch) {
        Some(if is_unasked(epoch) { Reason::Multiplexed } else { Reason::DelayedAck })
    } else if clock(epoch) > COARSE && other_doubt(epoch) < COARSE {
        Some(Reason::CoarseClock)
    } else {
        None
    }
}
