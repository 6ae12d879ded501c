//! One run: a network, an application, and the host at which a user would ask why.

use std::time::Duration;

use dwell_testbed::{BitsPerSecond, LinkPair, LinkSpec, Nanos, Probability, QueueLimit, Reorder, Topology};

use super::fault::{Fault, Series};

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
    /// The same by programs that look a name up before each connection, and the name server answers so late.
    Names { late: Duration },
    /// The same with a connection of TLS for each request, and the server takes so long to find its certificate.
    Secure { late: Duration, pause: Duration },
    /// The same by several clients, each with its connection, of a server that serves one request at a time.
    Crowd { clients: usize, work: Duration, pause: Duration },
    /// The same, and the server asks a service at the client's host about each request, which works on it too.
    Proxy { work: Duration, behind: Duration, pause: Duration },
}

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    pub fault: Fault,
    /// A second fault at the same time.
    pub also: Option<Fault>,
    pub series: Series,
    /// The strength of the fault, in words.
    pub strength: String,
    /// Whether it is the weakest strength of a fault.
    pub is_weakest: bool,
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
    /// The token bucket through which all must pass on its way to the server, in arguments of `tc qdisc`.
    pub policer: Option<String>,
    /// Other transfers on the path: how long they send, and how long they rest.
    pub others: Option<(Duration, Duration)>,
    /// Whether dwell runs at the server; otherwise at the client.
    pub at_server: bool,
}

impl Fault {
    /// A setting without any fault: a bulk transfer from the client over a path of 100 Mbit/s.
    pub(super) fn base(self, series: Series, strength: String) -> Setting {
        Setting {
            fault: self,
            also: None,
            series,
            strength,
            is_weakest: false,
            topology: path(series.pick(10, 16), 100, 200, 0.0),
            pattern: Pattern::Send { bytes: WRITE, pause: Duration::ZERO },
            send_buffer: None,
            receive_buffer: None,
            read_pause: Duration::ZERO,
            syncs: 0,
            is_cut: false,
            least_seconds: 1,
            neighbours: 0,
            qdisc: None,
            policer: None,
            others: None,
            at_server: false,
        }
    }

    /// The settings of a series, the weakest first.
    pub fn settings(self, series: Series) -> Vec<Setting> {
        let mut settings = self.by_strength(series);
        settings[0].is_weakest = self != Fault::Healthy;
        settings
    }

