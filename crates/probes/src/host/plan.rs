//! What the facts mean for each verb. Pure.

use serde::Serialize;

use super::{Answer, Device, Fact, Facts};

/// What a verb asks of the host.
pub(super) struct Need {
    /// Any of these will do; the first is the one that is missed, and whose
    /// row in the table tells of the need.
    pub(super) any_of: &'static [Fact],
    /// What it serves.
    pub(super) serves: &'static str,
    /// What follows where none of them holds.
    pub(super) without: Without,
}

/// What follows where a need is not met.
#[derive(Debug, Clone, Copy)]
pub(super) enum Without {
    Impossible(&'static str),
    Degraded(&'static str),
}

impl Without {
    pub(super) fn consequence(self) -> &'static str {
        match self {
            Without::Impossible(text) | Without::Degraded(text) => text,
        }
    }
}

/// A way to use dwell.
pub(super) struct Verb {
    pub(super) name: &'static str,
    pub(super) needs: &'static [&'static [Need]],
    /// What makes an interface unfit for it.
    unfit: fn(&Device) -> Option<String>,
}

const RTT: &str = "rtt -i";

/// A new verb is a line here, and its needs below.
#[rustfmt::skip]
pub(super) const VERBS: &[Verb] = &[
    Verb { name: RTT, needs: &[RTT_NEEDS], unfit: |_| None },
    Verb { name: "rtt -i --ingress-hook xdp", needs: &[XDP_NEEDS, RTT_NEEDS], unfit: holds_xdp },
    Verb { name: "rtt -r", needs: &[], unfit: |_| None },
    Verb { name: "response -i", needs: &[RESPONSE_NEEDS, RTT_NEEDS], unfit: |_| None },
    Verb { name: "response -r", needs: &[], unfit: |_| None },
    Verb { name: "stack", needs: &[STACK_NEEDS], unfit: |_| None },
    Verb { name: "agent", needs: &[STACK_NEEDS, AGENT_NEEDS], unfit: |_| None },
    Verb { name: "collect", needs: &[COLLECT_NEEDS], unfit: |_| None },
    Verb { name: "report", needs: &[], unfit: |_| None },
    Verb { name: "run", needs: &[RUN_NEEDS], unfit: |_| None },
    Verb { name: "run --congestion bbr", needs: &[RUN_NEEDS, BBR_NEEDS], unfit: |_| None },
    Verb { name: "lab", needs: &[LAB_NEEDS], unfit: |_| None },
    Verb { name: "lab demo", needs: &[LAB_NEEDS, TRAFFIC_NEEDS, RTT_NEEDS], unfit: |_| None },
    Verb { name: "lab response", needs: &[LAB_NEEDS, LOAD_NEEDS, RESPONSE_NEEDS, RTT_NEEDS], unfit: |_| None },
    Verb { name: "lab stack", needs: &[LAB_NEEDS, STACK_NEEDS, AGENT_NEEDS, COLLECT_NEEDS], unfit: |_| None },
];

