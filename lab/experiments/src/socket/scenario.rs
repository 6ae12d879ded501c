//! The scenarios: network, application and competing flows.

use std::{net::TcpListener, time::Duration};

use dwell_testbed::{
    BitsPerSecond, BoxLink, Discipline, LinkBox, LinkSpec, Nanos, Phase, Phases, Probability, QueueLimit, Trace,
};

use nix::sys::socket::{setsockopt, sockopt};

use super::{Reads, Writes, radio};

/// A network and the flows through it. The first flow is the one to measure.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The name on the command line.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// The direction from sender to receiver.
    pub bottleneck: Bottleneck,
    /// One-way delay from receiver to sender.
    pub back_ns: Nanos,
    /// The application of the first flow.
    pub application: Application,
    /// Congestion control of all flows.
    pub congestion: &'static str,
    /// The pattern of the receiver's reads.
    pub reads: Reads,
    /// The other flows.
    pub others: Vec<Other>,
}

/// The bottleneck of a network.
#[derive(Debug, Clone)]
pub enum Bottleneck {
    /// A link of the link emulator, with a FIFO queue.
    Fifo(LinkSpec),
    /// A link box with a queueing discipline of the kernel.
    Box(BoxLink),
}

/// The application that sends on the first flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Application {
    /// The laboratory's own sender.
    Own(Writes),
    /// iperf3, which writes 128 KB at a time.
    Iperf3,
}

/// A competing flow, with blocking writes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Other {
    /// Its start, as a fraction of the time of the run.
    pub from: f64,
    /// Its end, as a fraction of the time of the run.
    pub until: f64,
}

/// Bytes per write of iperf3 and of most scenarios.
const LARGE: u32 = 128 << 10;
/// Bytes per write of an application that never blocks.
const SMALL: u32 = 8 << 10;
/// The longest queue of a bottleneck in packets, as network devices have it.
const LONGEST_QUEUE: usize = 1000;
/// A shorter queue holds the packets of this time.
const QUEUE_MS: u64 = 400;
const PACKET_BITS: u64 = 1500 * 8;
/// Time between changes of the rate or the round trip.
const CHANGES: Nanos = Nanos::from_millis(5000);
/// The assumed rate of a link with a trace, for the length of its queue.
const TRACE_MBIT: u64 = 10;

/// Names and descriptions, in the order in which the scenarios run.
const ALL: [(&str, &str); 27] = [
    ("10m-50ms", "10 Mbit/s, round trips of 50 ms, blocking writes of 128 KB"),
    ("30m-50ms", "the same at 30 Mbit/s"),
    ("50m-50ms", "the same at 50 Mbit/s"),
    ("100m-50ms", "the same at 100 Mbit/s"),
    ("200m-50ms", "the same at 200 Mbit/s"),
    ("10m-10ms", "10 Mbit/s, round trips of 10 ms"),
    ("10m-100ms", "10 Mbit/s, round trips of 100 ms"),
    ("10m-200ms", "10 Mbit/s, round trips of 200 ms"),
    ("alternating", "10 and 50 Mbit/s, alternating every 5 s, round trips of 50 ms"),
    ("background", "10 Mbit/s, 50 ms; two other flows come and go"),
    ("lte", "the trace of --trace FILE, round trips of 50 ms"),
    ("radio", "a synthetic radio link, 8 Mbit/s on average, with outages, round trips of 50 ms"),
    ("reno", "10 Mbit/s, 50 ms, reno instead of cubic"),
    ("bbr", "10 Mbit/s, 50 ms, bbr instead of cubic"),
    ("vegas", "10 Mbit/s, 50 ms, vegas instead of cubic"),
    ("loss-0.1", "10 Mbit/s, 50 ms, 0.1 % of packets lost"),
    ("loss-1", "10 Mbit/s, 50 ms, 1 % of packets lost"),
    ("varying-rtt", "10 Mbit/s, round trips of 50 and 100 ms, alternating every 5 s"),
    ("slow-reader", "10 Mbit/s, 50 ms, a receiver that reads 16 KB every 50 ms"),
    ("three-flows", "10 Mbit/s, 50 ms, three equal flows"),
    ("iperf3", "10 Mbit/s, 50 ms, iperf3"),
    ("small-writes", "10 Mbit/s, 50 ms, nonblocking writes of 8 KB whenever the socket is writable"),
    ("frames", "10 Mbit/s, 50 ms, 30 frames of 36 KB per second"),
    ("codel", "10 Mbit/s, 50 ms, a bottleneck with CoDel instead of a FIFO"),
    ("fq-codel", "the same with FQ-CoDel"),
    ("pie", "the same with PIE"),
    ("codel-ecn", "the same with CoDel that marks packets (ECN) instead of dropping them"),
];

