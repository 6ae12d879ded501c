//! What each verb needs of the host: data. A new verb is a row of [`DWELL`], and its needs below.

use std::borrow::Cow;

use super::{Answer, Device, Fact};

/// What a binary asks of its host.
#[derive(Debug)]
pub struct Requirements {
    /// The name of the binary.
    pub binary: &'static str,
    /// Its verbs in the order of importance, and each one's modes. The first mode of a verb is its usual one.
    pub verbs: Cow<'static, [Verb]>,
    /// Facts that no other binary asks for, in the order of the table.
    pub extra: &'static [ExtraFact],
}

/// A verb, with the options that make a difference to what it needs.
#[derive(Debug, Clone, Copy)]
pub struct Verb {
    /// Its name, as it is typed.
    pub name: &'static str,
    /// Words for other modes and settings of it that need the same.
    pub also: &'static [&'static str],
    /// What it needs, in groups that verbs share.
    pub needs: &'static [&'static [Need]],
    /// What may make network interfaces unfit for it.
    pub obstacles: &'static [Obstacle],
}

/// Something that a verb needs of the host.
#[derive(Debug, PartialEq)]
pub struct Need {
    /// The facts of which one is enough. The first is the one that is reported as missing, and whose row in the table
    /// mentions the need.
    pub any_of: &'static [Fact],
    /// What it is good for; empty where that goes without saying.
    pub serves: &'static str,
    /// What follows where none of the facts holds.
    pub otherwise: Otherwise,
}

/// What follows where a need is not met.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Otherwise {
    /// The verb cannot run, and this is why.
    Impossible(&'static str),
    /// The verb runs, but this is lost.
    Degraded(&'static str),
}

impl Otherwise {
    pub(super) fn consequence(self) -> &'static str {
        match self {
            Otherwise::Impossible(text) | Otherwise::Degraded(text) => text,
        }
    }
}

/// Something about a network interface that is in the way of a verb.
#[derive(Debug, Clone, Copy)]
pub struct Obstacle {
    /// Describes it, if the interface has it.
    pub find: fn(&Device) -> Option<String>,
    /// Whether the verb can run on the interface nevertheless.
    pub is_passable: bool,
    /// What to do.
    pub remedy: &'static str,
}

/// A fact that only one binary asks for, such as that a program is installed.
#[derive(Debug)]
pub struct ExtraFact {
    /// Its name for machines, and that of [`Fact::Extra`].
    pub key: &'static str,
    /// Its name for people.
    pub name: &'static str,
    /// What to do where it does not hold; may be empty.
    pub remedy: &'static str,
    /// Finds out whether it holds; is given the key.
    pub probe: fn(&str) -> Answer,
}

impl Requirements {
    /// The same for some verbs only: those that the first of `words` names, in the modes that have all the others among their
    /// words, in any order and with or without dashes: `lb`, `lb decap`, `rtt xdp`, `run --cgroup`.
    ///
    /// # Errors
    ///
    /// The first words of all verbs, if there is none.
    pub fn only(&self, words: &[String]) -> Result<Requirements, Vec<&'static str>> {
        let is_asked = |verb: &&Verb| {
            let bare = |word: &str| word.trim_start_matches('-').to_owned();
            let own: Vec<_> = verb.name.split(' ').chain(verb.also.iter().copied()).map(bare).collect();
            words.first().is_none_or(|word| own[0] == *word) && words.iter().all(|word| own.contains(&bare(word)))
        };
        let verbs: Vec<Verb> = self.verbs.iter().filter(is_asked).copied().collect();
        if verbs.is_empty() {
            let mut known: Vec<_> = self.verbs.iter().map(|verb| first_word(verb.name)).collect();
            known.dedup();
            return Err(known);
        }
        Ok(Requirements { verbs: Cow::Owned(verbs), ..*self })
    }

    /// The facts that are tried, in the order of the table.
    pub fn facts(&self) -> impl Iterator<Item = Fact> {
        let all = Fact::all().chain(self.extra.iter().map(|extra| Fact::Extra(extra.key)));
        all.filter(|fact| self.tries(*fact))
    }

    /// Whether a fact is tried: one of the verbs needs it.
    pub(super) fn tries(&self, fact: Fact) -> bool {
        let mut needs = self.verbs.iter().flat_map(|verb| verb.needs.iter().copied().flatten());
        needs.any(|need| need.any_of.contains(&fact))
    }

    /// The name of a fact for people.
    pub(super) fn name(&self, fact: Fact) -> &'static str {
        self.extra(fact).map_or(fact.name(), |extra| extra.name)
    }

    /// What to do where a fact does not hold, if anything can be done.
    pub(super) fn remedy(&self, fact: Fact) -> Option<&'static str> {
        let remedy = self.extra(fact).map_or(fact.remedy(), |extra| extra.remedy);
        Some(remedy).filter(|remedy| !remedy.is_empty())
    }

    fn extra(&self, fact: Fact) -> Option<&'static ExtraFact> {
        self.extra.iter().find(|extra| fact == Fact::Extra(extra.key))
    }
}