/// To load the program is the proof; the rest says what it is made of, and so
/// why it may have been refused.
#[rustfmt::skip]
const RTT_NEEDS: &[Need] = &[
    Need { any_of: &[Fact::RttProgram], serves: "measures in the kernel", without: Without::Impossible("cannot measure live") },
    Need { any_of: &[Fact::CapBpf, Fact::CapSysAdmin, Fact::RttProgram], serves: "loads programs and tables", without: Without::Impossible("cannot load programs and tables") },
    Need { any_of: &[Fact::CapNetAdmin, Fact::CapSysAdmin, Fact::RttProgram], serves: "puts programs at network hooks", without: Without::Impossible("cannot put programs at network hooks") },
    Need { any_of: &[Fact::CapPerfmon, Fact::CapSysAdmin, Fact::RttProgram], serves: "calculates with packet pointers", without: Without::Impossible("the verifier refuses the program") },
    Need { any_of: &[Fact::InitialUserNamespace, Fact::RttProgram], serves: "may load programs", without: Without::Impossible("the kernel loads no programs for a user namespace") },
    Need { any_of: &[Fact::Tcx, Fact::Clsact], serves: "watches packets; detached with the process, however it ends", without: Without::Impossible("has no place to watch packets at tc") },
    Need { any_of: &[Fact::Tcx], serves: "", without: Without::Degraded("falls back to clsact: a run ended by SIGKILL leaves its filters behind") },
    Need { any_of: &[Fact::Clsact, Fact::Tcx], serves: "watches packets where there is no tcx", without: Without::Impossible("nothing to fall back to without tcx") },
    Need { any_of: &[Fact::Jit], serves: "runs at the speed of the machine", without: Without::Degraded("each packet costs several times as much") },
    Need { any_of: &[Fact::StatisticsOff], serves: "runs at full speed", without: Without::Degraded("the kernel times each program run: some 44 ns more for each packet") },
    Need { any_of: &[Fact::MemoryLock, Fact::RttProgram], serves: "makes its tables", without: Without::Impossible("cannot make its tables") },
    Need { any_of: &[Fact::TcProgram, Fact::RttProgram], serves: "watches packets", without: Without::Impossible("cannot watch packets at tc") },
    Need { any_of: &[Fact::BpfLoop, Fact::RttProgram], serves: "finds idle flows", without: Without::Impossible("its program needs it") },
    Need { any_of: &[Fact::RingBuffer, Fact::RttProgram], serves: "reports samples", without: Without::Impossible("cannot report samples") },
    Need { any_of: &[Fact::MmapableArray, Fact::RttProgram], serves: "keeps its flow table", without: Without::Impossible("cannot keep its flow table") },
];

#[rustfmt::skip]
const XDP_NEEDS: &[Need] = &[
    Need { any_of: &[Fact::RttXdpProgram], serves: "measures at XDP", without: Without::Impossible("cannot measure at XDP") },
    Need { any_of: &[Fact::XdpProgram, Fact::RttXdpProgram], serves: "watches packets", without: Without::Impossible("cannot watch packets at XDP") },
    Need { any_of: &[Fact::XdpAttach], serves: "watches packets before the stack", without: Without::Impossible("cannot watch packets at XDP") },
];

/// Beside what the RTT program needs.
#[rustfmt::skip]
const RESPONSE_NEEDS: &[Need] = &[
    Need { any_of: &[Fact::ResponseProgram], serves: "measures in the kernel", without: Without::Impossible("cannot measure live") },
    Need { any_of: &[Fact::XdpAttach], serves: "watches packets before the stack", without: Without::Degraded("measures at tc, where packets may have been merged") },
];

#[rustfmt::skip]
const STACK_NEEDS: &[Need] = &[
    Need { any_of: &[Fact::StackProgram], serves: "stamps layers in the kernel", without: Without::Impossible("cannot stamp layers") },
    Need { any_of: &[Fact::CapBpf, Fact::CapSysAdmin, Fact::StackProgram], serves: "loads programs and tables", without: Without::Impossible("cannot load programs and tables") },
    Need { any_of: &[Fact::CapNetAdmin, Fact::CapSysAdmin, Fact::StackProgram], serves: "puts programs at netfilter hooks", without: Without::Impossible("cannot put programs at netfilter hooks") },
    Need { any_of: &[Fact::CapPerfmon, Fact::CapSysAdmin, Fact::StackProgram], serves: "reads the kernel's sockets and packets", without: Without::Impossible("cannot read the kernel's sockets and packets") },
    Need { any_of: &[Fact::InitialUserNamespace, Fact::StackProgram], serves: "may load programs", without: Without::Impossible("the kernel loads no programs for a user namespace") },
    Need { any_of: &[Fact::Btf, Fact::StackProgram], serves: "finds fields of sockets and packets", without: Without::Impossible("cannot find fields of sockets and packets") },
    Need { any_of: &[Fact::TpBtf, Fact::StackProgram], serves: "stamps most layers", without: Without::Impossible("most layers have no hook") },
    Need { any_of: &[Fact::Netfilter, Fact::Fentry, Fact::Kprobe, Fact::StackProgram], serves: "stamps IP", without: Without::Impossible("IP has no hook") },
    Need { any_of: &[Fact::BpfLoop, Fact::StackProgram], serves: "follows large packets and reads", without: Without::Impossible("its programs need it") },
    Need { any_of: &[Fact::StackHooks], serves: "measures every segment", without: Without::Degraded("segments at that layer are shown as missing") },
];

