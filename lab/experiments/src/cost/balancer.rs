//! Nanoseconds per packet of the balancer in the kernel, above an empty program in the same run.
use std::{net::IpAddr, os::fd::OwnedFd, thread, time::Duration};

use super::{
    figures::{least, median},
    forward::Driven,
    kernel_objects,
    limits::{self, Finding, Limit},
    peers::Peers,
    pin,
    stop::Stop,
};
use anyhow::{Result, bail};
use dwell_engine::{
    balance::{Forward, NextHop, Protocol, Real, Reason, Sampling, Vip, VipKey},
    response::{Config, Estimator},
};
use dwell_probes::balancer::{Plane, PlaneOptions};
use etherparse::PacketBuilder;

const ROUNDS: usize = 15;
const PACKETS: u32 = 50_000;
const FLOWS: [u32; 4] = [1, 10_000, 100_000, 500_000];
/// The loopback device, where packets of BPF_PROG_TEST_RUN arrive.
const LOOPBACK: u32 = 1;
/// Bytes of a client's request, and of the answer to it.
const REQUEST: u32 = 100;
const ANSWER: u32 = 1000;
const CLIENT: &str = "10.0.0.1";
const VIP: &str = "198.51.100.1";
const CLIENT_6: &str = "2001:db8:9::";
const VIP_6: &str = "2001:db8:1::1";

pub fn run(options: &super::Options, stop: &Stop) -> Result<Vec<Finding>> {
    pin()?;
    let peer = Peers::open(&options.peers)?.xdp;
    println!(
        "\
The cost of the balancer per packet (BPF_PROG_TEST_RUN), in ns above an empty program.
{ROUNDS} interleaved rounds of {PACKETS} packets per row; the least and the median of their differences.
The driver's removal of the outer headers counts as the balancer's."
    );
    print!("\n{:<44}{:>9}{:>8}{:>8}", "packet", "flows", "least", "median");
    println!("{}", peer.as_ref().map_or(String::new(), |_| format!("{:>8}", "peer")));
    let (mut findings, mut found) = (Vec::new(), Vec::new());
    for row in rows().into_iter().filter(|row| options.wants(row.name)) {
        for flows in FLOWS {
            if !row.flows.contains(&flows) {
                continue;
            }
            stop.check()?;
            let peer = peer.as_ref().filter(|_| row.limit().is_some());
            let (above, of_peer) = measure(&row, flows, peer)?;
            print!("{:<44}{flows:>9}{:>8.0}{:>8.0}", row.name, least(&above), median(&above));
            println!("{}", peer.map_or(String::new(), |_| format!("{:>8.0}", least(&of_peer))));
            found.push((row.name, flows, least(&above)));
            if let Some(limit) = row.limit() {
                let times = peer.map(|_| least(&of_peer) / least(&above)).ok_or("no --peer for XDP");
                findings.push(limit.judge(format!("{}, {flows}", row.name), times));
            }
        }
    }
    for flows in FLOWS {
        let of = |name| found.iter().find(|found| (found.0, found.1) == (name, flows)).map(|found| found.2);
        let adds = of(MEASURED).zip(of(UNMEASURED)).map(|(with, without)| with - without);
        let limit = &limits::MEASURING[usize::from(flows > 1)];
        findings.push(limit.judge(format!("requests, {flows}"), adds.ok_or("left out by --row")));
    }
    Ok(findings)
}

/// The rows of which the difference is what measuring costs.
const UNMEASURED: &str = "hit, IPIP, requests";
const MEASURED: &str = "hit, IPIP, measured (auto), requests";

#[derive(Clone)]
struct Row {
    name: &'static str,
    /// Where packets come from, and go to.
    ends: [&'static str; 2],
    /// The backend's address; `None` if the packet is not for a VIP.
    to: Option<&'static str>,
    forward: Forward,
    estimator: Option<Estimator>,
    /// Of how many connections one is measured.
    measured_of: u32,
    traffic: Traffic,
    grown: u32,
    flows: &'static [u32],
}

/// The packets of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Traffic {
    /// Always the same data.
    Same,
    /// Requests, each of which acknowledges the answer to the previous one.
    Requests,
    /// ACKs of answers.
    Acks,
    /// The first packets of connections.
    Opens,
    /// Datagrams.
    Datagrams,
}

impl Traffic {
    fn is_tcp(self) -> bool {
        self != Traffic::Datagrams
    }

