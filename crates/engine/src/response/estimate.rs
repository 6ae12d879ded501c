//! From an epoch's record to an estimate, and how far to believe it.

use std::fmt;

use crate::{
    abi,
    response::{Config, Epoch, modes::from_modes, tracks},
};

/// Which responses an estimate is the mean of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// All that ended in the epoch.
    All,
    /// Those whose arrival triggers the next request.
    Causal,
}

impl Truth {
    /// Its name in output.
    pub fn name(self) -> &'static str {
        match self {
            Truth::All => "all",
            Truth::Causal => "causal",
        }
    }
}

/// How an estimate was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Modes of gaps (Algorithm 2 of the paper).
    Modes,
    /// A fixed threshold of gaps (Algorithm 1).
    Gap,
    /// The TCP handshake.
    SynAck,
    /// A threshold found in the logarithms of gaps.
    LogGap,
    /// From a request to the one sent for its response.
    Lag,
    /// Runs of ACK progress.
    AckRuns,
    /// The same where ACKs are told by their size.
    SizeRuns,
}

impl Method {
    /// Its name in output.
    pub fn name(self) -> &'static str {
        match self {
            Method::Modes => "modes",
            Method::Gap => "gap",
            Method::SynAck => "syn-ack",
            Method::LogGap => "log-gap",
            Method::Lag => "lag",
            Method::AckRuns => "ack-runs",
            Method::SizeRuns => "size-runs",
        }
    }

    /// Which responses its estimates are the mean of.
    pub fn truth(self) -> Truth {
        match self {
            Method::Lag | Method::AckRuns | Method::SizeRuns => Truth::All,
            Method::Modes | Method::Gap | Method::SynAck | Method::LogGap => Truth::Causal,
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why an estimate is not to be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Fewer responses or batches than a mean can be made of.
    TooFew,
    /// The client sends when it wants, not when a response comes.
    ThinkTime,
    /// Requests come like clockwork.
    TimerDriven,
    /// Full packets clocked by the ACKs of the other side.
    BulkUpload,
    /// The same without headers: the sender spaces its packets, or something does.
    Paced,
    /// Responses come in several pieces with pauses between.
    Staggered,
    /// Most ACKs are repeated: what they acknowledge tells of losses, not of ends.
    Lossy,
    /// Ends do not fit requests in either way: several things are under way, and
    /// nothing tells them apart.
    Multiplexed,
    /// More requests at once than are followed.
    TooDeep,
    /// Nothing of the above, but the confidence is too low.
    Unsure,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 10] = [
        Reason::TooFew,
        Reason::ThinkTime,
        Reason::TimerDriven,
        Reason::BulkUpload,
        Reason::Paced,
        Reason::Staggered,
        Reason::Lossy,
        Reason::Multiplexed,
        Reason::TooDeep,
        Reason::Unsure,
    ];

    /// In words, for output: programs read them, so that they stay.
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
            Reason::Unsure => "low confidence",
        }
    }
}

/// An estimate of one flow in one epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// How it was made.
    pub method: Method,
    /// Which responses it is the mean of.
    pub truth: Truth,
    /// The mean. None without any response; not to be used if there is a `reason`.
    pub response_ns: Option<u64>,
    /// The mean gap between batches, where there are batches.
    pub ibg_ns: Option<u64>,
    /// Responses or batches that the estimate is the mean of.
    pub batches: u64,
    /// 0 to 1: how well what was seen agrees with what the method assumes.
    pub confidence: f64,
    /// Why it is not valid.
    pub reason: Option<Reason>,
}

impl Estimate {
    /// Whether it may be believed.
    pub fn is_valid(&self) -> bool {
        self.response_ns.is_some() && self.reason.is_none()
    }

    pub(super) fn new(method: Method, mean: Option<tracks::Mean>, doubt: f64) -> Estimate {
        let batches = mean.map_or(0, |mean| mean.count);
        Estimate {
            method,
            truth: method.truth(),
            response_ns: mean.map(|mean| mean.ns.round() as u64),
            ibg_ns: None,
            batches: batches.into(),
            confidence: sureness(batches) * (1.0 - doubt.clamp(0.0, 1.0)),
            reason: (batches < LEAST_BATCHES).then_some(Reason::TooFew),
        }
    }
}

/// A mean of fewer is an anecdote.
const LEAST_BATCHES: u32 = 2;
/// Where only gaps tell, even one that is none shifts a mean of fewer.
const LEAST_GAPS: u64 = 4;
/// What is less sure than this has a reason.
const LEAST_CONFIDENCE: f64 = 0.6;
/// The same where only gaps, or one handshake, are seen.
const LEAST_BLIND: f64 = 0.25;
/// An upload has more packets of full size than this.
pub(super) const LEAST_FULL: u32 = 8;
/// Above this, the core saw a client that mostly waits after an ACK (0 to 63).
const WAITS: u8 = 31;

/// How much a count alone lets one believe.
fn sureness(count: u32) -> f64 {
    f64::from(count) / (f64::from(count) + 1.0)
}

/// Makes an estimate of an epoch's record.
pub fn estimate(config: &Config, epoch: &Epoch) -> Estimate {
    let made = match u32::from(epoch.estimator) {
        abi::DWELL_ESTIMATE_PIRATE => by_modes(config, epoch),
        abi::DWELL_ESTIMATE_GAP => by_threshold(epoch),
        abi::DWELL_ESTIMATE_SYN_ACK => by_handshake(epoch),
        _ => super::auto::by_what_it_shows(epoch),
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

/// What speaks against an estimate by gaps between packets. The figure is told as
/// the method makes it.
fn fault_of_gaps(epoch: &Epoch, made: &Estimate) -> Option<Reason> {
    if epoch.full >= LEAST_FULL && 4 * epoch.full > 3 * epoch.requests {
        return Some(Reason::BulkUpload);
    }
    (made.batches < LEAST_GAPS)
        .then_some(Reason::TooFew)
        .or((epoch.waits > WAITS).then_some(Reason::ThinkTime))
        .or(is_clockwork(epoch).then_some(Reason::TimerDriven))
}

/// Of at least eight gaps nearly all are of one length, within an octave, and few
/// ACKs tell of answers.
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

/// One sample is all there is of a connection.
fn by_handshake(epoch: &Epoch) -> Estimate {
    let mean = tracks::mean(epoch.handshake_ns, u32::from(epoch.handshake_ns > 0));
    Estimate { reason: mean.is_none().then_some(Reason::TooFew), ..Estimate::new(Method::SynAck, mean, 0.0) }
}
