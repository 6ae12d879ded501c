//! iperf3 through the vantage point, paused and resumed, and the rate at which its traffic passes.

use std::{
    cell::Cell,
    fs,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use super::super::stop::Stop;
use anyhow::{Context, Result, ensure};
use dwell_testbed::{Guarded, Namespace};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::net::Net;
use crate::usage::cpu_time;

/// The maximum number of streams of one iperf3 process.
const MOST_STREAMS: u32 = 125;
const FIRST_PORT: u32 = 5201;
/// The time for which traffic flows again before it is measured.
pub const SETTLE: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(20);

/// As many iperf3 processes as the flows need.
pub struct Traffic {
    clients: Vec<Guarded>,
    servers: Vec<Guarded>,
    /// The kernel thread that forwards under load.
    forwarder: Option<u32>,
    /// How long the last dwell took to attach while the network was idle.
    pub idle: Cell<Duration>,
}

impl Traffic {
    pub fn start(net: &Net, flows: u32, cpu: usize, stop: &Stop) -> Result<Traffic> {
        let mut traffic =
            Traffic { clients: Vec::new(), servers: Vec::new(), forwarder: forwarder(cpu), idle: Cell::default() };
        let processes = flows.div_ceil(MOST_STREAMS);
        for process in 0..processes {
            let port = (FIRST_PORT + process).to_string();
            traffic.servers.push(net.server.spawn("iperf3", |command| {
                command.args(["-s", "-p", &port]).stdin(Stdio::null());
                command.stdout(Stdio::null()).stderr(Stdio::null());
            })?);
        }
        wait(stop, "iperf3 to listen", || Ok(connections(&net.server, "0A")? >= processes))?;
        for process in 0..processes {
            let port = (FIRST_PORT + process).to_string();
            let streams = flows / processes + u32::from(process < flows % processes);
            traffic.clients.push(net.client.spawn("iperf3", |command| {
                command.args(["-c", Net::SERVER, "-p", &port, "-P", &streams.to_string()]);
                command.args(["-C", "cubic", "-t", "86400", "-i", "0"]);
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            })?);
            // One after another: each has its own connection for control.
            let wanted =
                process + 1 + (0..=process).map(|p| flows / processes + u32::from(p < flows % processes)).sum::<u32>();
            wait(stop, "iperf3 to connect", || Ok(connections(&net.client, "01")? >= wanted))?;
        }
        stop.sleep(Duration::from_secs(1))?;
        Ok(traffic)
    }

    /// Measures a window without dwell, which starts like those with dwell.
    pub fn window(&self, net: &Net, window: Duration, stop: &Stop) -> Result<Rate> {
        self.pause(net, stop)?;
        stop.sleep(self.idle.get())?;
        self.resume()?;
        stop.sleep(SETTLE)?;
        self.rate(net, None, window, stop)
    }

    /// Measures the traffic from now on; the CPU time includes that of `dwell`.
    pub fn rate(&self, net: &Net, dwell: Option<u32>, window: Duration, stop: &Stop) -> Result<Rate> {
        let cpu = || {
            let iperf3 = self.clients.iter().chain(&self.servers).map(|child| child.id());
            iperf3.chain(dwell).chain(self.forwarder).map(cpu_time).sum::<Duration>()
        };
        let (start, cpu_start, begun) = (net.counters()?, cpu(), Instant::now());
        stop.sleep(window)?;
        let passed = net.counters()?.since(&start);
        Ok(Rate {
            bytes: passed.bytes as f64,
            packets: passed.packets as f64,
            seconds: begun.elapsed().as_secs_f64(),
            cpu: (cpu() - cpu_start).as_secs_f64(),
        })
    }

    /// Stops the senders and waits until the network is idle.
    pub fn pause(&self, net: &Net, stop: &Stop) -> Result<()> {
        for client in &self.clients {
            send(client, Signal::SIGSTOP)?;
        }
        let (mut last, mut quiet) = (net.counters()?.packets, 0);
        wait(stop, "the network to become idle", || {
            thread::sleep(Duration::from_millis(20));
            let now = net.counters()?.packets;
            quiet = if now == last { quiet + 1 } else { 0 };
            last = now;
            // Longer than the 40 ms that an ACK may be delayed.
            Ok(quiet >= 4)
        })
    }

    pub fn resume(&self) -> Result<()> {
        self.clients.iter().try_for_each(|client| send(client, Signal::SIGCONT))
    }
}

/// The traffic of a window.
#[derive(Clone, Copy)]
pub struct Rate {
    pub bytes: f64,
    pub packets: f64,
    pub seconds: f64,
    /// Seconds of CPU time of all processes that take part.
    pub cpu: f64,
}

impl Rate {
    pub fn by_time(&self) -> f64 {
        self.bytes / self.seconds
    }

    pub fn by_cpu(&self) -> f64 {
        self.bytes / self.cpu
    }
}

/// Returns the number of TCP sockets of a namespace in a state, in the kernel's notation.
fn connections(namespace: &Namespace, state: &str) -> Result<u32> {
    namespace.enter(|| {
        ["tcp", "tcp6"]
            .iter()
            .map(|table| {
                let text = fs::read_to_string(format!("/proc/thread-self/net/{table}"))?;
                let sockets = text.lines().skip(1);
                Ok(sockets.filter(|line| line.split_whitespace().nth(3) == Some(state)).count() as u32)
            })
            .sum()
    })?
}

/// Returns the kernel thread of softirqs. `None` on a system without such threads, or if they are not visible.
fn forwarder(cpu: usize) -> Option<u32> {
    let wanted = format!("ksoftirqd/{cpu}");
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        (name.trim() == wanted).then(|| entry.file_name().to_str()?.parse().ok())?
    })
}

pub fn send(child: &Guarded, signal: Signal) -> Result<()> {
    let pid = i32::try_from(child.id()).context("process numbers are small")?;
    Ok(kill(Pid::from_raw(pid), signal)?)
}

pub fn wait(stop: &Stop, what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !done()? {
        ensure!(begun.elapsed() < PATIENCE, "waited too long for {what}");
        stop.sleep(Duration::from_millis(5))?;
    }
    Ok(())
}
