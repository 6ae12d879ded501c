//! The facts that verbs stand on.

use std::{collections::BTreeMap, io, time::SystemTime};

use nix::errno::Errno;
use serde::{Serialize, Serializer};

use super::{Device, GRANT};
use crate::stack;

/// A property of this host that some verb, of today or to come, asks for.
/// Each is put such that yes is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fact {
    /// dwell's own RTT program for tc loads, with tables of the usual size.
    RttProgram,
    /// The same with ingress at XDP.
    RttXdpProgram,
    /// The kernel takes the response program at tc.
    ResponseProgram,
    /// dwell's own stack programs load and attach.
    StackProgram,
    /// The kernel has a hook for each layer of the stack.
    StackHooks,
    /// The kernel takes the programs that compare clocks.
    ClockPrograms,
    /// A program attaches to tc by a tcx link.
    Tcx,
    /// A program attaches to tc by a filter of a clsact qdisc.
    Clsact,
    /// A program attaches to XDP.
    XdpAttach,
    /// Programs may load and configure BPF.
    CapBpf,
    /// Programs may be put at network hooks.
    CapNetAdmin,
    /// Programs may read kernel memory and calculate with pointers.
    CapPerfmon,
    /// Stands for the three above; makes namespaces.
    CapSysAdmin,
    /// May raise the memory lock limit.
    CapSysResource,
    /// This process is root.
    Root,
    /// Not in the user namespace of a container.
    InitialUserNamespace,
    /// The kernel describes its types.
    Btf,
    /// Programs are translated to machine code.
    Jit,
    /// The kernel does not take the time of each program run.
    StatisticsOff,
    /// Lockdown, if any, does not keep programs from reading kernel memory.
    LockdownOff,
    /// Users without a capability cannot load programs.
    UnprivilegedOff,
    /// The memory lock limit does not keep tables from being made.
    MemoryLock,
    /// The filesystem that keeps programs and maps beyond their process.
    BpfFilesystem,
    /// The unified cgroup hierarchy is mounted.
    Cgroup2,
    /// The tracing filesystem is mounted.
    Tracefs,
    /// A program for tc loads.
    TcProgram,
    /// A program for XDP loads.
    XdpProgram,
    /// Programs may call bpf_loop.
    BpfLoop,
    /// A ring buffer can be made.
    RingBuffer,
    /// An array can be made that user space maps into memory.
    MmapableArray,
    /// A raw tracepoint program loads and attaches.
    RawTracepoint,
    /// A tracepoint program with types loads and attaches.
    TpBtf,
    /// A classic tracepoint program loads and attaches.
    Tracepoint,
    /// A program on socket events loads and attaches to a cgroup.
    SockOps,
    /// A program on packets of sockets loads and attaches to a cgroup.
    CgroupSkb,
    /// A program on connect(2) loads and attaches to a cgroup.
    CgroupConnect,
    /// A netfilter program loads and attaches.
    Netfilter,
    /// A program that walks the TCP sockets loads and attaches.
    TcpIterator,
    /// A program at a kernel function's entry loads and attaches.
    Fentry,
    /// A program at a kernel probe loads and attaches.
    Kprobe,
    /// Network namespaces can be made.
    NetworkNamespaces,
    /// Pairs of virtual Ethernet devices can be made.
    Veth,
    /// A namespace can be made to forward packets.
    Forwarding,
    /// Packets can be sent to a queue of user space.
    PacketQueue,
    /// The kernel tells of sockets by netlink.
    SockDiag,
    /// Of a TCP socket, it counts the bytes that have left.
    TcpCounts,
    /// Users may choose the congestion control bbr.
    Bbr,
    /// A program is on the search path.
    Program(&'static str),
}

