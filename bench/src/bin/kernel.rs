//! Nanoseconds a packet in the kernel, above an empty program in the same run.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use anyhow::Result;
use dwell_engine::{
    measure::Method,
    rtt::{Aggregate, Config, RateLimit},
};
use dwell_probes::{
    Hook, TcHookKind,
    bench::{Bench, Rewrite},
    rtt::Options,
};
use etherparse::PacketBuilder;

const ROUNDS: usize = 21;
const REPEAT: u32 = 50_000;

fn main() -> Result<()> {
    println!(
        "ns a packet above an empty program, low / median of {ROUNDS} interleaved rounds of {REPEAT}"
    );
    println!("{:44} {:>8} {:>14}", "packet", "flows", "ns");
    for mode in [Mode::Report, Mode::Limited, Mode::Aggregate] {
        let mut bench = Bench::new(&mode.options())?;
        for case in cases() {
            for flows in [1, 10_000, 100_000] {
                if case.rewrite == Rewrite::AsIs && flows > 1 {
                    continue;
                }
                let repeat = REPEAT.max(flows * 2);
                let mut above = Vec::new();
                bench.run(&case.packet, case.rewrite, flows, repeat, false)?;
                for _ in 0..ROUNDS {
                    let empty = bench.run(&case.packet, case.rewrite, flows, repeat, true)?;
                    let full = bench.run(&case.packet, case.rewrite, flows, repeat, false)?;
                    above.push(full as i64 - empty as i64);
                }
                above.sort_unstable();
                println!(
                    "{:44} {:>8} {:>6} / {:<5}",
                    format!("{}: {}", mode.name(), case.name),
                    flows,
                    above[0],
                    above[ROUNDS / 2]
                );
            }
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Mode {
    Report,
    Limited,
    Aggregate,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Report => "every sample",
            Mode::Limited => "100 ms a flow",
            Mode::Aggregate => "aggregate",
        }
    }

    fn options(self) -> Options {
        Options {
            config: Config {
                methods: Method::ALL.to_vec(),
                max_flows: 100_000,
                rate_limit: match self {
                    Mode::Limited => RateLimit::Interval(100_000_000),
                    _ => RateLimit::Interval(0),
                },
                ..Config::default()
            },
            report: !matches!(self, Mode::Aggregate),
            aggregate: matches!(self, Mode::Aggregate).then_some(Aggregate {
                prefix4: 24,
                prefix6: 48,
                max_groups: 1024,
            }),
            ingress: Hook::TcIngress,
            tc: TcHookKind::Auto,
            replay: false,
        }
    }
}

struct Case {
    name: &'static str,
    packet: Vec<u8>,
    rewrite: Rewrite,
}

fn cases() -> Vec<Case> {
    let link = || PacketBuilder::ethernet2([2; 6], [4; 6]);
    let build = |builder: etherparse::PacketBuilderStep<etherparse::TcpHeader>| {
        let mut bytes = Vec::new();
        builder
            .write(&mut bytes, &[0; 1000])
            .expect("a vector takes all");
        bytes
    };
    let ts = etherparse::TcpOptionElement::Timestamp(1, 1);
    let noop = etherparse::TcpOptionElement::Noop;
    let tcp = |with_ts: bool| {
        let builder = link()
            .ipv4([10, 0, 0, 1], [192, 168, 0, 1], 64)
            .tcp(12345, 443, 1, 1000)
            .ack(1);
        if with_ts {
            builder
                .options(&[noop.clone(), noop.clone(), ts.clone()])
                .expect("they fit")
        } else {
            builder
        }
    };
    let mut udp = Vec::new();
    link()
        .ipv4([10, 0, 0, 1], [192, 168, 0, 1], 64)
        .udp(5001, 5001)
        .write(&mut udp, &[0; 1000])
        .expect("a vector takes all");
    let mut arp = vec![0xff; 6];
    arp.extend([2; 6]);
    arp.extend([0x08, 0x06]);
    arp.extend([0; 46]);
    vec![
        Case {
            name: "ARP, not IP",
            packet: arp,
            rewrite: Rewrite::AsIs,
        },
        Case {
            name: "UDP, not tracked",
            packet: udp,
            rewrite: Rewrite::AsIs,
        },
        Case {
            name: "data, TSval unchanged",
            packet: build(tcp(true)),
            rewrite: Rewrite::SameTsval,
        },
        Case {
            name: "data and ACK pairs",
            packet: build(tcp(true)),
            rewrite: Rewrite::Pairs,
        },
    ]
}
