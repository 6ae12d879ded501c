//! Nanoseconds a packet of the balancer in the kernel, above an empty program in
//! the same run.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::{net::IpAddr, process::ExitCode, time::Duration};

use anyhow::{Context, Result, bail};
use dwell_bench::{
    figures::{least, median},
    kernel_objects, pin,
    stop::Stop,
};
use dwell_engine::{
    balance::{Forward, NextHop, Proto, Real, Vip, VipKey, Why},
    response::{Config, Estimator},
};
use dwell_probes::balancer::{Plane, PlaneOptions};
use etherparse::PacketBuilder;
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, OpenObject, ProgramInput};

static DRIVER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/forward.bpf.o"));

const ROUNDS: usize = 15;
const PACKETS: u32 = 50_000;
const FLOWS: [u32; 4] = [1, 10_000, 100_000, 500_000];
/// The loopback device, at which BPF_PROG_TEST_RUN has packets come in.
const LOOPBACK: u32 = 1;
const CLIENT: &str = "10.0.0.1";
const VIP: &str = "198.51.100.1";
const CLIENT_6: &str = "2001:db8:9::";
const VIP_6: &str = "2001:db8:1::1";

fn main() -> ExitCode {
    Stop::heeded_by(run)
}

fn run(stop: &Stop) -> Result<()> {
    pin()?;
    println!(
        "\
What the balancer costs a packet (BPF_PROG_TEST_RUN), in ns above an empty program.
{ROUNDS} interleaved rounds of {PACKETS} packets a row; the least and the median of their differences.
Taking the outer headers off again, which the driver does, counts as the balancer's.
Katran: its figures, measured the same way on another day: indicative only."
    );
    println!(
        "\n{:<44}{:>9}{:>8}{:>8}  Katran",
        "packet", "flows", "least", "median"
    );
    for row in rows() {
        for (at, flows) in FLOWS.into_iter().enumerate() {
            if !row.flows.contains(&flows) {
                continue;
            }
            stop.check()?;
            let above = measure(&row, flows)?;
            println!(
                "{:<44}{flows:>9}{:>8.0}{:>8.0}  {}",
                row.name,
                least(&above),
                median(&above),
                row.katran.get(at).copied().unwrap_or("-")
            );
        }
    }
    Ok(())
}

struct Row {
    name: &'static str,
    packet: Vec<u8>,
    /// The backend's address; `None`: the packet is of no VIP.
    to: Option<&'static str>,
    forward: Forward,
    estimator: Option<Estimator>,
    /// Each packet opens a connection.
    opens: bool,
    grown: u32,
    flows: &'static [u32],
    katran: &'static [&'static str],
}

fn rows() -> Vec<Row> {
    const HIT: &[&str] = &["97-117", "210-230", "230-245", "275-300"];
    let hit = Row {
        name: "hit, IPIP",
        packet: packet(CLIENT, VIP, false),
        to: Some("10.99.0.1"),
        forward: Forward::Ipip,
        estimator: None,
        opens: false,
        grown: 20,
        flows: &FLOWS,
        katran: HIT,
    };
    vec![
        Row {
            name: "not a VIP's",
            packet: packet(CLIENT, "198.51.100.2", false),
            to: None,
            grown: 0,
            flows: &[1, 10_000],
            katran: &["11-42"],
            ..hit.clone()
        },
        hit.clone(),
        Row {
            name: "hit, IPIP, measured (auto)",
            estimator: Some(Estimator::Auto),
            ..hit.clone()
        },
        Row {
            name: "hit, IPIP, measured (pirate)",
            estimator: Some(Estimator::Pirate),
            ..hit.clone()
        },
        Row {
            name: "hit, layer 2",
            forward: Forward::L2,
            grown: 0,
            katran: &[],
            ..hit.clone()
        },
        Row {
            name: "hit, GUE",
            forward: Forward::Gue,
            grown: 28,
            katran: &["200", "312", "327", "383"],
            ..hit.clone()
        },
        Row {
            name: "hit, IPv6 in IPv6",
            packet: packet(CLIENT_6, VIP_6, false),
            to: Some("2001:db8:99::1"),
            grown: 40,
            ..hit.clone()
        },
        Row {
            name: "a new connection each, IPIP, measured (auto)",
            packet: packet(CLIENT, VIP, true),
            estimator: Some(Estimator::Auto),
            opens: true,
            flows: &[500_000],
            katran: &["", "", "", "474"],
            ..hit
        },
    ]
}

impl Clone for Row {
    fn clone(&self) -> Row {
        Row {
            packet: self.packet.clone(),
            ..*self
        }
    }
}

