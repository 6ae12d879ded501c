//! Evidence of where bytes were, from one host's socket to another's, as agents have stamped them and a store has kept it.

use std::collections::BTreeMap;

use super::{Evidence, Fact, Layers, Part, Remedy, RoundTrip, Source, Sums, Target, Unseen, Value};
use crate::{
    histogram::Histogram,
    layers::{PathSegment, Segment},
};

/// The share of the time in the network from which the error of clocks matters.
const MUCH_ERROR: f64 = 0.2;

/// The path of the bytes of some flows from one host to another, of which one may have no agent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Path {
    /// The host that sent, and the one that received; `None` where there is no agent.
    pub hosts: [Option<String>; 2],
    /// The number of flows, each one direction of a connection.
    pub flows: u64,
    /// The times of bytes that TCP sent once.
    pub segments: BTreeMap<PathSegment, Histogram>,
    /// The stamped bytes that TCP sent more than once.
    pub resent: u64,
    /// Whether the time in the network is half of the shortest round trip, once per flow and interval, and not measured of each
    /// byte.
    pub is_estimated: bool,
    /// By how much times in the network may be wrong because of the clocks.
    pub bound_ns: Option<u64>,
}

/// What is shown of a path.
#[derive(Debug, Clone, PartialEq)]
pub struct PathFigures {
    /// The host that sent, and the one that received.
    hosts: [Option<String>; 2],
    /// The stamped bytes.
    pub bytes: u64,
    /// The mean of each segment, and how many bytes went through it.
    means: Vec<(PathSegment, u64)>,
    /// Whether the path's figures are estimates: its `is_estimated`.
    is_estimated: bool,
}

impl Path {
    /// Returns the time that all stamped bytes spent on their way.
    pub fn spent_ns(&self) -> f64 {
        PathSegment::ALL.into_iter().filter(|one| one.is_addend()).map(|one| self.sum_ns(one)).sum()
    }

    /// The number of stamped bytes.
    fn bytes(&self) -> u64 {
        let are_bytes = |segment: &PathSegment| !(self.is_estimated && *segment == PathSegment::Network);
        let counts = self.segments.iter().filter(|(segment, _)| are_bytes(segment)).map(|(_, times)| times.count());
        counts.max().unwrap_or_default()
    }

    /// The time of all stamped bytes in a segment. An estimate has another number of values, whose mean stands for each byte.
    fn sum_ns(&self, segment: PathSegment) -> f64 {
        let Some(times) = self.segments.get(&segment).filter(|times| times.count() > 0) else {
            return 0.0;
        };
        let sum_ns = times.sum_ns() as f64;
        match self.is_estimated && segment == PathSegment::Network {
            true => sum_ns / times.count() as f64 * self.bytes() as f64,
            false => sum_ns,
        }
    }

    fn mean_ns(&self, segment: Segment) -> Option<u64> {
        self.segments.get(&PathSegment::Host(segment)).and_then(Histogram::mean_ns)
    }
}

impl Evidence {
    /// Creates the evidence of a path over this time, which ended at `ended_ns` in Unix time.
    pub fn of_path(target: Target, path: &Path, observed_ns: u64, ended_ns: u64) -> Evidence {
        let host = |segment| PathSegment::Host(segment);
        let bytes = path.bytes();
        let mut evidence = Evidence {
            source: Source::Stamps,
            target,
            observed_ns,
            ended_ns,
            connections: path.flows,
            layers: Some(Layers {
                socket_tcp_ns: path.mean_ns(Segment::SocketTcp),
                queueing_ns: path.mean_ns(Segment::Queueing),
                application_ns: path.mean_ns(Segment::Application),
            }),
            sums: Sums {
                polls: bytes,
                segments_sent: bytes + path.resent,
                segments_sent_again: path.resent,
                ..Sums::default()
            },
            ..Evidence::default()
        };
        let times = &mut evidence.sums.times;
        times.add(Part::Backlog, path.sum_ns(host(Segment::SocketTcp)));
        times.add(Part::LocalQueue, path.sum_ns(host(Segment::IpDriver)));
        times.add(Part::Reader, path.sum_ns(host(Segment::Application)));
        times.add(Part::Loss, path.sum_ns(host(Segment::Reordering)));
        if let Some(network) = path.segments.get(&PathSegment::Network).filter(|network| network.count() > 0) {
            let sum_ns = path.sum_ns(PathSegment::Network);
            let mean_ns = network.sum_ns() as f64 / network.count() as f64;
            // Shortest round trips have no queue in them: what one is longer than another is its peer's distance.
            let base_ns = if path.is_estimated { mean_ns } else { network.min_ns().unwrap_or_default() as f64 };
            let queue_ns = sum_ns * (1.0 - base_ns / mean_ns.max(1.0));
            times.add(Part::Distance, sum_ns - queue_ns);
            times.add(Part::RemoteQueue, queue_ns);
            // There and back, if both ways are alike.
            evidence.sums.transfers = RoundTrip::new(sum_ns, 2.0 * mean_ns, 2.0 * base_ns);
            evidence.sums.messages = evidence.sums.transfers;
        }
        times.add(Part::Unexplained, path.spent_ns() - times.total());
        evidence.unseen = unseen(path);
        let means = PathSegment::ALL.into_iter().filter_map(|segment| {
            let times = path.segments.get(&segment)?;
            Some((segment, times.mean_ns()?))
        });
        let (hosts, is_estimated) = (path.hosts.clone(), path.is_estimated);
        evidence.path = Some(PathFigures { hosts, bytes, means: means.collect(), is_estimated });
        evidence
    }
}

