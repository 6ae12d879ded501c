//! What watches the traffic: dwell, a program of others, or a program that does nothing.

use std::{
    io::Read,
    os::fd::OwnedFd,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use super::super::{driver, dwell, stop::Stop};
use anyhow::{Context, Result, bail, ensure};
use dwell_probes::{Hook, Interface, attach_tcx};
use dwell_testbed::{Guarded, harness::links};
use libbpf_rs::Object;
use nix::sys::signal::Signal;

use super::{
    net::{Net, WATCHED},
    traffic::{Rate, SETTLE, Traffic, send, wait},
};
use crate::usage::cpu_time;

/// What watches during a window.
#[derive(Clone, Copy)]
pub enum Watcher<'a> {
    Nothing,
    /// `dwell rtt` with these options.
    Dwell(&'a [&'a str]),
    /// A program of others, which is given the interface.
    Peer(&'a Path),
}

/// The figures of a window in which something watches.
pub struct Watched {
    pub rate: Rate,
    /// Seconds of CPU time of what watches, in user space.
    pub cpu: f64,
    /// What dwell says of it.
    pub told: Option<Told>,
    /// The index of the window with the empty program before this one.
    pub before: usize,
}

/// What dwell has seen.
pub struct Told {
    pub samples_a_second: f64,
    pub seen: i64,
    pub missed: i64,
    pub lost: i64,
}

/// A program that does nothing, where dwell attaches those that do.
pub struct Empty {
    _attached: [OwnedFd; 2],
    _object: Object,
}

impl Empty {
    pub fn attach(net: &Net) -> Result<Empty> {
        let object = driver::load()?;
        let attached = net.vantage.enter(|| -> Result<[OwnedFd; 2]> {
            let (program, interface) = (driver::program(&object, "empty_tc")?, Interface::find(WATCHED)?);
            let at = |hook| attach_tcx(&program, &interface, hook);
            Ok([at(Hook::TcIngress)?, at(Hook::TcEgress)?])
        })?;
        let attached = attached.context("an empty program at tcx (Linux 6.6), next to which dwell is measured")?;
        Ok(Empty { _attached: attached, _object: object })
    }
}

impl Watcher<'_> {
    /// Measures a window of the traffic.
    pub fn watch(self, net: &Net, traffic: &Traffic, window: Duration, stop: &Stop) -> Result<Watched> {
        match self {
            Watcher::Nothing => {
                Ok(Watched { rate: traffic.window(net, window, stop)?, cpu: 0.0, told: None, before: 0 })
            }
            Watcher::Dwell(options) => watch(net, traffic, options, window, stop),
            Watcher::Peer(program) => watch_by_peer(net, traffic, program, window, stop),
        }
    }
}

fn watch_by_peer(net: &Net, traffic: &Traffic, program: &Path, window: Duration, stop: &Stop) -> Result<Watched> {
    traffic.pause(net, stop)?;
    let paused = Instant::now();
    let mut peer = net.vantage.spawn(program, |command| {
        command.arg(WATCHED).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    })?;
    let pid = peer.id();
    wait(stop, "the peer to attach", || {
        if let Some(status) = peer.try_wait()? {
            bail!("the peer {} ended ({status})", program.display());
        }
        Ok(links(pid) >= 1 || has_filter(net)?)
    })?;
    traffic.idle.set(paused.elapsed());
    traffic.resume()?;
    stop.sleep(SETTLE)?;
    let cpu_before = cpu_time(pid);
    let rate = traffic.rate(net, Some(pid), window, stop)?;
    let cpu = (cpu_time(pid) - cpu_before).as_secs_f64();
    send(&peer, Signal::SIGTERM)?;
    wait(stop, "the peer to end after SIGTERM", || Ok(peer.try_wait()?.is_some()))?;
    ensure!(!has_filter(net)?, "the peer {} leaves its program attached", program.display());
    Ok(Watched { rate, cpu, told: None, before: 0 })
}

fn watch(net: &Net, traffic: &Traffic, options: &[&str], window: Duration, stop: &Stop) -> Result<Watched> {
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
    let told = Told { samples_a_second: samples as f64 / active.as_secs_f64(), seen: packets, missed, lost };
    Ok(Watched { rate, cpu, told: Some(told), before: 0 })
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
        has_filter(net)
    })
}

/// Whether a program is attached at clsact.
fn has_filter(net: &Net) -> Result<bool> {
    let filters = net.vantage.command("tc").args(["filter", "show", "dev", WATCHED, "egress"]).output()?;
    Ok(String::from_utf8_lossy(&filters.stdout).contains("bpf"))
}

/// Returns its standard error until it ends.
fn words(dwell: &mut Guarded) -> Result<String> {
    let mut told = String::new();
    let mut pipe = dwell.stderr.take().context("it is a pipe")?;
    pipe.read_to_string(&mut told)?;
    Ok(told)
}
