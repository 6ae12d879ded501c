//! The report on facts and plan, for people and for machines.

use std::fmt::{self, Display, Formatter};

use nix::unistd::gethostname;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Device, Fact, Facts, Filter, LayerHook, Need, Plan, Requirements, State, Verdict,
    plan::{is_live_rtt_possible, is_met, plan, remedy},
    probe,
};
use crate::{Interface, stack::Lack};

/// The width of the text in columns. Only commands are longer, as they are not wrapped.
const WIDTH: usize = 100;
const VERB: usize = 27;
const STATE: usize = 12;
const FACT: usize = 28;
const VALUE: usize = 16;

/// The report of `dwell doctor`: as text by `Display`, as JSON by `Serialize`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Report {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'static str,
    /// The time of the trials, in RFC 3339.
    time: String,
    /// The host. Null where its name is not known.
    host: Option<String>,
    #[serde(skip)]
    binary: &'static str,
    /// The release of the kernel.
    kernel: String,
    /// Whether `dwell rtt -i` can run.
    rtt_live_possible: bool,
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
    /// Whether any verb depends on the fact.
    #[serde(skip)]
    is_needed: bool,
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
    /// True unless a verb is known to fail.
    pub fn is_possible(&self, verb: &str) -> bool {
        self.verbs.iter().any(|verdict| verdict.verb == verb && verdict.state != State::Impossible)
    }
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
        time: jiff::Timestamp::try_from(facts.time).unwrap_or_default().to_string(),
        host: None,
        binary: requirements.binary,
        kernel: facts.kernel.clone(),
        rtt_live_possible: is_live_rtt_possible(facts),
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
    let mut is_needed = false;
    for verb in requirements.verbs {
        for need in verb.needs.iter().copied().flatten() {
            is_needed |= need.any_of.contains(&fact);
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
        is_needed,
    }
}

impl Display for Report {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        writeln!(to, "{} doctor, kernel {}\n", self.binary, self.kernel)?;
        writeln!(to, "{:VERB$}{:STATE$}WHY", "VERB", "STATE")?;
        for verdict in &self.verbs {
            let lead = format!("{:VERB$}{:STATE$}", verdict.verb, state(verdict.state));
            let reasons: Vec<_> = verdict.reasons.iter().map(|r| r.text.as_str()).collect();
            write_cells(to, &lead, &reasons)?;
            let mut remedies: Vec<_> = verdict.reasons.iter().filter_map(|reason| reason.remedy.as_deref()).collect();
            remedies.dedup();
            write_remedies(to, &remedies)?;
        }
        writeln!(to, "\n{:FACT$}{:VALUE$}WHAT IT MEANS", "FACT", "VALUE")?;
        for row in &self.facts {
            let value = match row.value {
                Some(true) => "yes",
                Some(false) => "no",
                None => "unknown",
            };
            let lead = format!("{:FACT$}{value:VALUE$}", row.name);
            let mut cells: Vec<String> = row.detail.iter().cloned().collect();
            cells.extend(row.means.iter().map(|meaning| format!("{}: {}", meaning.verb, meaning.text)));
            if !row.is_needed {
                cells.push("no verb needs it".into());
            }
            let cells: Vec<_> = cells.iter().map(String::as_str).collect();
            write_cells(to, &lead, &cells)?;
            write_remedies(to, row.remedy.as_deref().as_slice())?;
        }
        writeln!(to, "\n{:FACT$}HOOK OF stack, AND WHY THERE", "LAYER")?;
        for layer in self.layers.chunk_by(|one, next| one.layer == next.layer) {
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
        writeln!(to, "\n{:FACT$}PROGRAMS AT ITS HOOKS", "INTERFACE")?;
        for device in &self.interfaces {
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
        Ok(())
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

fn clsact(device: &Device) -> [(&'static str, &Option<Vec<Filter>>); 2] {
    [("clsact ingress", &device.clsact_ingress), ("clsact egress", &device.clsact_egress)]
}

fn filters(device: &Device) -> impl Iterator<Item = (&'static str, &Filter)> {
    let hooks = clsact(device).into_iter();
    hooks.flat_map(|(hook, filters)| filters.iter().flatten().map(move |filter| (hook, filter)))
}

/// Writes the cells below each other and wraps them, to the right of `lead`.
fn write_cells(to: &mut Formatter<'_>, lead: &str, cells: &[&str]) -> fmt::Result {
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

/// Writes each remedy on a line of its own, so that it can be copied.
fn write_remedies(to: &mut Formatter<'_>, remedies: &[&str]) -> fmt::Result {
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
        let text = report(&host()).to_string();
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
        let text = report(&host).to_string();
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
        assert!(text.contains("\n    -> sudo sysctl -w kernel.bpf_stats_enabled=0\n"));
    }

    #[test]
    fn a_row_shows_value_meaning_and_remedy() {
        let text = report(&host()).to_string();
        let tcx = text.find("\ntcx attach ").unwrap();
        let row: String = text[tcx..].lines().skip(1).take(4).collect();
        assert!(row.contains("no              refused: EINVAL"), "{row}");
        assert!(row.contains("rtt -i: falls back to clsact"), "{row}");
        assert!(text.contains("fentry                      unknown         trying needs CAP_BPF"));
        assert!(text.contains("tx-socket                   tp_btf/tcp_sendmsg_locked: this kernel has none\n"));
        assert!(
            text.contains(
                "tx-socket                   fentry/tcp_sendmsg_locked: this kernel allows no program there\n"
            )
        );
        assert!(text.contains("tx-queue                    tp_btf/net_dev_queue: before it happens\n\n"));
        assert!(text.contains("XDP: katran (native, id 7)"));
        assert!(text.contains("tcx ingress: unknown"));
        assert!(!text.contains("tcx egress"));
        assert!(text.contains("clsact ingress: observe_tc:[12] (pref 1, handle 0x1)"));
        assert!(text.contains("clsact egress: unknown"));
        assert!(text.contains("left its filters:\n    -> sudo tc filter del\n"), "{text}");
    }

    #[test]
    fn json_has_null_for_what_is_unknown() {
        let json = serde_json::to_value(report(&host())).unwrap();
        assert_eq!(json["type"], "doctor.report");
        assert_eq!(json["schema"], "dwell/2");
        assert_eq!(json["time"], "1970-01-02T00:00:00Z");
        assert_eq!(json["rtt_live_possible"], true);
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
