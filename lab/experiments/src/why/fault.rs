//! Faults whose cause is known: a network, an application, and the host at which a user would ask why.

use std::time::Duration;

use dwell_testbed::{BitsPerSecond, LinkPair, LinkSpec, Nanos, Probability, QueueLimit, Reorder, Topology};

/// A fault, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    Healthy,
    SlowApplication,
    SmallSendBuffer,
    ReceiverWindow,
    SlowReader,
    LocalQueue,
    PathQueue,
    Distance,
    Loss,
    SlowService,
    SlowAnswer,
    Disk,
    Starved,
    TailLoss,
    StalledPeer,
    Reordering,
    Nagle,
    SlowStart,
    SlowSetUp,
}

/// The half of the settings to which one belongs: thresholds are chosen on one half, and reported on the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Half {
    /// The settings on which thresholds were chosen.
    Tuning,
    /// The settings that thresholds have not seen.
    Reported,
}

/// What the application does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// The client writes as fast as it can. After each `bytes` it pauses.
    Send { bytes: usize, pause: Duration },
    /// The server writes this many bytes after each pause, without being asked again.
    Push { bytes: usize, pause: Duration },
    /// Requests of 100 bytes, one after the other. The server works on each, and the client pauses after each answer.
    Ask { work: Duration, pause: Duration },
    /// The same, but the server computes for as long, on one processor alone.
    Compute { work: Duration, pause: Duration },
    /// The same, but each request is written in two pieces, and TCP_NODELAY is not set.
    Pieces { pause: Duration },
    /// The same with requests of `bytes`.
    Burst { bytes: usize, work: Duration, pause: Duration },
    /// The same with a connection for each request.
    Connect { work: Duration, pause: Duration },
    /// The same, and the server asks a service at the client's host about each request, which works on it too.
    Proxy { work: Duration, behind: Duration, pause: Duration },
}

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    pub fault: Fault,
    /// A second fault at the same time.
    pub also: Option<Fault>,
    pub half: Half,
    /// The strength of the fault, in words.
    pub strength: String,
    pub topology: Topology,
    pub pattern: Pattern,
    /// SO_SNDBUF of the client.
    pub send_buffer: Option<usize>,
    /// SO_RCVBUF of the server.
    pub receive_buffer: Option<usize>,
    /// The pause of the server after each read of 4096 bytes.
    pub read_pause: Duration,
    /// How often the server writes what it has read to a file, and waits until the disk has it.
    pub syncs: usize,
    /// The server's host sends nothing any more from when dwell begins to look.
    pub is_cut: bool,
    /// The shortest look, in seconds.
    pub least_seconds: u64,
    /// Programs that compute on the processor of a server that computes.
    pub neighbours: usize,
    /// The client's own queueing discipline, in arguments of `tc qdisc`.
    pub qdisc: Option<String>,
    /// Whether dwell runs at the server; otherwise at the client.
    pub at_server: bool,
}

impl Fault {
    /// All faults, healthy ones first.
    pub const ALL: [Fault; 19] = [
        Fault::Healthy,
        Fault::SlowApplication,
        Fault::SmallSendBuffer,
        Fault::ReceiverWindow,
        Fault::SlowReader,
        Fault::LocalQueue,
        Fault::PathQueue,
        Fault::Distance,
        Fault::Loss,
        Fault::SlowService,
        Fault::SlowAnswer,
        Fault::Disk,
        Fault::Starved,
        Fault::TailLoss,
        Fault::StalledPeer,
        Fault::Reordering,
        Fault::Nagle,
        Fault::SlowStart,
        Fault::SlowSetUp,
    ];

