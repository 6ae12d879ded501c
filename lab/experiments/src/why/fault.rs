//! Faults whose cause is known, and the cause that `dwell why` should name for each.

macro_rules! faults {
    ($($fault:ident = $name:literal,)*) => {
        /// A fault, or none.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault {
            $($fault,)*
        }

        impl Fault {
            /// All faults, healthy ones first.
            pub const ALL: [Fault; [$($name),*].len()] = [$(Fault::$fault),*];

            /// The name of the fault, which is that of its cause in `why.verdict`, or of the outcome without one, where it is a
            /// cause of its own.
            pub fn name(self) -> &'static str {
                match self {
                    $(Fault::$fault => $name,)*
                }
            }
        }
    };
}

faults! {
    Healthy = "healthy",
    SlowApplication = "slow-application",
    SmallSendBuffer = "small-send-buffer",
    ReceiverWindow = "receiver-window",
    SlowReader = "slow-reader",
    LocalQueue = "local-queue",
    PathQueue = "path-queue",
    Distance = "distance",
    Loss = "loss",
    SlowService = "slow-service",
    SlowAnswer = "slow-answer",
    Disk = "disk",
    Starved = "starved",
    TailLoss = "tail-loss",
    StalledPeer = "stalled-peer",
    Reordering = "reordering",
    Nagle = "nagle",
    SlowStart = "slow-start",
    SlowSetUp = "slow-set-up",
    SlowNames = "slow-names",
    SlowTls = "slow-tls",
    CrossTraffic = "cross-traffic",
    RateLimit = "rate-limit",
    BusyService = "busy-service",
}

/// The series of settings to which one belongs: thresholds are chosen on one, and reported on the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Series {
    /// The settings on which thresholds were chosen.
    Tuning,
    /// The settings that thresholds have not seen, but for those that docs/method/why.md names.
    Reported,
    /// Settings between these two, on which nothing was chosen or fixed.
    Fresh,
}

impl Series {
    /// A figure of this series. The fresh ones are the geometric means of the others.
    pub fn pick(self, tuning: u64, reported: u64) -> u64 {
        match self {
            Series::Tuning => tuning,
            Series::Reported => reported,
            Series::Fresh => ((tuning * reported) as f64).sqrt().round() as u64,
        }
    }
}

impl Fault {
    /// The fault whose cause a user needs to hear, because what helps is the same:
    ///
    /// - A handshake of TLS that takes long is part of opening a connection: fewer connections and resumed sessions help.
    /// - What fills a queue on the path does not matter to who waits in it.
    /// - A policer, which drops what exceeds a rate and has no queue, is a path that loses packets. That a queue is full would
    ///   be wrong: round trips stay as short as they are.
    /// - Requests that wait until a worker is free wait for the service.
    pub fn cause(self) -> Fault {
        match self {
            Fault::SlowTls => Fault::SlowSetUp,
            Fault::CrossTraffic => Fault::PathQueue,
            Fault::RateLimit => Fault::Loss,
            Fault::BusyService => Fault::SlowService,
            own => own,
        }
    }

    /// The causes that a capture can name, which has neither programs nor the queues of devices: what is nearest to the
    /// fault, from either end's point of view.
    pub fn in_captures(self) -> &'static [Fault] {
        match self {
            Fault::SlowReader | Fault::Disk | Fault::ReceiverWindow => &[Fault::ReceiverWindow, Fault::SlowReader],
            Fault::SlowService | Fault::SlowAnswer | Fault::Starved | Fault::BusyService => {
                &[Fault::SlowService, Fault::SlowAnswer]
            }
            Fault::LocalQueue | Fault::PathQueue | Fault::CrossTraffic => &[Fault::PathQueue, Fault::LocalQueue],
            Fault::Healthy => &[Fault::Healthy],
            Fault::SlowApplication => &[Fault::SlowApplication],
            Fault::SmallSendBuffer => &[Fault::SmallSendBuffer],
            Fault::Distance => &[Fault::Distance],
            Fault::Loss | Fault::RateLimit => &[Fault::Loss],
            Fault::TailLoss => &[Fault::TailLoss],
            Fault::StalledPeer => &[Fault::StalledPeer],
            Fault::Reordering => &[Fault::Reordering],
            Fault::Nagle => &[Fault::Nagle],
            Fault::SlowStart => &[Fault::SlowStart],
            Fault::SlowSetUp | Fault::SlowTls => &[Fault::SlowSetUp],
            Fault::SlowNames => &[Fault::SlowNames],
        }
    }
}
