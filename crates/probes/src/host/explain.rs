//! The report on facts and plan, for people and for machines.

use std::fmt::{self, Write};

use nix::unistd::gethostname;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Device, Fact, Facts, Filter, LayerHook, Need, Plan, Requirements, State, Verdict,
    needs::first_word,
    plan::{is_met, plan, remedy},
    probe,
};
use crate::{Interface, stack::Lack};

/// The width of the text in columns. Only commands are longer, as they are not wrapped.
const WIDTH: usize = 100;
const VERB: usize = 28;
const STATE: usize = 12;
const FACT: usize = 31;
const VALUE: usize = 9;

/// What `dwell doctor` found out about this host.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Report {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'static str,
    /// The time of the trials, in RFC 3339.
    time: String,
    /// The name of the host. Null if it is not known.
    host: Option<String>,
    #[serde(skip)]
    binary: &'static str,
    /// The release of the kernel.
    kernel: String,
    /// Whether each of the verbs can run, at least in its usual mode. True where that could not be tried.
    possible: bool,
    /// What follows for each verb.
    verbs: Vec<Verdict>,
    /// What was tried.
    facts: Vec<Row>,
    /// The hooks of `dwell stack`.
    layers: Vec<LayerHook>,
    /// The network interfaces.
    interfaces: Vec<Device>,
}

/// A fact about the host.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "doctor-fact")]
struct Row {
    /// The fact's name for programs.
    #[schemars(with = "String")]
    fact: Fact,
    /// The fact's name for people.
    name: &'static str,
    /// Whether it is so. Null if it is unknown.
    value: Option<bool>,
    /// More about it.
    detail: Option<String>,
    /// What it means for verbs.
    means: Vec<Meaning>,
    /// What to do about it.
    remedy: Option<String>,
}

/// What a fact means for a verb.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "doctor-meaning")]
struct Meaning {
    /// The verb.
    verb: &'static str,
    /// The consequence.
    text: String,
}

impl Report {
    /// True unless a verb is known to fail in its usual mode, the first of its rows.
    pub fn is_possible(&self) -> bool {
        self.possible
    }
}

fn is_possible(verbs: &[Verdict]) -> bool {
    let mut verbs = verbs.chunk_by(|one, next| first_word(one.verb) == first_word(next.verb));
    verbs.all(|modes| modes[0].state != State::Impossible)
}

/// Probes this host, with the programs at the hooks of one interface or of all, and reports on the verbs of a binary.
pub fn diagnose(only: Option<&Interface>, requirements: &Requirements) -> Report {
    let facts = probe(only, requirements);
    let mut report = explain(&facts, &plan(&facts, requirements), requirements);
    report.host = gethostname().ok().map(|name| name.to_string_lossy().into_owned());
    report
}

/// Puts facts and plan in words.
pub fn explain(facts: &Facts, plan: &Plan, requirements: &Requirements) -> Report {
    Report {
        kind: "doctor.report",
        schema: "dwell/2",
        time: format!("{:.9}", jiff::Timestamp::try_from(facts.time).unwrap_or_default()),
        host: None,
        binary: requirements.binary,
        kernel: facts.kernel.clone(),
        possible: is_possible(&plan.verbs),
        verbs: plan.verbs.clone(),
        facts: requirements.facts().map(|fact| row(fact, facts, requirements)).collect(),
        layers: facts.layers.clone(),
        interfaces: facts.devices.clone(),
    }
}

fn row(fact: Fact, facts: &Facts, requirements: &Requirements) -> Row {
    let answer = facts.answer(fact);
    let mut shown: Vec<&Need> = Vec::new();
    let mut means = Vec::new();
    for verb in requirements.verbs.iter() {
        for need in verb.needs.iter().copied().flatten() {
            // Verbs that share a need share the line of the first of them.
            if need.any_of[0] != fact || shown.contains(&need) {
                continue;
            }
            let text = match (answer.holds, is_met(need, facts)) {
                (Some(true), _) => need.serves.to_owned(),
                // Another fact serves as well.
                (_, Some(true)) => String::new(),
                (Some(false), _) => need.otherwise.consequence().to_owned(),
                (None, _) => format!("without it, {}", need.otherwise.consequence()),
            };
            if !text.is_empty() {
                shown.push(need);
                means.push(Meaning { verb: verb.name, text });
            }
        }
    }
    Row {
        fact,
        name: requirements.name(fact),
        value: answer.holds,
        remedy: remedy(fact, &answer, requirements),
        detail: Some(answer.detail).filter(|detail| !detail.is_empty()),
        means,
    }
}