impl Scenario {
    /// The names and descriptions of all scenarios.
    pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
        ALL.into_iter()
    }

    /// The scenario with this name; `lte` needs `trace`. `None` if there is no such scenario, or its trace is missing.
    pub fn find(name: &str, trace: Option<&Trace>) -> Option<Scenario> {
        let (name, about) = ALL.into_iter().find(|(known, _)| *known == name)?;
        let plain = Scenario { name, about, ..Scenario::plain(10, 50) };
        Some(match name {
            "30m-50ms" => plain.with(Scenario::plain(30, 50)),
            "50m-50ms" => plain.with(Scenario::plain(50, 50)),
            "100m-50ms" => plain.with(Scenario::plain(100, 50)),
            "200m-50ms" => plain.with(Scenario::plain(200, 50)),
            "10m-10ms" => plain.with(Scenario::plain(10, 10)),
            "10m-100ms" => plain.with(Scenario::plain(10, 100)),
            "10m-200ms" => plain.with(Scenario::plain(10, 200)),
            "alternating" => plain.changed(|link| link.phases = Some(alternating())),
            "background" => {
                Scenario { others: vec![Other { from: 0.25, until: 0.6 }, Other { from: 0.45, until: 0.8 }], ..plain }
            }
            "lte" => plain.traced(trace?.clone()),
            "radio" => plain.traced(radio::trace()),
            "reno" => Scenario { congestion: "reno", ..plain },
            "bbr" => Scenario { congestion: "bbr", ..plain },
            "vegas" => Scenario { congestion: "vegas", ..plain },
            "loss-0.1" => plain.changed(|link| link.loss = share(0.001)),
            "loss-1" => plain.changed(|link| link.loss = share(0.01)),
            "varying-rtt" => plain.changed(|link| link.phases = Some(varying())),
            "slow-reader" => Scenario { reads: Reads { bytes: 16 << 10, every: Duration::from_millis(50) }, ..plain },
            "three-flows" => Scenario { others: vec![Other::ALWAYS; 2], ..plain },
            "iperf3" => Scenario { application: Application::Iperf3, ..plain },
            "small-writes" => Scenario { application: Application::Own(Writes::Ready { bytes: SMALL }), ..plain },
            "frames" => {
                Scenario { application: Application::Own(Writes::Frames { bytes: 36_000, per_second: 30 }), ..plain }
            }
            "codel" => plain.queued(Discipline::Codel, false),
            "fq-codel" => plain.queued(Discipline::FqCodel, false),
            "pie" => plain.queued(Discipline::Pie, false),
            "codel-ecn" => plain.queued(Discipline::Codel, true),
            _ => plain,
        })
    }

    /// What this host lacks for it, as a sentence with its remedy, apart from the requirements of every lab.
    pub fn missing_requirement(&self) -> Option<String> {
        let name = self.congestion;
        // Trying it loads its module.
        let is_known = TcpListener::bind("127.0.0.1:0")
            .is_ok_and(|socket| setsockopt(&socket, sockopt::TcpCongestion, &name.into()).is_ok());
        match is_known {
            true => self.bottleneck.missing_requirement(),
            false => Some(format!("this kernel has no congestion control {name}: use one with the module tcp_{name}")),
        }
    }

    /// The one-way delay from sender to receiver.
    pub fn one_way(&self) -> Nanos {
        match &self.bottleneck {
            Bottleneck::Fifo(link) => link.delay_ns,
            Bottleneck::Box(link) => link.delay,
        }
    }

    /// The rate in bits per second. `None` where a trace decides.
    pub fn rate(&self) -> Option<u64> {
        let rate = match &self.bottleneck {
            Bottleneck::Fifo(link) => link.rate_bits_per_second,
            Bottleneck::Box(link) => link.rate,
        };
        rate.map(u64::from)
    }

    /// The distance between stamped bytes: one byte per packet on slow links, fewer on fast ones.
    pub fn sample_bytes(&self) -> u32 {
        match self.rate().unwrap_or(0) {
            0..=20_000_000 => 1 << 10,
            20_000_001..=60_000_000 => 2 << 10,
            _ => 4 << 10,
        }
    }

    fn plain(mbit: u64, rtt_ms: u64) -> Scenario {
        let one_way = Nanos::from_micros(rtt_ms * 500);
        Scenario {
            name: "",
            about: "",
            bottleneck: Bottleneck::Fifo(LinkSpec {
                rate_bits_per_second: BitsPerSecond::new(mbit * 1_000_000),
                queue: Some(queue(mbit)),
                seed: 1,
                ..LinkSpec::delay(one_way)
            }),
            back_ns: one_way,
            application: Application::Own(Writes::Waiting { bytes: LARGE }),
            congestion: "cubic",
            reads: Reads::AT_ONCE,
            others: Vec::new(),
        }
    }

    /// Takes the network of another scenario.
    fn with(self, other: Scenario) -> Scenario {
        Scenario { bottleneck: other.bottleneck, back_ns: other.back_ns, ..self }
    }

    /// Moves rate and delay to a link box with a queueing discipline.
    fn queued(mut self, discipline: Discipline, ecn: bool) -> Scenario {
        if let Bottleneck::Fifo(link) = &self.bottleneck {
            self.bottleneck =
                Bottleneck::Box(BoxLink { rate: link.rate_bits_per_second, delay: link.delay_ns, discipline, ecn });
        }
        self
    }

    fn traced(self, trace: Trace) -> Scenario {
        self.changed(|link| {
            link.rate_bits_per_second = None;
            link.trace = Some(trace);
            link.queue = Some(queue(TRACE_MBIT));
        })
    }

    fn changed(mut self, change: impl FnOnce(&mut LinkSpec)) -> Scenario {
        if let Bottleneck::Fifo(link) = &mut self.bottleneck {
            change(link);
        }
        self
    }
}

