//! The facts about a host that verbs depend on.

use std::{collections::BTreeMap, io, time::SystemTime};

use nix::errno::Errno;
use serde::{Serialize, Serializer};

use super::{Device, GRANT, OUTSIDE, capabilities::is_in_initial_user_namespace};
use crate::stack;

/// A property of this host that verbs depend on. Each is phrased so that yes is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fact {
    /// dwell's own RTT program for tc loads, with tables of the usual size.
    RttProgram,
    /// The RTT program with ingress at XDP loads.
    RttXdpProgram,
    /// The response program for tc loads.
    ResponseProgram,
    /// The stack programs load and attach.
    StackProgram,
    /// Each layer of the stack has a hook in this kernel.
    StackHooks,
    /// The programs that compare clocks load.
    ClockPrograms,
    /// The program of the load balancer loads.
    BalancerProgram,
    /// The program that ends a balancer's tunnel loads.
    DecapProgram,
    /// A program attaches to tc by a tcx link.
    Tcx,
    /// A program attaches to tc by a filter of a clsact qdisc.
    Clsact,
    /// A program attaches to XDP.
    XdpAttach,
    /// This process may load and configure BPF programs.
    CapBpf,
    /// This process may attach programs to network hooks.
    CapNetAdmin,
    /// Programs of this process may read kernel memory and calculate with pointers.
    CapPerfmon,
    /// This process may open raw sockets.
    CapNetRaw,
    /// CAP_SYS_ADMIN, which stands for the first three of these capabilities and allows namespaces.
    CapSysAdmin,
    /// This process may look into processes of other users.
    CapSysPtrace,
    /// This process is root.
    Root,
    /// This process is not in the user namespace of a container.
    InitialUserNamespace,
    /// The kernel describes its types.
    Btf,
    /// Programs are translated to machine code.
    Jit,
    /// The kernel does not measure the time of each program run.
    StatisticsOff,
    /// Lockdown, if any, does not keep programs from reading kernel memory.
    LockdownOff,
    /// A process may give up files by Landlock.
    Landlock,
    /// The memory lock limit leaves room for tables.
    MemoryLock,
    /// The filesystem that keeps programs and maps beyond their process is mounted.
    BpfFilesystem,
    /// The unified cgroup hierarchy is mounted.
    Cgroup2,
    /// A program for tc loads.
    TcProgram,
    /// A program for XDP loads.
    XdpProgram,
    /// Programs may call bpf_loop.
    BpfLoop,
    /// A ring buffer can be created.
    RingBuffer,
    /// An array that user space maps into memory can be created.
    MmapableArray,
    /// A tracepoint program with types loads and attaches.
    TpBtf,
    /// A program on socket events loads and attaches to a cgroup.
    SockOps,
    /// A netfilter program loads and attaches.
    Netfilter,
    /// A program at a kernel function's entry loads and attaches.
    Fentry,
    /// A program at a kernel probe loads and attaches.
    Kprobe,
    /// Network namespaces can be created.
    NetworkNamespaces,
    /// The kernel answers requests for sockets by netlink.
    SockDiag,
    /// The kernel counts the bytes that have left a TCP socket.
    TcpCounts,
    /// The library that `dwell run` preloads is installed.
    Library,
    /// Users may select the congestion control bbr.
    Bbr,
    /// A fact that only one binary asks for ([`ExtraFact`](super::ExtraFact)), by its key.
    Extra(&'static str),
}

const REPORT: &str = "please report this with the output of `dwell doctor`";

