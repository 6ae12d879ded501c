//! What the laboratory's verbs need of the host: data.

use std::{
    borrow::Cow,
    fs,
    io::{self, Write},
    process::{Command, Stdio},
    thread,
};

use dwell_probes::host::{
    Answer, ExtraFact, Fact, Need,
    Otherwise::{Degraded, Impossible},
    Requirements, Verb, installed, needs,
};
use dwell_testbed::CpuGroups;
use nix::sched::{CloneFlags, unshare};

/// How to get a program without the service that its package would start.
macro_rules! unpacked {
    ($package_and_program:literal) => {
        concat!(
            "tests/unpack target/programs ",
            $package_and_program,
            " in dwell's source, and add target/programs/bin to PATH: its package would start a service"
        )
    };
}

/// What `dwell-lab` asks of its host.
#[rustfmt::skip]
pub static LABORATORY: Requirements = Requirements {
    binary: "dwell-lab",
    verbs: Cow::Borrowed(&[
        Verb { name: "up", also: &[], needs: &[LAB], obstacles: &[] },
        Verb { name: "demo", also: &[], needs: &[LAB, TRAFFIC, needs::RTT], obstacles: &[] },
        Verb { name: "rtt", also: &[], needs: &[LAB, READERS, needs::RTT], obstacles: &[] },
        Verb { name: "response", also: &[], needs: &[LAB, LOAD, needs::RESPONSE, needs::RTT], obstacles: &[] },
        Verb { name: "stack", also: &[], needs: &[LAB, needs::STACK, needs::AGENT, needs::COLLECT], obstacles: &[] },
        Verb { name: "fleet", also: &[], needs: &[HOSTS, needs::COLLECT], obstacles: &[] },
        Verb { name: "load", also: &[], needs: &[LAB, LOAD, LIMITS], obstacles: &[] },
        Verb { name: "run", also: &[], needs: &[LAB, BULK, needs::RUN], obstacles: &[] },
        Verb { name: "socket", also: &[], needs: &[LAB, BULK, needs::STACK, needs::RUN], obstacles: &[] },
        Verb { name: "lb", also: &[], needs: &[LAB, LIMITS, needs::BALANCER, needs::XDP_PACKETS], obstacles: &[] },
        Verb { name: "quic", also: &[], needs: &[LAB, needs::BALANCER, needs::XDP_PACKETS], obstacles: &[] },
        Verb { name: "why", also: &[], needs: &[LAB, OFFLOAD, needs::WHY], obstacles: &[] },
        Verb { name: "problem", also: &[], needs: &[LAB, OFFLOAD, PAGES, needs::WHY, needs::RTT, needs::RESPONSE], obstacles: &[] },
        Verb { name: "cost", also: &[], needs: &[LAB, TRAFFIC, needs::RTT], obstacles: &[] },
        Verb { name: "sim", also: &[], needs: &[], obstacles: &[] },
    ]),
    extra: &[
        ExtraFact { key: VETH, name: "veth devices", remedy: "sudo modprobe veth", probe: veth },
        ExtraFact { key: FORWARDING, name: "IP forwarding in namespaces", remedy: "run it where /proc/sys/net is writable (container: --privileged)", probe: forwarding },
        ExtraFact { key: PACKET_QUEUE, name: "NFQUEUE by iptables-legacy", remedy: "sudo modprobe -a iptable_mangle ip6table_mangle xt_NFQUEUE nfnetlink_queue", probe: packet_queue },
        ExtraFact { key: CPU_GROUPS, name: "cgroup controller cpu", remedy: "run it where the cgroup hierarchy is writable and lists cpu in cgroup.controllers (container: --privileged --cgroupns=host)", probe: cpu_groups },
        ExtraFact { key: "ip", name: "ip", remedy: "sudo apt-get install iproute2", probe: installed },
        ExtraFact { key: "iptables-legacy-restore", name: "iptables-legacy-restore", remedy: "sudo apt-get install iptables", probe: installed },
        ExtraFact { key: "ip6tables-legacy-restore", name: "ip6tables-legacy-restore", remedy: "sudo apt-get install iptables", probe: installed },
        ExtraFact { key: "nsenter", name: "nsenter", remedy: "sudo apt-get install util-linux", probe: installed },
        ExtraFact { key: "setpriv", name: "setpriv", remedy: "sudo apt-get install util-linux", probe: installed },
        ExtraFact { key: "chrt", name: "chrt", remedy: "sudo apt-get install util-linux", probe: installed },
        ExtraFact { key: "iperf3", name: "iperf3", remedy: unpacked!("iperf3:iperf3"), probe: installed },
        ExtraFact { key: "ping", name: "ping", remedy: "sudo apt-get install iputils-ping", probe: installed },
        ExtraFact { key: "dnsmasq", name: "dnsmasq", remedy: "sudo apt-get install dnsmasq-base", probe: installed },
        ExtraFact { key: "dig", name: "dig", remedy: "sudo apt-get install bind9-dnsutils", probe: installed },
        ExtraFact { key: "memcached", name: "memcached", remedy: unpacked!("memcached:memcached"), probe: installed },
        ExtraFact { key: "tcpdump", name: "tcpdump", remedy: "sudo apt-get install tcpdump", probe: installed },
        ExtraFact { key: "tshark", name: "tshark", remedy: "sudo apt-get install tshark", probe: installed },
        ExtraFact { key: "tcptrace", name: "tcptrace", remedy: "sudo apt-get install tcptrace", probe: installed },
        ExtraFact { key: "ethtool", name: "ethtool", remedy: "sudo apt-get install ethtool", probe: installed },
        ExtraFact { key: "python3", name: "python3", remedy: "sudo apt-get install python3", probe: installed },
        ExtraFact { key: "jq", name: "jq", remedy: "sudo apt-get install jq", probe: installed },
        ExtraFact { key: "curl", name: "curl", remedy: "sudo apt-get install curl", probe: installed },
        ExtraFact { key: "openssl", name: "openssl", remedy: "sudo apt-get install openssl", probe: installed },
        ExtraFact { key: "wrk", name: "wrk", remedy: "sudo apt-get install wrk", probe: installed },
        ExtraFact { key: "nginx", name: "nginx", remedy: unpacked!("nginx:nginx"), probe: installed },
        ExtraFact { key: "redis-benchmark", name: "redis-benchmark", remedy: "sudo apt-get install redis-tools", probe: installed },
        ExtraFact { key: "redis-server", name: "redis-server", remedy: unpacked!("redis-server:redis-server"), probe: installed },
        ExtraFact { key: "wireguard-go", name: "wireguard-go", remedy: "sudo apt-get install wireguard-go", probe: installed },
        ExtraFact { key: "wg", name: "wg", remedy: "sudo apt-get install wireguard-tools", probe: installed },
    ],
};