    /// Returns by how much the sequence number and the ACK number advance from packet to packet.
    fn steps(self) -> [u32; 2] {
        match self {
            Traffic::Requests => [REQUEST, ANSWER],
            Traffic::Acks => [0, ANSWER],
            Traffic::Same | Traffic::Opens | Traffic::Datagrams => [0, 0],
        }
    }
}

fn rows() -> Vec<Row> {
    let hit = Row {
        name: "hit, IPIP",
        ends: [CLIENT, VIP],
        to: Some("10.99.0.1"),
        forward: Forward::Ipip,
        estimator: None,
        measured_of: 1,
        traffic: Traffic::Same,
        grown: 20,
        flows: &FLOWS,
    };
    let six = Row {
        name: "hit, IPv6 in IPv6",
        ends: [CLIENT_6, VIP_6],
        to: Some("2001:db8:99::1"),
        grown: 40,
        ..hit.clone()
    };
    let udp = Row { name: "hit, QUIC VIP, IPIP", ends: [CLIENT, VIP], traffic: Traffic::Datagrams, ..hit.clone() };
    vec![
        Row {
            name: "not a VIP's",
            ends: [CLIENT, "198.51.100.2"],
            to: None,
            grown: 0,
            flows: &[1, 10_000],
            ..hit.clone()
        },
        hit.clone(),
        Row { name: "hit, IPIP, measured (auto), the same data", estimator: Some(Estimator::Auto), ..hit.clone() },
        Row { name: UNMEASURED, traffic: Traffic::Requests, ..hit.clone() },
        requests(Estimator::Auto, MEASURED, &hit),
        Row {
            measured_of: 8,
            flows: &FLOWS[1..],
            ..requests(Estimator::Auto, "hit, IPIP, 1/8 measured (auto), requests", &hit)
        },
        Row {
            name: "hit, IPIP, measured (auto), ACKs",
            ends: [CLIENT, VIP],
            estimator: Some(Estimator::Auto),
            traffic: Traffic::Acks,
            ..hit.clone()
        },
        requests(Estimator::Pirate, "hit, IPIP, measured (pirate), requests", &hit),
        Row { name: "hit, layer 2", forward: Forward::L2, grown: 0, ..hit.clone() },
        Row { name: "hit, GUE", forward: Forward::Gue(6080), grown: 28, ..hit.clone() },
        six.clone(),
        requests(Estimator::Auto, "hit, IPv6 in IPv6, measured (auto), requests", &six),
        udp.clone(),
        Row { name: "hit, QUIC VIP, IPIP, measured (auto)", estimator: Some(Estimator::Auto), ..udp },
        Row {
            name: "a new connection each, IPIP, measured (auto)",
            ends: [CLIENT, VIP],
            estimator: Some(Estimator::Auto),
            traffic: Traffic::Opens,
            flows: &[500_000],
            ..hit.clone()
        },
        Row { name: "a new connection each, IPIP", traffic: Traffic::Opens, flows: &[500_000], ..hit },
    ]
}

fn requests(estimator: Estimator, name: &'static str, hit: &Row) -> Row {
    Row { name, estimator: Some(estimator), traffic: Traffic::Requests, ..hit.clone() }
}

impl Row {
    /// How many times as much a peer must cost, if it does the same.
    fn limit(&self) -> Option<&'static Limit> {
        if self.ends != [CLIENT, VIP] || self.forward != Forward::Ipip || self.to.is_none() {
            return None;
        }
        match (self.traffic, self.estimator) {
            (Traffic::Requests, None) => Some(&limits::HIT),
            (Traffic::Requests, Some(Estimator::Auto)) => Some(&limits::MEASURED_HIT),
            (Traffic::Opens, None) => Some(&limits::NEW),
            _ => None,
        }
    }
}