/// Key for machines, name for people, remedy. The order is that of the table.
#[rustfmt::skip]
const FACTS: &[(Fact, &str, &str, &str)] = &[
    (Fact::RttProgram, "rtt-program", "RTT program loads", "please report this with the output of `dwell doctor`"),
    (Fact::RttXdpProgram, "rtt-xdp-program", "RTT program for XDP loads", "leave --ingress-hook at tc"),
    (Fact::ResponseProgram, "response-program", "response program loads", "please report this with the output of `dwell doctor`"),
    (Fact::StackProgram, "stack-program", "stack programs load", "please report this with the output of `dwell doctor`"),
    (Fact::StackHooks, "stack-hooks", "a hook for each layer", "a kernel that has them all (mainline: 6.16), or one with fentry or kprobes"),
    (Fact::ClockPrograms, "clock-programs", "clock programs load", "please report this with the output of `dwell doctor`"),
    (Fact::Tcx, "tcx", "tcx attach", "a kernel with tcx (mainline: 6.6)"),
    (Fact::Clsact, "clsact", "clsact attach", "sudo modprobe -a sch_ingress cls_bpf"),
    (Fact::XdpAttach, "xdp-attach", "XDP attach", "leave --ingress-hook at tc"),
    (Fact::CapBpf, "cap-bpf", "CAP_BPF", GRANT),
    (Fact::CapNetAdmin, "cap-net-admin", "CAP_NET_ADMIN", GRANT),
    (Fact::CapPerfmon, "cap-perfmon", "CAP_PERFMON", GRANT),
    (Fact::CapSysAdmin, "cap-sys-admin", "CAP_SYS_ADMIN", "use sudo; in a container, give it CAP_SYS_ADMIN"),
    (Fact::CapSysResource, "cap-sys-resource", "CAP_SYS_RESOURCE", ""),
    (Fact::Root, "root", "root", "use sudo"),
    (Fact::InitialUserNamespace, "initial-user-namespace", "outside user namespaces", "run it outside the container, or in one without user namespace"),
    (Fact::Btf, "btf", "kernel BTF", "a kernel built with CONFIG_DEBUG_INFO_BTF=y"),
    (Fact::Jit, "jit", "JIT compiler", "sudo sysctl -w net.core.bpf_jit_enable=1"),
    (Fact::StatisticsOff, "statistics-off", "run time statistics off", "sudo sysctl -w kernel.bpf_stats_enabled=0"),
    (Fact::LockdownOff, "lockdown-off", "no lockdown of tracing", "boot with lockdown=integrity or without secure boot"),
    (Fact::UnprivilegedOff, "unprivileged-off", "unprivileged BPF off", "sudo sysctl -w kernel.unprivileged_bpf_disabled=2"),
    (Fact::MemoryLock, "memory-lock", "memory lock limit", "ulimit -l unlimited (systemd: LimitMEMLOCK=infinity)"),
    (Fact::BpfFilesystem, "bpf-filesystem", "BPF filesystem", "sudo mount -t bpf bpf /sys/fs/bpf"),
    (Fact::Cgroup2, "cgroup2", "cgroup v2", "sudo mkdir -p /run/cgroup2 && sudo mount -t cgroup2 cgroup2 /run/cgroup2"),
    (Fact::Tracefs, "tracefs", "tracefs", "sudo mount -t tracefs tracefs /sys/kernel/tracing"),
    (Fact::TcProgram, "tc-program", "tc program", "a kernel built with CONFIG_BPF_SYSCALL=y and CONFIG_NET_CLS_BPF=y"),
    (Fact::XdpProgram, "xdp-program", "XDP program", "leave --ingress-hook at tc"),
    (Fact::BpfLoop, "bpf-loop", "bpf_loop", "a kernel with bpf_loop (mainline: 5.17)"),
    (Fact::RingBuffer, "ring-buffer", "ring buffer", "a kernel with BPF ring buffers (mainline: 5.8)"),
    (Fact::MmapableArray, "mmapable-array", "array in shared memory", "a kernel with BPF_F_MMAPABLE (mainline: 5.5)"),
    (Fact::RawTracepoint, "raw-tracepoint", "raw tracepoint", ""),
    (Fact::TpBtf, "tp-btf", "BTF tracepoint", "a kernel built with CONFIG_DEBUG_INFO_BTF=y and CONFIG_BPF_EVENTS=y"),
    (Fact::Tracepoint, "tracepoint", "tracepoint", ""),
    (Fact::SockOps, "sockops", "socket events (sockops)", ""),
    (Fact::CgroupSkb, "cgroup-skb", "cgroup packets (cgroup_skb)", ""),
    (Fact::CgroupConnect, "cgroup-connect", "cgroup connect4", ""),
    (Fact::Netfilter, "netfilter", "netfilter program", "a kernel with CONFIG_NETFILTER_BPF_LINK=y (mainline: 6.4)"),
    (Fact::TcpIterator, "tcp-iterator", "TCP socket iterator", ""),
    (Fact::Fentry, "fentry", "fentry", ""),
    (Fact::Kprobe, "kprobe", "kprobe", ""),
    (Fact::NetworkNamespaces, "network-namespaces", "network namespaces", "use sudo; in a container, give it CAP_SYS_ADMIN"),
    (Fact::Veth, "veth", "veth devices", "sudo modprobe veth"),
    (Fact::Forwarding, "forwarding", "IP forwarding in namespaces", "run it where /proc/sys/net is writable (container: --privileged)"),
    (Fact::PacketQueue, "packet-queue", "NFQUEUE by iptables-legacy", "sudo modprobe -a iptable_mangle ip6table_mangle xt_NFQUEUE nfnetlink_queue"),
    (Fact::SockDiag, "sock-diag", "netlink sock_diag", "sudo modprobe -a inet_diag tcp_diag"),
    (Fact::TcpCounts, "tcp-counts", "TCP_INFO counts bytes sent", "a kernel that counts them (mainline: 4.19)"),
    (Fact::Bbr, "bbr", "congestion control bbr allowed", "sudo modprobe tcp_bbr"),
];