    /// The name of the cause in `why.verdict`, or of the outcome without one.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Healthy => "healthy",
            Fault::SlowApplication => "slow-application",
            Fault::SmallSendBuffer => "small-send-buffer",
            Fault::ReceiverWindow => "receiver-window",
            Fault::SlowReader => "slow-reader",
            Fault::LocalQueue => "local-queue",
            Fault::PathQueue => "path-queue",
            Fault::Distance => "distance",
            Fault::Loss => "loss",
            Fault::SlowService => "slow-service",
            Fault::SlowAnswer => "slow-answer",
            Fault::Disk => "disk",
            Fault::Starved => "starved",
            Fault::TailLoss => "tail-loss",
            Fault::StalledPeer => "stalled-peer",
            Fault::Reordering => "reordering",
            Fault::Nagle => "nagle",
            Fault::SlowStart => "slow-start",
            Fault::SlowSetUp => "slow-set-up",
        }
    }

    /// The causes that a capture can name, which has neither programs nor the queues of devices: what is nearest to the
    /// fault, from either end's point of view.
    pub fn in_captures(self) -> &'static [Fault] {
        match self {
            Fault::SlowReader | Fault::Disk | Fault::ReceiverWindow => &[Fault::ReceiverWindow, Fault::SlowReader],
            Fault::SlowService | Fault::SlowAnswer | Fault::Starved => &[Fault::SlowService, Fault::SlowAnswer],
            Fault::LocalQueue | Fault::PathQueue => &[Fault::PathQueue, Fault::LocalQueue],
            Fault::Healthy => &[Fault::Healthy],
            Fault::SlowApplication => &[Fault::SlowApplication],
            Fault::SmallSendBuffer => &[Fault::SmallSendBuffer],
            Fault::Distance => &[Fault::Distance],
            Fault::Loss => &[Fault::Loss],
            Fault::TailLoss => &[Fault::TailLoss],
            Fault::StalledPeer => &[Fault::StalledPeer],
            Fault::Reordering => &[Fault::Reordering],
            Fault::Nagle => &[Fault::Nagle],
            Fault::SlowStart => &[Fault::SlowStart],
            Fault::SlowSetUp => &[Fault::SlowSetUp],
        }
    }

    /// A setting without any fault: a bulk transfer from the client over a path of 100 Mbit/s.
    pub(super) fn base(self, half: Half, strength: String) -> Setting {
        Setting {
            fault: self,
            also: None,
            half,
            strength,
            topology: path(if half == Half::Tuning { 10 } else { 16 }, 100, 200, 0.0),
            pattern: Pattern::Send { bytes: WRITE, pause: Duration::ZERO },
            send_buffer: None,
            receive_buffer: None,
            read_pause: Duration::ZERO,
            syncs: 0,
            is_cut: false,
            least_seconds: 1,
            neighbours: 0,
            qdisc: None,
            at_server: false,
        }
    }

    /// The settings of a half, in the order of their strength.
    pub fn settings(self, half: Half) -> Vec<Setting> {
        let is_tuning = half == Half::Tuning;
        let pick = |tuning: [u64; 3], reported: [u64; 3]| if is_tuning { tuning } else { reported };
        let base = |strength: String| self.base(half, strength);
        let ms = Duration::from_millis;
        let ask = |work, pause| Pattern::Ask { work: ms(work), pause: ms(pause) };
        match self {
            Fault::Healthy => {
                let rtt = if is_tuning { 2 } else { 4 };
                let near = || path(rtt, 1_000, 1_000, 0.0);
                vec![
                    Setting { topology: path(rtt, 100, 20, 0.0), ..base("bulk over a short queue".into()) },
                    Setting { topology: near(), pattern: ask(0, 0), ..base("requests, at the client".into()) },
                    Setting {
                        topology: near(),
                        pattern: ask(0, 20),
                        at_server: true,
                        ..base("requests with pauses, at the server".into())
                    },
                    Setting {
                        topology: near(),
                        pattern: Pattern::Send { bytes: 200, pause: ms(if is_tuning { 200 } else { 300 }) },
                        ..base("messages of 200 bytes, at the sender".into())
                    },
                    Setting {
                        topology: near(),
                        pattern: Pattern::Push { bytes: 500, pause: ms(if is_tuning { 150 } else { 400 }) },
                        at_server: true,
                        ..base("events of 500 bytes, at the server".into())
                    },
                ]
            }
            Fault::SlowApplication => pick([10, 40, 160], [20, 80, 320])
                .map(|pause| Setting {
                    pattern: Pattern::Send { bytes: WRITE, pause: ms(pause) },
                    ..base(format!("pauses of {pause} ms"))
                })
                .to_vec(),
            Fault::SmallSendBuffer => pick([32, 16, 8], [24, 12, 6])
                .map(|kib| Setting {
                    topology: path(if is_tuning { 50 } else { 60 }, 100, 200, 0.0),
                    send_buffer: Some(kib as usize * 1024),
                    ..base(format!("{kib} KiB"))
                })
                .to_vec(),
            Fault::ReceiverWindow => pick([32, 16, 8], [24, 12, 6])
                .map(|kib| Setting {
                    topology: path(if is_tuning { 50 } else { 60 }, 100, 200, 0.0),
                    receive_buffer: Some(kib as usize * 1024),
                    ..base(format!("{kib} KiB"))
                })
                .to_vec(),
            Fault::SlowReader => pick([2, 8, 32], [4, 16, 64])
                .map(|pause| Setting {
                    read_pause: ms(pause),
                    at_server: true,
                    ..base(format!("{pause} ms per 4 KiB"))
                })
                .to_vec(),
            Fault::LocalQueue => pick([60, 200, 600], [100, 300, 900])
                .map(|limit| Setting {
                    topology: path(if is_tuning { 4 } else { 8 }, 1_000, 1_000, 0.0),
                    qdisc: Some(format!("tbf rate 10mbit burst 20kb latency {limit}ms")),
                    ..base(format!("{limit} ms at 10 Mbit/s"))
                })
                .to_vec(),
            Fault::PathQueue => pick([60, 200, 600], [100, 300, 900])
                .map(|packets| Setting {
                    topology: path(if is_tuning { 10 } else { 16 }, 10, packets as usize, 0.0),
                    ..base(format!("{packets} packets at 10 Mbit/s"))
                })
                .to_vec(),
            Fault::Distance => pick([30, 80, 200], [50, 120, 300])
                .map(|rtt| Setting {
                    topology: path(rtt, 100, 200, 0.0),
                    pattern: ask(0, 0),
                    ..base(format!("{rtt} ms"))
                })
                .to_vec(),
            Fault::Loss => pick([10, 30, 80], [15, 40, 60])
                .map(|permille| Setting {
                    topology: path(if is_tuning { 20 } else { 30 }, 100, 200, permille as f64 / 1e3),
                    ..base(format!("{:.1} %", permille as f64 / 10.0))
                })
                .to_vec(),
            Fault::SlowService | Fault::SlowAnswer => pick([10, 40, 160], [20, 80, 320])
                .map(|work| Setting {
                    topology: path(if is_tuning { 2 } else { 4 }, 1_000, 1_000, 0.0),
                    pattern: ask(work, 10),
                    at_server: self == Fault::SlowService,
                    ..base(format!("{work} ms"))
                })
                .to_vec(),
            Fault::Disk => pick([1, 4, 16], [2, 8, 24])
                .map(|count| Setting {
                    syncs: count as usize,
                    at_server: true,
                    ..base(format!("{count} fsync per 4 KiB"))
                })
                .to_vec(),
            Fault::Starved => pick([2, 4, 8], [3, 6, 12])
                .map(|count| Setting {
                    topology: path(if is_tuning { 2 } else { 4 }, 1_000, 1_000, 0.0),
                    pattern: Pattern::Compute { work: ms(4), pause: ms(2) },
                    neighbours: count as usize,
                    at_server: true,
                    ..base(format!("{count} programs on the same processor"))
                })
                .to_vec(),
            Fault::TailLoss => pick([40, 80, 160], [60, 120, 200])
                .map(|permille| Setting {
                    topology: path(if is_tuning { 10 } else { 16 }, 100, 200, permille as f64 / 1e3),
                    pattern: ask(0, 5),
                    ..base(format!("{:.0} % of messages", permille as f64 / 10.0))
                })
                .to_vec(),
            Fault::StalledPeer => pick([10, 30, 60], [16, 40, 80])
                .map(|rtt| Setting {
                    topology: path(rtt, 100, 200, 0.0),
                    is_cut: true,
                    ..base(format!("cut off, {rtt} ms"))
                })
                .to_vec(),
            Fault::Reordering => pick([20, 50, 100], [30, 70, 150])
                .map(|permille| Setting {
                    topology: reordering(if is_tuning { 20 } else { 30 }, permille as f64 / 1e3),
                    ..base(format!("{:.0} % of packets, by 30 ms", permille as f64 / 10.0))
                })
                .to_vec(),
            Fault::Nagle => pick([2, 10, 20], [4, 14, 24])
                .map(|rtt| Setting {
                    topology: path(rtt, 1_000, 1_000, 0.0),
                    pattern: Pattern::Pieces { pause: ms(5) },
                    ..base(format!("requests in two writes, {rtt} ms"))
                })
                .to_vec(),
            Fault::SlowStart => pick([40, 80, 160], [60, 100, 200])
                .map(|rtt| Setting {
                    topology: path(rtt, 100, 1_000, 0.0),
                    pattern: Pattern::Burst { bytes: 1 << 20, work: Duration::ZERO, pause: ms(1_500) },
                    least_seconds: 8,
                    ..base(format!("1 MiB after 1.5 s each, {rtt} ms"))
                })
                .to_vec(),
            Fault::SlowSetUp => pick([100, 200, 300], [150, 250, 350])
                .map(|permille| Setting {
                    topology: path(if is_tuning { 20 } else { 26 }, 100, 200, permille as f64 / 1e3),
                    pattern: Pattern::Connect { work: Duration::ZERO, pause: ms(5) },
                    least_seconds: 6,
                    ..base(format!("{:.0} % of packets lost", permille as f64 / 10.0))
                })
                .to_vec(),
        }
    }
}

