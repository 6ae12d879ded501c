//! Finds out the facts about the host, by trial and from the kernel's files.

use std::{
    collections::BTreeMap,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    time::SystemTime,
};

use dwell_socket::outside::{self, TrialError};
use landlock::{ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr};
use nix::{net::if_::if_nameindex, unistd::Uid};

use super::{
    Answer, Capability, Device, Fact, Facts, LayerHook, OUTSIDE, Requirements,
    capabilities::is_in_initial_user_namespace,
    mounts::{self, mount_point, own_name},
    trials::{self, find_program},
};
use crate::{Interface, stack};

/// Finds out what this host can do, and which programs are at the hooks of one interface of this network namespace, or
/// of all.
pub fn probe(only: Option<&Interface>, requirements: &Requirements) -> Facts {
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo").ok();
    let cgroup = mounts.as_deref().and_then(own_cgroup);
    let mut answers = files(mounts.as_deref());
    answers.extend(capabilities());
    answers.extend(trials::run(cgroup.as_deref(), requirements));
    answers.extend(sockets());
    let layers = if requirements.tries(Fact::StackHooks) { layers() } else { Vec::new() };
    answers.insert(Fact::StackHooks, each_layer(&layers));
    if is_in_initial_user_namespace() == Some(false) {
        leave_the_namespace(&mut answers);
    }
    for extra in requirements.extra.iter().filter(|extra| requirements.tries(Fact::Extra(extra.key))) {
        answers.insert(Fact::Extra(extra.key), (extra.probe)(extra.key));
    }
    let interfaces = match only {
        Some(interface) => vec![interface.clone()],
        None => all_interfaces(),
    };
    Facts {
        time: SystemTime::now(),
        kernel: read("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into()),
        answers,
        layers,
        devices: interfaces.iter().map(Device::inspect).collect(),
    }
}

/// Facts that do not depend on privilege.
const ANYWHERE: [Fact; 4] = [Fact::Btf, Fact::TcpCounts, Fact::Landlock, Fact::Library];

/// Gives what a user namespace refused the remedy that helps there, unless it has one of its own.
fn leave_the_namespace(answers: &mut BTreeMap<Fact, Answer>) {
    for (fact, answer) in answers {
        if answer.holds != Some(true) && answer.remedy.is_none() && !ANYWHERE.contains(fact) {
            answer.remedy = Some(OUTSIDE.into());
        }
    }
}

/// Whether a program is on the search path: the probe of an [`ExtraFact`](super::ExtraFact) whose key is its name.
pub fn installed(program: &str) -> Answer {
    match find_program(program) {
        Some(path) => Answer::yes(path.display().to_string()),
        None => Answer::no(""),
    }
}

fn layers() -> Vec<LayerHook> {
    let hooks = stack::candidates().into_iter();
    hooks
        .map(|candidate| LayerHook {
            family: candidate.family,
            layer: candidate.hook.layer.name(),
            hook: candidate.hook.name,
            used: candidate.used,
            lack: candidate.lack,
            about: candidate.hook.about,
        })
        .collect()
}

/// Whether each layer has a hook.
fn each_layer(hooks: &[LayerHook]) -> Answer {
    let is_stamped = |layer| hooks.iter().any(|hook| hook.layer == layer && hook.used);
    let mut missing: Vec<_> = hooks.iter().map(|hook| hook.layer).filter(|layer| !is_stamped(*layer)).collect();
    missing.dedup();
    match missing[..] {
        [] => Answer::yes(""),
        _ => Answer::no(format!("none for {}", missing.join(", "))),
    }
}

fn all_interfaces() -> Vec<Interface> {
    let Ok(list) = if_nameindex() else {
        return Vec::new();
    };
    list.iter().filter_map(|entry| Interface::find(&entry.name().to_string_lossy()).ok()).collect()
}

fn capabilities() -> Vec<(Fact, Answer)> {
    let is_limited = is_in_initial_user_namespace() == Some(false);
    let mut answers: Vec<_> = [
        (Fact::CapBpf, Capability::Bpf),
        (Fact::CapNetAdmin, Capability::NetAdmin),
        (Fact::CapPerfmon, Capability::Perfmon),
        (Fact::CapNetRaw, Capability::NetRaw),
        (Fact::CapSysAdmin, Capability::SysAdmin),
        (Fact::CapSysPtrace, Capability::SysPtrace),
    ]
    .map(|(fact, capability)| {
        let held = capability.held();
        (fact, Answer::new(held, if is_limited && held == Some(true) { "in this user namespace only" } else { "" }))
    })
    .to_vec();
    answers.push((Fact::Root, Answer::new(Some(Uid::effective().is_root()), "")));
    answers
}

/// Finds out what the kernel reports on a connection of this process with itself.
fn sockets() -> [(Fact, Answer); 3] {
    let (answers, counts) = match outside::trial() {
        Ok(info) => {
            let counts = info.bytes_sent.is_some();
            (Answer::yes(""), Answer::new(Some(counts), ""))
        }
        Err(error @ (TrialError::Connect(_) | TrialError::Missing)) => {
            let remedy = remedy_for_loopback(&error);
            let answer = Answer { remedy, ..Answer::unknown(error.to_string()) };
            (answer.clone(), answer)
        }
        Err(TrialError::Kernel(error)) => {
            let unknown = Answer::unknown("sock_diag does not answer");
            (Answer::no(error.to_string()), unknown)
        }
    };
    [(Fact::SockDiag, answers), (Fact::TcpCounts, counts), (Fact::Bbr, bbr())]
}

/// What to do where the trial could not connect, as in a network namespace whose loopback device is down.
fn remedy_for_loopback(error: &TrialError) -> Option<String> {
    match error {
        TrialError::Connect(io) if matches!(io.kind(), ErrorKind::NetworkUnreachable | ErrorKind::TimedOut) => {
            // Who may do that in a user namespace is its root already.
            let sudo = if is_in_initial_user_namespace() == Some(false) { "" } else { "sudo " };
            let namespace = own_name().map_or_else(String::new, |name| format!("-n {name} "));
            Some(format!("{sudo}ip {namespace}link set lo up"))
        }
        _ => None,
    }
}

/// Whether `dwell run` finds what it preloads.
fn library() -> Answer {
    match dwell_socket::library(dwell_socket::PRELOADED) {
        Some(path) => Answer::yes(path.display().to_string()),
        None => Answer::no("neither next to this binary nor in ../lib/dwell"),
    }
}

fn bbr() -> Answer {
    let has = |list: &str| {
        let names = read(&format!("/proc/sys/net/ipv4/tcp_{list}_congestion_control"))?;
        Some(names.split(' ').any(|name| name == "bbr"))
    };
    match (has("allowed"), has("available")) {
        (Some(false), Some(true)) => Answer {
            // The setting is that of the host.
            remedy: (is_in_initial_user_namespace() != Some(false))
                .then(|| "sudo sysctl -w net.ipv4.tcp_allowed_congestion_control='reno cubic bbr'".into()),
            ..Answer::no("for root only")
        },
        (allowed, _) => Answer::new(allowed, ""),
    }
}

/// Makes a set of rules, which restricts nothing yet.
fn landlock() -> Answer {
    let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    match rules.handle_access(AccessFs::from_all(ABI::V1)).and_then(Ruleset::create) {
        Ok(_) => Answer::yes(""),
        Err(_) => Answer::no(""),
    }
}

/// Reads the facts that files of the kernel show.
fn files(mounts: Option<&str>) -> BTreeMap<Fact, Answer> {
    let mounted = |kind| mounts::find(kind, mounts);
    BTreeMap::from([
        (Fact::InitialUserNamespace, Answer::new(is_in_initial_user_namespace(), "")),
        (
            Fact::Btf,
            match fs::File::open("/sys/kernel/btf/vmlinux") {
                Ok(_) => Answer::yes(""),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Answer::no(""),
                Err(error) => Answer::unknown(error.to_string()),
            },
        ),
        // The next two are the settings; a trial overrules them.
        (Fact::Jit, Answer::new(read("/proc/sys/net/core/bpf_jit_enable").map(|value| value != "0"), "")),
        (Fact::StatisticsOff, Answer::new(read("/proc/sys/kernel/bpf_stats_enabled").map(|value| value == "0"), "")),
        (Fact::LockdownOff, lockdown()),
        (Fact::Landlock, landlock()),
        (Fact::Library, library()),
        (Fact::BpfFilesystem, mounted("bpf")),
        (Fact::Cgroup2, mounted("cgroup2")),
    ])
}

/// Reads the lockdown mode, which the kernel shows in brackets among `none`, `integrity` and `confidentiality`.
fn lockdown() -> Answer {
    let path = "/sys/kernel/security/lockdown";
    let Some(modes) = read(path) else {
        return Answer::unknown(format!("cannot read {path}"));
    };
    let mode = modes.split_ascii_whitespace().find_map(|mode| mode.strip_prefix('[')?.strip_suffix(']'));
    match mode {
        Some("confidentiality") => Answer::no("confidentiality"),
        Some(mode) => Answer::yes(mode),
        None => Answer::unknown(modes),
    }
}

fn read(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

/// Finds the directory of this process's own cgroup, so that a trial there affects no other process; or else the root of
/// the visible hierarchy.
fn own_cgroup(mounts: &str) -> Option<PathBuf> {
    let mount = mount_point(mounts, "cgroup2")?;
    let own = read("/proc/thread-self/cgroup").and_then(|list| {
        let path = list.lines().find_map(|line| line.strip_prefix("0::/"))?;
        Some(mount.join(path)).filter(|path| Path::is_dir(path))
    });
    Some(own.unwrap_or(mount))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_without_a_hook_is_named_once() {
        let hook =
            |layer, used| LayerHook { family: "tracepoint", layer, hook: "tp_btf/x", used, lack: None, about: "" };
        let one_of_two = [hook("rx-driver", false), hook("rx-driver", true)];
        assert_eq!(each_layer(&one_of_two).holds, Some(true));
        let none = [hook("rx-driver", false), hook("rx-driver", false)];
        assert_eq!(each_layer(&none), Answer::no("none for rx-driver"));
    }
}