const VETH: &str = "veth";
const FORWARDING: &str = "forwarding";
const PACKET_QUEUE: &str = "packet-queue";
const CPU_GROUPS: &str = "cpu-controller";

/// Hosts and links.
#[rustfmt::skip]
const LAB: &[Need] = &[
    Need { any_of: &[Fact::Root], serves: "makes namespaces and links", otherwise: Impossible("cannot make namespaces and links") },
    Need { any_of: &[Fact::CapSysAdmin, Fact::NetworkNamespaces], serves: "makes namespaces", otherwise: Impossible("cannot make namespaces") },
    Need { any_of: &[Fact::NetworkNamespaces], serves: "runs hosts", otherwise: Impossible("cannot make hosts") },
    Need { any_of: &[Fact::Extra(VETH)], serves: "connects hosts", otherwise: Impossible("cannot connect hosts") },
    Need { any_of: &[Fact::Extra(FORWARDING)], serves: "runs routers", otherwise: Impossible("cannot make routers") },
    Need { any_of: &[Fact::Extra(PACKET_QUEUE)], serves: "emulates links", otherwise: Impossible("cannot emulate links") },
    Need { any_of: &[Fact::Extra("ip")], serves: "makes links", otherwise: Impossible("cannot make links") },
    Need { any_of: &[Fact::Extra("iptables-legacy-restore")], serves: "emulates links", otherwise: Impossible("cannot emulate links") },
    Need { any_of: &[Fact::Extra("ip6tables-legacy-restore")], serves: "emulates links", otherwise: Impossible("cannot emulate links") },
    Need { any_of: &[Fact::Extra("nsenter")], serves: "runs programs on hosts", otherwise: Impossible("cannot run programs on hosts") },
    Need { any_of: &[Fact::Extra("setpriv")], serves: "ends programs when the lab ends", otherwise: Impossible("cannot run programs on hosts") },
    Need { any_of: &[Fact::Extra("chrt")], serves: "emulates links in real time", otherwise: Degraded("links are less exact on a busy machine") },
];