/// Returns the nanoseconds above the empty program, and those of the peer, if there is one.
fn measure(row: &Row, flows: u32, peer: Option<&OwnedFd>) -> Result<(Vec<f64>, Vec<f64>)> {
    let mut plane = plane(row)?;
    let mut driven = Driven::load(flows, row.grown, row.traffic.steps())?;
    let loaded = kernel_objects::program("balance_xdp")?;
    let balancer = kernel_objects::number_of(&loaded);
    let nothing = driven.nothing()?;
    let packets = packet(row.ends, row.traffic);
    let peer = peer.map(kernel_objects::number_of);
    for target in [Some(balancer), peer].into_iter().flatten() {
        let count = driven.count;
        if row.traffic.is_tcp() && row.traffic != Traffic::Opens {
            // What begins otherwise is not measured until it has gone on for seconds.
            driven.run(&packet(row.ends, Traffic::Opens), target, flows, row.grown)?;
        }
        if row.traffic != Traffic::Opens {
            driven.run(&packets, target, flows.max(PACKETS), row.grown)?;
        }
        if peer.is_some_and(|peer| peer != target) {
            driven.count = count;
        }
    }
    plane.drain(drop)?;
    let (mut above, mut of_peer) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let count = driven.count;
        let empty = driven.run(&packets, nothing, PACKETS, 0)?;
        if let Some(peer) = peer {
            driven.count = count;
            of_peer.push(driven.run(&packets, peer, PACKETS, row.grown)? - empty);
        }
        driven.count = count;
        above.push(driven.run(&packets, balancer, PACKETS, row.grown)? - empty);
        plane.drain(drop)?;
    }
    let counters = plane.counters()?;
    let (wanted, least) = match (row.to, row.traffic) {
        (None, _) => (Reason::NotVip, PACKETS * ROUNDS as u32),
        // A few find no slot in their buckets.
        (_, Traffic::Opens) => (Reason::New, flows - flows / 1000),
        _ => (Reason::Connection, PACKETS * (ROUNDS as u32 - 1)),
    };
    if counters.get(wanted) < u64::from(least) {
        bail!("{} packets were not what '{}' says: {counters:?}", row.name, wanted.name());
    }
    let mut epochs = 0;
    // Until the last epoch is over.
    thread::sleep(2 * Duration::from_nanos(Config::default().epoch_ns));
    plane.sweep(|_| epochs += 1)?;
    let must_have = row.estimator.is_some() && matches!(row.traffic, Traffic::Requests | Traffic::Datagrams);
    if epochs == 0 && must_have || epochs > 0 && row.estimator.is_none() {
        bail!("{} left {epochs} epochs of measured connections", row.name);
    }
    Ok((above, of_peer))
}

fn plane(row: &Row) -> Result<Plane> {
    let mut plane = Plane::load(&PlaneOptions {
        max_connections: 1 << 20,
        max_vips: 1024,
        max_reals: 1024,
        idle_timeout: Duration::from_secs(3600),
        response: Config { estimator: row.estimator.unwrap_or(Estimator::Auto), ..Config::default() },
        ..PlaneOptions::default()
    })?;
    // Room for many VIPs, and a hundred backends.
    let to: IpAddr = row.to.unwrap_or("10.99.0.1").parse()?;
    let next_hop = NextHop { interface: LOOPBACK, destination: [2; 6], source: [4; 6], mtu: 1500 };
    for number in 1..=100 {
        plane.set_real(number, &Real::new(to, Some(next_hop), row.forward))?;
    }
    let table: Vec<u32> = (0..65_537).map(|at| 1 + at % 100).collect();
    let vips = [(1, VIP, Protocol::Tcp), (2, VIP_6, Protocol::Tcp), (3, VIP, Protocol::Udp)];
    for (number, address, protocol) in vips {
        let key = VipKey { address: address.parse()?, protocol, port: Some(443) };
        let vip = Vip {
            number,
            measured: row.estimator.is_some(),
            sampling: Sampling::one_of(row.measured_of).unwrap_or_default(),
            is_quic: protocol == Protocol::Udp,
            ..Vip::default()
        };
        plane.set_vip(&key, &vip)?;
        plane.set_table(number, &table)?;
    }
    Ok(plane)
}

fn packet([client, vip]: [&str; 2], traffic: Traffic) -> Vec<u8> {
    let link = PacketBuilder::ethernet2([2; 6], [4; 6]);
    let ip = match (client.parse(), vip.parse()) {
        (Ok(IpAddr::V4(client)), Ok(IpAddr::V4(vip))) => link.ipv4(client.octets(), vip.octets(), 64),
        (Ok(IpAddr::V6(client)), Ok(IpAddr::V6(vip))) => link.ipv6(client.octets(), vip.octets(), 64),
        _ => unreachable!("both are addresses of one family"),
    };
    let (mut bytes, data) = (Vec::new(), [0; REQUEST as usize]);
    let written = match traffic {
        Traffic::Datagrams => ip.udp(12345, 443).write(&mut bytes, &data),
        Traffic::Opens => ip.tcp(12345, 443, 1, 1000).syn().write(&mut bytes, &[]),
        Traffic::Acks => ip.tcp(12345, 443, 1, 1000).ack(1).write(&mut bytes, &[]),
        Traffic::Same | Traffic::Requests => {
            let tcp = ip.tcp(12345, 443, 1, 1000).ack(1).psh();
            tcp.write(&mut bytes, &data)
        }
    };
    written.expect("a vector takes all");
    bytes
}