/// Beside what stack needs. The socket, too, has a program that refuses strangers.
#[rustfmt::skip]
const AGENT_NEEDS: &[Need] = &[
    Need { any_of: &[Fact::ClockPrograms], serves: "answers collectors that ask for its clock", without: Without::Degraded("nobody can compare its clock, so the way between hosts is not told") },
    Need { any_of: &[Fact::XdpAttach], serves: "answers before the stack", without: Without::Degraded("its clock is compared by sockets, within a wider bound") },
];

/// No privilege: without, the clocks are compared by sockets.
#[rustfmt::skip]
const COLLECT_NEEDS: &[Need] = &[
    Need { any_of: &[Fact::ClockPrograms], serves: "compares clocks of agents", without: Without::Degraded("clocks are compared by sockets, within a wider bound") },
    Need { any_of: &[Fact::XdpAttach], serves: "compares clocks past queues", without: Without::Degraded("clocks are compared by sockets, within a wider bound") },
];

/// No privilege.
#[rustfmt::skip]
const RUN_NEEDS: &[Need] = &[
    Need { any_of: &[Fact::SockDiag], serves: "sees connections of any program from outside", without: Without::Degraded("measures only programs that libdwell can be loaded into, and no --attach") },
    Need { any_of: &[Fact::TcpCounts], serves: "measures exactly", without: Without::Degraded("delays are estimated from segments, as with --set estimator=paper") },
];

#[rustfmt::skip]
const BBR_NEEDS: &[Need] = &[
    Need { any_of: &[Fact::Bbr], serves: "shortens queues in the network", without: Without::Impossible("the kernel refuses it to users") },
];

#[rustfmt::skip]
const LAB_NEEDS: &[Need] = &[
    Need { any_of: &[Fact::Root], serves: "makes namespaces and links", without: Without::Impossible("cannot make namespaces and links") },
    Need { any_of: &[Fact::CapSysAdmin, Fact::NetworkNamespaces], serves: "makes namespaces", without: Without::Impossible("cannot make namespaces") },
    Need { any_of: &[Fact::NetworkNamespaces], serves: "its hosts", without: Without::Impossible("cannot make hosts") },
    Need { any_of: &[Fact::Veth], serves: "its cables", without: Without::Impossible("cannot make cables") },
    Need { any_of: &[Fact::Forwarding], serves: "its routers", without: Without::Impossible("cannot make routers") },
    Need { any_of: &[Fact::PacketQueue], serves: "its link emulator", without: Without::Impossible("cannot emulate links") },
    Need { any_of: &[Fact::Program("ip")], serves: "makes links", without: Without::Impossible("cannot make links") },
    Need { any_of: &[Fact::Program("iptables-legacy-restore")], serves: "its link emulator", without: Without::Impossible("cannot emulate links") },
    Need { any_of: &[Fact::Program("ip6tables-legacy-restore")], serves: "its link emulator", without: Without::Impossible("cannot emulate links") },
    Need { any_of: &[Fact::Program("nsenter")], serves: "runs programs in its hosts", without: Without::Impossible("cannot run programs in its hosts") },
    Need { any_of: &[Fact::Program("setpriv")], serves: "ends programs with itself", without: Without::Impossible("cannot run programs in its hosts") },
    Need { any_of: &[Fact::Program("chrt")], serves: "emulates links in real time", without: Without::Degraded("its links are less exact on a busy machine") },
];

#[rustfmt::skip]
const TRAFFIC_NEEDS: &[Need] = &[
    Need { any_of: &[Fact::Program("iperf3")], serves: "TCP bulk traffic", without: Without::Degraded("no TCP bulk traffic") },
    Need { any_of: &[Fact::Program("ping")], serves: "ICMP traffic", without: Without::Degraded("no ICMP traffic") },
    Need { any_of: &[Fact::Program("dnsmasq")], serves: "answers DNS queries", without: Without::Degraded("no DNS traffic") },
    Need { any_of: &[Fact::Program("dig")], serves: "sends DNS queries", without: Without::Degraded("no DNS traffic") },
];