/// Bytes per write.
pub const WRITE: usize = 16 << 10;

/// A path from client to server: round trip, rate, the packets of its queue, and the share of packets that are lost
/// towards the server.
pub(super) fn path(rtt_ms: u64, megabits: u64, packets: usize, loss: f64) -> Topology {
    let one_way = Nanos::from_micros(rtt_ms * 500);
    let to_server = LinkSpec {
        rate_bits_per_second: BitsPerSecond::new(megabits * 1_000_000),
        queue: Some(QueueLimit::Packets(packets)),
        loss: Probability::new(loss).unwrap_or_default(),
        seed: 7,
        ..LinkSpec::delay(one_way)
    };
    Topology::Line {
        client: LinkPair { to_vantage: to_server, from_vantage: LinkSpec::delay(one_way) },
        server: LinkPair::default(),
    }
}

/// A path on which this share of packets is held for 30 ms, and overtaken.
fn reordering(rtt_ms: u64, share: f64) -> Topology {
    let one_way = Nanos::from_micros(rtt_ms * 500);
    let reorder =
        Reorder { probability: Probability::new(share).unwrap_or_default(), extra_ns: Nanos::from_micros(30_000) };
    let to_server = LinkSpec {
        rate_bits_per_second: BitsPerSecond::new(50_000_000),
        queue: Some(QueueLimit::Packets(400)),
        reorder: Some(reorder),
        seed: 7,
        ..LinkSpec::delay(one_way)
    };
    Topology::Line {
        client: LinkPair { to_vantage: to_server, from_vantage: LinkSpec::delay(one_way) },
        server: LinkPair::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_settings_in_each_half_and_none_is_in_both() {
        for fault in Fault::ALL {
            let [tuning, reported] = [Half::Tuning, Half::Reported].map(|half| fault.settings(half));
            let wanted = if fault == Fault::Healthy { 5 } else { 3 };
            assert_eq!((tuning.len(), reported.len()), (wanted, wanted), "{fault:?}");
            for setting in &tuning {
                let same = |other: &&Setting| Setting { half: Half::Tuning, ..(*other).clone() } == *setting;
                assert!(!reported.iter().any(|other| same(&other)), "{setting:?}");
            }
        }
    }
}