/// A namespace and programs in it.
#[rustfmt::skip]
const HOSTS: &[Need] = &[
    Need { any_of: &[Fact::Root], serves: "makes a namespace", otherwise: Impossible("cannot make a namespace") },
    Need { any_of: &[Fact::CapSysAdmin, Fact::NetworkNamespaces], serves: "makes a namespace", otherwise: Impossible("cannot make a namespace") },
    Need { any_of: &[Fact::NetworkNamespaces], serves: "runs agents", otherwise: Impossible("cannot run agents") },
    Need { any_of: &[Fact::Extra("ip")], serves: "gives agents addresses", otherwise: Impossible("cannot give agents addresses") },
    Need { any_of: &[Fact::Extra("nsenter")], serves: "runs the collector", otherwise: Impossible("cannot run the collector") },
    Need { any_of: &[Fact::Extra("setpriv")], serves: "ends the collector with the experiment", otherwise: Impossible("cannot run the collector") },
];

/// The traffic of the demonstration.
#[rustfmt::skip]
const TRAFFIC: &[Need] = &[
    Need { any_of: &[Fact::Extra("iperf3")], serves: "sends TCP bulk traffic", otherwise: Degraded("no TCP bulk traffic") },
    Need { any_of: &[Fact::Extra("ping")], serves: "sends ICMP traffic", otherwise: Degraded("no ICMP traffic") },
    Need { any_of: &[Fact::Extra("dnsmasq")], serves: "answers DNS queries", otherwise: Degraded("no DNS traffic") },
    Need { any_of: &[Fact::Extra("dig")], serves: "sends DNS queries", otherwise: Degraded("no DNS traffic") },
];

/// What reads round trips beside `dwell rtt`.
#[rustfmt::skip]
const READERS: &[Need] = &[
    Need { any_of: &[Fact::Extra("iperf3")], serves: "sends TCP bulk traffic", otherwise: Impossible("no traffic") },
    Need { any_of: &[Fact::Extra("tcpdump")], serves: "captures the traffic", otherwise: Impossible("no capture") },
    Need { any_of: &[Fact::Extra("tshark")], serves: "reads round trips", otherwise: Degraded("no figures of tshark") },
    Need { any_of: &[Fact::Extra("tcptrace")], serves: "reads round trips", otherwise: Degraded("no figures of tcptrace") },
];

/// Bulk traffic of TCP.
#[rustfmt::skip]
const BULK: &[Need] = &[
    Need { any_of: &[Fact::Extra("iperf3")], serves: "sends TCP bulk traffic", otherwise: Impossible("no traffic") },
];

/// Links whose queues count packets.
#[rustfmt::skip]
const OFFLOAD: &[Need] = &[
    Need { any_of: &[Fact::Extra("ethtool")], serves: "keeps packets as long as the link's", otherwise: Impossible("cannot make links with queues of packets") },
];

/// The traffic of pages by problem, and what their commands use.
#[rustfmt::skip]
const PAGES: &[Need] = &[
    Need { any_of: &[Fact::Extra("python3")], serves: "sends and answers requests", otherwise: Impossible("no requests") },
    Need { any_of: &[Fact::Extra("iperf3")], serves: "sends TCP bulk traffic", otherwise: Degraded("not the pages on queues") },
    Need { any_of: &[Fact::Extra("jq")], serves: "reads JSON Lines as pages do", otherwise: Degraded("not the pages that use jq") },
    Need { any_of: &[Fact::Extra("dnsmasq")], serves: "answers DNS queries", otherwise: Degraded("not the page on DNS") },
    Need { any_of: &[Fact::Extra("curl")], serves: "looks names up", otherwise: Degraded("not the page on DNS") },
    Need { any_of: &[Fact::Extra("openssl")], serves: "makes a certificate", otherwise: Degraded("not the page on encryption") },
    Need { any_of: &[Fact::Extra("tcpdump")], serves: "captures first packets", otherwise: Degraded("not the page on QUIC") },
];

