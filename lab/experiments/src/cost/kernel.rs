//! Nanoseconds per packet in the kernel, above an empty program in the same run.

use std::os::fd::OwnedFd;

use super::{
    driver::{Driver, Rewrite, Tested},
    figures::{least, median},
    limits::{self, Finding},
    peers::Peers,
    pin,
    stop::Stop,
};
use anyhow::Result;
use dwell_engine::{
    measure::Method,
    response::{self, Estimator, Watch},
    rtt::{Aggregate, Config, Counter, RateLimit},
};
use dwell_probes::{
    Hook,
    response::{Options as ResponseOptions, Probe as ResponseProbe},
    rtt::{Options, Probe},
};
use dwell_records::counted;
use etherparse::{PacketBuilder, TcpOptionElement};

const ROUNDS: usize = 21;
const PACKETS: u32 = 50_000;
const FLOWS: [u32; 4] = [1, 10_000, 100_000, 1_000_000];
const RESPONSE_FLOWS: [u32; 3] = [1, 1_000, 100_000];

pub fn run(options: &super::Options, stop: &Stop) -> Result<Vec<Finding>> {
    pin()?;
    let peer = Peers::open(&options.peers)?.tc;
    let mut found = Vec::new();
    println!(
        "\
The cost of the RTT program per packet (BPF_PROG_TEST_RUN), in ns above an empty program.
{ROUNDS} interleaved rounds of {PACKETS} packets per row; the least and the median of their differences.
stamped, sampled: the share of packets that made the program do that, by its own counters."
    );
    for mode in [Mode::Report, Mode::Limited, Mode::Aggregate] {
        println!("\n{}", mode.title());
        print!("{:<43}{:>8}{:>7}{:>8}{:>9}{:>9}", "packet", "flows", "least", "median", "stamped", "sampled");
        println!("{}", peer.as_ref().map_or(String::new(), |_| format!("{:>8}", "peer")));
        for row in rows().iter().filter(|row| row.mode == mode && options.wants(row.name)) {
            for flows in FLOWS {
                if row.rewrite == Rewrite::AsIs && flows > 1 {
                    continue;
                }
                stop.check()?;
                found.extend(measure(row, flows, peer.as_ref())?);
            }
        }
    }
    if options.wants("response") {
        responses(stop, &mut found)?;
    }
    Ok(found)
}

/// Prints the cost of the response program per packet at XDP, where each packet is a request of one of many clients.
fn responses(stop: &Stop, found: &mut Vec<Finding>) -> Result<()> {
    println!("\nResponse latency at XDP, each packet a request");
    println!("{:<43}{:>8}{:>7}{:>8}", "estimator", "flows", "least", "median");
    for (name, estimator) in [("auto", Estimator::Auto), ("pirate", Estimator::Pirate)] {
        for flows in RESPONSE_FLOWS {
            stop.check()?;
            let config = response::Config { estimator, ..response::Config::default() };
            let watch = Watch { config, ..Watch::default() };
            let probe = ResponseProbe::load(&ResponseOptions { ingress: Hook::Xdp, ..ResponseOptions::new(watch) })?;
            let tested = Tested::Response(probe);
            let mut driver = Driver::new(tested, Hook::Xdp, Rewrite::Stream, flows)?;
            let above = rounds(&mut driver, &tcp_plain(), flows, None)?.0;
            println!("{name:<43}{flows:>8}{:>7.0}{:>8.0}", least(&above), median(&above));
            print_losses(&mut driver)?;
            let limit = &limits::RESPONSE[usize::from(flows > 1_000)];
            found.push(limit.judge(format!("{name}, {}", of_flows(flows)), Ok(least(&above))));
        }
    }
    Ok(())
}

