//! Turns the record of an epoch into an estimate with a confidence.

use std::fmt;

use crate::{
    abi,
    response::{Config, Epoch, modes::from_modes, tracks},
};

/// The responses over which an estimate is the mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// All responses that ended in the epoch.
    All,
    /// The responses whose arrival triggered the next request.
    Causal,
}

impl Truth {
    /// Both kinds of truth.
    pub const ALL: [Truth; 2] = [Truth::All, Truth::Causal];

    /// Returns the name in output.
    pub fn name(self) -> &'static str {
        match self {
            Truth::All => "all",
            Truth::Causal => "causal",
        }
    }
}

/// The method of an estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// Modes of gaps (Algorithm 2 of the paper).
    Modes,
    /// A fixed threshold of gaps (Algorithm 1).
    Gap,
    /// The TCP handshake.
    SynAck,
    /// A threshold in the logarithms of gaps.
    LogGap,
    /// From a request to the one sent for its response.
    Lag,
    /// Turns of a client with one request under way at a time.
    Turns,
    /// Runs of ACK progress.
    AckRuns,
    /// Runs of ACK progress, where ACKs are recognized by their size.
    SizeRuns,
}

impl Method {
    /// All methods.
    pub const ALL: [Method; 8] = [
        Method::Modes,
        Method::Gap,
        Method::SynAck,
        Method::LogGap,
        Method::Lag,
        Method::Turns,
        Method::AckRuns,
        Method::SizeRuns,
    ];

    /// Returns the name in output.
    pub fn name(self) -> &'static str {
        match self {
            Method::Modes => "modes",
            Method::Gap => "gap",
            Method::SynAck => "syn-ack",
            Method::LogGap => "log-gap",
            Method::Lag => "lag",
            Method::Turns => "turns",
            Method::AckRuns => "ack-runs",
            Method::SizeRuns => "size-runs",
        }
    }

    /// Returns the responses over which estimates of this method are the mean.
    pub fn truth(self) -> Truth {
        match self {
            Method::Turns | Method::Lag | Method::AckRuns | Method::SizeRuns => Truth::All,
            Method::Modes | Method::Gap | Method::SynAck | Method::LogGap => Truth::Causal,
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The reason why an estimate is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Too few responses or batches for a mean.
    TooFew,
    /// The client sends at its own pace, and not when a response comes.
    ThinkTime,
    /// Requests come at regular times.
    TimerDriven,
    /// Full packets clocked by the ACKs of the other side.
    BulkUpload,
    /// An upload without visible headers: the sender paces its packets, or something on the path does.
    Paced,
    /// Responses come in several pieces with pauses in between.
    Staggered,
    /// Most ACKs are repeated: they indicate losses and not ends of responses.
    Lossy,
    /// Ends do not match requests under any method: several exchanges overlap, and cannot be separated.
    Multiplexed,
    /// More concurrent requests than are followed.
    TooDeep,
    /// ACKs that may have been delayed or carried by the next request hide when answers ended, and there are no TCP
    /// timestamps that would show it.
    DelayedAck,
    /// The connections of all requests ended without an answer.
    Unanswered,
    /// Answers that took longer than the idle gap, and are not in the mean, would make up much of it.
    TooLong,
    /// The answers are so short, compared with a tick of the server's clock, that delayed ACKs hide how short: the mean is
    /// right to within about a tick, but not to within a part of itself.
    CoarseClock,
    /// No specific reason, but the confidence is too low.
    Unsure,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; 14] = [
        Reason::TooFew,
        Reason::ThinkTime,
        Reason::TimerDriven,
        Reason::BulkUpload,
        Reason::Paced,
        Reason::Staggered,
        Reason::Lossy,
        Reason::Multiplexed,
        Reason::TooDeep,
        Reason::DelayedAck,
        Reason::Unanswered,
        Reason::TooLong,
        Reason::CoarseClock,
        Reason::Unsure,
    ];

    /// Returns the name in output, in words. Programs read it, so it must not change.
    pub fn name(self) -> &'static str {
        match self {
            Reason::TooFew => "too few",
            Reason::ThinkTime => "think time",
            Reason::TimerDriven => "timer driven",
            Reason::BulkUpload => "bulk upload",
            Reason::Paced => "paced",
            Reason::Staggered => "staggered",
            Reason::Lossy => "lossy",
            Reason::Multiplexed => "multiplexed",
            Reason::TooDeep => "too many outstanding",
            Reason::DelayedAck => "delayed ACK",
            Reason::Unanswered => "unanswered",
            Reason::TooLong => "too long",
            Reason::CoarseClock => "coarse clock",
            Reason::Unsure => "low confidence",
        }
    }
}

/// An estimate of one flow in one epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The method.
    pub method: Method,
    /// The responses over which it is the mean.
    pub truth: Truth,
    /// The mean. `None` without any response; not to be used if there is a `reason`.
    pub response_ns: Option<u64>,
    /// The mean gap between batches, if there are batches.
    pub ibg_ns: Option<u64>,
    /// The number of responses or batches over which the estimate is the mean.
    pub batches: u64,
    /// How well the observations agree with the assumptions of the method, 0 to 1.
    pub confidence: f64,
    /// The reason why it is not valid, if it is not.
    pub reason: Option<Reason>,
}

