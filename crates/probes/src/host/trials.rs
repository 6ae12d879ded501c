//! Trying things out, each on its own, so that one refusal hides no other.
//!
//! All of it happens in a network namespace of its own where one can be made,
//! so that no device and no rule that is in use is touched; else on loopback.
//! What is attached is detached at once.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use dwell_engine::{response::Watch, rtt::Config};
use libbpf_rs::{MapHandle, MapType, NetfilterOpts, Object, ProgramInput, ProgramMut, libbpf_sys};
use nix::{
    errno::Errno,
    sched::{CloneFlags, unshare},
    sys::resource::{RLIM_INFINITY, Resource, getrlimit},
};

use super::{Answer, Capability, Fact, devices::program_info};
use crate::{
    Error, Hook, Interface, TcHookKind, attach, clock,
    error::io_error,
    load, response,
    rtt::{Options, Probe},
    stack,
};

const WHAT: &str = "a trial program";
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trials.bpf.o"));

/// How a program is attached.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// Not at all: to load it is the trial.
    Nowhere,
    /// Where its section says.
    Section,
    Loopback(Hook, TcHookKind),
    Cgroup,
    Netfilter,
}

#[rustfmt::skip]
const TRIALS: &[(Fact, &str, Place)] = &[
    (Fact::TcProgram, "try_tc", Place::Nowhere),
    (Fact::Tcx, "try_tc", Place::Loopback(Hook::TcIngress, TcHookKind::Tcx)),
    (Fact::XdpProgram, "try_xdp", Place::Nowhere),
    (Fact::XdpAttach, "try_xdp", Place::Loopback(Hook::Xdp, TcHookKind::Auto)),
    (Fact::BpfLoop, "try_loop", Place::Nowhere),
    (Fact::RawTracepoint, "try_raw_tp", Place::Section),
    (Fact::TpBtf, "try_tp_btf", Place::Section),
    (Fact::Tracepoint, "try_tracepoint", Place::Section),
    (Fact::SockOps, "try_sockops", Place::Cgroup),
    (Fact::CgroupSkb, "try_cgroup_skb", Place::Cgroup),
    (Fact::CgroupConnect, "try_connect", Place::Cgroup),
    (Fact::Netfilter, "try_netfilter", Place::Netfilter),
    (Fact::TcpIterator, "try_iterator", Place::Section),
    (Fact::Fentry, "try_fentry", Place::Section),
    (Fact::Kprobe, "try_kprobe", Place::Section),
];

