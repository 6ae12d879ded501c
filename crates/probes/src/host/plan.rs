//! What the facts mean for each verb. Pure.

use serde::Serialize;

use super::{Answer, Fact, Facts, Need, Obstacle, Otherwise, Requirements, Verb};

/// How well a verb works here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
#[schemars(rename = "doctor-state")]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// All needs are met.
    Works,
    /// The verb works, but something is lost.
    Degraded,
    /// Nothing is known to prevent it, but not all could be tried.
    Unknown,
    /// Something that the verb cannot do without is missing.
    Impossible,
}

/// Something that a verb lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[schemars(rename = "doctor-reason")]
pub struct Reason {
    /// The fact that does not hold; null where an interface is in the way.
    #[schemars(with = "Option<String>")]
    pub fact: Option<Fact>,
    /// What is missing, and what follows.
    pub text: String,
    /// What to do.
    pub remedy: Option<String>,
}

/// How well a verb works here, and why not better.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[schemars(rename = "doctor-verdict")]
pub struct Verdict {
    /// The verb, with the options that make the difference.
    pub verb: &'static str,
    /// How well it works.
    pub state: State,
    /// Why it does not work better.
    pub reasons: Vec<Reason>,
}

/// How well each verb works here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Plan {
    /// One verdict per verb, in the order of importance.
    pub verbs: Vec<Verdict>,
}

/// Decides what the facts mean for each verb.
pub fn plan(facts: &Facts, requirements: &Requirements) -> Plan {
    Plan { verbs: requirements.verbs.iter().map(|verb| judge(verb, facts, requirements)).collect() }
}

/// dwell's own programs. That the kernel refused one says no more than what it was refused for.
const OWN_PROGRAMS: [Fact; 6] = [
    Fact::RttProgram,
    Fact::RttXdpProgram,
    Fact::ResponseProgram,
    Fact::StackProgram,
    Fact::BalancerProgram,
    Fact::DecapProgram,
];

fn judge(verb: &Verb, facts: &Facts, requirements: &Requirements) -> Verdict {
    let mut unmet: Vec<(State, Reason)> = Vec::new();
    let mut is_refusal_explained = false;
    for need in verb.needs.iter().copied().flatten() {
        let state = match (is_met(need, facts), need.otherwise) {
            (Some(true), _) | (None, Otherwise::Degraded(_)) => continue,
            (Some(false), Otherwise::Impossible(_)) => State::Impossible,
            (Some(false), Otherwise::Degraded(_)) => State::Degraded,
            (None, Otherwise::Impossible(_)) => State::Unknown,
        };
        let fact = need.any_of[0];
        let answer = facts.answer(fact);
        // A fact that holds, and did not help, explains nothing.
        if answer.holds == Some(true) {
            continue;
        }
        let is_for_program = need.any_of[1..].iter().any(|other| OWN_PROGRAMS.contains(other));
        is_refusal_explained |= is_for_program && state == State::Impossible;
        let text = describe(requirements.name(fact), &answer, need.otherwise.consequence());
        unmet.push((state, Reason { fact: Some(fact), text, remedy: remedy(fact, &answer, requirements) }));
    }
    unmet.extend(verb.obstacles.iter().flat_map(|obstacle| obstructed(obstacle, facts)));
    let state = unmet.iter().map(|(state, _)| *state).max().unwrap_or(State::Works);
    let is_refusal = |reason: &Reason| reason.fact.is_some_and(|fact| OWN_PROGRAMS.contains(&fact));
    unmet.retain(|(of, reason)| *of == state && !(is_refusal_explained && is_refusal(reason)));
    Verdict { verb: verb.name, state, reasons: unmet.into_iter().map(|(_, reason)| reason).collect() }
}

/// The interfaces with an obstacle. A verb is impossible only where each interface has one; where the verb runs on them
/// nevertheless, they are worth a word only if there is no other.
fn obstructed(obstacle: &Obstacle, facts: &Facts) -> Vec<(State, Reason)> {
    let found: Vec<String> = facts.devices.iter().filter_map(obstacle.find).collect();
    let are_all = found.len() == facts.devices.len();
    if obstacle.is_passable && !are_all {
        return Vec::new();
    }
    let state = if are_all && !obstacle.is_passable { State::Impossible } else { State::Degraded };
    let reason = |text| Reason { fact: None, text, remedy: Some(obstacle.remedy.to_owned()) };
    found.into_iter().map(|text| (state, reason(text))).collect()
}

