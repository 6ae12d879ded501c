//! What runs: which network, which application, what else is on the way.

use std::time::Duration;

use dwell_testbed::{
    BitsPerSecond, BoxLink, Discipline, LinkBox, LinkSpec, Nanos, Phase, Phases, Probability, QueueLimit, Trace,
};

use super::{Reads, Writes};

/// A network and the flows through it. The first flow is the one that is looked at.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Its name as an argument.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// The way from the sender to the receiver.
    pub bottleneck: Bottleneck,
    /// What comes back takes so long.
    pub back_ns: Nanos,
    /// What sends.
    pub application: Application,
    /// Congestion control of all flows.
    pub congestion: &'static str,
    /// How the receiver reads.
    pub reads: Reads,
    /// The other flows.
    pub others: Vec<Other>,
}

/// Where packets wait.
#[derive(Debug, Clone)]
pub enum Bottleneck {
    /// A link of the link emulator: what comes first leaves first.
    Fifo(LinkSpec),
    /// A link box, with a queueing discipline of the kernel's.
    Box(BoxLink),
}

/// What sends data on the first flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Application {
    /// This program.
    Own(Writes),
    /// iperf3, which writes 128 KB at a time.
    Iperf3,
}

/// A flow beside the first, of writes that wait.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Other {
    /// It begins when this part of the time is over.
    pub from: f64,
    /// And ends when this part is.
    pub until: f64,
}

/// Writes of iperf3, and of most scenarios.
const LARGE: u32 = 128 << 10;
/// Of an application that never waits in a write.
const SMALL: u32 = 8 << 10;
/// The longest queue of a bottleneck, as devices have it.
const LONGEST_QUEUE: usize = 1000;
/// A queue holds what the link sends in this time, if that is less.
const QUEUE_MS: u64 = 400;
const PACKET_BITS: u64 = 1500 * 8;
/// Between two rates, and between two round trips.
const CHANGES: Nanos = Nanos::from_millis(5000);
/// The rate that a link with a trace is taken to have, for the length of its queue.
const TRACE_MBIT: u64 = 10;

/// The names and what they are, in the order in which they are run.
const ALL: [(&str, &str); 25] = [
    ("10m-50ms", "10 Mbit/s, round trips of 50 ms, writes of 128 KB that wait"),
    ("30m-50ms", "the same at 30 Mbit/s"),
    ("50m-50ms", "the same at 50 Mbit/s"),
    ("100m-50ms", "the same at 100 Mbit/s"),
    ("200m-50ms", "the same at 200 Mbit/s"),
    ("10m-10ms", "10 Mbit/s, round trips of 10 ms"),
    ("10m-100ms", "10 Mbit/s, round trips of 100 ms"),
    ("10m-200ms", "10 Mbit/s, round trips of 200 ms"),
    ("alternating", "10 and 50 Mbit/s, each for 5 s in turn, round trips of 50 ms"),
    ("background", "10 Mbit/s, 50 ms; two other flows come and go"),
    ("lte", "the trace of --trace FILE, round trips of 50 ms"),
    ("reno", "10 Mbit/s, 50 ms, reno in place of cubic"),
    ("bbr", "10 Mbit/s, 50 ms, bbr in place of cubic"),
    ("loss-0.1", "10 Mbit/s, 50 ms, of 1000 packets one is lost"),
    ("loss-1", "10 Mbit/s, 50 ms, of 100 packets one is lost"),
    ("varying-rtt", "10 Mbit/s, round trips of 50 and of 100 ms, each for 5 s in turn"),
    ("slow-reader", "10 Mbit/s, 50 ms, a receiver that reads 16 KB each 50 ms"),
    ("three-flows", "10 Mbit/s, 50 ms, three flows alike"),
    ("iperf3", "10 Mbit/s, 50 ms, iperf3"),
    ("small-writes", "10 Mbit/s, 50 ms, writes of 8 KB that do not wait, each when the socket takes more"),
    ("frames", "10 Mbit/s, 50 ms, 30 frames of 36 KB each second"),
    ("codel", "10 Mbit/s, 50 ms, a bottleneck with the kernel's CoDel in place of a FIFO"),
    ("fq-codel", "the same with FQ-CoDel"),
    ("pie", "the same with PIE"),
    ("codel-ecn", "the same with CoDel that marks packets (ECN) in place of dropping them"),
];

impl Scenario {
    /// The names of all, and what each is.
    pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
        ALL.into_iter()
    }

    /// The one of this name; `trace` is that of `lte`. `None` if there is none, or it lacks its trace.
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
            "lte" => {
                let trace = trace?.clone();
                plain.changed(|link| {
                    link.rate_bits_per_second = None;
                    link.trace = Some(trace);
                    link.queue = Some(queue(TRACE_MBIT));
                })
            }
            "reno" => Scenario { congestion: "reno", ..plain },
            "bbr" => Scenario { congestion: "bbr", ..plain },
            "loss-0.1" => plain.changed(|link| link.loss = share(0.001)),
            "loss-1" => plain.changed(|link| link.loss = share(0.01)),
            "varying-rtt" => plain.changed(|link| link.phases = Some(varying())),
            "slow-reader" => Scenario { reads: Reads { bytes: 16 << 10, every: Duration::from_millis(50) }, ..plain },
            "three-flows" => Scenario { others: vec![Other::ALWAYS; 2], ..plain },
            "iperf3" => Scenario { application: Application::Iperf3, ..plain },
            "small-writes" => Scenario { application: Application::Own(Writes::Ready { bytes: SMALL }), ..plain },
            "frames" => {
                Scenario { application: Application::Own(Writes::Frames { bytes: 36_000, a_second: 30 }), ..plain }
            }
            "codel" => plain.queued(Discipline::Codel, false),
            "fq-codel" => plain.queued(Discipline::FqCodel, false),
            "pie" => plain.queued(Discipline::Pie, false),
            "codel-ecn" => plain.queued(Discipline::Codel, true),
            _ => plain,
        })
    }

    /// What arrives at least so late after it left.
    pub fn one_way(&self) -> Nanos {
        match &self.bottleneck {
            Bottleneck::Fifo(link) => link.delay_ns,
            Bottleneck::Box(link) => link.delay,
        }
    }

    /// One byte in so many is stamped: each packet has one where packets are slow, and fewer have where they are not.
    pub fn sample_bytes(&self) -> u32 {
        let rate = match &self.bottleneck {
            Bottleneck::Fifo(link) => link.rate_bits_per_second,
            Bottleneck::Box(link) => link.rate,
        };
        let rate = rate.map_or(0, u64::from);
        match rate {
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

    /// The network of another.
    fn with(self, other: Scenario) -> Scenario {
        Scenario { bottleneck: other.bottleneck, back_ns: other.back_ns, ..self }
    }

    /// The same rate and delay in a link box.
    fn queued(mut self, discipline: Discipline, ecn: bool) -> Scenario {
        if let Bottleneck::Fifo(link) = &self.bottleneck {
            self.bottleneck =
                Bottleneck::Box(BoxLink { rate: link.rate_bits_per_second, delay: link.delay_ns, discipline, ecn });
        }
        self
    }

    fn changed(mut self, change: impl FnOnce(&mut LinkSpec)) -> Scenario {
        if let Bottleneck::Fifo(link) = &mut self.bottleneck {
            change(link);
        }
        self
    }
}

impl Bottleneck {
    /// What this host lacks for it: a sentence with its remedy, or nothing. What every lab needs is not part of it.
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

/// All of the difference is on the way there.
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