/// Returns the nanoseconds above the empty program, and those of the peer, if there is one.
fn rounds(driver: &mut Driver, packet: &[u8], flows: u32, peer: Option<&OwnedFd>) -> Result<(Vec<f64>, Vec<f64>)> {
    // Each flow gets its slot, and caches and predictors warm up.
    driver.program_ns(packet, PACKETS.max(3 * flows))?;
    if let Some(peer) = peer {
        driver.peer_ns(packet, PACKETS.max(3 * flows), peer)?;
    }
    let (mut above, mut of_peer) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let empty = driver.empty_ns(packet, PACKETS)?;
        above.push(driver.program_ns(packet, PACKETS)? - empty);
        if let Some(peer) = peer {
            of_peer.push(driver.peer_ns(packet, PACKETS, peer)? - empty);
        }
    }
    Ok((above, of_peer))
}

fn print_losses(driver: &mut Driver) -> Result<()> {
    let counters = driver.counters()?;
    let lost = counters.get(Counter::EventsLost);
    if lost > 0 {
        println!("  {lost} records found the ring buffer full: the figure above is too low");
    }
    let untracked = counters.get(Counter::Untracked);
    if untracked > 0 {
        println!("  {untracked} packets found no slot in the flow table");
    }
    Ok(())
}

/// Measures a row. Its limit is a ratio to the peer, where both do the same.
fn measure(row: &Row, flows: u32, peer: Option<&OwnedFd>) -> Result<Option<Finding>> {
    let tested = Tested::Rtt(Probe::load(&row.options(flows))?);
    let mut driver = Driver::new(tested, row.hook, row.rewrite, flows)?;
    let peer = peer.filter(|_| row.is_compared());
    let (above, of_peer) = rounds(&mut driver, &row.packet, flows, peer)?;
    println!(
        "{:<43}{flows:>8}{:>7.0}{:>8.0}{:>9}{:>9}{}",
        row.name,
        least(&above),
        median(&above),
        share(driver.share(Counter::Stamps)?),
        share(driver.share(Counter::Samples)?),
        peer.map_or(String::new(), |_| format!("{:>8.0}", least(&of_peer))),
    );
    print_losses(&mut driver)?;
    let limit = &limits::RTT[usize::from(flows > 10_000)];
    let times = peer.map(|_| least(&of_peer) / least(&above)).ok_or(NO_PEER);
    let case = || format!("{}, {}, {}", row.name, row.mode.name(), of_flows(flows));
    Ok(row.is_compared().then(|| limit.judge(case(), times)))
}

const NO_PEER: &str = "no --peer for tc";

fn of_flows(flows: u32) -> String {
    counted(u64::from(flows), "flow", "flows")
}

fn share(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Report,
    Limited,
    Aggregate,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Report => "every sample",
            Mode::Limited => "100 ms",
            Mode::Aggregate => "aggregated",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Mode::Report => "Every sample to user space",
            Mode::Limited => "At most one sample every 100 ms per flow and direction",
            Mode::Aggregate => "Aggregate mode: histograms in the kernel",
        }
    }
}

struct Row {
    name: &'static str,
    mode: Mode,
    methods: &'static [Method],
    hook: Hook,
    packet: Vec<u8>,
    rewrite: Rewrite,
}

impl Row {
    /// Whether a peer that matches TCP timestamps at tc does the same.
    fn is_compared(&self) -> bool {
        self.hook == Hook::TcIngress && self.methods.len() > 1 && matches!(self.rewrite, Rewrite::Same | Rewrite::Pairs)
    }

    fn options(&self, flows: u32) -> Options {
        let aggregate = self.mode == Mode::Aggregate;
        let config = Config {
            methods: self.methods.to_vec(),
            max_flows: flows.max(100_000),
            rate_limit: RateLimit::Interval(match self.mode {
                Mode::Limited => 100_000_000,
                Mode::Report | Mode::Aggregate => 0,
            }),
            ..Config::default()
        };
        Options {
            report: !aggregate,
            aggregate: aggregate.then_some(Aggregate { max_groups: 1024, ..Aggregate::default() }),
            ingress: self.hook,
            ..Options::new(config)
        }
    }
}