/// Whether one of the facts holds; `None` if one of them might.
pub(super) fn is_met(need: &Need, facts: &Facts) -> Option<bool> {
    let holds = |fact: &Fact| facts.answer(*fact).holds;
    if need.any_of.iter().any(|fact| holds(fact) == Some(true)) {
        return Some(true);
    }
    let are_all_known = need.any_of.iter().all(|fact| holds(fact).is_some());
    are_all_known.then_some(false)
}

fn describe(name: &str, answer: &Answer, consequence: &str) -> String {
    let value = match answer.holds {
        None => "unknown",
        _ => "no",
    };
    let detail = if answer.detail.is_empty() { String::new() } else { format!(" ({})", answer.detail) };
    format!("{name}: {value}{detail}: {consequence}")
}

/// What to do about a fact that does not hold.
pub(super) fn remedy(fact: Fact, answer: &Answer, requirements: &Requirements) -> Option<String> {
    let own = || requirements.remedy(fact).map(str::to_owned);
    match answer.holds {
        Some(true) => None,
        Some(false) => answer.remedy.clone().or_else(own),
        None => answer.remedy.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::{borrow::Cow, time::SystemTime};

    use super::*;
    use crate::host::{Attached, DWELL, Device};

    fn plan(facts: &Facts) -> Plan {
        super::plan(facts, &DWELL)
    }

    fn is_rtt_possible(plan: &Plan) -> bool {
        verdict(plan, "rtt -i").state != State::Impossible
    }

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
        assert_eq!(states(&plan), vec![State::Works; DWELL.verbs.len()]);
        assert!(plan.verbs.iter().all(|verdict| verdict.reasons.is_empty()));
        assert!(is_rtt_possible(&plan));
    }

    #[test]
    fn every_fact_is_needed_by_a_verb() {
        let unneeded: Vec<_> = Fact::all().filter(|fact| !DWELL.tries(*fact)).collect();
        assert_eq!(unneeded, [Fact::Root, Fact::NetworkNamespaces]);
    }

    #[test]
    fn a_verb_is_judged_by_its_own_program() {
        let plan = plan(&without(&[Fact::RttProgram]));
        assert!(!is_rtt_possible(&plan));
        for verb in ["response -i", "response -i --hook tc", "response -i --hook xdp", "response -i --tail-call"] {
            assert_eq!(verdict(&plan, verb).state, State::Works, "{verb}");
        }
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
    fn without_clock_programs_the_fleet_works_and_what_it_cannot_measure_is_named() {
        let worse = |missing, verb, what| {
            let verdict = verdict(&plan(&without(&[missing])), verb).clone();
            assert_eq!(verdict.state, State::Degraded, "{verb}");
            let is_named = |reason: &Reason| reason.text.contains(what);
            assert!(verdict.reasons.iter().any(is_named), "{verdict:?}");
        };
        worse(Fact::ClockPrograms, "agent", "between hosts is not reported");
        worse(Fact::XdpAttach, "agent", "by sockets, within a wider bound");
        worse(Fact::XdpAttach, "collect", "by sockets");
        let plan = plan(&without(&[Fact::ClockPrograms, Fact::XdpAttach]));
        assert_eq!(verdict(&plan, "stack").state, State::Works);
        assert_eq!(verdict(&plan, "report").state, State::Works);
    }

    #[test]
    fn run_needs_no_privilege_and_says_what_it_cannot_measure() {
        let worse = |missing, what| {
            let verdict = verdict(&plan(&without(&[missing])), "run").clone();
            assert_eq!(verdict.state, State::Degraded);
            assert!(verdict.reasons[0].text.contains(what), "{verdict:?}");
        };
        worse(Fact::SockDiag, "no --pid");
        worse(Fact::TcpCounts, "from segments");
        let plan = plan(&without(&[Fact::Bbr]));
        assert_eq!(verdict(&plan, "run").state, State::Works);
        let bbr = verdict(&plan, "run --congestion bbr");
        assert_eq!(bbr.state, State::Impossible);
    }

    /// A user without privilege can try nothing.
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
            Fact::BalancerProgram,
            Fact::DecapProgram,
        ]);
        for fact in
            [Fact::Tcx, Fact::Clsact, Fact::XdpAttach, Fact::TcProgram, Fact::RingBuffer, Fact::NetworkNamespaces]
        {
            facts.answers.insert(fact, Answer::unknown("trying needs CAP_BPF"));
        }
        let plan = plan(&facts);
        for Verdict { verb, state, .. } in &plan.verbs {
            let wanted = match *verb {
                "rtt -r" | "response -r" | "why -r" | "top -r" | "report" | "lb check" | "sim" => State::Works,
                "run" | "run --outside" | "run --pid" | "run --congestion bbr" => State::Works,
                "collect" | "collect --clock-mode native" | "why" | "top" => State::Degraded,
                "run --cgroup" | "run --cgroup --minimize" => State::Degraded,
                _ => State::Impossible,
            };
            assert_eq!(*state, wanted, "{verb}");
        }
        assert!(!is_rtt_possible(&plan));
        let missed: Vec<_> = verdict(&plan, "rtt -i").reasons.iter().filter_map(|reason| reason.fact).collect();
        for fact in [Fact::CapBpf, Fact::CapNetAdmin, Fact::CapPerfmon] {
            assert!(missed.contains(&fact), "{missed:?}");
        }
        // The refusal of the program is explained, so it needs no line of its own.
        assert!(!missed.contains(&Fact::RttProgram), "{missed:?}");
        // What could not be tried does not count next to what is known to fail.
        assert!(!missed.contains(&Fact::Tcx), "{missed:?}");
        assert!(
            verdict(&plan, "rtt -i").reasons.iter().any(|reason| reason.remedy.as_deref().unwrap().contains("setcap"))
        );
    }

    #[test]
    fn a_program_refused_with_every_privilege_is_reported_with_its_own_remedy() {
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
    fn without_tcx_clsact_does_and_the_loss_is_reported() {
        let plan = plan(&without(&[Fact::Tcx]));
        let rtt = verdict(&plan, "rtt -i");
        assert_eq!(rtt.state, State::Degraded);
        assert_eq!(rtt.reasons.len(), 1);
        assert!(rtt.reasons[0].text.contains("SIGKILL"), "{:?}", rtt.reasons);
        assert!(is_rtt_possible(&plan));
    }

    #[test]
    fn without_tcx_and_clsact_there_is_no_hook() {
        let plan = plan(&without(&[Fact::Tcx, Fact::Clsact]));
        assert_eq!(verdict(&plan, "rtt -i").state, State::Impossible);
        assert_eq!(verdict(&plan, "run").state, State::Works);
        assert!(!is_rtt_possible(&plan));
    }

    #[test]
    fn what_could_not_be_tried_is_not_called_impossible() {
        let mut facts = without(&[Fact::Tcx]);
        facts.answers.insert(Fact::Clsact, Answer::unknown("trying needs a namespace"));
        let plan = plan(&facts);
        assert_eq!(verdict(&plan, "rtt -i").state, State::Unknown);
        assert!(is_rtt_possible(&plan));
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
        let xdp = verdict(&both, "rtt -i --hook xdp");
        assert_eq!(xdp.state, State::Degraded);
        assert!(xdp.reasons[0].text.contains("eth1"), "{:?}", xdp.reasons);
        assert!(xdp.reasons[0].text.contains("katran"), "{:?}", xdp.reasons);
        assert_eq!(verdict(&both, "rtt -i").state, State::Works);

        facts.devices.remove(0);
        let alone = plan(&facts);
        assert_eq!(verdict(&alone, "rtt -i --hook xdp").state, State::Impossible);
        assert!(is_rtt_possible(&alone));
    }

    #[test]
    fn the_balancer_needs_a_bpf_filesystem_and_pings_need_raw_sockets() {
        let of = |facts: &[Fact], verb| verdict(&plan(&without(facts)), verb).clone();
        let unpinned = of(&[Fact::BpfFilesystem], "lb run");
        assert_eq!(unpinned.state, State::Impossible);
        assert!(unpinned.reasons[0].remedy.as_deref().unwrap().contains("mount -t bpf"), "{unpinned:?}");
        assert_eq!(of(&[Fact::BpfFilesystem], "lb decap").state, State::Works);
        let silent = of(&[Fact::CapNetRaw], "lb run");
        assert_eq!(silent.state, State::Degraded);
        assert!(silent.reasons[0].text.contains("by ping"), "{silent:?}");
        for verb in ["lb run", "lb decap"] {
            assert_eq!(of(&[Fact::XdpAttach], verb).state, State::Impossible);
            let refused = of(&[Fact::BalancerProgram, Fact::DecapProgram, Fact::CapBpf, Fact::CapSysAdmin], verb);
            let facts: Vec<_> = refused.reasons.iter().map(|reason| reason.fact).collect();
            assert_eq!((refused.state, &facts[..]), (State::Impossible, &[Some(Fact::CapBpf)][..]));
        }
    }

    #[test]
    fn names_need_raw_sockets_tracepoints_and_sight_of_others_and_what_speaks_to_strangers_landlock() {
        let of = |fact, verb| verdict(&plan(&without(&[fact])), verb).clone();
        for verb in ["rtt -i", "response -i", "stack", "top", "why"] {
            let unnamed = of(Fact::CapNetRaw, verb);
            assert_eq!((unnamed.state, unnamed.reasons.len()), (State::Degraded, 1), "{unnamed:?}");
            assert!(unnamed.reasons[0].text.contains("no labels"), "{unnamed:?}");
        }
        for verb in ["rtt -i", "response -i", "top"] {
            for fact in [Fact::TpBtf, Fact::CapSysPtrace] {
                let verdict = of(fact, verb);
                assert_eq!((verdict.state, verdict.reasons.len()), (State::Degraded, 1), "{verdict:?}");
                assert!(verdict.reasons[0].text.contains("end at once"), "{verdict:?}");
            }
        }
        for verb in ["agent", "collect"] {
            assert_eq!(of(Fact::CapNetRaw, verb).state, State::Works);
            let open = of(Fact::Landlock, verb);
            assert_eq!(open.state, State::Degraded);
            assert!(open.reasons[0].text.contains("all files of its user"), "{open:?}");
        }
    }

    #[test]
    fn a_device_of_another_xdp_program_stops_the_balancer_and_its_own_does_not() {
        let holder = |name: &str| Attached { id: 7, name: Some(name.into()), mode: Some("native") };
        let mut facts = everything();
        facts.devices.truncate(1);
        facts.devices[0].xdp = Some(vec![holder("katran")]);
        let taken = plan(&facts);
        for verb in ["lb run", "lb decap"] {
            assert_eq!(verdict(&taken, verb).state, State::Impossible);
            assert!(verdict(&taken, verb).reasons[0].text.contains("katran"));
        }
        facts.devices[0].xdp = Some(vec![holder("balance_xdp")]);
        assert_eq!(verdict(&plan(&facts), "lb run").state, State::Works);
        assert_eq!(verdict(&plan(&facts), "lb decap").state, State::Impossible);
    }

    #[test]
    fn xdp_without_a_driver_is_slower_and_not_worth_a_word_if_another_interface_has_one() {
        let mut facts = everything();
        facts.devices[0].native_xdp = Some(false);
        assert_eq!(verdict(&plan(&facts), "lb run").state, State::Works);
        facts.devices[1].native_xdp = Some(false);
        let slow = plan(&facts);
        assert_eq!(verdict(&slow, "lb run").state, State::Degraded);
        assert!(verdict(&slow, "lb decap").reasons[1].text.contains("eth1: its driver runs no XDP programs"));
    }

    #[test]
    fn facts_of_another_binary_have_its_names_and_remedies() {
        const TRAFFIC: &[Need] = &[Need {
            any_of: &[Fact::Extra("dig")],
            serves: "sends DNS queries",
            otherwise: Otherwise::Degraded("no DNS traffic"),
        }];
        static OTHER: Requirements = Requirements {
            binary: "other",
            verbs: Cow::Borrowed(&[Verb { name: "demo", also: &[], needs: &[TRAFFIC], obstacles: &[] }]),
            extra: &[crate::host::ExtraFact {
                key: "dig",
                name: "dig(1)",
                remedy: "sudo apt-get install bind9-dnsutils",
                probe: |_| Answer::no(""),
            }],
        };
        let mut facts = everything();
        facts.answers.insert(Fact::Extra("dig"), (OTHER.extra[0].probe)("dig"));
        let plan = super::plan(&facts, &OTHER);
        let demo = verdict(&plan, "demo");
        assert_eq!(demo.state, State::Degraded);
        assert_eq!(demo.reasons[0].text, "dig(1): no: no DNS traffic");
        assert_eq!(demo.reasons[0].remedy.as_deref(), Some("sudo apt-get install bind9-dnsutils"));
        assert_eq!(OTHER.facts().last(), Some(Fact::Extra("dig")));
    }

    #[test]
    fn each_fact_has_a_key_of_its_own_and_each_need_a_fact_to_miss() {
        let mut keys: Vec<_> = Fact::all().map(Fact::key).collect();
        keys.sort_unstable();
        let before = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), before);
        let all: Vec<_> = Fact::all().collect();
        for need in DWELL.verbs.iter().flat_map(|verb| verb.needs.iter().copied().flatten()) {
            assert!(!need.any_of.is_empty());
            assert!(need.any_of.iter().all(|fact| all.contains(fact)));
        }
    }
}
