//! The facts and the plan, for people and for machines.

use std::fmt::{self, Display, Formatter};

use serde::Serialize;

use super::{
    Device, Fact, Facts, Filter, LayerHook, Plan, State, Verdict,
    plan::{Need, VERBS, met, remedy},
};
use crate::stack::Lack;

/// Lines of the text are no longer, commands apart: those stay whole.
const WIDTH: usize = 100;
const VERB: usize = 27;
const STATE: usize = 12;
const FACT: usize = 28;
const VALUE: usize = 16;

/// What `dwell doctor` shows: as text by `Display`, as JSON by `Serialize`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'static str,
    time: String,
    kernel: String,
    rtt_live_possible: bool,
    verbs: Vec<Verdict>,
    facts: Vec<Row>,
    layers: Vec<LayerHook>,
    interfaces: Vec<Device>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Row {
    fact: Fact,
    name: &'static str,
    /// `None`: could not tell.
    value: Option<bool>,
    detail: Option<String>,
    means: Vec<Meaning>,
    remedy: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Meaning {
    verb: &'static str,
    text: String,
}

/// Puts facts and plan in words.
pub fn explain(facts: &Facts, plan: &Plan) -> Report {
    Report {
        kind: "doctor",
        schema: "dwell.doctor/1",
        time: jiff::Timestamp::try_from(facts.time).unwrap_or_default().to_string(),
        kernel: facts.kernel.clone(),
        rtt_live_possible: plan.rtt_live_possible(),
        verbs: plan.verbs.clone(),
        facts: Fact::all().map(|fact| row(fact, facts)).collect(),
        layers: facts.layers.clone(),
        interfaces: facts.devices.clone(),
    }
}

fn row(fact: Fact, facts: &Facts) -> Row {
    let answer = facts.answer(fact);
    let mut told: Vec<*const Need> = Vec::new();
    let mut means = Vec::new();
    for verb in VERBS {
        for need in verb.needs.iter().copied().flatten() {
            // Verbs that share a need share the line of the first of them.
            let again = told.iter().any(|other| std::ptr::eq(*other, need));
            if need.any_of[0] != fact || again {
                continue;
            }
            let text = match (answer.holds, met(need, facts)) {
                (Some(true), _) => need.serves.to_owned(),
                // Something else serves as well.
                (_, Some(true)) => String::new(),
                (Some(false), _) => need.without.consequence().to_owned(),
                (None, _) => format!("without it, {}", need.without.consequence()),
            };
            if !text.is_empty() {
                told.push(need);
                means.push(Meaning { verb: verb.name, text });
            }
        }
    }
    Row {
        fact,
        name: fact.name(),
        value: answer.holds,
        remedy: remedy(fact, &answer),
        detail: Some(answer.detail).filter(|detail| !detail.is_empty()),
        means,
    }
}

/// Whether any verb of today asks for it.
fn needed(fact: Fact) -> bool {
    let mut needs = VERBS.iter().flat_map(|verb| verb.needs.iter().copied());
    needs.any(|needs| needs.iter().any(|need| need.any_of.contains(&fact)))
}

impl Display for Report {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        writeln!(to, "dwell doctor, kernel {}\n", self.kernel)?;
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
                None => "could not tell",
            };
            let lead = format!("{:FACT$}{value:VALUE$}", row.name);
            let mut cells: Vec<String> = row.detail.iter().cloned().collect();
            cells.extend(row.means.iter().map(|meaning| format!("{}: {}", meaning.verb, meaning.text)));
            if !needed(row.fact) {
                cells.push("no verb needs it".into());
            }
            let cells: Vec<_> = cells.iter().map(String::as_str).collect();
            write_cells(to, &lead, &cells)?;
            write_remedies(to, row.remedy.as_deref().as_slice())?;
        }
        writeln!(to, "\n{:FACT$}HOOK OF stack, AND WHY THERE", "LAYER")?;
        for layer in self.layers.chunk_by(|one, next| one.layer == next.layer) {
            let told = layer.iter().rposition(|hook| hook.used);
            let told = told.map_or(layer.len(), |last| last + 1);
            for hook in &layer[..told] {
                let here = match hook.lack {
                    None => hook.about,
                    Some(Lack::Hook) => "this kernel has none",
                    Some(Lack::Permission) => "this kernel lets no program in there",
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
            cells.push(format!("{hook}: could not tell"));
            continue;
        };
        cells.extend(programs.iter().map(|program| {
            let name = program.name.as_deref().unwrap_or("name could not be told");
            let mode = program.mode.map(|mode| format!("{mode}, "));
            format!("{hook}: {name} ({}id {})", mode.unwrap_or_default(), program.id)
        }));
    }
    for (hook, filters) in clsact(device) {
        if filters.is_none() {
            cells.push(format!("{hook}: could not tell"));
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
        Some(false) => cells.push("its driver runs no XDP programs: the stack does".into()),
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

/// A line that begins with `lead`, and as many more as the cells take.
fn write_cells(to: &mut Formatter<'_>, lead: &str, cells: &[&str]) -> fmt::Result {
    let indent = lead.chars().count();
    let mut line = lead.to_owned();
    let mut begun = false;
    for cell in cells {
        if begun {
            writeln!(to, "{line}")?;
            line = " ".repeat(indent);
        }
        begun = false;
        for word in cell.split_ascii_whitespace() {
            let full = line.chars().count() + usize::from(begun) + word.chars().count() > WIDTH;
            if begun && full {
                writeln!(to, "{line}")?;
                line = " ".repeat(indent + 2);
            } else if begun {
                line.push(' ');
            }
            line.push_str(word);
            begun = true;
        }
    }
    writeln!(to, "{}", line.trim_end())
}

/// Each on a line of its own, so that it can be copied.
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
    use crate::host::{Answer, Attached, plan};

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
        let text = explain(&host(), &plan(&host())).to_string();
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
        let text = explain(&host, &plan(&host)).to_string();
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
        assert!(text.contains("\n    -> sudo sysctl -w kernel.bpf_stats_enabled=0\n"));
    }

    #[test]
    fn a_row_tells_value_meaning_and_remedy() {
        let text = explain(&host(), &plan(&host())).to_string();
        let tcx = text.find("\ntcx attach ").unwrap();
        let row: String = text[tcx..].lines().skip(1).take(4).collect();
        assert!(row.contains("no              refused: EINVAL"), "{row}");
        assert!(row.contains("rtt -i: falls back to clsact"), "{row}");
        assert!(text.contains("fentry                      could not tell  trying needs CAP_BPF"));
        assert!(text.contains("tx-socket                   tp_btf/tcp_sendmsg_locked: this kernel has none\n"));
        assert!(
            text.contains(
                "tx-socket                   fentry/tcp_sendmsg_locked: this kernel lets no program in there\n"
            )
        );
        assert!(text.contains("tx-queue                    tp_btf/net_dev_queue: before it happens\n\n"));
        assert!(text.contains("XDP: katran (native, id 7)"));
        assert!(text.contains("tcx ingress: could not tell"));
        assert!(!text.contains("tcx egress"));
        assert!(text.contains("clsact ingress: observe_tc:[12] (pref 1, handle 0x1)"));
        assert!(text.contains("clsact egress: could not tell"));
        assert!(text.contains("left its filters:\n    -> sudo tc filter del\n"), "{text}");
    }

    #[test]
    fn json_says_null_for_what_could_not_be_told() {
        let json = serde_json::to_value(explain(&host(), &plan(&host()))).unwrap();
        assert_eq!(json["type"], "doctor");
        assert_eq!(json["schema"], "dwell.doctor/1");
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