impl Report {
    /// The report for people. Unless `all` is wanted, what is well shares a line.
    pub fn text(&self, all: bool) -> String {
        let mut text = format!("{} doctor, kernel {}\n", self.binary, self.kernel);
        let written = self
            .write_verbs(&mut text, all)
            .and_then(|()| self.write_facts(&mut text, all))
            .and_then(|()| self.write_layers(&mut text, all))
            .and_then(|()| self.write_interfaces(&mut text, all));
        written.expect("a string takes everything");
        text
    }

    fn write_verbs(&self, to: &mut String, all: bool) -> fmt::Result {
        let is_shown = |verdict: &&Verdict| all || verdict.state != State::Works;
        if self.verbs.iter().any(|verdict| is_shown(&verdict)) {
            writeln!(to, "\n{:VERB$}{:STATE$}WHY", "VERB", "STATE")?;
        }
        for verdict in self.verbs.iter().filter(is_shown) {
            let lead = format!("{:VERB$}{:STATE$}", verdict.verb, state(verdict.state));
            let reasons: Vec<_> = verdict.reasons.iter().map(|r| r.text.as_str()).collect();
            write_cells(to, &lead, &reasons)?;
            let mut remedies: Vec<_> = verdict.reasons.iter().filter_map(|reason| reason.remedy.as_deref()).collect();
            remedies.dedup();
            write_remedies(to, &remedies)?;
        }
        let folded = self.verbs.iter().filter(|verdict| !is_shown(verdict));
        write_list(to, "works: ", folded.map(|verdict| verdict.verb))
    }

    /// Writes the table of facts: without `all`, those which a verb lacks and which are not among its reasons.
    fn write_facts(&self, to: &mut String, all: bool) -> fmt::Result {
        let is_reason = |fact| {
            let mut reasons = self.verbs.iter().flat_map(|verdict| &verdict.reasons);
            reasons.any(|reason| reason.fact == Some(fact))
        };
        let is_missed = |row: &Row| row.value != Some(true) && !row.means.is_empty();
        let is_shown = |row: &&Row| all || (is_missed(row) && !is_reason(row.fact));
        let (shown, folded): (Vec<_>, Vec<_>) = self.facts.iter().partition(is_shown);
        if !shown.is_empty() {
            writeln!(to, "\n{:FACT$}{:VALUE$}WHAT IT MEANS", "FACT", "VALUE")?;
        }
        for row in shown {
            let value = match row.value {
                Some(true) => "yes",
                Some(false) => "no",
                None => "unknown",
            };
            let lead = format!("{:FACT$}{value:VALUE$}", row.name);
            let mut cells: Vec<String> = row.detail.iter().cloned().collect();
            cells.extend(row.means.iter().map(|meaning| format!("{}: {}", meaning.verb, meaning.text)));
            let cells: Vec<_> = cells.iter().map(String::as_str).collect();
            write_cells(to, &lead, &cells)?;
            write_remedies(to, row.remedy.as_deref().as_slice())?;
        }
        let well = folded.iter().filter(|row| row.value == Some(true)).count();
        let idle = folded.iter().filter(|row| row.value != Some(true) && row.means.is_empty());
        if well > 0 {
            writeln!(to, "\n{well} facts hold; --all shows each of them")?;
        }
        write_list(to, "missing, and not needed: ", idle.map(|row| row.name))
    }