impl Estimate {
    /// Returns whether the estimate is valid.
    pub fn is_valid(&self) -> bool {
        self.response_ns.is_some() && self.reason.is_none()
    }

    pub(super) fn new(method: Method, mean: Option<tracks::Mean>, doubt: f64) -> Estimate {
        let least = if method == Method::Turns { 1 } else { LEAST_BATCHES };
        let batches = mean.map_or(0, |mean| mean.count);
        Estimate {
            method,
            truth: method.truth(),
            response_ns: mean.map(|mean| mean.ns.round() as u64),
            ibg_ns: None,
            batches: batches.into(),
            confidence: confidence_of(method, batches) * (1.0 - doubt.clamp(0.0, 1.0)),
            reason: (batches < least).then_some(Reason::TooFew),
        }
    }
}

/// The least number of batches for a mean.
const LEAST_BATCHES: u32 = 2;
/// The least number of gaps where only gaps are seen: one false gap distorts a mean of fewer.
const LEAST_GAPS: u64 = 4;
/// An estimate with less confidence than this gets a reason.
const LEAST_CONFIDENCE: f64 = 0.6;
/// The least confidence where only gaps, or one handshake, are seen.
const LEAST_BLIND: f64 = 0.25;
/// An upload has at least this number of full-size packets.
pub(super) const LEAST_FULL: u32 = 8;
/// Above this value (0 to 63), the core saw a client that mostly waits after an ACK.
const WAITS: u8 = 31;

/// Returns the confidence that the number of values alone permits. A turn is measured by itself; other methods infer
/// from several.
fn confidence_of(method: Method, count: u32) -> f64 {
    let needed = if method == Method::Turns { 0.2 } else { 1.0 };
    f64::from(count) / (f64::from(count) + needed)
}

/// Estimates the response latency from the record of an epoch.
pub fn estimate(config: &Config, epoch: &Epoch) -> Estimate {
    let made = match u32::from(epoch.estimator) {
        abi::DWELL_ESTIMATE_PIRATE => by_modes(config, epoch),
        abi::DWELL_ESTIMATE_GAP => by_threshold(epoch),
        abi::DWELL_ESTIMATE_SYN_ACK => by_handshake(epoch),
        _ => super::auto::select(epoch),
    };
    let floor = match made.method {
        Method::LogGap | Method::SynAck => LEAST_BLIND,
        _ => LEAST_CONFIDENCE,
    };
    let unsure = made.confidence < floor;
    Estimate { reason: made.reason.or(unsure.then_some(Reason::Unsure)), ..made }
}

fn by_modes(config: &Config, epoch: &Epoch) -> Estimate {
    let found = from_modes(config, epoch);
    let mean = found.map(|found| tracks::Mean { ns: found.response_ns, count: found.batches });
    let seen = f64::from(epoch.gaps + epoch.discarded).max(1.0);
    let made = Estimate::new(Method::Modes, mean, f64::from(epoch.discarded) / seen);
    Estimate { ibg_ns: found.map(|found| found.ibg_ns.round() as u64), reason: fault_of_gaps(epoch, &made), ..made }
}

fn by_threshold(epoch: &Epoch) -> Estimate {
    let made = Estimate::new(Method::Gap, tracks::mean(epoch.gaps_ns, epoch.gaps), 0.0);
    Estimate { reason: fault_of_gaps(epoch, &made), ..made }
}

/// Returns the reason against an estimate from gaps between packets, if any. The estimate itself is unchanged.
fn fault_of_gaps(epoch: &Epoch, made: &Estimate) -> Option<Reason> {
    if epoch.full >= LEAST_FULL && 4 * epoch.full > 3 * epoch.requests {
        return Some(Reason::BulkUpload);
    }
    (made.batches < LEAST_GAPS)
        .then_some(Reason::TooFew)
        .or((epoch.waits > WAITS).then_some(Reason::ThinkTime))
        .or(is_clockwork(epoch).then_some(Reason::TimerDriven))
}

/// Returns whether nearly all of at least eight gaps have the same length, within an octave, and few ACKs indicate
/// responses.
fn is_clockwork(epoch: &Epoch) -> bool {
    let is_narrow = |mode: &abi::dwell_epoch_mode| mode.max_ns <= 2 * mode.min_ns;
    let acks = epoch.packets.saturating_sub(epoch.requests);
    let most = match u32::from(epoch.estimator) {
        abi::DWELL_ESTIMATE_GAP => epoch.gaps * u32::from(epoch.narrow),
        _ => {
            let narrow = epoch.mode.iter().filter(|mode| is_narrow(mode));
            narrow.map(|mode| mode.count).max().unwrap_or(0)
        }
    };
    epoch.gaps >= 8 && 20 * most > 19 * epoch.gaps && 2 * acks < epoch.requests
}

/// Estimates from the handshake: one sample per connection.
fn by_handshake(epoch: &Epoch) -> Estimate {
    let mean = tracks::mean(epoch.handshake_ns, u32::from(epoch.handshake_ns > 0));
    Estimate { reason: mean.is_none().then_some(Reason::TooFew), ..Estimate::new(Method::SynAck, mean, 0.0) }
}