/// The key for machines, the name for people, and the remedy of each fact, in the order of the report.
#[rustfmt::skip]
const FACTS: &[(Fact, &str, &str, &str)] = &[
    (Fact::RttProgram, "rtt-program", "RTT program loads", REPORT),
    (Fact::RttXdpProgram, "rtt-xdp-program", "RTT program for XDP loads", "leave --hook at tc"),
    (Fact::ResponseProgram, "response-program", "response program loads", REPORT),
    (Fact::StackProgram, "stack-program", "stack programs load", REPORT),
    (Fact::StackHooks, "stack-hooks", "a hook for each layer", "a kernel that has them all (mainline: 6.16), or one with fentry or kprobes"),
    (Fact::ClockPrograms, "clock-programs", "clock programs load", REPORT),
    (Fact::BalancerProgram, "lb-program", "balancer program loads", REPORT),
    (Fact::DecapProgram, "lb-decap-program", "lb decap program loads", REPORT),
    (Fact::Tcx, "tcx", "tcx attach", "a kernel with tcx (mainline: 6.6)"),
    (Fact::Clsact, "clsact", "clsact attach", "sudo modprobe -a sch_ingress cls_bpf"),
    (Fact::XdpAttach, "xdp-attach", "XDP attach", "leave --hook at tc"),
    (Fact::CapBpf, "cap-bpf", "CAP_BPF", GRANT),
    (Fact::CapNetAdmin, "cap-net-admin", "CAP_NET_ADMIN", GRANT),
    (Fact::CapPerfmon, "cap-perfmon", "CAP_PERFMON", GRANT),
    (Fact::CapNetRaw, "cap-net-raw", "CAP_NET_RAW", "use sudo, or grant cap_net_raw too with setcap"),
    (Fact::CapSysAdmin, "cap-sys-admin", "CAP_SYS_ADMIN", "use sudo; in a container, give it CAP_SYS_ADMIN"),
    (Fact::CapSysPtrace, "cap-sys-ptrace", "CAP_SYS_PTRACE", "use sudo"),
    (Fact::Root, "root", "root", "use sudo"),
    (Fact::InitialUserNamespace, "initial-user-namespace", "outside user namespaces", OUTSIDE),
    (Fact::Btf, "btf", "kernel BTF", "a kernel built with CONFIG_DEBUG_INFO_BTF=y"),
    (Fact::Jit, "jit", "JIT compiler", "sudo sysctl -w net.core.bpf_jit_enable=1"),
    (Fact::StatisticsOff, "statistics-off", "run time statistics off", "sudo sysctl -w kernel.bpf_stats_enabled=0"),
    (Fact::LockdownOff, "lockdown-off", "no lockdown of tracing", "boot with lockdown=integrity or without secure boot"),
    (Fact::Landlock, "landlock", "Landlock", "a kernel with Landlock (mainline: 5.13), not left out by lsm="),
    (Fact::MemoryLock, "memory-lock", "memory lock limit", "ulimit -l unlimited (systemd: LimitMEMLOCK=infinity)"),
    (Fact::BpfFilesystem, "bpf-filesystem", "BPF filesystem", "sudo mount -t bpf -o mode=0700 bpf /sys/fs/bpf"),
    (Fact::Cgroup2, "cgroup2", "cgroup v2", "sudo mkdir -p /run/cgroup2 && sudo mount -t cgroup2 cgroup2 /run/cgroup2"),
    (Fact::TcProgram, "tc-program", "tc program", "a kernel built with CONFIG_BPF_SYSCALL=y and CONFIG_NET_CLS_BPF=y"),
    (Fact::XdpProgram, "xdp-program", "XDP program", "leave --hook at tc"),
    (Fact::BpfLoop, "bpf-loop", "bpf_loop", "a kernel with bpf_loop (mainline: 5.17)"),
    (Fact::RingBuffer, "ring-buffer", "ring buffer", "a kernel with BPF ring buffers (mainline: 5.8)"),
    (Fact::MmapableArray, "mmapable-array", "array in shared memory", "a kernel with BPF_F_MMAPABLE (mainline: 5.5)"),
    (Fact::TpBtf, "tp-btf", "BTF tracepoint", "a kernel built with CONFIG_DEBUG_INFO_BTF=y and CONFIG_BPF_EVENTS=y"),
    (Fact::SockOps, "sockops", "socket events (sockops)", "a kernel built with CONFIG_CGROUP_BPF=y"),
    (Fact::Netfilter, "netfilter", "netfilter program", "a kernel with CONFIG_NETFILTER_BPF_LINK=y (mainline: 6.4)"),
    (Fact::Fentry, "fentry", "fentry", "use the hooks of --hooks auto; a kernel built with CONFIG_FUNCTION_TRACER=y has these"),
    (Fact::Kprobe, "kprobe", "kprobe", "use the hooks of --hooks auto; a kernel built with CONFIG_KPROBE_EVENTS=y has these"),
    (Fact::NetworkNamespaces, "network-namespaces", "network namespaces", "use sudo; in a container, give it CAP_SYS_ADMIN"),
    (Fact::SockDiag, "sock-diag", "netlink sock_diag", "sudo modprobe -a inet_diag tcp_diag"),
    (Fact::TcpCounts, "tcp-counts", "TCP_INFO counts bytes sent", "a kernel that counts them (mainline: 4.19)"),
    (Fact::Library, "library", "libdwell to preload", "put libdwell_preload.so next to dwell or in ../lib/dwell, or name it with --library"),
    (Fact::Bbr, "bbr", "congestion control bbr allowed", "sudo modprobe tcp_bbr"),
];