    /// Writes the hooks of layers: without `all`, of those layers that have none.
    fn write_layers(&self, to: &mut String, all: bool) -> fmt::Result {
        let layers = self.layers.chunk_by(|one, next| one.layer == next.layer);
        let has_stack = self.verbs.iter().any(|verdict| matches!(first_word(verdict.verb), "stack" | "agent"));
        let is_shown = |layer: &&[LayerHook]| has_stack && (all || !layer.iter().any(|hook| hook.used));
        let shown: Vec<_> = layers.filter(is_shown).collect();
        if !shown.is_empty() {
            writeln!(to, "\n{:FACT$}HOOK OF stack, AND WHY THERE", "LAYER")?;
        }
        for layer in shown {
            // Hooks behind the last one that is used were not needed.
            let last_used = layer.iter().rposition(|hook| hook.used);
            let end = last_used.map_or(layer.len(), |last| last + 1);
            for hook in &layer[..end] {
                let here = match hook.lack {
                    None => hook.about,
                    Some(Lack::Hook) => "this kernel has none",
                    Some(Lack::Permission) => "this kernel allows no program there",
                };
                let here = format!("{}: {here}", hook.hook);
                write_cells(to, &format!("{:FACT$}", hook.layer), &[&here])?;
            }
        }
        Ok(())
    }

    /// Writes the programs at interfaces: without `all`, where there are some.
    fn write_interfaces(&self, to: &mut String, all: bool) -> fmt::Result {
        let is_shown = |device: &&Device| all || self.interfaces.len() == 1 || has_programs(device);
        let (shown, folded): (Vec<_>, Vec<_>) = self.interfaces.iter().partition(is_shown);
        if !shown.is_empty() {
            writeln!(to, "\n{:FACT$}PROGRAMS AT ITS HOOKS", "INTERFACE")?;
        }
        for device in shown {
            let cells = hooks(device);
            let cells: Vec<_> = cells.iter().map(String::as_str).collect();
            write_cells(to, &format!("{:FACT$}", device.name), &cells)?;
            let own: Vec<_> = filters(device).filter_map(|(_, filter)| filter.remove.as_deref()).collect();
            if !own.is_empty() {
                let lead = " ".repeat(FACT);
                write_cells(to, &lead, &["if no dwell runs here, a killed one left its filters:"])?;
            }
            write_remedies(to, &own)?;
        }
        write_list(to, "no programs are seen at: ", folded.into_iter().map(|device| device.name.as_str()))
    }
}

fn state(state: State) -> &'static str {
    match state {
        State::Works => "works",
        State::Degraded => "degraded",
        State::Unknown => "may work",
        State::Impossible => "impossible",
    }
}

fn hooks(device: &Device) -> Vec<String> {
    let mut cells = Vec::new();
    for (hook, programs) in
        [("XDP", &device.xdp), ("tcx ingress", &device.tcx_ingress), ("tcx egress", &device.tcx_egress)]
    {
        let Some(programs) = programs else {
            cells.push(format!("{hook}: unknown"));
            continue;
        };
        cells.extend(programs.iter().map(|program| {
            let name = program.name.as_deref().unwrap_or("name unknown");
            let mode = program.mode.map(|mode| format!("{mode}, "));
            format!("{hook}: {name} ({}id {})", mode.unwrap_or_default(), program.id)
        }));
    }
    for (hook, filters) in clsact(device) {
        if filters.is_none() {
            cells.push(format!("{hook}: unknown"));
        }
    }
    cells.extend(filters(device).map(|(hook, filter)| {
        let name = filter.name.as_deref().unwrap_or("without a name");
        format!("{hook}: {name} (pref {}, handle {})", filter.priority, filter.handle)
    }));
    if cells.is_empty() {
        cells.push("none".into());
    }
    match device.native_xdp {
        Some(true) => cells.push("its driver runs XDP programs".into()),
        Some(false) => cells.push("its driver runs no XDP programs: the network stack does".into()),
        None => {}
    }
    cells
}

fn has_programs(device: &Device) -> bool {
    let attached = [&device.xdp, &device.tcx_ingress, &device.tcx_egress].into_iter().flatten();
    attached.flatten().next().is_some() || filters(device).next().is_some()
}