impl Bottleneck {
    /// What this host lacks for it, as a sentence with its remedy, apart from the requirements of every lab.
    pub fn missing_requirement(&self) -> Option<String> {
        match self {
            Bottleneck::Fifo(_) => None,
            Bottleneck::Box(_) => LinkBox::missing_requirement(),
        }
    }
}

impl Other {
    const ALWAYS: Other = Other { from: 0.0, until: 1.0 };
}

fn queue(mbit: u64) -> QueueLimit {
    let packets = mbit * 1_000 * QUEUE_MS / PACKET_BITS;
    QueueLimit::Packets((packets as usize).min(LONGEST_QUEUE))
}

fn share(share: f64) -> Probability {
    Probability::new(share).expect("shares of scenarios are between 0 and 1")
}

fn alternating() -> Phases {
    phases([10, 50].map(|mbit| Phase {
        lasts_ns: CHANGES,
        rate_bits_per_second: BitsPerSecond::new(mbit * 1_000_000),
        delay_ns: None,
    }))
}

/// Round trips of 50 and 100 ms; the difference is in the direction to the receiver.
fn varying() -> Phases {
    phases([25, 75].map(|ms| Phase {
        lasts_ns: CHANGES,
        rate_bits_per_second: None,
        delay_ns: Some(Nanos::from_millis(ms)),
    }))
}

fn phases(phases: [Phase; 2]) -> Phases {
    Phases::try_from(phases.to_vec()).expect("the phases of scenarios last some time")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_a_scenario_of_its_own() {
        let trace = Trace::parse("1\n2\n").unwrap();
        let mut seen = Vec::new();
        for (name, _) in Scenario::names() {
            let scenario = Scenario::find(name, Some(&trace)).unwrap();
            assert_eq!(scenario.name, name);
            let rest = format!("{:?}", Scenario { name: "", about: "", ..scenario });
            assert!(!seen.contains(&rest), "{name} is another's twin");
            seen.push(rest);
        }
        assert!(Scenario::find("lte", None).is_none());
        assert!(Scenario::find("nothing", None).is_none());
    }

    #[test]
    fn a_queue_holds_400_ms_and_at_most_what_devices_hold() {
        assert_eq!(queue(10), QueueLimit::Packets(333));
        assert_eq!(queue(30), QueueLimit::Packets(1000));
        assert_eq!(queue(200), QueueLimit::Packets(1000));
    }
}