#[rustfmt::skip]
const LOAD_NEEDS: &[Need] = &[
    Need { any_of: &[Fact::Program("memcached")], serves: "answers reads and writes", without: Without::Degraded("no load of memcached") },
    Need { any_of: &[Fact::Program("tcpdump")], serves: "captures loads", without: Without::Degraded("no captures of loads") },
    Need { any_of: &[Fact::Program("wrk")], serves: "asks nginx", without: Without::Degraded("no load by wrk") },
    Need { any_of: &[Fact::Program("nginx")], serves: "answers wrk", without: Without::Degraded("no load by wrk") },
    Need { any_of: &[Fact::Program("redis-benchmark")], serves: "asks redis", without: Without::Degraded("no load of redis") },
    Need { any_of: &[Fact::Program("redis-server")], serves: "answers redis-benchmark", without: Without::Degraded("no load of redis") },
    Need { any_of: &[Fact::Program("wireguard-go")], serves: "tunnels of loads", without: Without::Degraded("no loads through WireGuard") },
    Need { any_of: &[Fact::Program("wg")], serves: "sets up tunnels", without: Without::Degraded("no loads through WireGuard") },
];

fn holds_xdp(device: &Device) -> Option<String> {
    let holder = device.xdp.as_ref()?.first()?;
    let name = holder.name.as_deref().unwrap_or("unnamed");
    Some(format!("{}: the XDP program {name} (id {}) holds the device, which takes one", device.name, holder.id))
}

/// How well a verb works here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// All that it wants is here.
    Works,
    /// It works, and something is lost.
    Degraded,
    /// Nothing speaks against it, and it could not be tried.
    Unknown,
    /// Something that it cannot do without is missing.
    Impossible,
}

/// Something that a verb misses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// Which fact does not hold; `None` where an interface is in the way.
    pub fact: Option<Fact>,
    /// What is missed, and what follows.
    pub text: String,
    /// What to do.
    pub remedy: Option<String>,
}

impl Reason {
    fn is_refused_program(&self) -> bool {
        matches!(self.fact, Some(Fact::RttProgram | Fact::RttXdpProgram | Fact::ResponseProgram | Fact::StackProgram))
    }
}

/// How well a verb works here, and why not better.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The verb, with the options that make the difference.
    pub verb: &'static str,
    /// How well it works.
    pub state: State,
    /// Why not better.
    pub reasons: Vec<Reason>,
}

/// What each verb can do here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Plan {
    /// In the order of importance.
    pub verbs: Vec<Verdict>,
}

impl Plan {
    /// False if a live measurement is known to fail.
    pub fn rtt_live_possible(&self) -> bool {
        self.verbs.iter().any(|verdict| verdict.verb == RTT && verdict.state != State::Impossible)
    }
}

/// Judges what the facts mean for each verb.
pub fn plan(facts: &Facts) -> Plan {
    Plan { verbs: VERBS.iter().map(|verb| judge(verb, facts)).collect() }
}

fn judge(verb: &Verb, facts: &Facts) -> Verdict {
    let mut found: Vec<(State, Reason)> = Vec::new();
    let mut explained = false;
    for need in verb.needs.iter().copied().flatten() {
        let state = match (met(need, facts), need.without) {
            (Some(true), _) | (None, Without::Degraded(_)) => continue,
            (Some(false), Without::Impossible(_)) => State::Impossible,
            (Some(false), Without::Degraded(_)) => State::Degraded,
            (None, Without::Impossible(_)) => State::Unknown,
        };
        let missed = need.any_of[0];
        let answer = facts.answer(missed);
        // That it is there, and did not help, explains nothing.
        if answer.holds == Some(true) {
            continue;
        }
        let own = [Fact::RttProgram, Fact::StackProgram];
        let of_own = need.any_of[1..].iter().any(|fact| own.contains(fact));
        explained |= of_own && state == State::Impossible;
        found.push((
            state,
            Reason {
                fact: Some(missed),
                text: missing(missed, &answer, need.without.consequence()),
                remedy: remedy(missed, &answer),
            },
        ));
    }
    let in_the_way: Vec<String> = facts.devices.iter().filter_map(verb.unfit).collect();
    let state = if in_the_way.len() == facts.devices.len() { State::Impossible } else { State::Degraded };
    found.extend(in_the_way.into_iter().map(|text| {
        (state, Reason { fact: None, text, remedy: Some("leave --ingress-hook at tc, which runs beside it".into()) })
    }));
    let state = found.iter().map(|(state, _)| *state).max().unwrap_or(State::Works);
    // That a program was refused says no more than what it was refused for.
    found.retain(|(of, reason)| *of == state && !(explained && reason.is_refused_program()));
    Verdict { verb: verb.name, state, reasons: found.into_iter().map(|(_, reason)| reason).collect() }
}

