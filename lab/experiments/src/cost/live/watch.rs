//! A run of dwell during the traffic.

use std::{
    io::Read,
    process::Stdio,
    time::{Duration, Instant},
};

use super::super::{dwell, stop::Stop};
use anyhow::{Context, Result, bail};
use dwell_testbed::{Guarded, harness::links};
use nix::sys::signal::Signal;

use super::{
    net::{Net, WATCHED},
    traffic::{Rate, SETTLE, Traffic, send, wait},
};
use crate::usage::cpu_time;

/// The figures of a run of dwell.
pub struct Watched {
    pub rate: Rate,
    /// Seconds of CPU time of dwell itself.
    pub cpu: f64,
    pub samples_a_second: f64,
    pub seen: i64,
    pub missed: i64,
    pub lost: i64,
    /// The index of the window without dwell before this one.
    pub before: usize,
}

pub fn watch(net: &Net, traffic: &Traffic, options: &[&str], window: Duration, stop: &Stop) -> Result<Watched> {
    traffic.pause(net, stop)?;
    let paused = Instant::now();
    let mut arguments = vec!["rtt", "-i", WATCHED];
    arguments.extend(options);
    let mut dwell = net.vantage.spawn(dwell()?, |command| {
        command.args(&arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    })?;
    let pid = dwell.id();
    wait_until_attached(net, &mut dwell, stop)?;
    let idle = net.counters()?;
    let begun = Instant::now();
    traffic.idle.set(paused.elapsed());
    traffic.resume()?;
    stop.sleep(SETTLE)?;
    let cpu_before = cpu_time(pid);
    let rate = traffic.rate(net, Some(pid), window, stop)?;
    let cpu = (cpu_time(pid) - cpu_before).as_secs_f64();
    traffic.pause(net, stop)?;
    let active = begun.elapsed();
    let crossed = net.counters()?.since(&idle);
    send(&dwell, Signal::SIGTERM)?;
    let told = words(&mut dwell)?;
    let status = dwell.wait()?;
    traffic.resume()?;
    let figure = |name: &str| figure(&told, name);
    let (Some(packets), Some(bytes), Some(samples), Some(lost)) =
        (figure("packet"), figure("byte"), figure("sample"), figure("event lost").or_else(|| figure("events lost")))
    else {
        bail!("dwell {arguments:?} ({status}) reported no figures: {told}");
    };
    let difference = crossed.packets - packets;
    // A packet of several segments is as many to dwell, and one to the interface: then bytes tell.
    let missed = if net.single_segments {
        difference
    } else if crossed.bytes == bytes {
        0
    } else {
        difference.max(1)
    };
    Ok(Watched {
        rate,
        cpu,
        samples_a_second: samples as f64 / active.as_secs_f64(),
        seen: packets,
        missed,
        lost,
        before: 0,
    })
}

/// Returns the number before a name, in the singular or the plural, in "12 packets, 1 sample, 0 events lost".
fn figure(told: &str, name: &str) -> Option<i64> {
    let line = told.lines().find_map(|line| line.strip_prefix("dwell: "))?;
    line.split(", ")
        .filter_map(|part| part.split_once(' '))
        .find(|(_, what)| what.strip_suffix('s').unwrap_or(what) == name)
        .and_then(|(number, _)| number.parse().ok())
}

/// Waits until dwell is attached: it holds a link for each direction, or filters on a kernel without tcx.
fn wait_until_attached(net: &Net, dwell: &mut Guarded, stop: &Stop) -> Result<()> {
    wait(stop, "dwell to attach", || {
        if links(dwell.id()) >= 2 {
            return Ok(true);
        }
        if let Some(status) = dwell.try_wait()? {
            let told = words(dwell)?;
            bail!("dwell ended ({status}): {}", told.trim());
        }
        let filters = net.vantage.command("tc").args(["filter", "show", "dev", WATCHED, "egress"]).output()?;
        Ok(String::from_utf8_lossy(&filters.stdout).contains("bpf"))
    })
}

/// Returns its standard error until it ends.
fn words(dwell: &mut Guarded) -> Result<String> {
    let mut told = String::new();
    let mut pipe = dwell.stderr.take().context("it is a pipe")?;
    pipe.read_to_string(&mut told)?;
    Ok(told)
}