/// Servers with a limit of processor time, as containers have.
#[rustfmt::skip]
const LIMITS: &[Need] = &[
    Need { any_of: &[Fact::Extra(CPU_GROUPS)], serves: "limits the processor time of servers", otherwise: Degraded("no servers with a limit of processor time") },
];

/// Loads of requests.
#[rustfmt::skip]
const LOAD: &[Need] = &[
    Need { any_of: &[Fact::Extra("memcached")], serves: "answers reads and writes", otherwise: Degraded("no load of memcached") },
    Need { any_of: &[Fact::Extra("tcpdump")], serves: "captures loads", otherwise: Degraded("no captures of loads") },
    Need { any_of: &[Fact::Extra("wrk")], serves: "sends requests to nginx", otherwise: Degraded("no load by wrk") },
    Need { any_of: &[Fact::Extra("nginx")], serves: "answers wrk", otherwise: Degraded("no load by wrk") },
    Need { any_of: &[Fact::Extra("redis-benchmark")], serves: "sends requests to redis", otherwise: Degraded("no load of redis") },
    Need { any_of: &[Fact::Extra("redis-server")], serves: "answers redis-benchmark", otherwise: Degraded("no load of redis") },
    Need { any_of: &[Fact::Extra("wireguard-go")], serves: "tunnels loads", otherwise: Degraded("no loads through WireGuard") },
    Need { any_of: &[Fact::Extra("wg")], serves: "sets up tunnels", otherwise: Degraded("no loads through WireGuard") },
];

/// Tries to create a pair of virtual Ethernet devices.
fn veth(_: &str) -> Answer {
    in_namespace(|| command("ip", &["link", "add", "one", "type", "veth", "peer", "name", "two"], ""))
}

/// Tries to have a namespace forward packets.
fn forwarding(_: &str) -> Answer {
    in_namespace(|| match fs::write("/proc/sys/net/ipv4/ip_forward", "1") {
        Ok(()) => Answer::yes(""),
        Err(error) => Answer::no(format!("refused: {error}")),
    })
}

/// Tries to limit the processor time of threads. The groups are removed at once.
fn cpu_groups(_: &str) -> Answer {
    match CpuGroups::create().and_then(|groups| groups.add("trial", 1.0)) {
        Ok(_) => Answer::yes(""),
        Err(error) => Answer::no(error.to_string()),
    }
}

/// Tries to send packets to a queue of user space.
fn packet_queue(_: &str) -> Answer {
    let rules = "*mangle\n-A FORWARD -j NFQUEUE --queue-num 1\nCOMMIT\n";
    in_namespace(|| match command("iptables-legacy-restore", &[], rules) {
        Answer { holds: Some(true), .. } => command("ip6tables-legacy-restore", &[], rules),
        refused => refused,
    })
}

/// Runs a trial in a network namespace of its own.
fn in_namespace(trial: impl FnOnce() -> Answer + Send) -> Answer {
    // Not this thread: it must stay where it is.
    let body = || match unshare(CloneFlags::CLONE_NEWNET) {
        Ok(()) => trial(),
        Err(_) => Answer {
            remedy: Some("sudo dwell-lab doctor".into()),
            ..Answer::unknown("trying needs a network namespace")
        },
    };
    thread::scope(|scope| scope.spawn(body).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn command(program: &str, arguments: &[&str], input: &str) -> Answer {
    match run(program, arguments, input) {
        Ok(None) => Answer::yes(""),
        Ok(Some(complaint)) => Answer::no(format!("{program}: {complaint}")),
        Err(error) => Answer::unknown(format!("{program}: {error}")),
    }
}

/// Runs a program. Returns the first line on its standard error if it fails.
fn run(program: &str, arguments: &[&str], input: &str) -> io::Result<Option<String>> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read has said why on standard error.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output()?;
    let complaint = String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default().to_owned();
    Ok((!output.status.success()).then_some(complaint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_need_names_a_fact_of_the_table() {
        let facts: Vec<_> = LABORATORY.facts().collect();
        for need in LABORATORY.verbs.iter().flat_map(|verb| verb.needs.iter().copied().flatten()) {
            assert!(need.any_of.iter().all(|fact| facts.contains(fact)), "{need:?}");
        }
        let mut keys: Vec<_> = facts.iter().map(|fact| fact.key()).collect();
        keys.sort_unstable();
        assert!(keys.is_sorted_by(|one, next| one < next), "{keys:?}");
    }
}