fn clsact(device: &Device) -> [(&'static str, &Option<Vec<Filter>>); 2] {
    [("clsact ingress", &device.clsact_ingress), ("clsact egress", &device.clsact_egress)]
}

fn filters(device: &Device) -> impl Iterator<Item = (&'static str, &Filter)> {
    let hooks = clsact(device).into_iter();
    hooks.flat_map(|(hook, filters)| filters.iter().flatten().map(move |filter| (hook, filter)))
}

/// Writes the cells below each other and wraps them, to the right of `lead`.
fn write_cells(to: &mut String, lead: &str, cells: &[&str]) -> fmt::Result {
    let indent = lead.chars().count();
    let mut line = lead.to_owned();
    let mut is_started = false;
    for cell in cells {
        if is_started {
            writeln!(to, "{line}")?;
            line = " ".repeat(indent);
        }
        is_started = false;
        for word in cell.split_ascii_whitespace() {
            let full = line.chars().count() + usize::from(is_started) + word.chars().count() > WIDTH;
            if is_started && full {
                writeln!(to, "{line}")?;
                line = " ".repeat(indent + 2);
            } else if is_started {
                line.push(' ');
            }
            line.push_str(word);
            is_started = true;
        }
    }
    writeln!(to, "{}", line.trim_end())
}

/// Writes a list with commas and wraps it; nothing if it is empty.
fn write_list<'a>(to: &mut String, lead: &str, names: impl Iterator<Item = &'a str>) -> fmt::Result {
    let list = names.collect::<Vec<_>>().join(", ");
    if list.is_empty() { Ok(()) } else { write_cells(to, "", &[&format!("{lead}{list}")]) }
}