impl Fact {
    /// All facts but those that only one binary asks for, in the order of the report.
    pub fn all() -> impl Iterator<Item = Fact> {
        FACTS.iter().map(|(fact, ..)| *fact)
    }

    /// The name of the fact for machines.
    pub fn key(self) -> &'static str {
        self.row().0
    }

    /// The name for people; the key of an extra fact, whose name is in the [`Requirements`](super::Requirements).
    pub(super) fn name(self) -> &'static str {
        self.row().1
    }

    /// What to do where the fact does not hold; empty if nothing can be done.
    pub(super) fn remedy(self) -> &'static str {
        self.row().2
    }

    fn row(self) -> (&'static str, &'static str, &'static str) {
        if let Fact::Extra(key) = self {
            return (key, key, "");
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
    /// `None` if it is unknown.
    pub holds: Option<bool>,
    /// A value, the kernel's refusal, or why the answer is unknown; may be empty.
    pub detail: String,
    /// What to do, where the remedy of the fact would miss the cause.
    pub remedy: Option<String>,
}

impl Answer {
    /// The fact holds.
    pub fn yes(detail: impl Into<String>) -> Answer {
        Answer::new(Some(true), detail)
    }

    /// The fact does not hold.
    pub fn no(detail: impl Into<String>) -> Answer {
        Answer::new(Some(false), detail)
    }

    /// It is unknown whether the fact holds, for a reason.
    pub fn unknown(why: impl Into<String>) -> Answer {
        Answer::new(None, why)
    }

    /// It is unknown whether the fact holds, as this process lacks something that root has.
    pub(super) fn untried(wanted: &str) -> Answer {
        let remedy = if is_in_initial_user_namespace() == Some(false) { OUTSIDE } else { "sudo dwell doctor" };
        Answer { remedy: Some(remedy.into()), ..Answer::unknown(format!("trying needs {wanted}")) }
    }

    pub(super) fn new(holds: Option<bool>, detail: impl Into<String>) -> Answer {
        Answer { holds, detail: detail.into(), remedy: None }
    }

    /// The outcome of a trial by a thread that lacks the capabilities `missing`. A refusal for want of privilege says
    /// nothing about the kernel.
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

/// The facts about a host, and its layers and interfaces.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// When the host was probed.
    pub time: SystemTime,
    /// The kernel's release. Nothing is derived from it.
    pub kernel: String,
    /// The answer to each fact.
    pub answers: BTreeMap<Fact, Answer>,
    /// The hooks that could stamp the layers of the stack.
    pub layers: Vec<LayerHook>,
    /// The network interfaces, and the programs at their hooks.
    pub devices: Vec<Device>,
}

/// A hook that could stamp a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[schemars(rename = "doctor-layer-hook")]
pub struct LayerHook {
    /// The family of the hook (`dwell stack --hooks`).
    pub family: &'static str,
    /// The name of the layer.
    pub layer: &'static str,
    /// The name of the hook.
    pub hook: &'static str,
    /// Whether `dwell stack` uses it by default.
    pub used: bool,
    /// Why it cannot be used here, if it cannot.
    pub lack: Option<stack::Lack>,
    /// Why this hook was selected, and when it fires.
    pub about: &'static str,
}

impl Facts {
    /// The answer to a fact; unknown if it was not asked.
    pub fn answer(&self, fact: Fact) -> Answer {
        self.answers.get(&fact).cloned().unwrap_or_default()
    }
}
