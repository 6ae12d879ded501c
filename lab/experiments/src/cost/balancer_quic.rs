//! Nanoseconds per packet of QUIC in the kernel's balancer, above an empty program in the same run.
use std::{
    net::IpAddr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{
    figures::{least, median},
    forward::Driven,
    kernel_objects,
    limits::{self, Finding},
    pin,
    stop::Stop,
};
use anyhow::{Result, bail};
use dwell_engine::{
    balance::{CidEvent, Forward, NextHop, Protocol, Real, Reason, ServerId, Vip, VipKey, ZeroVip},
    quic_lb::{Config, Load, Stamp},
};
use dwell_probes::balancer::{Plane, PlaneOptions};
use etherparse::PacketBuilder;

const ROUNDS: usize = 15;
const PACKETS: u32 = 50_000;
/// The loopback device, where packets of BPF_PROG_TEST_RUN arrive.
const LOOPBACK: u32 = 1;
const SERVERS: u32 = 64;
const KEY: [u8; 16] = *b"a key to measure";

struct Row {
    name: &'static str,
    flows: u32,
    packet: Vec<u8>,
    why: Reason,
    /// What the packets do beyond that, and what makes a row one of "connection ID opened" if it is [`CidEvent::Opened`].
    event: Option<CidEvent>,
}

pub fn run(stop: &Stop) -> Result<Vec<Finding>> {
    pin()?;
    println!(
        "\
What a packet of QUIC costs the balancer (BPF_PROG_TEST_RUN, layer 2, {SERVERS} servers), in ns above an
empty program. {ROUNDS} interleaved rounds of {PACKETS} packets per row; the least and the median of their differences."
    );
    println!("\n{:<52}{:>9}{:>8}{:>8}", "packet", "clients", "least", "median");
    let mut found = Vec::new();
    for row in rows()? {
        stop.check()?;
        let above = measure(&row)?;
        println!("{:<52}{:>9}{:>8.0}{:>8.0}", row.name, row.flows, least(&above), median(&above));
        let limit = match (row.why, row.event) {
            (Reason::Cid, _) => &limits::CID[0],
            (_, Some(CidEvent::Opened)) => &limits::CID[1],
            _ => continue,
        };
        found.push(limit.judge(row.name, Ok(least(&above))));
    }
    Ok(found)
}

fn rows() -> Result<Vec<Row>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let own = Config::own(0, KEY)?;
    let stamp = Stamp { freshness: now.as_secs() << 16, load: Load::from_wait(Duration::from_millis(3)) };
    let cid = own.encode_stamped(7, stamp).to_vec();
    // It is kept nowhere, and opened again for each packet.
    let of_nobody = own.encode_stamped(SERVERS as u16 + 1, stamp).to_vec();
    let forged = [&[16][..], &[0x5a; 16]].concat();
    let row = |name, flows, payload: Vec<u8>, why| Row { name, flows, packet: packet(&payload), why, event: None };
    let doing = |event, row: Row| Row { event: Some(event), ..row };
    Ok(vec![
        row("short, its server's, cached", 1, short(&cid), Reason::Cid),
        row("the same, of many clients", 10_000, short(&cid), Reason::Cid),
        row("long, its server's, cached", 1, long(&cid), Reason::Cid),
        doing(CidEvent::Opened, row("short, opened, nobody's: dropped", 1, short(&of_nobody), Reason::Unroutable)),
        // From one network, so that nearly all are over the budget of forged ones.
        doing(CidEvent::Unopened, row("short, forged, a flood: dropped", 1, short(&forged), Reason::Unroutable)),
        doing(CidEvent::NoLayout, row("short, of no layout: dropped", 1, short(&[0xff; 17]), Reason::Unroutable)),
        row("long, not routable, known", 10_000, long(&[1; 8]), Reason::Connection),
        row("long, not routable, new", 500_000, long(&[1; 8]), Reason::New),
    ])
}

fn short(cid: &[u8]) -> Vec<u8> {
    [&[0x41][..], cid, &[7; 100]].concat()
}

fn long(cid: &[u8]) -> Vec<u8> {
    [&[0xc3, 0, 0, 0, 1, cid.len() as u8][..], cid, &[7; 1200]].concat()
}

fn packet(payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4([10, 0, 0, 1], [198, 51, 100, 1], 64)
        .udp(12_345, 443)
        .write(&mut bytes, payload)
        .expect("a vector takes all");
    bytes
}

fn measure(row: &Row) -> Result<Vec<f64>> {
    let mut plane = plane()?;
    let mut driven = Driven::load(row.flows, 0, [0; 2])?;
    let loaded = kernel_objects::program("balance_xdp")?;
    let balancer = kernel_objects::number_of(&loaded);
    let nothing = driven.nothing()?;
    if row.why != Reason::New {
        driven.run(&row.packet, balancer, row.flows.max(PACKETS), 0)?;
    }
    let mut above = Vec::new();
    for _ in 0..ROUNDS {
        let count = driven.count;
        let empty = driven.run(&row.packet, nothing, PACKETS, 0)?;
        driven.count = count;
        above.push(driven.run(&row.packet, balancer, PACKETS, 0)? - empty);
    }
    let counters = plane.counters()?;
    let wanted = match row.why {
        // a few find no place in their buckets
        Reason::New => row.flows - row.flows / 500,
        _ => PACKETS * (ROUNDS as u32 - 1),
    };
    let seen = row.event.map_or(u64::MAX, |event| counters.cid_events(event)).min(counters.get(row.why));
    if seen < u64::from(wanted) {
        bail!("packets were not what '{}' says: {counters:?}", row.why.name());
    }
    Ok(above)
}

fn plane() -> Result<Plane> {
    let mut plane = Plane::load(&PlaneOptions {
        max_reals: 1024,
        idle_timeout: Duration::from_secs(3600),
        ..PlaneOptions::default()
    })?;
    let next_hop = NextHop { interface: LOOPBACK, destination: [2; 6], source: [4; 6], mtu: 1500 };
    for number in 1..=SERVERS {
        let address = IpAddr::from([10, 99, 0, number as u8]);
        plane.set_real(number, &Real::new(address, Some(next_hop), Forward::L2))?;
    }
    let key = VipKey { address: "198.51.100.1".parse()?, protocol: Protocol::Udp, port: Some(443) };
    let servers = (1..=SERVERS).map(|real| (real, ServerId(real.into())));
    let zero = ZeroVip {
        window: Duration::from_secs(3600),
        attempt: Duration::from_secs(600),
        ..ZeroVip::new(vec![Config::own(0, KEY)?], servers)
    };
    plane.set_zero(&key, 1, &zero)?;
    let vip = Vip { number: 1, zero_slot: Some(1), ..Vip::default() };
    plane.set_vip(&key, &vip)?;
    let table: Vec<u32> = (0..65_537).map(|at| 1 + at % SERVERS).collect();
    plane.set_table(1, &table)?;
    Ok(plane)
}
