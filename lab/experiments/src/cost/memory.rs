//! The memory of a flow, in user space and in the kernel.
use std::ffi::OsStr;

use super::{
    child, dwell,
    kernel_objects::{self, Map},
    limits::{self, Finding},
    stop::Stop,
    traffic::{self, Plan},
};
use anyhow::Result;
use dwell_engine::{
    abi, balance,
    rtt::{Aggregate, Config},
};
use dwell_probes::rtt::{Options, Probe};

pub fn run(stop: &Stop) -> Result<Vec<Finding>> {
    table_sizes();
    stop.check()?;
    kernel_maps()?;
    stop.check()?;
    resident(stop)?;
    Ok(connections())
}

/// The memory of a connection of the balancer: its slot, its way in a bucket of a table that is full, and its state if it is
/// measured.
fn connections() -> Vec<Finding> {
    let way = size_of::<abi::dwell_slot_bucket>() / abi::DWELL_WAYS as usize;
    let bytes = f64::from(balance::slot_bytes()) + way as f64;
    let measured = bytes + f64::from(balance::STATE_BYTES);
    println!("\nA connection of dwell lb: {bytes:.0} bytes, {measured:.0} if it is measured, in a table that is full");
    let [of_measured, of_other] = &limits::CONNECTION;
    vec![of_measured.judge("", Ok(measured)), of_other.judge("", Ok(bytes))]
}

fn configs() -> [Config; 3] {
    [10_000, Config::default().max_flows, 1_000_000].map(|max_flows| Config { max_flows, ..Config::default() })
}

fn table_sizes() {
    let sizes = [
        ("flow", size_of::<abi::dwell_flow>()),
        ("state of a flow", size_of::<abi::dwell_cold>() + size_of::<abi::dwell_matcher>()),
        ("bucket of four flows", size_of::<abi::dwell_slot_bucket>()),
        ("stamp", size_of::<abi::dwell_stamp>()),
    ];
    println!("Sizes, bytes");
    for (name, bytes) in sizes {
        println!("  {name:<22}{bytes:>6}");
    }
    println!("\nTables by --max-flows: computed");
    println!("{:>12}{:>12}{:>12}{:>12}{:>14}", "max flows", "slots", "stamps", "MB", "bytes a flow");
    for config in configs() {
        let (buckets, stamps) = (u64::from(config.buckets()), u64::from(config.stamps()));
        let places = u64::from(config.slots());
        let bytes =
            places * (sizes[0].1 + sizes[1].1) as u64 + buckets * sizes[2].1 as u64 + stamps * sizes[3].1 as u64;
        println!(
            "{:>12}{places:>12}{stamps:>12}{:>12.1}{:>14.0}",
            config.max_flows,
            bytes as f64 / 1e6,
            bytes as f64 / f64::from(config.max_flows)
        );
    }
}

fn kernel_maps() -> Result<()> {
    println!("\nKernel memory of the maps, MB, as the kernel charges it (fdinfo); set aside at the start");
    println!(
        "{:>12}{:>12}{:>9}{:>9}{:>10}{:>9}{:>9}{:>12}{:>9}",
        "max flows", "aggregate", "flows", "buckets", "memories", "stamps", "events", "histograms", "all"
    );
    for (config, aggregate) in configs().into_iter().flat_map(|config| [(config.clone(), false), (config, true)]) {
        let max_flows = config.max_flows;
        let options = Options {
            report: !aggregate,
            aggregate: aggregate.then_some(Aggregate::default()),
            ..Options::new(config)
        };
        let probe = match Probe::load(&options) {
            Ok(probe) => probe,
            Err(error) => {
                println!("left out: {error}");
                return Ok(());
            }
        };
        let maps = kernel_objects::maps();
        drop(probe);
        let mb = |wanted: &dyn Fn(&Map) -> bool| {
            maps.iter().filter(|map| wanted(map)).map(|map| map.memory_bytes).sum::<u64>() as f64 / 1e6
        };
        let of = |name: &'static str| mb(&move |map: &Map| map.name == name);
        println!(
            "{max_flows:>12}{:>12}{:>9.1}{:>9.1}{:>10.1}{:>9.1}{:>9.1}{:>12.1}{:>9.1}",
            if aggregate { "512 groups" } else { "off" },
            of("flows"),
            of("buckets"),
            of("cold") + of("matchers"),
            of("stamps"),
            of("events"),
            of("histograms"),
            mb(&|_| true)
        );
    }
    Ok(())
}

/// Writes a capture in which all flows are active to a pipe: three packets of each flow, then random ones.
fn resident(stop: &Stop) -> Result<()> {
    println!("\nReplay of that many flows at once (a pipe, five packets per flow; --format none)");
    println!("{:>12}{:>18}{:>18}{:>10}", "flows", "resident MB", "bytes a flow", "CPU s");
    let mut idle = 0;
    for flows in [1, 10_000, 100_000, 1_000_000] {
        stop.check()?;
        let plan = Plan { flows, packets: flows * 5, snap: 66, gap_ns: 1000 };
        let max_flows = flows.max(1000).to_string();
        let arguments = ["rtt", "-r", "-", "--format", "none", "--max-flows", &max_flows].map(OsStr::new);
        let cost = child::run_fed(&dwell()?, &arguments, |pipe| {
            traffic::write(&plan, pipe)?;
            Ok(())
        })?;
        if flows == 1 {
            idle = cost.memory_bytes;
        }
        println!(
            "{flows:>12}{:>18.1}{:>18.0}{:>10.2}   {}",
            cost.memory_bytes as f64 / 1e6,
            (cost.memory_bytes - idle) as f64 / f64::from(flows),
            cost.cpu.as_secs_f64(),
            cost.last_words
        );
    }
    Ok(())
}