/// Tries everything. `cgroup` is a directory of the unified hierarchy.
pub(super) fn run(cgroup: Option<&Path>) -> BTreeMap<Fact, Answer> {
    thread::scope(|scope| {
        // Not this thread: it must stay where it is.
        let apart = scope.spawn(|| {
            let namespace = unshare(CloneFlags::CLONE_NEWNET).map_err(io::Error::from);
            let answer = Answer::of_trial(&namespace, &[]);
            let mut answers = programs(cgroup);
            answers.extend(maps());
            answers.extend(in_namespace(&answer));
            answers.insert(Fact::NetworkNamespaces, answer);
            answers
        });
        apart.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn programs(cgroup: Option<&Path>) -> BTreeMap<Fact, Answer> {
    let missing = Capability::missing(&Capability::TO_LOAD);
    let mut answers = BTreeMap::new();
    for &(fact, name, place) in TRIALS {
        if matches!(place, Place::Cgroup) && cgroup.is_none() {
            answers.insert(fact, Answer::unknown("no cgroup v2 to try it on"));
            continue;
        }
        let result = loaded(name).and_then(|object| {
            attach_and_detach(&load::program(&object, name), place, cgroup)
                .map(|()| (fact == Fact::TcProgram).then_some(object))
        });
        if let Ok(Some(object)) = &result {
            answers.extend(behaviour(&load::program(object, name)));
        }
        let result = result.map(drop);
        let busy = Err(Some(Errno::EBUSY as i32));
        let answer = if result.as_ref().map_err(io::Error::raw_os_error) == busy {
            Answer::unknown("another program holds the place where it was tried")
        } else {
            Answer::of_trial(&result, &missing)
        };
        answers.insert(fact, answer);
    }
    for (fact, ingress) in [(Fact::RttProgram, Hook::TcIngress), (Fact::RttXdpProgram, Hook::Xdp)] {
        answers.insert(fact, rtt(ingress));
    }
    answers.insert(Fact::ResponseProgram, response());
    answers.insert(Fact::StackProgram, stack());
    answers.insert(Fact::ClockPrograms, of_loading(clock::try_programs()));
    answers
}

fn loaded(name: &str) -> io::Result<Object> {
    let os_error = |error| match error {
        Error::Load { io, .. } => io,
        other => io::Error::other(other.to_string()),
    };
    let mut object = load::open(WHAT, OBJECT).map_err(os_error)?;
    for mut program in object.progs_mut() {
        let this = program.name() == name;
        program.set_autoload(this);
    }
    load::load(WHAT, object).map_err(os_error)
}

/// Whether the kernel knows the helper bpf_loop; without privilege, that it does.
pub(crate) fn has_loop() -> bool {
    let refusal = loaded("try_loop").err();
    refusal.and_then(|error| error.raw_os_error()) != Some(Errno::EINVAL as i32)
}

/// Whether a program of the trials attaches where its section says.
pub(crate) fn attaches(name: &str) -> bool {
    let attached =
        loaded(name).and_then(|object| attach_and_detach(&load::program(&object, name), Place::Section, None));
    attached.is_ok()
}

fn attach_and_detach(program: &ProgramMut<'_>, place: Place, cgroup: Option<&Path>) -> io::Result<()> {
    let link = match place {
        Place::Nowhere => return Ok(()),
        Place::Section => program.attach(),
        Place::Loopback(hook, kind) => {
            let loopback = Interface::find("lo").map_err(|_| io::Error::from(Errno::ENODEV))?;
            return match attach::attach(program, &loopback, hook, kind) {
                Ok(attachment) => {
                    drop(attachment);
                    Ok(())
                }
                Err(Error::Attach { io, .. }) => Err(io),
                Err(other) => Err(io::Error::other(other.to_string())),
            };
        }
        Place::Cgroup => {
            let folder = File::open(cgroup.ok_or(Errno::ENOENT)?)?;
            program.attach_cgroup(folder.as_raw_fd())
        }
        Place::Netfilter => program.attach_netfilter_with_opts(NetfilterOpts {
            protocol_family: libbpf_rs::NFPROTO_IPV4,
            hooknum: libbpf_rs::NF_INET_LOCAL_IN,
            priority: 100,
            ..Default::default()
        }),
    };
    link.map(drop).map_err(|error| io_error(&error))
}

/// What becomes of a loaded program: is it translated, is its run timed?
fn behaviour(program: &ProgramMut<'_>) -> Vec<(Fact, Answer)> {
    use std::os::fd::AsFd;

    let mut answers = Vec::new();
    let packet = [0; 64];
    let ran = program.test_run(ProgramInput { data_in: Some(&packet), ..Default::default() });
    let Ok(info) = program_info(&program.as_fd()) else {
        return answers;
    };
    answers.push((Fact::Jit, Answer::new(Some(info.jited_prog_len > 0), "")));
    if ran.is_ok() {
        answers.push((Fact::StatisticsOff, Answer::new(Some(info.run_cnt == 0), "")));
    }
    answers
}

/// In the namespace of the trial, where nobody's packets pass its netfilter hooks.
fn stack() -> Answer {
    let config =
        dwell_engine::layers::Config { namespace: stack::own_namespace().ok(), rows: 64, ..Default::default() };
    let probe = stack::Probe::load(&stack::Options::new(config, &stack::PROFILES[0]));
    of_loading(probe.and_then(|mut probe| probe.attach()))
}

fn rtt(ingress: Hook) -> Answer {
    of_loading(Probe::load(&Options {
        config: Config::default(),
        report: true,
        aggregate: None,
        ingress,
        tc: TcHookKind::Auto,
        replay: false,
    }))
}

fn response() -> Answer {
    of_loading(response::Probe::load(&response::Options {
        watch: Watch::default(),
        ingress: Hook::TcIngress,
        chain: None,
        tc: TcHookKind::Auto,
        replay: false,
    }))
}

fn of_loading<T>(probe: Result<T, Error>) -> Answer {
    match probe {
        Ok(_) => Answer::yes(""),
        Err(Error::Load { io, detail, remedy, .. }) => {
            Answer { remedy: Some(remedy.into()), ..Answer::no(format!("{io}{detail}")) }
        }
        Err(other @ Error::NoLoop { .. }) => {
            Answer { remedy: Fact::BpfLoop.remedy().map(str::to_owned), ..Answer::no(other.to_string()) }
        }
        Err(other) => Answer::no(other.to_string()),
    }
}

fn maps() -> Vec<(Fact, Answer)> {
    /// More than the tables of `rtt` take unless --max-flows is raised.
    const LARGE: u32 = 32 << 20;

    let missing = Capability::missing(&[Capability::Bpf]);
    let make = |kind, value_bytes, entries, map_flags| {
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
            map_flags,
            ..Default::default()
        };
        let key_bytes = if kind == MapType::RingBuf { 0 } else { 4 };
        MapHandle::create(kind, Some("try"), key_bytes, value_bytes, entries, &options)
            .map(drop)
            .map_err(|error| io_error(&error))
    };
    let limit = getrlimit(Resource::RLIMIT_MEMLOCK).ok().map(|limit| limit.0);
    let large = make(MapType::Array, 8, LARGE / 8, 0);
    let memory = match limit {
        Some(RLIM_INFINITY) => Answer::yes("unlimited"),
        _ => {
            let limit = limit.map_or("unknown".into(), |bytes| format!("{} KiB", bytes >> 10));
            let mut answer = Answer::of_trial(&large, &missing);
            if answer.holds == Some(true) {
                answer.detail = format!("{limit}, which does not bind BPF maps here");
            } else {
                answer.detail = format!("{limit}; {}", answer.detail);
            }
            answer
        }
    };
    let ring = make(MapType::RingBuf, 0, 1 << 16, 0);
    let mapped = make(MapType::Array, 8, 512, libbpf_sys::BPF_F_MMAPABLE);
    vec![
        (Fact::MemoryLock, memory),
        (Fact::RingBuffer, Answer::of_trial(&ring, &missing)),
        (Fact::MmapableArray, Answer::of_trial(&mapped, &missing)),
    ]
}

/// What would leave traces outside a namespace of its own.
fn in_namespace(namespace: &Answer) -> Vec<(Fact, Answer)> {
    if namespace.holds != Some(true) {
        let untried = Answer::untried("a network namespace");
        return [Fact::Clsact, Fact::Veth, Fact::Forwarding, Fact::PacketQueue]
            .map(|fact| (fact, untried.clone()))
            .to_vec();
    }
    let clsact = loaded("try_tc").and_then(|object| {
        attach_and_detach(&load::program(&object, "try_tc"), Place::Loopback(Hook::TcIngress, TcHookKind::Clsact), None)
    });
    let forwarding = fs::write("/proc/sys/net/ipv4/ip_forward", "1");
    let queue = "*mangle\n-A FORWARD -j NFQUEUE --queue-num 1\nCOMMIT\n";
    let queues = command("iptables-legacy-restore", &[], queue);
    let queues = match queues.holds {
        Some(true) => command("ip6tables-legacy-restore", &[], queue),
        _ => queues,
    };
    let pair = ["link", "add", "one", "type", "veth", "peer", "name", "two"];
    vec![
        (Fact::Clsact, Answer::of_trial(&clsact, &Capability::missing(&Capability::TO_LOAD))),
        (Fact::Veth, command("ip", &pair, "")),
        (Fact::Forwarding, Answer::of_trial(&forwarding, &[])),
        (Fact::PacketQueue, queues),
    ]
}

/// Runs a program in the namespace of this thread.
fn command(program: &str, arguments: &[&str], input: &str) -> Answer {
    let Some(path) = find_program(program) else {
        return Answer::unknown(format!("there is no program {program}"));
    };
    let output = Command::new(path)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .and_then(|mut child| {
            if let Some(mut stdin) = child.stdin.take() {
                // A program that does not read has said why on stderr.
                let _ = stdin.write_all(input.as_bytes());
            }
            child.wait_with_output()
        });
    match output {
        Ok(output) if output.status.success() => Answer::yes(""),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Answer::no(format!("{program}: {}", said.lines().next().unwrap_or_default()))
        }
        Err(error) => Answer::unknown(format!("{program}: {error}")),
    }
}

/// Where the search path, or the usual place of administrators' programs, has it.
pub(super) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}
