//! The cost of watching for real traffic: iperf3 through a vantage point, next to a program that does nothing.
mod net;
mod traffic;
mod watch;

use std::{path::Path, time::Duration};

use super::{
    figures::{median, spread},
    installed,
    limits::{EVERY_SAMPLE, FEW_SAMPLES, Figure, Finding, Limit, MISSED, unknown},
    peers::Peers,
    pin,
    stop::Stop,
};
use anyhow::Result;
use dwell_records::counted;
use net::Net;
use traffic::{Rate, Traffic};
use watch::{Empty, Watched, Watcher};

struct Plan<'a> {
    rounds: usize,
    window: Duration,
    flows: Vec<u32>,
    variants: Vec<Variant<'a>>,
}

/// What watches, next to the empty program.
#[derive(Clone, Copy)]
struct Variant<'a> {
    name: &'static str,
    watcher: Watcher<'a>,
    /// The least throughput that it must leave.
    limit: Option<&'static Limit>,
}

const NOTHING: Variant<'_> = Variant { name: "no program", watcher: Watcher::Nothing, limit: None };
const EVERY: Variant<'_> = Variant {
    name: "every sample",
    watcher: Watcher::Dwell(&["--rate-limit", "0", "--format", "jsonl"]),
    limit: Some(&EVERY_SAMPLE),
};
const FEW: Variant<'_> = Variant {
    name: "100 ms a flow",
    watcher: Watcher::Dwell(&["--rate-limit", "100ms", "--format", "jsonl"]),
    limit: Some(&FEW_SAMPLES),
};
const AGGREGATED: Variant<'_> =
    Variant { name: "aggregated", watcher: Watcher::Dwell(&["--aggregate"]), limit: Some(&FEW_SAMPLES) };

pub fn run(options: &super::Options, stop: &Stop) -> Result<Vec<Finding>> {
    let missing = match installed("iperf3") {
        None => Some("iperf3 is not installed (Debian package iperf3)".to_owned()),
        Some(_) => dwell_testbed::missing_requirement(),
    };
    if let Some(missing) = missing {
        return Ok(unknown([&FEW_SAMPLES, &EVERY_SAMPLE, &MISSED], &missing));
    }
    let peer = Peers::open(&options.peers)?.watcher;
    let cpu = pin()?;
    let rounds = options.rounds.unwrap_or(if options.quick { 10 } else { 20 });
    println!(
        "\
client -- vantage -- server, all in namespaces joined by veth without any delay; iperf3 (cubic) as
fast as it goes; clients, servers, forwarding and dwell share CPU {cpu}. dwell watches both directions
of one interface. Each window with it lies between two with a program there that does nothing.
Shares of what passed in these two, median of {rounds} rounds (least to greatest): a second, with how far the
median may be off (95 %), and a second of the CPU time that iperf3, forwarding and dwell got, which other
programs on the machine disturb less. CPU: of dwell in user space, share of theirs. missed: what the
interface's counters have more than dwell's, from an idle network to an idle network, in all rounds;
lost: samples that were not delivered."
    );
    let peer = peer.as_deref().map(|path: &Path| Variant { name: "peer", watcher: Watcher::Peer(path), ..NOTHING });
    let plan = |flows: &[u32], variants: &[Variant<'static>]| Plan {
        rounds,
        window: Duration::from_millis(500),
        flows: options.connections.map_or_else(|| flows.to_vec(), |flows| vec![flows]),
        variants: variants.iter().copied().chain(peer).collect(),
    };
    println!("\nOne segment per packet (gso_max_segs 1)");
    let flows = if options.quick { &[1, 1_000][..] } else { &[1, 10, 100, 1_000] };
    let mut findings = measure(&plan(flows, &[NOTHING, EVERY, FEW, AGGREGATED]), true, cpu, stop)?;
    if !options.quick {
        println!("\nSegmentation offload on: packets of up to 64 KB");
        findings.extend(measure(&plan(&[10], &[EVERY, AGGREGATED]), false, cpu, stop)?);
    }
    Ok(findings)
}