fn rows() -> Vec<Row> {
    use Mode::{Aggregate, Limited, Report};
    use Rewrite::{AsIs, Pairs, Same, Stream};
    const ONLY_TS: &[Method] = &[Method::TcpTimestamp];
    const ONLY_SEQ: &[Method] = &[Method::TcpSeq];
    const ALL: &[Method] = &Method::ALL;
    let row = |name, mode, packet: fn() -> Vec<u8>, rewrite| Row {
        name,
        mode,
        methods: ALL,
        hook: Hook::TcIngress,
        packet: packet(),
        rewrite,
    };
    vec![
        row("ARP, not IP", Report, arp, AsIs),
        row("UDP, not tracked", Report, udp, AsIs),
        Row { methods: ONLY_TS, ..row("TCP without timestamps, tcp-timestamp only", Report, tcp_plain, AsIs) },
        row("ICMP echo request", Report, echo_request, AsIs),
        row("data, TSval unchanged", Report, tcp4, Same),
        row("the same, IPv6", Report, tcp6, Same),
        Row { hook: Hook::Xdp, ..row("the same, IPv4, at XDP ingress", Report, tcp4, Same) },
        row("data, each a new TSval, never answered", Report, tcp4, Stream),
        row("data and ACK pairs, each a new TSval", Report, tcp4, Pairs),
        Row { methods: ONLY_SEQ, ..row("data never answered, tcp-seq", Report, tcp_plain, Stream) },
        Row { methods: ONLY_SEQ, ..row("data and ACK pairs, tcp-seq", Report, tcp_plain, Pairs) },
        row("data, TSval unchanged", Limited, tcp4, Same),
        row("data and ACK pairs, each a new TSval", Limited, tcp4, Pairs),
        row("UDP, not tracked", Aggregate, udp, AsIs),
        Row { methods: ONLY_TS, ..row("TCP without timestamps, tcp-timestamp only", Aggregate, tcp_plain, AsIs) },
        row("data, TSval unchanged", Aggregate, tcp4, Same),
        row("data and ACK pairs, each a new TSval", Aggregate, tcp4, Pairs),
    ]
}

const PAYLOAD: [u8; 1000] = [0; 1000];
const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [192, 168, 0, 1];

fn link() -> Link {
    PacketBuilder::ethernet2([2; 6], [4; 6])
}

type Link = etherparse::PacketBuilderStep<etherparse::Ethernet2Header>;

fn arp() -> Vec<u8> {
    let mut bytes = vec![0xff; 6];
    bytes.extend([2; 6]);
    bytes.extend([0x08, 0x06]);
    bytes.extend([0; 46]);
    bytes
}

fn udp() -> Vec<u8> {
    let mut bytes = Vec::new();
    link().ipv4(CLIENT, SERVER, 64).udp(5001, 5001).write(&mut bytes, &PAYLOAD).expect("a vector takes all");
    bytes
}

fn echo_request() -> Vec<u8> {
    let mut bytes = Vec::new();
    link()
        .ipv4(CLIENT, SERVER, 64)
        .icmpv4_echo_request(7, 1)
        .write(&mut bytes, &PAYLOAD[..56])
        .expect("a vector takes all");
    bytes
}

fn tcp_plain() -> Vec<u8> {
    let mut bytes = Vec::new();
    link()
        .ipv4(CLIENT, SERVER, 64)
        .tcp(12345, 443, 1, 1000)
        .ack(1)
        .write(&mut bytes, &PAYLOAD)
        .expect("a vector takes all");
    bytes
}

fn tcp4() -> Vec<u8> {
    with_timestamps(link().ipv4(CLIENT, SERVER, 64).tcp(12345, 443, 1, 1000))
}

fn tcp6() -> Vec<u8> {
    let (mut client, mut server) = ([0; 16], [0; 16]);
    (client[0], server[0]) = (0x20, 0x20);
    (client[15], server[15]) = (1, 2);
    with_timestamps(link().ipv6(client, server, 64).tcp(12345, 443, 1, 1000))
}

fn with_timestamps(builder: etherparse::PacketBuilderStep<etherparse::TcpHeader>) -> Vec<u8> {
    let options = [TcpOptionElement::Noop, TcpOptionElement::Noop, TcpOptionElement::Timestamp(1, 1)];
    let mut bytes = Vec::new();
    builder.ack(1).options(&options).expect("they fit").write(&mut bytes, &PAYLOAD).expect("a vector takes all");
    bytes
}