fn unseen(path: &Path) -> Vec<Unseen> {
    let mut unseen = Vec::new();
    let [tx, rx] = &path.hosts;
    if let (Some(here), None) | (None, Some(here)) = (tx, rx) {
        let network = if path.is_estimated {
            "the time in the network is half of the shortest round trip"
        } else {
            "nor the network"
        };
        unseen.push(Unseen {
            what: format!("the host at the other end of {here}, which has no agent; {network}"),
            remedy: "run dwell agent there".into(),
        });
    }
    let network = path.segments.get(&PathSegment::Network).and_then(Histogram::mean_ns);
    if let (Some(bound_ns), Some(mean_ns)) = (path.bound_ns, network)
        && bound_ns as f64 > mean_ns as f64 * MUCH_ERROR
    {
        unseen.push(Unseen {
            what: format!(
                "the time in the network more exactly than by {} µs, because of the clocks",
                bound_ns / 1_000
            ),
            remedy: "`dwell collect --clock-mode native` compares clocks most exactly".into(),
        });
    }
    unseen
}

impl PathFigures {
    /// Returns the verdict with the hosts that it is about.
    pub(super) fn sentence(&self, sentence: &str) -> String {
        match &self.hosts {
            [Some(tx), Some(rx)] => format!("From {tx} to {rx}: {sentence}"),
            [Some(tx), None] => format!("Sent by {tx}: {sentence}"),
            [None, Some(rx)] => format!("Received by {rx}: {sentence}"),
            [None, None] => sentence.to_owned(),
        }
    }

    /// Returns the mean time of each segment, in the order of the path.
    pub(super) fn facts(&self) -> Vec<Fact> {
        const STAMPS: &str = "byte stamps";
        let fact = |what, value, method| Fact { what, value: Some(value), method, speaks_for: true };
        let mut facts = vec![fact("stamped bytes", Value::Count(self.bytes), STAMPS)];
        facts.extend(self.means.iter().filter_map(|(segment, mean_ns)| {
            let is_estimate = self.is_estimated && *segment == PathSegment::Network;
            let method = if is_estimate { "half of the shortest round trip" } else { STAMPS };
            Some(fact(name(*segment)?, Value::Time(*mean_ns as f64), method))
        }));
        facts
    }

    /// Returns what says more, at the host at which bytes waited for these parts.
    pub(super) fn remedy(&self, parts: &[Part], target: &Target) -> Option<Remedy> {
        let [tx, rx] = &self.hosts;
        let is_of_sender = parts.iter().any(|part| matches!(part, Part::Backlog | Part::LocalQueue));
        let is_of_receiver = parts.contains(&Part::Reader);
        let (host, effect) = match (is_of_sender, is_of_receiver) {
            (true, _) => (tx, "looks at the sockets and the process of the sender, and says what limits TCP there"),
            (_, true) => (rx, "looks at the process that does not read: whether it computes, or waits for a disk"),
            _ => (tx, "looks at the sockets of the sender: round trips, losses and windows"),
        };
        let host = host.as_ref()?;
        Some(Remedy { command: format!("ssh {host} sudo dwell why{}", target.port_of()), effect })
    }
}

/// What the mean of a segment is of. `None` for those that are parts of others, or sums.
fn name(segment: PathSegment) -> Option<&'static str> {
    Some(match segment {
        PathSegment::Host(Segment::SocketTcp) => "mean time in the sender's socket",
        PathSegment::Host(Segment::TcpIp) => "from TCP to IP",
        PathSegment::Host(Segment::IpDriver) => "from IP to the driver of the sender's device",
        PathSegment::Host(Segment::Queueing) => "of that, in the queueing discipline",
        PathSegment::Network => "in the network",
        PathSegment::Host(Segment::DriverIp) => "from the driver to IP at the receiver",
        PathSegment::Host(Segment::IpTcp) => "from IP to TCP",
        PathSegment::Host(Segment::TcpSocket) => "in the receiver's TCP and socket",
        PathSegment::Host(Segment::Reordering) => "of that, waiting for earlier bytes",
        PathSegment::Host(Segment::Application) => "of that, waiting to be read",
        PathSegment::EndToEnd => "from socket to socket",
        PathSegment::Host(_) => return None,
    })
}
