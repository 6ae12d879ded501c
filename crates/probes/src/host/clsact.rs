//! BPF filters of an interface's clsact qdisc. Unlike links, they outlive the process that created them.

use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::trials::find_program;

/// A BPF filter, with what identifies it for removal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[schemars(rename = "doctor-filter")]
pub struct Filter {
    /// Priority among the filters of the hook.
    #[serde(rename = "pref")]
    pub priority: u32,
    /// The number within the priority, as `tc` writes it.
    pub handle: String,
    /// The name of the filter: that of its program, if libbpf created it.
    pub name: Option<String>,
    /// The command that removes it, `sudo tc filter del ...`; only of filters that have the name of dwell's own.
    pub remove: Option<String>,
}

/// Reads the filters with `tc`; `None` where it is not installed or fails.
pub(super) fn filters(interface: &str, hook: &str) -> Option<Vec<Filter>> {
    let output = Command::new(find_program("tc")?)
        .args(["-json", "filter", "show", "dev", interface, hook])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    parse(&output.stdout, interface, hook)
}

#[derive(Deserialize)]
struct Shown {
    kind: Option<String>,
    pref: Option<u32>,
    options: Option<Options>,
}

#[derive(Deserialize)]
struct Options {
    handle: Option<String>,
    bpf_name: Option<String>,
}

fn parse(json: &[u8], interface: &str, hook: &str) -> Option<Vec<Filter>> {
    let shown: Vec<Shown> = serde_json::from_slice(json).ok()?;
    let filters = shown.into_iter().filter_map(|shown| {
        // An entry without a handle stands for the priority as a whole.
        let bpf = shown.kind.as_deref() == Some("bpf");
        let options = shown.options.filter(|_| bpf)?;
        let (priority, handle, name) = (shown.pref?, options.handle?, options.bpf_name);
        let own = name.as_deref().is_some_and(|name| name.starts_with("observe_tc"));
        let remove =
            own.then(|| format!("sudo tc filter del dev {interface} {hook} pref {priority} handle {handle} bpf"));
        Some(Filter { priority, handle, name, remove })
    });
    Some(filters.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bpf_filters_count_and_only_own_ones_are_to_be_removed() {
        let json = br#"[{"protocol":"all","pref":1,"kind":"bpf","chain":0},
            {"protocol":"all","pref":1,"kind":"bpf","chain":0,"options":
                {"handle":"0x2","bpf_name":"observe_tc_raw:[9]","direct-action":true}},
            {"protocol":"all","pref":3,"kind":"bpf","chain":0,"options":
                {"handle":"0x1","bpf_name":"cil_from_netdev"}},
            {"protocol":"all","pref":5,"kind":"u32","chain":0,"options":
                {"fh":"800:","ht_divisor":1,"handle":"0x1"}}]"#;
        let filters = parse(json, "eth0", "egress").unwrap();
        let shown: Vec<_> =
            filters.iter().map(|filter| (filter.priority, filter.name.as_deref(), filter.remove.as_deref())).collect();
        let remove = "sudo tc filter del dev eth0 egress pref 1 handle 0x2 bpf";
        assert_eq!(shown, [(1, Some("observe_tc_raw:[9]"), Some(remove)), (3, Some("cil_from_netdev"), None),]);
        assert_eq!(parse(b"", "eth0", "egress"), None);
    }
}