/// Whether one of the facts holds; `None` if one of them might.
pub(super) fn met(need: &Need, facts: &Facts) -> Option<bool> {
    let holds = |fact: &Fact| facts.answer(*fact).holds;
    if need.any_of.iter().any(|fact| holds(fact) == Some(true)) {
        Some(true)
    } else {
        let all_known = need.any_of.iter().all(|fact| holds(fact).is_some());
        all_known.then_some(false)
    }
}

fn missing(fact: Fact, answer: &Answer, consequence: &str) -> String {
    let what = match answer.holds {
        None => "could not tell",
        _ => "no",
    };
    let detail = if answer.detail.is_empty() { String::new() } else { format!(" ({})", answer.detail) };
    format!("{}: {what}{detail}: {consequence}", fact.name())
}

/// What to do about a fact that does not hold.
pub(super) fn remedy(fact: Fact, answer: &Answer) -> Option<String> {
    let own = || fact.remedy().map(str::to_owned);
    match answer.holds {
        Some(true) => None,
        Some(false) => answer.remedy.clone().or_else(own),
        None => answer.remedy.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::host::Attached;

    /// A host that has everything, with two interfaces that nobody uses.
    fn everything() -> Facts {
        Facts {
            time: SystemTime::UNIX_EPOCH,
            kernel: "6.12.0".into(),
            answers: Fact::all().map(|fact| (fact, Answer::yes(""))).collect(),
            layers: Vec::new(),
            devices: vec![device("eth0"), device("eth1")],
        }
    }

    fn device(name: &str) -> Device {
        Device {
            name: name.into(),
            index: 2,
            xdp: Some(Vec::new()),
            native_xdp: Some(true),
            tcx_ingress: Some(Vec::new()),
            tcx_egress: Some(Vec::new()),
            clsact_ingress: Some(Vec::new()),
            clsact_egress: Some(Vec::new()),
        }
    }

    fn without(facts: &[Fact]) -> Facts {
        let mut host = everything();
        for fact in facts {
            host.answers.insert(*fact, Answer::no("refused: EPERM"));
        }
        host
    }

    fn states(plan: &Plan) -> Vec<State> {
        plan.verbs.iter().map(|verdict| verdict.state).collect()
    }

    fn verdict<'a>(plan: &'a Plan, verb: &str) -> &'a Verdict {
        plan.verbs.iter().find(|verdict| verdict.verb == verb).unwrap()
    }

    #[test]
    fn all_works_where_all_is_there() {
        let plan = plan(&everything());
        assert_eq!(states(&plan), [State::Works; VERBS.len()]);
        assert!(plan.verbs.iter().all(|verdict| verdict.reasons.is_empty()));
        assert!(plan.rtt_live_possible());
    }

    #[test]
    fn a_fact_that_no_verb_needs_changes_nothing() {
        let facts = without(&[Fact::Fentry, Fact::Kprobe, Fact::TcpIterator]);
        assert_eq!(states(&plan(&facts)), [State::Works; VERBS.len()]);
    }

    #[test]
    fn stack_is_impossible_for_the_reason_behind_and_worse_without_a_layer() {
        let plan_of = |facts: &[Fact]| verdict(&plan(&without(facts)), "stack").clone();
        let refused = plan_of(&[Fact::StackProgram, Fact::Netfilter, Fact::Fentry, Fact::Kprobe]);
        assert_eq!(refused.state, State::Impossible);
        let reasons: Vec<_> = refused.reasons.iter().map(|reason| reason.fact).collect();
        assert_eq!(reasons, [Some(Fact::Netfilter)]);
        let worse = plan_of(&[Fact::StackHooks]);
        assert_eq!(worse.state, State::Degraded);
        assert!(worse.reasons[0].text.contains("shown as missing"));
    }

    #[test]
    fn without_clock_programs_the_fleet_works_and_what_it_cannot_tell_is_named() {
        let worse = |missing, verb, what| {
            let verdict = verdict(&plan(&without(&[missing])), verb).clone();
            assert_eq!(verdict.state, State::Degraded, "{verb}");
            let is_named = |reason: &Reason| reason.text.contains(what);
            assert!(verdict.reasons.iter().any(is_named), "{verdict:?}");
        };
        worse(Fact::ClockPrograms, "agent", "between hosts is not told");
        worse(Fact::XdpAttach, "agent", "by sockets, within a wider bound");
        worse(Fact::XdpAttach, "collect", "by sockets");
        worse(Fact::ClockPrograms, "lab stack", "between hosts is not told");
        let plan = plan(&without(&[Fact::ClockPrograms, Fact::XdpAttach]));
        assert_eq!(verdict(&plan, "stack").state, State::Works);
        assert_eq!(verdict(&plan, "report").state, State::Works);
    }

    #[test]
    fn run_needs_no_privilege_and_says_what_it_cannot_tell() {
        let worse = |missing, what| {
            let verdict = verdict(&plan(&without(&[missing])), "run").clone();
            assert_eq!(verdict.state, State::Degraded);
            assert!(verdict.reasons[0].text.contains(what), "{verdict:?}");
        };
        worse(Fact::SockDiag, "no --attach");
        worse(Fact::TcpCounts, "from segments");
        let plan = plan(&without(&[Fact::Bbr]));
        assert_eq!(verdict(&plan, "run").state, State::Works);
        let bbr = verdict(&plan, "run --congestion bbr");
        assert_eq!(bbr.state, State::Impossible);
    }

    /// As it is for a user without privilege: nothing can be tried.
    #[test]
    fn without_privilege_replay_is_left_and_each_missing_capability_is_named() {
        let mut facts = without(&[
            Fact::CapBpf,
            Fact::CapNetAdmin,
            Fact::CapPerfmon,
            Fact::CapSysAdmin,
            Fact::Root,
            Fact::RttProgram,
            Fact::RttXdpProgram,
            Fact::ResponseProgram,
            Fact::StackProgram,
            Fact::ClockPrograms,
        ]);
        for fact in
            [Fact::Tcx, Fact::Clsact, Fact::XdpAttach, Fact::TcProgram, Fact::RingBuffer, Fact::NetworkNamespaces]
        {
            facts.answers.insert(fact, Answer::unknown("trying needs CAP_BPF"));
        }
        let plan = plan(&facts);
        for Verdict { verb, state, .. } in &plan.verbs {
            let wanted = match *verb {
                "rtt -r" | "response -r" | "report" | "run" | "run --congestion bbr" => State::Works,
                "collect" => State::Degraded,
                _ => State::Impossible,
            };
            assert_eq!(*state, wanted, "{verb}");
        }
        assert!(!plan.rtt_live_possible());
        let missed: Vec<_> = verdict(&plan, "rtt -i").reasons.iter().filter_map(|reason| reason.fact).collect();
        for fact in [Fact::CapBpf, Fact::CapNetAdmin, Fact::CapPerfmon] {
            assert!(missed.contains(&fact), "{missed:?}");
        }
        // The refusal of the program is explained, so it needs no line.
        assert!(!missed.contains(&Fact::RttProgram), "{missed:?}");
        // What could not be tried is no reason beside what is known to fail.
        assert!(!missed.contains(&Fact::Tcx), "{missed:?}");
        assert!(
            verdict(&plan, "rtt -i").reasons.iter().any(|reason| reason.remedy.as_deref().unwrap().contains("setcap"))
        );
    }

    #[test]
    fn a_program_refused_with_every_privilege_is_told_with_its_own_remedy() {
        let mut facts = everything();
        facts.answers.insert(
            Fact::RttProgram,
            Answer { remedy: Some("please report this".into()), ..Answer::no("Invalid argument (os error 22)") },
        );
        let plan = plan(&facts);
        let rtt = verdict(&plan, "rtt -i");
        assert_eq!(rtt.state, State::Impossible);
        assert_eq!(rtt.reasons.len(), 1);
        assert!(rtt.reasons[0].text.contains("os error 22"));
        assert_eq!(rtt.reasons[0].remedy.as_deref(), Some("please report this"));
    }

    #[test]
    fn a_capability_that_was_not_needed_after_all_is_no_obstacle() {
        let facts = without(&[Fact::CapPerfmon, Fact::CapSysAdmin]);
        assert_eq!(verdict(&plan(&facts), "rtt -i").state, State::Works);
    }

    #[test]
    fn without_tcx_clsact_does_and_what_is_lost_is_told() {
        let plan = plan(&without(&[Fact::Tcx]));
        let rtt = verdict(&plan, "rtt -i");
        assert_eq!(rtt.state, State::Degraded);
        assert_eq!(rtt.reasons.len(), 1);
        assert!(rtt.reasons[0].text.contains("SIGKILL"), "{:?}", rtt.reasons);
        assert!(plan.rtt_live_possible());
    }

    #[test]
    fn without_tcx_and_clsact_there_is_no_place() {
        let plan = plan(&without(&[Fact::Tcx, Fact::Clsact]));
        assert_eq!(verdict(&plan, "rtt -i").state, State::Impossible);
        assert_eq!(verdict(&plan, "lab").state, State::Works);
        assert!(!plan.rtt_live_possible());
    }

    #[test]
    fn what_could_not_be_tried_is_not_called_impossible() {
        let mut facts = without(&[Fact::Tcx]);
        facts.answers.insert(Fact::Clsact, Answer::unknown("trying needs a namespace"));
        let plan = plan(&facts);
        assert_eq!(verdict(&plan, "rtt -i").state, State::Unknown);
        assert!(plan.rtt_live_possible());
    }

    #[test]
    fn statistics_cost_time_and_the_remedy_is_a_command() {
        let plan = plan(&without(&[Fact::StatisticsOff]));
        let rtt = verdict(&plan, "rtt -i");
        assert_eq!(rtt.state, State::Degraded);
        assert!(rtt.reasons[0].text.contains("44 ns"));
        assert_eq!(rtt.reasons[0].remedy.as_deref(), Some("sudo sysctl -w kernel.bpf_stats_enabled=0"));
    }

    #[test]
    fn an_occupied_device_stops_xdp_on_it_only() {
        let mut facts = everything();
        facts.devices[1].xdp = Some(vec![Attached { id: 7, name: Some("katran".into()), mode: Some("native") }]);
        let both = plan(&facts);
        let xdp = verdict(&both, "rtt -i --ingress-hook xdp");
        assert_eq!(xdp.state, State::Degraded);
        assert!(xdp.reasons[0].text.contains("eth1"), "{:?}", xdp.reasons);
        assert!(xdp.reasons[0].text.contains("katran"), "{:?}", xdp.reasons);
        assert_eq!(verdict(&both, "rtt -i").state, State::Works);

        facts.devices.remove(0);
        let alone = plan(&facts);
        assert_eq!(verdict(&alone, "rtt -i --ingress-hook xdp").state, State::Impossible);
        assert!(alone.rtt_live_possible());
    }

    #[test]
    fn missing_programs_take_away_the_traffic_that_they_make() {
        let plan = plan(&without(&[Fact::Program("dig")]));
        let demo = verdict(&plan, "lab demo");
        assert_eq!(demo.state, State::Degraded);
        assert!(demo.reasons[0].remedy.as_deref().unwrap().contains("bind9-dnsutils"));
        assert_eq!(verdict(&plan, "lab").state, State::Works);
    }

    #[test]
    fn each_fact_has_a_key_of_its_own_and_each_need_a_fact_to_miss() {
        let mut keys: Vec<_> = Fact::all().map(Fact::key).collect();
        keys.sort_unstable();
        let before = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), before);
        let all: Vec<_> = Fact::all().collect();
        for need in VERBS.iter().flat_map(|verb| verb.needs.iter().copied().flatten()) {
            assert!(!need.any_of.is_empty());
            assert!(need.any_of.iter().all(|fact| all.contains(fact)));
        }
    }
}