fn measure(row: &Row, flows: u32) -> Result<Vec<f64>> {
    let mut plane = plane(row)?;
    let driver = ObjectBuilder::default()
        .open_memory(DRIVER)
        .and_then(OpenObject::load)
        .context("cannot load the benchmark's driver")?;
    let mut driven = Driven {
        driver,
        flows,
        grown: row.grown,
        count: 0,
    };
    let loaded = kernel_objects::program("balance_xdp")?;
    let balancer = kernel_objects::number_of(&loaded);
    let nothing = kernel_objects::number_of(&driven.program("nothing")?);
    if !row.opens {
        driven.run(&row.packet, balancer, flows.max(PACKETS), row.grown)?;
    }
    plane.drain(drop)?;
    let mut above = Vec::new();
    for _ in 0..ROUNDS {
        let count = driven.count;
        let empty = driven.run(&row.packet, nothing, PACKETS, 0)?;
        driven.count = count;
        above.push(driven.run(&row.packet, balancer, PACKETS, row.grown)? - empty);
        plane.drain(drop)?;
    }
    let counters = plane.counters()?;
    let (wanted, least) = match (row.to, row.opens) {
        (None, _) => (Why::NotVip, PACKETS * ROUNDS as u32),
        // a few find no place in their buckets
        (_, true) => (Why::New, flows - flows / 1000),
        (_, false) => (Why::Connection, PACKETS * (ROUNDS as u32 - 1)),
    };
    if counters.get(wanted) < u64::from(least) {
        bail!(
            "{} packets were not what '{}' says: {counters:?}",
            row.name,
            wanted.name()
        );
    }
    Ok(above)
}

fn plane(row: &Row) -> Result<Plane> {
    let mut plane = Plane::load(&PlaneOptions {
        max_connections: 1 << 20,
        max_vips: 1024,
        max_reals: 1024,
        idle_timeout: Duration::from_secs(3600),
        response: Config {
            estimator: row.estimator.unwrap_or(Estimator::Auto),
            ..Config::default()
        },
        ..PlaneOptions::default()
    })?;
    // as Katran's were: many VIPs, a hundred backends
    let to: IpAddr = row.to.unwrap_or("10.99.0.1").parse()?;
    for number in 1..=100 {
        let real = Real {
            address: to,
            next_hop: Some(NextHop {
                interface: LOOPBACK,
                destination: [2; 6],
                source: [4; 6],
                mtu: 1500,
            }),
            forward: row.forward,
            gue_port: 6080,
            down: false,
        };
        plane.set_real(number, &real)?;
    }
    let table: Vec<u32> = (0..65_537).map(|at| 1 + at % 100).collect();
    for (number, address) in [(1, VIP), (2, VIP_6)] {
        let key = VipKey {
            address: address.parse()?,
            proto: Proto::Tcp,
            port: Some(443),
        };
        let vip = Vip {
            number,
            measured: row.estimator.is_some(),
            ..Vip::default()
        };
        plane.set_vip(&key, &vip)?;
        plane.set_table(number, &table)?;
    }
    Ok(plane)
}

struct Driven {
    driver: Object,
    flows: u32,
    grown: u32,
    count: u64,
}

impl Driven {
    fn program(&self, name: &str) -> Result<libbpf_rs::ProgramMut<'_>> {
        self.driver
            .progs_mut()
            .find(|program| program.name() == name)
            .with_context(|| format!("the driver has no program {name}"))
    }

    fn map(&self, name: &str) -> Result<libbpf_rs::Map<'_>> {
        self.driver
            .maps()
            .find(|map| map.name() == name)
            .with_context(|| format!("the driver has no map {name}"))
    }

    /// Mean nanoseconds a packet.
    fn run(&mut self, packet: &[u8], target: [u8; 4], packets: u32, grown: u32) -> Result<f64> {
        debug_assert!(grown == self.grown || grown == 0);
        self.map("target")?
            .update(&[0; 4], &target, MapFlags::ANY)?;
        let mut state = [0u8; 24];
        state[..4].copy_from_slice(&self.flows.to_ne_bytes());
        state[4..8].copy_from_slice(&grown.to_ne_bytes());
        state[12..16].copy_from_slice(&7919u32.to_ne_bytes());
        state[16..].copy_from_slice(&self.count.to_ne_bytes());
        self.map(".data.state")?
            .update(&[0; 4], &state, MapFlags::ANY)?;
        let ran = self.program("drive")?.test_run(ProgramInput {
            data_in: Some(packet),
            repeat: packets,
            ..Default::default()
        })?;
        if ran.return_value == 0 {
            bail!("the driver did not reach the program under test");
        }
        self.count += u64::from(packets);
        Ok(ran.duration.as_nanos() as f64)
    }
}

fn packet(client: &str, vip: &str, opens: bool) -> Vec<u8> {
    let link = PacketBuilder::ethernet2([2; 6], [4; 6]);
    let ip = match (client.parse(), vip.parse()) {
        (Ok(IpAddr::V4(client)), Ok(IpAddr::V4(vip))) => link
            .ipv4(client.octets(), vip.octets(), 64)
            .tcp(12345, 443, 1, 1000),
        (Ok(IpAddr::V6(client)), Ok(IpAddr::V6(vip))) => link
            .ipv6(client.octets(), vip.octets(), 64)
            .tcp(12345, 443, 1, 1000),
        _ => unreachable!("both are addresses of one family"),
    };
    let tcp = if opens { ip.syn() } else { ip.ack(1) };
    let mut bytes = Vec::new();
    tcp.write(&mut bytes, &[0; 100])
        .expect("a vector takes all");
    bytes
}