    fn by_strength(self, series: Series) -> Vec<Setting> {
        let pick = |tuning: [u64; 3], reported: [u64; 3]| {
            [0, 1, 2].map(|strength| series.pick(tuning[strength], reported[strength]))
        };
        let base = |strength: String| self.base(series, strength);
        let ms = Duration::from_millis;
        let ask = |work, pause| Pattern::Ask { work: ms(work), pause: ms(pause) };
        match self {
            Fault::Healthy => {
                let rtt = series.pick(2, 4);
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
                        pattern: Pattern::Send { bytes: 200, pause: ms(series.pick(200, 300)) },
                        ..base("messages of 200 bytes, at the sender".into())
                    },
                    Setting {
                        topology: near(),
                        pattern: Pattern::Push { bytes: 500, pause: ms(series.pick(150, 400)) },
                        at_server: true,
                        ..base("events of 500 bytes, at the server".into())
                    },
                    Setting {
                        topology: near(),
                        pattern: Pattern::Crowd { clients: 3, work: Duration::ZERO, pause: ms(series.pick(10, 30)) },
                        at_server: true,
                        ..base("requests of three clients, at the server".into())
                    },
                    Setting {
                        topology: near(),
                        pattern: Pattern::Connect { work: Duration::ZERO, pause: ms(series.pick(20, 60)) },
                        ..base("a connection for each request, at the client".into())
                    },
                    Setting {
                        topology: near(),
                        pattern: Pattern::Compute { work: ms(1), pause: ms(series.pick(10, 30)) },
                        at_server: true,
                        ..base("requests that take a millisecond, at the server".into())
                    },
                    Setting {
                        topology: near(),
                        pattern: Pattern::Proxy { work: ms(1), behind: ms(1), pause: ms(series.pick(10, 30)) },
                        at_server: true,
                        ..base("a service before another one, at the former".into())
                    },
                    Setting {
                        topology: near(),
                        pattern: Pattern::Burst {
                            bytes: 32 << 10,
                            work: Duration::ZERO,
                            pause: ms(series.pick(50, 150)),
                        },
                        ..base("uploads of 32 KiB, at the client".into())
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
                    topology: path(series.pick(50, 60), 100, 200, 0.0),
                    send_buffer: Some(kib as usize * 1024),
                    ..base(format!("{kib} KiB"))
                })
                .to_vec(),
            Fault::ReceiverWindow => pick([32, 16, 8], [24, 12, 6])
                .map(|kib| Setting {
                    topology: path(series.pick(50, 60), 100, 200, 0.0),
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
                    topology: path(series.pick(4, 8), 1_000, 1_000, 0.0),
                    qdisc: Some(format!("tbf rate 10mbit burst 20kb latency {limit}ms")),
                    ..base(format!("{limit} ms at 10 Mbit/s"))
                })
                .to_vec(),
            Fault::PathQueue => pick([60, 200, 600], [100, 300, 900])
                .map(|packets| Setting {
                    topology: path(series.pick(10, 16), 10, packets as usize, 0.0),
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
                    topology: path(series.pick(20, 30), 100, 200, permille as f64 / 1e3),
                    ..base(format!("{:.1} %", permille as f64 / 10.0))
                })
                .to_vec(),
            Fault::SlowService | Fault::SlowAnswer => pick([10, 40, 160], [20, 80, 320])
                .map(|work| Setting {
                    topology: path(series.pick(2, 4), 1_000, 1_000, 0.0),
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
                    topology: path(series.pick(2, 4), 1_000, 1_000, 0.0),
                    pattern: Pattern::Compute { work: ms(4), pause: ms(2) },
                    neighbours: count as usize,
                    at_server: true,
                    ..base(format!("{count} programs on the same processor"))
                })
                .to_vec(),
            Fault::TailLoss => pick([40, 80, 160], [60, 120, 200])
                .map(|permille| Setting {
                    topology: path(series.pick(10, 16), 100, 200, permille as f64 / 1e3),
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
                    topology: reordering(series.pick(20, 30), permille as f64 / 1e3),
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
                    topology: path(series.pick(20, 26), 100, 200, permille as f64 / 1e3),
                    pattern: Pattern::Connect { work: Duration::ZERO, pause: ms(5) },
                    least_seconds: 6,
                    ..base(format!("{:.0} % of packets lost", permille as f64 / 10.0))
                })
                .to_vec(),
            Fault::SlowNames => pick([100, 250, 600], [150, 400, 800])
                .map(|late| Setting {
                    topology: path(series.pick(2, 4), 1_000, 1_000, 0.0),
                    pattern: Pattern::Names { late: ms(late) },
                    least_seconds: 6,
                    ..base(format!("names after {late} ms"))
                })
                .to_vec(),
            Fault::SlowTls => pick([60, 120, 300], [80, 200, 400])
                .map(|late| Setting {
                    topology: path(series.pick(2, 4), 1_000, 1_000, 0.0),
                    pattern: Pattern::Secure { late: ms(late), pause: ms(5) },
                    least_seconds: 4,
                    ..base(format!("certificates after {late} ms"))
                })
                .to_vec(),
            Fault::CrossTraffic => pick([600, 1_000, 1_600], [800, 1_200, 1_800])
                .map(|burst| Setting {
                    topology: path(series.pick(20, 26), 20, 200, 0.0),
                    pattern: Pattern::Burst { bytes: 64 << 10, work: Duration::ZERO, pause: ms(20) },
                    others: Some((ms(burst), ms(2_000 - burst))),
                    least_seconds: 6,
                    ..base(format!("other transfers for {burst} of 2000 ms"))
                })
                .to_vec(),
            // As many bytes as one packet has wait at most.
            Fault::RateLimit => pick([4_000, 2_000, 1_000], [3_000, 1_500, 800])
                .map(|kilobits| Setting {
                    topology: path(series.pick(20, 30), 100, 200, 0.0),
                    policer: Some(format!("tbf rate {kilobits}kbit burst 32kb limit 1600")),
                    ..base(format!("{:.1} Mbit/s", kilobits as f64 / 1e3))
                })
                .to_vec(),
            Fault::BusyService => pick([4, 8, 16], [6, 12, 24])
                .map(|clients| Setting {
                    topology: path(series.pick(2, 4), 1_000, 1_000, 0.0),
                    pattern: Pattern::Crowd { clients: clients as usize, work: ms(series.pick(4, 3)), pause: ms(5) },
                    at_server: true,
                    ..base(format!("{clients} clients of one worker"))
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
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn each_fault_has_settings_in_each_series_and_none_is_in_two() {
        for fault in Fault::ALL {
            let wanted = if fault == Fault::Healthy { 10 } else { 3 };
            let all: Vec<_> = Series::value_variants().iter().map(|series| fault.settings(*series)).collect();
            assert!(all.iter().all(|settings| settings.len() == wanted), "{fault:?}");
            let all: Vec<_> = all.concat().iter().map(|it| Setting { series: Series::Tuning, ..it.clone() }).collect();
            for (index, setting) in all.iter().enumerate() {
                assert!(!all[..index].contains(setting), "{setting:?}");
            }
        }
    }
}
