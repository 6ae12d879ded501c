//! The cost of watching for real traffic: iperf3 through a vantage point, with and without dwell.
mod net;
mod traffic;
mod watch;

use std::time::Duration;

use super::{
    figures::{greatest, least, median},
    goals::{self, MIN_LEFT_EVERY_SAMPLE, MIN_LEFT_LIMITED},
    installed, pin,
    stop::Stop,
};
use anyhow::Result;
use net::Net;
use traffic::{Rate, Traffic};
use watch::{Watched, watch};

use crate::goal::Goal;

struct Plan {
    rounds: usize,
    window: Duration,
    flows: Vec<u32>,
    variants: &'static [Variant],
}

/// A way to run dwell.
struct Variant {
    name: &'static str,
    options: &'static [&'static str],
    /// The least throughput that it must leave, in percent.
    goal: Option<f64>,
}

const fn variant(name: &'static str, options: &'static [&'static str], goal: Option<f64>) -> Variant {
    Variant { name, options, goal }
}

const EVERY_SAMPLE: Variant =
    variant("every sample, jsonl", &["--rate-limit", "0", "--format", "jsonl"], Some(MIN_LEFT_EVERY_SAMPLE));
const AGGREGATE: Variant = variant("aggregate", &["--aggregate"], Some(MIN_LEFT_LIMITED));

const VARIANTS: [Variant; 6] = [
    EVERY_SAMPLE,
    variant("10 ms a flow, jsonl", &["--rate-limit", "10ms", "--format", "jsonl"], None),
    variant("100 ms a flow, jsonl", &["--rate-limit", "100ms", "--format", "jsonl"], Some(MIN_LEFT_LIMITED)),
    variant("1000 ms a flow, jsonl", &["--rate-limit", "1s", "--format", "jsonl"], None),
    variant("every sample, not reported", &["--rate-limit", "0", "--format", "none"], None),
    AGGREGATE,
];
const FEW_VARIANTS: [Variant; 2] = [EVERY_SAMPLE, AGGREGATE];

pub fn run(options: &super::Options, stop: &Stop) -> Result<Vec<Goal>> {
    let (quick, only) = (options.quick, options.flows.map(|flows| vec![flows]));
    if installed("iperf3").is_none() {
        println!("iperf3 is not installed (Debian package iperf3): nothing to measure");
        return Ok(undecided());
    }
    if let Some(missing) = dwell_testbed::missing_requirement() {
        println!("left out: {missing}");
        return Ok(undecided());
    }
    let cpu = pin()?;
    println!(
        "\
client -- vantage -- server, all in namespaces joined by veth without any delay; iperf3 (cubic) as
fast as it goes; clients, servers, forwarding and dwell share CPU {cpu}. dwell watches both directions
of one interface. Each window with dwell lies between two without.
Shares of what passed in these two, median of the rounds (least to greatest): a second, and a second of
the CPU time that iperf3, forwarding and dwell got, which other programs on the machine disturb less.
CPU: of dwell in user space, share of theirs. missed: what the interface's counters have more than
dwell's, from an idle network to an idle network, in all rounds; lost: samples that were not delivered."
    );
    let alone = Plan {
        rounds: if quick { 2 } else { 5 },
        window: Duration::from_millis(500),
        flows: only.clone().unwrap_or(if quick { vec![1, 100] } else { vec![1, 10, 100, 1000] }),
        variants: &VARIANTS,
    };
    let joined = Plan {
        rounds: if quick { 2 } else { 3 },
        window: alone.window,
        flows: only.unwrap_or(if quick { vec![10] } else { vec![10, 1000] }),
        variants: &FEW_VARIANTS,
    };
    println!("\nOne segment per packet (gso_max_segs 1)");
    let mut goals = measure(&alone, true, cpu, stop)?;
    println!("\nSegmentation offload on: packets of up to 64 KB");
    goals.extend(measure(&joined, false, cpu, stop)?);
    Ok(goals)
}

/// The goals of a host that cannot make the traffic.
fn undecided() -> Vec<Goal> {
    vec![Goal { holds: None, what: "throughput that is left".to_owned() }]
}

/// Prints the rows of a plan, and returns the goals of the variants that have one.
fn measure(plan: &Plan, single_segments: bool, cpu: usize, stop: &Stop) -> Result<Vec<Goal>> {
    let mut goals = Vec::new();
    println!(
        "{:>5}  {:<26}{:>22}{:>22}{:>6}{:>8}{:>10}{:>13}{:>7}{:>6}",
        "flows", "dwell", "a second", "a CPU second", "goal", "CPU", "samples/s", "packets seen", "missed", "lost"
    );
    for flows in &plan.flows {
        let net = Net::build(single_segments)?;
        let traffic = Traffic::start(&net, *flows, cpu, stop)?;
        let mut without = Vec::new();
        let mut with: Vec<Vec<Watched>> = plan.variants.iter().map(|_| Vec::new()).collect();
        for _ in 0..plan.rounds {
            for (variant, with) in plan.variants.iter().zip(&mut with) {
                without.push(traffic.window(&net, plan.window, stop)?);
                let mut watched = watch(&net, &traffic, variant.options, plan.window, stop)?;
                watched.before = without.len() - 1;
                with.push(watched);
            }
        }
        without.push(traffic.window(&net, plan.window, stop)?);
        print_none(*flows, &without);
        for (variant, watched) in plan.variants.iter().zip(&with) {
            let left = print(*flows, variant, watched, &without);
            let offload = if single_segments { "one segment per packet" } else { "with offload" };
            let what = format!("{flows} flows, {offload}, {}", variant.name);
            goals.extend(variant.goal.map(|wanted| goals::live(&what, left, wanted)));
        }
    }
    Ok(goals)
}

fn print_none(flows: u32, without: &[Rate]) {
    // A window between two others, as those with dwell are: what noise does to the ratio.
    let shares = |of: fn(&Rate) -> f64| -> Vec<f64> {
        without.windows(3).map(|three| share(of, &three[1], &three[0], &three[2])).collect()
    };
    let each = |of: fn(&Rate) -> f64| without.iter().map(of).collect::<Vec<_>>();
    println!(
        "{flows:>5}  {:<26}{:>22}{:>22}   {:.2} Gbit/s, {:.0} thousand packets/s, {:.0} % of the CPU",
        "none, against none",
        spread(&shares(Rate::by_time)),
        spread(&shares(Rate::by_cpu)),
        median(&each(Rate::by_time)) * 8.0 / 1e9,
        median(&each(|rate| rate.packets / rate.seconds)) / 1e3,
        median(&each(|rate| rate.cpu / rate.seconds)) * 100.0
    );
}

fn share(of: fn(&Rate) -> f64, it: &Rate, before: &Rate, after: &Rate) -> f64 {
    of(it) * 2.0 / (of(before) + of(after)) * 100.0
}

/// Prints a row. Returns the median share of the throughput per second that is left, in percent.
fn print(flows: u32, variant: &Variant, watched: &[Watched], without: &[Rate]) -> f64 {
    let shares = |of: fn(&Rate) -> f64| -> Vec<f64> {
        watched.iter().map(|it| share(of, &it.rate, &without[it.before], &without[it.before + 1])).collect()
    };
    let each = |of: fn(&Watched) -> f64| watched.iter().map(of).collect::<Vec<_>>();
    let sum = |of: fn(&Watched) -> i64| watched.iter().map(of).sum::<i64>();
    println!(
        "{flows:>5}  {:<26}{:>22}{:>22}{:>6}{:>8}{:>10.0}{:>13}{:>7}{:>6}",
        variant.name,
        spread(&shares(Rate::by_time)),
        spread(&shares(Rate::by_cpu)),
        variant.goal.map_or("-".to_owned(), |goal| format!("{goal} %")),
        format!("{:.1} %", median(&each(|watched| watched.cpu / watched.rate.cpu)) * 100.0),
        median(&each(|watched| watched.samples_a_second)),
        sum(|watched| watched.seen),
        sum(|watched| watched.missed),
        sum(|watched| watched.lost),
    );
    median(&shares(Rate::by_time))
}

fn spread(shares: &[f64]) -> String {
    format!("{:.1} % ({:.0} to {:.0})", median(shares), least(shares), greatest(shares))
}
