//! Nanoseconds a packet in the kernel, above an empty program in the same run.

use super::{
    driver::{Driver, Rewrite, Tested},
    figures::{least, median},
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
    Hook, TcHookKind,
    response::{Options as ResponseOptions, Probe as ResponseProbe},
    rtt::{Options, Probe},
};
use etherparse::{PacketBuilder, TcpOptionElement};

const ROUNDS: usize = 21;
const PACKETS: u32 = 50_000;
const FLOWS: [u32; 3] = [1, 10_000, 100_000];
const RESPONSE_FLOWS: [u32; 3] = [1, 1_000, 100_000];

pub fn run(stop: &Stop) -> Result<()> {
    pin()?;
    println!(
        "\
What the RTT program costs a packet (BPF_PROG_TEST_RUN), in ns above an empty program.
{ROUNDS} interleaved rounds of {PACKETS} packets a row; the least and the median of their differences.
stamped, sampled: the share of packets that made the program do that, as its own counters say.
ePPing: medians published for it, measured the same way on another day: its ratio is indicative only."
    );
    for mode in [Mode::Report, Mode::Limited, Mode::Aggregate] {
        println!("\n{}", mode.title());
        println!(
            "{:<43}{:>8}{:>7}{:>8}{:>9}{:>9}{:>8}{:>12}",
            "packet", "flows", "least", "median", "stamped", "sampled", "ePPing", "dwell is"
        );
        for row in rows().iter().filter(|row| row.mode == mode) {
            for (flows, epping) in FLOWS.into_iter().zip(row.epping) {
                if row.rewrite == Rewrite::AsIs && flows > 1 {
                    continue;
                }
                stop.check()?;
                measure(row, flows, epping)?;
            }
        }
    }
    responses(stop)
}

/// What the response program costs a packet at XDP: requests of many clients.
fn responses(stop: &Stop) -> Result<()> {
    println!("\nResponse latency at XDP, each packet a request");
    println!("{:<43}{:>8}{:>7}{:>8}", "estimator", "flows", "least", "median");
    for (name, estimator) in [("auto", Estimator::Auto), ("pirate", Estimator::Pirate)] {
        for flows in RESPONSE_FLOWS {
            stop.check()?;
            let probe = ResponseProbe::load(&ResponseOptions {
                watch: Watch {
                    config: response::Config { estimator, ..response::Config::default() },
                    ..Watch::default()
                },
                ingress: Hook::Xdp,
                chain: None,
                tc: TcHookKind::Auto,
                replay: false,
            })?;
            let tested = Tested::Response(probe);
            let mut driver = Driver::new(tested, Hook::Xdp, Rewrite::Stream, flows)?;
            let above = rounds(&mut driver, &tcp_plain(), flows)?;
            println!("{name:<43}{flows:>8}{:>7.0}{:>8.0}", least(&above), median(&above));
            tell_losses(&mut driver)?;
        }
    }
    Ok(())
}

fn rounds(driver: &mut Driver, packet: &[u8], flows: u32) -> Result<Vec<f64>> {
    // Each flow gets its place, and the caches and predictors what they learn from it.
    driver.program_ns(packet, PACKETS.max(3 * flows))?;
    let mut above = Vec::new();
    for _ in 0..ROUNDS {
        let empty = driver.empty_ns(packet, PACKETS)?;
        above.push(driver.program_ns(packet, PACKETS)? - empty);
    }
    Ok(above)
}

fn tell_losses(driver: &mut Driver) -> Result<()> {
    let counters = driver.counters()?;
    let lost = counters.get(Counter::EventsLost);
    if lost > 0 {
        println!("  {lost} records found the ring buffer full: the figure above is too low");
    }
    let untracked = counters.get(Counter::Untracked);
    if untracked > 0 {
        println!("  {untracked} packets found no place in the flow table");
    }
    Ok(())
}