/// Prints the rows of a plan, and returns what concerns limits.
fn measure(plan: &Plan<'_>, single_segments: bool, cpu: usize, stop: &Stop) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    println!(
        "{:>5}  {:<20}{:>22}{:>8}{:>22}{:>8}{:>10}{:>13}{:>7}{:>6}",
        "flows", "dwell", "a second", "±", "a CPU second", "CPU", "samples/s", "packets seen", "missed", "lost"
    );
    for flows in &plan.flows {
        let net = Net::build(single_segments)?;
        let traffic = Traffic::start(&net, *flows, cpu, stop)?;
        let with_empty = || -> Result<Rate> {
            let _empty = Empty::attach(&net)?;
            traffic.window(&net, plan.window, stop)
        };
        let mut empty = Vec::new();
        let mut with: Vec<Vec<Watched>> = plan.variants.iter().map(|_| Vec::new()).collect();
        for _ in 0..plan.rounds {
            for (variant, with) in plan.variants.iter().zip(&mut with) {
                empty.push(with_empty()?);
                let mut watched = variant.watcher.watch(&net, &traffic, plan.window, stop)?;
                watched.before = empty.len() - 1;
                with.push(watched);
            }
        }
        empty.push(with_empty()?);
        print_empty(*flows, &empty);
        for (variant, watched) in plan.variants.iter().zip(&with) {
            let left = print(*flows, variant, watched, &empty);
            let offload = if single_segments { "" } else { ", with offload" };
            let case = format!("{}, {}{offload}", variant.name, counted(u64::from(*flows), "flow", "flows"));
            if let Some(limit) = variant.limit {
                let missed: i64 = watched.iter().flat_map(|watched| &watched.told).map(|told| told.missed.max(0)).sum();
                let known = left.within.map(|_| left).ok_or("fewer than six rounds say nothing");
                findings.push(limit.judge(case.clone(), known));
                findings.push(MISSED.judge(case, Ok(missed as f64)));
            }
        }
    }
    Ok(findings)
}

fn print_empty(flows: u32, empty: &[Rate]) {
    // A window between two others, as those with dwell are: what noise does to the ratio.
    let shares = |of: fn(&Rate) -> f64| -> Vec<f64> {
        empty.windows(3).map(|three| share(of, &three[1], &three[0], &three[2])).collect()
    };
    let each = |of: fn(&Rate) -> f64| empty.iter().map(of).collect::<Vec<_>>();
    println!(
        "{}   {:.2} Gbit/s, {:.0} thousand packets/s, {:.0} % of the CPU",
        start_of_row(flows, "empty against empty", shares),
        median(&each(Rate::by_time)) * 8.0 / 1e9,
        median(&each(|rate| rate.packets / rate.seconds)) / 1e3,
        median(&each(|rate| rate.cpu / rate.seconds)) * 100.0
    );
}

fn share(of: fn(&Rate) -> f64, it: &Rate, before: &Rate, after: &Rate) -> f64 {
    of(it) * 2.0 / (of(before) + of(after)) * 100.0
}

fn start_of_row(flows: u32, name: &str, shares: impl Fn(fn(&Rate) -> f64) -> Vec<f64>) -> String {
    let (by_time, by_cpu) = (shares(Rate::by_time), shares(Rate::by_cpu));
    let within = Figure::of(&by_time)
        .within
        .filter(|within| within.is_finite())
        .map_or("-".to_owned(), |within| format!("{within:.1} %"));
    format!("{flows:>5}  {name:<20}{:>22}{within:>8}{:>22}", spread(&by_time), spread(&by_cpu))
}

/// Prints a row. Returns the share of the throughput per second that is left, in percent.
fn print(flows: u32, variant: &Variant<'_>, watched: &[Watched], empty: &[Rate]) -> Figure {
    let shares = |of: fn(&Rate) -> f64| -> Vec<f64> {
        watched.iter().map(|it| share(of, &it.rate, &empty[it.before], &empty[it.before + 1])).collect()
    };
    let cpu: Vec<f64> = watched.iter().map(|watched| watched.cpu / watched.rate.cpu * 100.0).collect();
    let mut line = start_of_row(flows, variant.name, shares);
    if !matches!(variant.watcher, Watcher::Nothing) {
        line += &format!("{:>8}", format!("{:.1} %", median(&cpu)));
    }
    let told: Vec<_> = watched.iter().flat_map(|watched| &watched.told).collect();
    if !told.is_empty() {
        let samples: Vec<f64> = told.iter().map(|told| told.samples_a_second).collect();
        let [seen, missed, lost] = told
            .iter()
            .fold([0; 3], |[seen, missed, lost], told| [seen + told.seen, missed + told.missed, lost + told.lost]);
        line += &format!("{:>10.0}{seen:>13}{missed:>7}{lost:>6}", median(&samples));
    }
    println!("{line}");
    Figure::of(&shares(Rate::by_time))
}
