//! Traffic between client and server whose round trips the client itself measures.
//!
//! A measured round trip is the emulated one plus the time that the two hosts add. Nothing is derived from observations
//! between them.

mod dns;
mod icmp;
mod tcp;

use std::{
    ffi::OsStr,
    net::IpAddr,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use dwell_engine::stats;

use crate::{
    Error, Guarded, Lab, Namespace, Nanos, Result, Role,
    error::{command_line, find_program},
};

pub use dns::Dns;
pub use icmp::{Ping, PingReport};
pub use tcp::{Bulk, BulkReport, PingPong};

/// The time that a program or connection may take to start, and a reply to arrive.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// The ends of the traffic.
#[derive(Debug, Clone, Copy)]
pub struct Ends<'a> {
    /// The client's namespace.
    pub client: &'a Namespace,
    /// The server's namespace.
    pub server: &'a Namespace,
    /// The server's address.
    pub address: IpAddr,
}

impl<'a> Ends<'a> {
    /// Returns the client and the server of a lab, for IPv4.
    pub fn v4(lab: &'a Lab) -> Self {
        Self { client: lab.client(), server: lab.server(), address: Lab::address_v4(Role::Server).into() }
    }

    /// Returns the client and the server of a lab, for IPv6.
    pub fn v6(lab: &'a Lab) -> Self {
        Self { address: Lab::address_v6(Role::Server).into(), ..Self::v4(lab) }
    }
}

/// Round trips that a client measured, in the order of their start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoundTrips(pub Vec<Nanos>);

impl RoundTrips {
    /// Returns the round trip at quantile `share` (0 to 1), by nearest rank. `None` if there are none.
    pub fn quantile(&self, share: f64) -> Option<Nanos> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        stats::quantile(&sorted, share)
    }
}

/// Runs a program and returns its standard output. `stop` ends it early.
pub fn output(namespace: &Namespace, program: &'static str, arguments: &[String], stop: &AtomicBool) -> Result<String> {
    require(program)?;
    collect(namespace, program.as_ref(), arguments, stop)
}

/// Runs a program that is known to exist and returns its standard output. `stop` ends it early.
pub fn collect(namespace: &Namespace, program: &OsStr, arguments: &[String], stop: &AtomicBool) -> Result<String> {
    let mut line = String::new();
    let mut child = namespace.spawn(program, |command| {
        command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        line = command_line(command);
    })?;
    // Both outputs are read while it runs, so that it never waits for a reader.
    let reader = |pipe: Option<Box<dyn std::io::Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = String::new();
            // Text that is not UTF-8 is no answer of these programs.
            pipe.map(|mut pipe| pipe.read_to_string(&mut text));
            text
        })
    };
    let stdout = reader(child.stdout.take().map(|pipe| Box::new(pipe) as _));
    let stderr = reader(child.stderr.take().map(|pipe| Box::new(pipe) as _));
    let status = loop {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        match child.try_wait().map_err(Error::io(format!("wait for `{line}`")))? {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let text = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
    let (stdout, stderr) = (text(stdout), text(stderr));
    // ping exits with 1 when replies are missing, which is no failure here.
    if status.success() || program == "ping" && status.code() == Some(1) {
        return Ok(stdout);
    }
    let said = if stderr.trim().is_empty() { stdout } else { stderr };
    Err(Error::Command { command: line, status: status.to_string(), stderr: said.trim().to_owned() })
}

/// Starts a server program and waits until it listens.
pub fn serve(
    namespace: &Namespace,
    program: &'static str,
    configure: impl FnOnce(&mut Command),
    table: &'static str,
    port: u16,
) -> Result<Guarded> {
    require(program)?;
    listen(namespace, program.as_ref(), configure, table, port)
}

/// Starts a server program that is known to exist, and waits until it listens.
pub fn listen(
    namespace: &Namespace,
    program: &OsStr,
    configure: impl FnOnce(&mut Command),
    table: &'static str,
    port: u16,
) -> Result<Guarded> {
    let name = program.to_string_lossy();
    let mut child = namespace.spawn(program, |command| {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        configure(command);
    })?;
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if namespace.enter(|| is_bound(table, port))? {
            return Ok(child);
        }
        if let Some(status) = child.try_wait().map_err(Error::io(format!("wait for {name}")))? {
            let stderr = "it ended before it listened".to_owned();
            return Err(Error::Command { command: name.into_owned(), status: status.to_string(), stderr });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(Error::Timeout(format!("the start of {name}")))
}

/// Returns whether the calling thread's namespace has a socket at that port. `table` is `tcp` or `udp`.
pub fn is_bound(table: &str, port: u16) -> bool {
    ["", "6"].iter().any(|family| {
        let sockets = std::fs::read_to_string(format!("/proc/thread-self/net/{table}{family}")).unwrap_or_default();
        let local = format!(":{port:04X}");
        sockets
            .lines()
            .skip(1)
            .any(|line| line.split_ascii_whitespace().nth(1).is_some_and(|own| own.ends_with(&local)))
    })
}

/// The programs of the workloads, and the Debian packages that contain them.
const PROGRAMS: [(&str, &str); 16] = [
    (
        "iperf3",
        "Install the package iperf3, whose service you may not want, or run tests/unpack target/programs iperf3:iperf3.",
    ),
    ("ping", "Install the package iputils-ping."),
    ("hping3", "Install the package hping3."),
    ("httping", "Install the package httping."),
    ("dnsmasq", "Install the package dnsmasq-base."),
    ("dig", "Install the package bind9-dnsutils."),
    (
        "memcached",
        "Install the package memcached, whose service you may not want, or run tests/unpack target/programs memcached:memcached.",
    ),
    ("tcpdump", "Install the package tcpdump."),
    ("ss", "Install the package iproute2."),
    ("wrk", "Install the package wrk."),
    (
        "nginx",
        "Install the package nginx-light, whose service you may not want, or run tests/unpack target/programs nginx:nginx.",
    ),
    ("redis-benchmark", "Install the package redis-tools."),
    (
        "redis-server",
        "Install the package redis-server, whose service you may not want, or run tests/unpack target/programs redis-server:redis-server.",
    ),
    (
        "etcd",
        "Install the package etcd-server, whose service you may not want, or run tests/unpack target/programs etcd-server:etcd.",
    ),
    ("wireguard-go", "Install the package wireguard-go."),
    ("wg", "Install the package wireguard-tools."),
];

/// Fails if the program is not installed.
pub fn require(program: &'static str) -> Result<()> {
    let remedy = PROGRAMS.iter().find(|(name, _)| *name == program).map_or("Install it.", |(_, remedy)| remedy);
    match find_program(program) {
        Some(_) => Ok(()),
        None => Err(Error::Host { wanted: "make traffic", fact: format!("there is no program {program}"), remedy }),
    }
}