fn measure(row: &Row, flows: u32, epping: u32) -> Result<()> {
    let tested = Tested::Rtt(Probe::load(&row.options())?);
    let mut driver = Driver::new(tested, row.hook, row.rewrite, flows)?;
    let above = rounds(&mut driver, &row.packet, flows)?;
    let ns = median(&above);
    let (published, ratio) = match epping {
        0 => ("-".to_owned(), "-".to_owned()),
        known => (known.to_string(), format!("{:.1} x less", f64::from(known) / ns)),
    };
    println!(
        "{:<43}{flows:>8}{:>7.0}{ns:>8.0}{:>9}{:>9}{published:>8}{ratio:>12}",
        row.name,
        least(&above),
        share(driver.share(Counter::Stamps)?),
        share(driver.share(Counter::Samples)?),
    );
    tell_losses(&mut driver)
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
    fn title(self) -> &'static str {
        match self {
            Mode::Report => "Every sample to user space",
            Mode::Limited => "At most a sample each 100 ms, flow and direction",
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
    /// Its published medians at 1, 10,000 and 100,000 flows; 0 where there is none.
    epping: [u32; 3],
}

impl Row {
    fn options(&self) -> Options {
        let aggregate = self.mode == Mode::Aggregate;
        Options {
            config: Config {
                methods: self.methods.to_vec(),
                max_flows: 100_000,
                rate_limit: RateLimit::Interval(match self.mode {
                    Mode::Limited => 100_000_000,
                    Mode::Report | Mode::Aggregate => 0,
                }),
                ..Config::default()
            },
            report: !aggregate,
            aggregate: aggregate.then_some(Aggregate { prefix4: 24, prefix6: 48, max_groups: 1024 }),
            ingress: self.hook,
            tc: TcHookKind::Auto,
            replay: false,
        }
    }
}

fn rows() -> Vec<Row> {
    use Mode::{Aggregate, Limited, Report};
    use Rewrite::{AsIs, Pairs, Same, Stream};
    const ONLY_TS: &[Method] = &[Method::TcpTimestamp];
    const ONLY_SEQ: &[Method] = &[Method::TcpSeq];
    const ALL: &[Method] = &Method::ALL;
    let row = |name, mode, packet: fn() -> Vec<u8>, rewrite, epping| Row {
        name,
        mode,
        methods: ALL,
        hook: Hook::TcIngress,
        packet: packet(),
        rewrite,
        epping,
    };
    vec![
        row("ARP, not IP", Report, arp, AsIs, [32, 0, 0]),
        row("UDP, not tracked", Report, udp, AsIs, [42, 0, 0]),
        Row {
            methods: ONLY_TS,
            ..row("TCP without timestamps, tcp-timestamp only", Report, tcp_plain, AsIs, [44, 0, 0])
        },
        row("ICMP echo request", Report, echo_request, AsIs, [91, 0, 0]),
        row("data, TSval unchanged", Report, tcp4, Same, [104, 132, 289]),
        row("the same, IPv6", Report, tcp6, Same, [105, 0, 0]),
        Row { hook: Hook::Xdp, ..row("the same, IPv4, at XDP ingress", Report, tcp4, Same, [113, 0, 0]) },
        row("data, each a new TSval, never answered", Report, tcp4, Stream, [0; 3]),
        row("data and ACK pairs, each a new TSval", Report, tcp4, Pairs, [450, 551, 600]),
        Row { methods: ONLY_SEQ, ..row("data never answered, tcp-seq", Report, tcp_plain, Stream, [0; 3]) },
        Row { methods: ONLY_SEQ, ..row("data and ACK pairs, tcp-seq", Report, tcp_plain, Pairs, [0; 3]) },
        row("data, TSval unchanged", Limited, tcp4, Same, [0; 3]),
        row("data and ACK pairs, each a new TSval", Limited, tcp4, Pairs, [107, 165, 606]),
        row("UDP, not tracked", Aggregate, udp, AsIs, [120, 0, 0]),
        Row {
            methods: ONLY_TS,
            ..row("TCP without timestamps, tcp-timestamp only", Aggregate, tcp_plain, AsIs, [120, 0, 0])
        },
        row("data, TSval unchanged", Aggregate, tcp4, Same, [165, 433, 353]),
        row("data and ACK pairs, each a new TSval", Aggregate, tcp4, Pairs, [308, 365, 414]),
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