/// Writes each remedy on a line of its own, so that it can be copied.
fn write_remedies(to: &mut String, remedies: &[&str]) -> fmt::Result {
    for remedy in remedies {
        writeln!(to, "    -> {remedy}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::host::{Answer, Attached, DWELL};

    fn report(host: &Facts) -> Report {
        explain(host, &plan(host, &DWELL), &DWELL)
    }

    fn hook(family: &'static str, layer: &'static str, hook: &'static str, lack: Option<Lack>) -> LayerHook {
        LayerHook { family, layer, hook, used: false, lack, about: "before it happens" }
    }

    fn host() -> Facts {
        let mut answers: std::collections::BTreeMap<_, _> = Fact::all().map(|fact| (fact, Answer::yes(""))).collect();
        answers.insert(Fact::Tcx, Answer::no("refused: EINVAL"));
        answers.insert(Fact::Fentry, Answer::unknown("trying needs CAP_BPF"));
        Facts {
            time: SystemTime::UNIX_EPOCH + Duration::from_secs(86_400),
            kernel: "6.1.0".into(),
            answers,
            layers: vec![
                hook("tracepoint", "tx-socket", "tp_btf/tcp_sendmsg_locked", Some(Lack::Hook)),
                hook("fentry", "tx-socket", "fentry/tcp_sendmsg_locked", Some(Lack::Permission)),
                LayerHook { used: true, ..hook("tracepoint", "tx-queue", "tp_btf/net_dev_queue", None) },
                hook("fentry", "tx-queue", "fentry/x", None),
            ],
            devices: vec![Device {
                name: "eth0".into(),
                index: 2,
                xdp: Some(vec![Attached { id: 7, name: Some("katran".into()), mode: Some("native") }]),
                native_xdp: Some(true),
                tcx_ingress: None,
                tcx_egress: Some(Vec::new()),
                clsact_ingress: Some(vec![Filter {
                    priority: 1,
                    handle: "0x1".into(),
                    name: Some("observe_tc:[12]".into()),
                    remove: Some("sudo tc filter del".into()),
                }]),
                clsact_egress: None,
            }],
        }
    }

    #[test]
    fn lines_fit_a_hundred_columns() {
        let text = report(&host()).text(true);
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{line}");
            assert_eq!(line, line.trim_end());
        }
    }

    /// Also where everything is missing and the kernel has much to say.
    #[test]
    fn long_details_are_wrapped_and_remedies_stay_whole() {
        let mut host = host();
        for answer in host.answers.values_mut() {
            *answer = Answer::no("word ".repeat(60));
        }
        let text = report(&host).text(true);
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
        assert!(text.contains("\n    -> sudo sysctl -w kernel.bpf_stats_enabled=0\n"));
    }

    #[test]
    fn a_row_shows_value_meaning_and_remedy() {
        let text = report(&host()).text(true);
        let tcx = text.find("\ntcx attach ").unwrap();
        let row: String = text[tcx..].lines().skip(1).take(4).collect();
        assert!(row.contains("no       refused: EINVAL"), "{row}");
        assert!(row.contains("rtt -i: falls back to clsact"), "{row}");
        assert!(text.contains("fentry                         unknown  trying needs CAP_BPF"));
        assert!(text.contains("tx-socket                      tp_btf/tcp_sendmsg_locked: this kernel has none\n"));
        assert!(text.contains(
            "tx-socket                      fentry/tcp_sendmsg_locked: this kernel allows no program there\n"
        ));
        assert!(text.contains("tx-queue                       tp_btf/net_dev_queue: before it happens\n\n"));
        assert!(text.contains("XDP: katran (native, id 7)"));
        assert!(text.contains("tcx ingress: unknown"));
        assert!(!text.contains("tcx egress"));
        assert!(text.contains("clsact ingress: observe_tc:[12] (pref 1, handle 0x1)"));
        assert!(text.contains("clsact egress: unknown"));
        assert!(text.contains("left its filters:\n    -> sudo tc filter del\n"), "{text}");
    }

    #[test]
    fn what_is_well_shares_a_line_and_what_is_missing_has_a_remedy() {
        let text = report(&host()).text(false);
        let rtt: String = text.lines().skip_while(|line| !line.starts_with("rtt -i ")).take(4).collect();
        assert!(rtt.contains("degraded"), "{text}");
        assert!(rtt.contains("    -> a kernel with tcx"), "{text}");
        assert!(text.contains("\nworks: rtt -r, response -r, stack, stack --cgroup, "), "{text}");
        assert!(!text.contains("\nJIT compiler"), "{text}");
        assert!(text.contains(" facts hold; --all"), "{text}");
        assert!(text.contains("XDP: katran"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }

    #[test]
    fn a_report_on_one_verb_has_its_modes_and_its_facts_alone() {
        let mut host = host();
        host.answers.insert(Fact::BpfFilesystem, Answer::no("not mounted"));
        host.devices[0].xdp = Some(Vec::new());
        let only = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            let requirements = DWELL.only(&words).unwrap();
            explain(&host, &plan(&host, &requirements), &requirements)
        };
        let balancer = only(&["lb"]);
        assert!(!balancer.is_possible());
        let text = balancer.text(false);
        assert!(text.contains("\nlb run "), "{text}");
        assert!(text.contains("-> sudo mount -t bpf -o mode=0700 bpf /sys/fs/bpf"), "{text}");
        assert!(text.contains("\nworks: lb decap, lb check\n"), "{text}");
        assert!(!text.contains("rtt") && !text.contains("tcx attach  "), "{text}");
        assert!(only(&["lb", "decap"]).is_possible());
        assert!(only(&["rtt"]).is_possible());
        let known = DWELL.only(&["nosuch".into()]).unwrap_err();
        assert_eq!(known[..3], ["rtt", "response", "stack"]);
    }

    #[test]
    fn json_has_null_for_what_is_unknown() {
        let json = serde_json::to_value(report(&host())).unwrap();
        assert_eq!(json["type"], "doctor.report");
        assert_eq!(json["schema"], "dwell/2");
        assert_eq!(json["time"], "1970-01-02T00:00:00.000000000Z");
        assert_eq!(json["possible"], false, "eth0 is taken, so `lb run` cannot");
        let fact = |key: &str| {
            let facts = json["facts"].as_array().unwrap();
            facts.iter().find(|fact| fact["fact"] == key).unwrap().clone()
        };
        assert_eq!(fact("tcx")["value"], false);
        assert_eq!(fact("jit")["value"], true);
        assert!(fact("fentry")["value"].is_null());
        assert!(fact("jit")["remedy"].is_null());
        assert_eq!(json["layers"][0]["hook"], "tp_btf/tcp_sendmsg_locked");
        assert_eq!(json["layers"][0]["lack"], "hook");
        assert_eq!(json["layers"][1]["lack"], "permission");
        assert_eq!(json["layers"][2]["used"], true);
        assert!(json["layers"][2]["lack"].is_null());
        assert!(json["interfaces"][0]["tcx_ingress"].is_null());
        assert_eq!(json["interfaces"][0]["xdp"][0]["mode"], "native");
        let degraded = &json["verbs"][0];
        assert_eq!(degraded["state"], "degraded");
        assert_eq!(degraded["reasons"][0]["fact"], "tcx");
    }
}