/// The verb of a row, without subverb and options.
pub(super) fn first_word(row: &'static str) -> &'static str {
    row.split(' ').next().unwrap_or(row)
}

/// What `dwell` asks of its host.
#[rustfmt::skip]
pub static DWELL: Requirements = Requirements {
    binary: "dwell",
    verbs: Cow::Borrowed(&[
        Verb { name: "rtt -i", also: &["--hook", "tc"], needs: &[RTT, NAMES, OWNERS], obstacles: &[] },
        Verb { name: "rtt -i --attach clsact", also: &[], needs: &[RTT, CLSACT, NAMES, OWNERS], obstacles: &[] },
        Verb { name: "rtt -i --hook xdp", also: &[], needs: &[RTT_AT_XDP, RTT, NAMES, OWNERS], obstacles: &[XDP_TAKEN_FOR_RTT] },
        Verb { name: "rtt -r", also: &["--annotate"], needs: &[], obstacles: &[] },
        Verb { name: "response -i", also: &["--hook", "auto"], needs: &[RESPONSE, RESPONSE_ANYWHERE, NAMES, OWNERS], obstacles: &[] },
        Verb { name: "response -i --hook tc", also: &[], needs: &[RESPONSE, NAMES, OWNERS], obstacles: &[] },
        Verb { name: "response -i --hook xdp", also: &[], needs: &[RESPONSE_AT_XDP, RESPONSE, NAMES, OWNERS], obstacles: &[XDP_TAKEN_FOR_RESPONSE] },
        Verb { name: "response -i --tail-call", also: &[], needs: &[RESPONSE, TAIL_CALL, NAMES, OWNERS], obstacles: &[] },
        Verb { name: "response -r", also: &[], needs: &[], obstacles: &[] },
        Verb { name: "stack", also: &["--pid", "--flows", "--raw", "--devices"], needs: &[STACK, NAMES], obstacles: &[] },
        Verb { name: "stack --cgroup", also: &[], needs: &[STACK, CGROUP, NAMES], obstacles: &[] },
        Verb { name: "stack --all-namespaces", also: &[], needs: &[STACK, NAMESPACES, NAMES], obstacles: &[] },
        Verb { name: "stack --hooks fentry", also: &[], needs: &[STACK, AT_FENTRY, NAMES], obstacles: &[] },
        Verb { name: "stack --hooks kprobe", also: &[], needs: &[STACK, AT_KPROBE, NAMES], obstacles: &[] },
        Verb { name: "agent", also: &["--pid"], needs: &[STACK, AGENT, CONFINED], obstacles: &[] },
        Verb { name: "agent --cgroup", also: &[], needs: &[STACK, AGENT, CGROUP, CONFINED], obstacles: &[] },
        Verb { name: "agent --all-namespaces", also: &[], needs: &[STACK, AGENT, NAMESPACES, CONFINED], obstacles: &[] },
        Verb { name: "agent --clock-mode native", also: &["native-forced"], needs: &[STACK, AGENT, CONFINED], obstacles: &[NO_NATIVE_XDP] },
        Verb { name: "collect", also: &[], needs: &[COLLECT, CONFINED], obstacles: &[] },
        Verb { name: "collect --clock-mode native", also: &["native-forced"], needs: &[COLLECT, CONFINED], obstacles: &[NO_NATIVE_XDP] },
        Verb { name: "report", also: &[], needs: &[], obstacles: &[] },
        Verb { name: "run", also: &["--minimize"], needs: &[RUN, PRELOADED], obstacles: &[] },
        Verb { name: "run --outside", also: &[], needs: &[CONNECTIONS, RUN], obstacles: &[] },
        Verb { name: "run --pid", also: &["--minimize"], needs: &[CONNECTIONS, FROM_OUTSIDE, RUN], obstacles: &[] },
        Verb { name: "run --cgroup", also: &[], needs: &[CONNECTIONS, FROM_OUTSIDE, RUN, CGROUP, ALL_NAMESPACES], obstacles: &[] },
        Verb { name: "run --cgroup --minimize", also: &[], needs: &[CONNECTIONS, FROM_OUTSIDE, RUN, CGROUP, ALL_NAMESPACES, LIMITER], obstacles: &[] },
        Verb { name: "run --congestion bbr", also: &[], needs: &[RUN, PRELOADED, BBR], obstacles: &[] },
        Verb { name: "why", also: &[], needs: &[WHY, NAMES], obstacles: &[] },
        Verb { name: "why -r", also: &[], needs: &[], obstacles: &[] },
        Verb { name: "top", also: &[], needs: &[TOP, NAMES, OWNERS], obstacles: &[] },
        Verb { name: "top -r", also: &[], needs: &[], obstacles: &[] },
        Verb { name: "lb run", also: &["l2", "ipip", "gue", "quic"], needs: &[BALANCER, XDP_PACKETS], obstacles: &[XDP_TAKEN_FOR_LB, NO_NATIVE_XDP] },
        Verb { name: "lb decap", also: &["ipip", "gue"], needs: &[DECAP, XDP_PACKETS], obstacles: &[XDP_TAKEN_FOR_DECAP, NO_NATIVE_XDP] },
        Verb { name: "lb check", also: &[], needs: &[], obstacles: &[] },
        Verb { name: "sim", also: &[], needs: &[], obstacles: &[] },
    ]),
    extra: &[],
};

use Otherwise::{Degraded, Impossible};

/// The needs of a verb that loads a program: that it loads is the proof; the rest says what that takes, and so why it may have been
/// refused. After the program come what it is good for and what follows without it, its hooks, what the verifier lets it do, what
/// follows where it does not, and the verb's other needs.
#[rustfmt::skip]
macro_rules! program {
    ($program:ident, $serves:literal, $otherwise:literal, $hooks:literal, $may:literal, $refused:literal; $($need:expr,)*) => {
        &[
            Need { any_of: &[Fact::$program], serves: $serves, otherwise: Impossible($otherwise) },
            Need { any_of: &[Fact::CapBpf, Fact::CapSysAdmin, Fact::$program], serves: "loads programs and tables", otherwise: Impossible("cannot load programs and tables") },
            Need { any_of: &[Fact::CapNetAdmin, Fact::CapSysAdmin, Fact::$program], serves: concat!("attaches programs to ", $hooks), otherwise: Impossible(concat!("cannot attach programs to ", $hooks)) },
            Need { any_of: &[Fact::CapPerfmon, Fact::CapSysAdmin, Fact::$program], serves: $may, otherwise: Impossible($refused) },
            Need { any_of: &[Fact::InitialUserNamespace, Fact::$program], serves: "may load programs", otherwise: Impossible("the kernel loads no programs for a user namespace") },
            $($need,)*
        ]
    };
}

/// What it takes to watch packets live.
#[rustfmt::skip]
macro_rules! live {
    ($program:ident) => {
        program! {
            $program, "measures in the kernel", "cannot measure live", "network hooks", "calculates with packet pointers", "the verifier refuses the program";
            Need { any_of: &[Fact::Tcx, Fact::Clsact], serves: "watches packets; detached with the process, however it ends", otherwise: Impossible("has no hook to watch packets at tc") },
            Need { any_of: &[Fact::Tcx], serves: "", otherwise: Degraded("falls back to clsact: a run ended by SIGKILL leaves its filters behind") },
            Need { any_of: &[Fact::Clsact, Fact::Tcx], serves: "watches packets where there is no tcx", otherwise: Impossible("nothing to fall back to without tcx") },
            Need { any_of: &[Fact::Jit], serves: "runs as machine code", otherwise: Degraded("each packet costs several times as much") },
            Need { any_of: &[Fact::StatisticsOff], serves: "runs at full speed", otherwise: Degraded("the kernel times each program run: some 44 ns more for each packet") },
            Need { any_of: &[Fact::MemoryLock, Fact::$program], serves: "creates its tables", otherwise: Impossible("cannot create its tables") },
            Need { any_of: &[Fact::TcProgram, Fact::$program], serves: "watches packets", otherwise: Impossible("cannot watch packets at tc") },
            Need { any_of: &[Fact::BpfLoop, Fact::$program], serves: "finds idle flows", otherwise: Impossible("its program needs it") },
            Need { any_of: &[Fact::RingBuffer, Fact::$program], serves: "reports samples", otherwise: Impossible("cannot report samples") },
            Need { any_of: &[Fact::MmapableArray, Fact::$program], serves: "keeps its flow table", otherwise: Impossible("cannot keep its flow table") },
        }
    };
}

/// Live RTT.
pub const RTT: &[Need] = live!(RttProgram);

/// Names and labels in the records of live flows.
#[rustfmt::skip]
const NAMES: &[Need] = &[
    Need { any_of: &[Fact::CapNetRaw], serves: "reads names of hosts and labels of requests from packets", otherwise: Degraded("no labels of requests, and no names of hosts from DNS answers") },
];

/// Names of processes in the records of live flows, also of those that have ended.
#[rustfmt::skip]
const OWNERS: &[Need] = &[
    Need { any_of: &[Fact::CapSysPtrace], serves: "names the processes of other users and of short connections", otherwise: Degraded("names only processes of this user, and connections that end at once may have none") },
    Need { any_of: &[Fact::TpBtf], serves: "names the processes of short connections", otherwise: Degraded("connections that end at once may have no process") },
];

/// Live RTT with ingress at XDP, in addition to [`RTT`].
#[rustfmt::skip]
pub const RTT_AT_XDP: &[Need] = &[
    Need { any_of: &[Fact::RttXdpProgram], serves: "measures at XDP", otherwise: Impossible("cannot measure at XDP") },
    Need { any_of: &[Fact::XdpProgram, Fact::RttXdpProgram], serves: "watches packets", otherwise: Impossible("cannot watch packets at XDP") },
    Need { any_of: &[Fact::XdpAttach], serves: "watches packets before the network stack", otherwise: Impossible("cannot watch packets at XDP") },
];

/// Live RTT at filters that a run ended by SIGKILL leaves behind, in addition to [`RTT`].
#[rustfmt::skip]
const CLSACT: &[Need] = &[
    Need { any_of: &[Fact::Clsact], serves: "watches packets by filters", otherwise: Impossible("cannot attach filters") },
];

/// Live response latency.
pub const RESPONSE: &[Need] = live!(ResponseProgram);

/// Live response latency at XDP if that is possible, in addition to [`RESPONSE`].
#[rustfmt::skip]
const RESPONSE_ANYWHERE: &[Need] = &[
    Need { any_of: &[Fact::XdpAttach], serves: "watches packets before the network stack", otherwise: Degraded("measures at tc, where packets may have been merged") },
];

/// Live response latency at XDP and nowhere else, in addition to [`RESPONSE`].
#[rustfmt::skip]
const RESPONSE_AT_XDP: &[Need] = &[
    Need { any_of: &[Fact::XdpAttach], serves: "watches packets before the network stack", otherwise: Impossible("cannot watch packets at XDP") },
];

/// Live response latency in a slot of another program's array, in addition to [`RESPONSE`].
#[rustfmt::skip]
const TAIL_CALL: &[Need] = &[
    Need { any_of: &[Fact::BpfFilesystem], serves: "finds the program array by its path", otherwise: Impossible("no program array can be found by its path") },
];

/// The layers of the host.
#[rustfmt::skip]
pub const STACK: &[Need] = program! {
    StackProgram, "stamps layers in the kernel", "cannot stamp layers", "netfilter hooks", "reads the kernel's sockets and packets", "cannot read the kernel's sockets and packets";
    Need { any_of: &[Fact::LockdownOff, Fact::StackProgram], serves: "may read the kernel's memory", otherwise: Impossible("the kernel is locked down") },
    Need { any_of: &[Fact::Btf, Fact::StackProgram], serves: "finds fields of sockets and packets", otherwise: Impossible("cannot find fields of sockets and packets") },
    Need { any_of: &[Fact::TpBtf, Fact::StackProgram], serves: "stamps most layers", otherwise: Impossible("most layers have no hook") },
    Need { any_of: &[Fact::Netfilter, Fact::Fentry, Fact::Kprobe, Fact::StackProgram], serves: "stamps IP", otherwise: Impossible("IP has no hook") },
    Need { any_of: &[Fact::BpfLoop, Fact::StackProgram], serves: "follows large packets and reads", otherwise: Impossible("its programs need it") },
    Need { any_of: &[Fact::StackHooks], serves: "measures every segment", otherwise: Degraded("segments at that layer are shown as missing") },
};

#[rustfmt::skip]
const AT_FENTRY: &[Need] = &[
    Need { any_of: &[Fact::Fentry], serves: "stamps layers at the entry of functions", otherwise: Impossible("this kernel allows no program there") },
];

#[rustfmt::skip]
const AT_KPROBE: &[Need] = &[
    Need { any_of: &[Fact::Kprobe], serves: "stamps layers at the entry of functions", otherwise: Impossible("this kernel allows no program there") },
];

/// What follows the processes of a cgroup.
#[rustfmt::skip]
const CGROUP: &[Need] = &[
    Need { any_of: &[Fact::Cgroup2], serves: "follows the processes of a cgroup", otherwise: Impossible("there is no cgroup of version 2 to follow") },
];

/// What tells network namespaces apart for people.
#[rustfmt::skip]
const NAMESPACES: &[Need] = &[
    Need { any_of: &[Fact::CapSysPtrace], serves: "names the network namespaces of processes of other users", otherwise: Degraded("network namespaces of processes of other users have numbers for names") },
];

/// An agent, in addition to [`STACK`]. The socket that stands in for XDP has a program too, which refuses strangers.
#[rustfmt::skip]
pub const AGENT: &[Need] = &[
    Need { any_of: &[Fact::ClockPrograms], serves: "answers collectors that ask for its clock", otherwise: Degraded("its clock cannot be compared, so latency between hosts is not reported") },
    Need { any_of: &[Fact::XdpAttach], serves: "answers before the network stack", otherwise: Degraded("its clock is compared by sockets, within a wider bound") },
];

/// A collector. It runs without privilege too: then clocks are compared by sockets.
#[rustfmt::skip]
pub const COLLECT: &[Need] = &[
    Need { any_of: &[Fact::ClockPrograms], serves: "compares clocks of agents", otherwise: Degraded("clocks are compared by sockets, within a wider bound") },
    Need { any_of: &[Fact::XdpAttach], serves: "compares clocks without the delay of queues", otherwise: Degraded("clocks are compared by sockets, within a wider bound") },
];

/// What speaks to strangers, and gives up files for that reason.
#[rustfmt::skip]
const CONFINED: &[Need] = &[
    Need { any_of: &[Fact::Landlock], serves: "gives up all files but its own", otherwise: Degraded("keeps access to all files of its user") },
];

/// Sockets seen from user space, without privilege.
#[rustfmt::skip]
pub const RUN: &[Need] = &[
    Need { any_of: &[Fact::SockDiag], serves: "sees connections of any program from outside", otherwise: Degraded("measures only programs that libdwell can be loaded into, and no --pid") },
    Need { any_of: &[Fact::TcpCounts], serves: "measures exactly", otherwise: Degraded("delays are estimated from segments, as with --set estimator=paper") },
];

/// What is loaded into a program that `dwell run` starts, in addition to [`RUN`].
#[rustfmt::skip]
const PRELOADED: &[Need] = &[
    Need { any_of: &[Fact::Library], serves: "measures the program from inside", otherwise: Degraded("measures the program from outside, and sets none of its options") },
];

/// Sockets seen from outside alone, in addition to [`RUN`].
#[rustfmt::skip]
const CONNECTIONS: &[Need] = &[
    Need { any_of: &[Fact::SockDiag], serves: "sees connections of running programs", otherwise: Impossible("cannot see connections of running programs") },
];

/// Sockets of programs that run already, in addition to [`CONNECTIONS`].
#[rustfmt::skip]
const FROM_OUTSIDE: &[Need] = &[
    Need { any_of: &[Fact::CapSysPtrace], serves: "watches processes of other users", otherwise: Degraded("watches only processes of this user") },
];

/// Sockets of a target, and the layers below them where this process may stamp bytes.
#[rustfmt::skip]
pub const WHY: &[Need] = &[
    Need { any_of: &[Fact::SockDiag], serves: "sees connections of the target", otherwise: Impossible("cannot see connections") },
    Need { any_of: &[Fact::CapSysPtrace], serves: "finds the connections of processes of other users", otherwise: Degraded("finds connections of a process, unit or container only if it is of this user") },
    Need { any_of: &[Fact::StackProgram], serves: "stamps bytes at the layers of this host", otherwise: Degraded("does not see the layers of this host") },
];

/// The screen of connections.
#[rustfmt::skip]
const TOP: &[Need] = &[
    Need { any_of: &[Fact::SockDiag], serves: "sees the connections of this host", otherwise: Impossible("cannot see connections") },
    Need { any_of: &[Fact::ResponseProgram], serves: "shows how long servers take to respond", otherwise: Degraded("shows no response latency") },
    Need { any_of: &[Fact::Tcx], serves: "watches packets of connections", otherwise: Degraded("shows no response latency") },
];

#[rustfmt::skip]
const ALL_NAMESPACES: &[Need] = &[
    Need { any_of: &[Fact::CapSysAdmin], serves: "watches all network namespaces", otherwise: Degraded("watches only this network namespace") },
];

/// The program that keeps the send buffers of a cgroup short.
#[rustfmt::skip]
const LIMITER: &[Need] = &[
    Need { any_of: &[Fact::CapBpf, Fact::CapSysAdmin, Fact::SockOps], serves: "loads programs and tables", otherwise: Impossible("cannot load programs and tables") },
    Need { any_of: &[Fact::CapNetAdmin, Fact::CapSysAdmin, Fact::SockOps], serves: "attaches a program to the cgroup", otherwise: Impossible("cannot attach a program to the cgroup") },
    Need { any_of: &[Fact::InitialUserNamespace, Fact::SockOps], serves: "may load programs", otherwise: Impossible("the kernel loads no programs for a user namespace") },
    Need { any_of: &[Fact::SockOps], serves: "sets options of each new connection", otherwise: Impossible("cannot set options of each new connection") },
];

#[rustfmt::skip]
const BBR: &[Need] = &[
    Need { any_of: &[Fact::Bbr], serves: "shortens queues in the network", otherwise: Impossible("the kernel refuses it to users") },
];

/// The load balancer.
#[rustfmt::skip]
pub const BALANCER: &[Need] = program! {
    BalancerProgram, "balances packets in the kernel", "cannot balance packets", "network hooks", "calculates with packet pointers", "the verifier refuses the program";
    Need { any_of: &[Fact::XdpProgram, Fact::BalancerProgram], serves: "balances packets", otherwise: Impossible("cannot balance packets") },
    Need { any_of: &[Fact::BpfLoop, Fact::BalancerProgram], serves: "finds idle connections", otherwise: Impossible("its program needs it") },
    Need { any_of: &[Fact::RingBuffer, Fact::BalancerProgram], serves: "reports response latency", otherwise: Impossible("cannot report response latency") },
    Need { any_of: &[Fact::MemoryLock, Fact::BalancerProgram], serves: "creates its tables", otherwise: Impossible("cannot create its tables") },
    Need { any_of: &[Fact::BpfFilesystem], serves: "keeps connections while it restarts", otherwise: Impossible("has no place to pin its program and tables") },
    Need { any_of: &[Fact::CapNetRaw], serves: "checks the health of backends by ping and through tunnels", otherwise: Degraded("cannot check the health of backends by ping or through tunnels") },
};

/// The end of a balancer's tunnel on a backend.
#[rustfmt::skip]
const DECAP: &[Need] = program! {
    DecapProgram, "unpacks tunnels in the kernel", "cannot unpack tunnels", "network hooks", "calculates with packet pointers", "the verifier refuses the program";
    Need { any_of: &[Fact::XdpProgram, Fact::DecapProgram], serves: "unpacks tunnels", otherwise: Impossible("cannot unpack tunnels") },
};

/// Programs that change packets at XDP.
#[rustfmt::skip]
pub const XDP_PACKETS: &[Need] = &[
    Need { any_of: &[Fact::XdpAttach], serves: "handles packets before the network stack", otherwise: Impossible("cannot handle packets at XDP") },
    Need { any_of: &[Fact::Jit], serves: "runs as machine code", otherwise: Degraded("each packet costs several times as much") },
    Need { any_of: &[Fact::StatisticsOff], serves: "runs at full speed", otherwise: Degraded("the kernel times each program run: some 44 ns more for each packet") },
];

const XDP_TAKEN_FOR_RTT: Obstacle = Obstacle {
    find: |device| xdp_holder(device, None),
    is_passable: false,
    remedy: "leave --hook at tc, which runs next to it",
};

const XDP_TAKEN_FOR_RESPONSE: Obstacle =
    Obstacle { remedy: "leave --hook at auto, which falls back to tc", ..XDP_TAKEN_FOR_RTT };

const XDP_TAKEN_FOR_LB: Obstacle = Obstacle {
    find: |device| xdp_holder(device, Some("balance_xdp")),
    is_passable: false,
    remedy: "detach it, or have it call the balancer's program (`chain` in the configuration)",
};

const XDP_TAKEN_FOR_DECAP: Obstacle =
    Obstacle { find: |device| xdp_holder(device, None), is_passable: false, remedy: "detach it" };

const NO_NATIVE_XDP: Obstacle = Obstacle {
    find: |device| {
        let why = || format!("{}: its driver runs no XDP programs, so the network stack does, slower", device.name);
        (device.native_xdp == Some(false)).then(why)
    },
    is_passable: true,
    remedy: "an interface whose driver runs XDP programs (`dwell doctor` shows it by interface)",
};

/// Describes the XDP program that occupies a device, unless it is `own`, which the verb takes over.
fn xdp_holder(device: &Device, own: Option<&str>) -> Option<String> {
    let holder = device.xdp.as_ref()?.first()?;
    if own.is_some() && holder.name.as_deref() == own {
        return None;
    }
    let name = holder.name.as_deref().unwrap_or("unnamed");
    Some(format!(
        "{}: the XDP program {name} (id {}) occupies the device, which has room for one",
        device.name, holder.id
    ))
}