/// Programs that the lab runs, and the Debian packages that have them.
#[rustfmt::skip]
const PROGRAMS: &[(&str, &str)] = &[
    ("ip", "sudo apt-get install iproute2"),
    ("iptables-legacy-restore", "sudo apt-get install iptables"),
    ("ip6tables-legacy-restore", "sudo apt-get install iptables"),
    ("nsenter", "sudo apt-get install util-linux"),
    ("setpriv", "sudo apt-get install util-linux"),
    ("chrt", "sudo apt-get install util-linux"),
    ("iperf3", "sudo apt-get install iperf3"),
    ("ping", "sudo apt-get install iputils-ping"),
    ("dnsmasq", "sudo apt-get install dnsmasq-base"),
    ("dig", "sudo apt-get install bind9-dnsutils"),
    ("memcached", "sudo apt-get install memcached"),
    ("tcpdump", "sudo apt-get install tcpdump"),
    ("wrk", "sudo apt-get install wrk"),
    ("nginx", "sudo apt-get install nginx-light"),
    ("redis-benchmark", "sudo apt-get install redis-tools"),
    ("redis-server", "sudo apt-get install redis-server"),
    ("wireguard-go", "sudo apt-get install wireguard-go"),
    ("wg", "sudo apt-get install wireguard-tools"),
];

impl Fact {
    /// Each fact, in the order of the table.
    pub fn all() -> impl Iterator<Item = Fact> {
        let programs = PROGRAMS.iter().map(|(name, _)| Fact::Program(name));
        FACTS.iter().map(|(fact, ..)| *fact).chain(programs)
    }

    /// Its name for machines.
    pub fn key(self) -> &'static str {
        self.about().0
    }

    /// Its name for people.
    pub fn name(self) -> &'static str {
        self.about().1
    }

    /// What to do where it does not hold, or nothing.
    pub fn remedy(self) -> Option<&'static str> {
        Some(self.about().2).filter(|remedy| !remedy.is_empty())
    }

    fn about(self) -> (&'static str, &'static str, &'static str) {
        if let Fact::Program(program) = self {
            let package = PROGRAMS.iter().find(|(name, _)| *name == program);
            return (program, program, package.map_or("", |(_, remedy)| remedy));
        }
        FACTS
            .iter()
            .find(|(fact, ..)| *fact == self)
            .map(|(_, key, name, remedy)| (*key, *name, *remedy))
            .expect("each fact is in the list")
    }
}

impl Serialize for Fact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.key())
    }
}

/// Whether a fact holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// `None`: could not tell.
    pub holds: Option<bool>,
    /// A value, the kernel's refusal, or why it could not be told; may be empty.
    pub detail: String,
    /// What to do, where the fact's own remedy would miss the cause.
    pub remedy: Option<String>,
}

impl Answer {
    /// It holds.
    pub fn yes(detail: impl Into<String>) -> Answer {
        Answer::new(Some(true), detail)
    }

    /// It does not.
    pub fn no(detail: impl Into<String>) -> Answer {
        Answer::new(Some(false), detail)
    }

    /// It could not be told, and why.
    pub fn unknown(why: impl Into<String>) -> Answer {
        Answer::new(None, why)
    }

    /// It could not be told for want of something that root has.
    pub(super) fn untried(wanted: &str) -> Answer {
        Answer { remedy: Some("sudo dwell doctor".into()), ..Answer::unknown(format!("trying needs {wanted}")) }
    }

    pub(super) fn new(holds: Option<bool>, detail: impl Into<String>) -> Answer {
        Answer { holds, detail: detail.into(), remedy: None }
    }

    /// What came of a trial by a thread that lacks `missing`: a refusal for
    /// want of privilege says nothing about the kernel.
    pub(super) fn of_trial(result: &io::Result<()>, missing: &[&str]) -> Answer {
        let Err(error) = result else {
            return Answer::yes("");
        };
        if error.kind() == io::ErrorKind::PermissionDenied && !missing.is_empty() {
            return Answer::untried(&missing.join(", "));
        }
        Answer::no(match error.raw_os_error() {
            Some(number) => format!("refused: {:?}", Errno::from_raw(number)),
            None => error.to_string(),
        })
    }
}

/// What was found out about a host.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// When.
    pub time: SystemTime,
    /// The kernel's release: information, nothing is derived from it.
    pub kernel: String,
    /// What was asked and answered.
    pub answers: BTreeMap<Fact, Answer>,
    /// Where the layers of the stack are stamped.
    pub layers: Vec<LayerHook>,
    /// The network interfaces asked for, and what holds their hooks.
    pub devices: Vec<Device>,
}

/// A hook of a layer, which `dwell stack` uses here or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LayerHook {
    /// The family that it belongs to (`dwell stack --hooks`).
    pub family: &'static str,
    /// Which layer.
    pub layer: &'static str,
    /// Which hook.
    pub hook: &'static str,
    /// Whether it is used, if all are left to choose from.
    pub used: bool,
    /// What it lacks here, if anything.
    pub lack: Option<stack::Lack>,
    /// Why there, and when it fires.
    pub about: &'static str,
}

impl Facts {
    /// Whether a fact holds.
    pub fn answer(&self, fact: Fact) -> Answer {
        self.answers.get(&fact).cloned().unwrap_or_default()
    }
}
