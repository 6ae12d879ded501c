//! Trials of what the kernel can do, each by itself, so that one refusal does not hide another.
//!
//! They take place in a network namespace of their own where one can be created, so that no device and no rule that is
//! in use is touched; otherwise on loopback. What is attached is detached at once.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::fd::AsRawFd,
    panic::resume_unwind,
    path::{Path, PathBuf},
    thread,
};

use dwell_engine::{response::Watch, rtt::Config};
use libbpf_rs::{MapHandle, MapType, NetfilterOpts, Object, ProgramInput, ProgramMut, libbpf_sys};
use nix::{
    errno::Errno,
    sched::{CloneFlags, unshare},
    sys::resource::{RLIM_INFINITY, Resource, getrlimit},
};

use super::{Answer, Capability, Fact, Requirements, devices::program_info};
use crate::{
    Error, Hook, Interface, TcHookKind, attach,
    balancer::{Decap, DecapRules, Plane, PlaneOptions},
    clock,
    error::io_error,
    load, response,
    rtt::{Options, Probe},
    stack,
};

const WHAT: &str = "a trial program";
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trials.bpf.o.z"));

/// Where a program of a trial is attached.
#[derive(Debug, Clone, Copy)]
enum Target {
    /// Nowhere: loading the program is the trial.
    Nowhere,
    /// The hook that its section names.
    Section,
    Loopback(Hook, TcHookKind),
    Cgroup,
    Netfilter,
}

#[rustfmt::skip]
const TRIALS: &[(Fact, &str, Target)] = &[
    (Fact::TcProgram, "try_tc", Target::Nowhere),
    (Fact::Tcx, "try_tc", Target::Loopback(Hook::TcIngress, TcHookKind::Tcx)),
    (Fact::XdpProgram, "try_xdp", Target::Nowhere),
    (Fact::XdpAttach, "try_xdp", Target::Loopback(Hook::Xdp, TcHookKind::Auto)),
    (Fact::BpfLoop, "try_loop", Target::Nowhere),
    (Fact::TpBtf, "try_tp_btf", Target::Section),
    (Fact::SockOps, "try_sockops", Target::Cgroup),
    (Fact::Netfilter, "try_netfilter", Target::Netfilter),
    (Fact::Fentry, "try_fentry", Target::Section),
    (Fact::Kprobe, "try_kprobe", Target::Section),
];

/// dwell's own programs. Verifying one takes up to a second, so they are tried at the same time.
const OWN: [(Fact, fn() -> Answer); 7] = [
    (Fact::BalancerProgram, balancer),
    (Fact::RttProgram, || rtt(Hook::TcIngress)),
    (Fact::RttXdpProgram, || rtt(Hook::Xdp)),
    (Fact::ResponseProgram, response),
    (Fact::StackProgram, stack),
    (Fact::ClockPrograms, || of_loading(clock::try_programs())),
    (Fact::DecapProgram, || of_loading(Decap::load(&DecapRules::default()))),
];

/// Runs the trials that are wanted. `cgroup` is a directory of the unified hierarchy.
pub(super) fn run(cgroup: Option<&Path>, wanted: &Requirements) -> BTreeMap<Fact, Answer> {
    thread::scope(|scope| {
        // Not this thread: it must stay where it is.
        let apart = scope.spawn(|| {
            let namespace = unshare(CloneFlags::CLONE_NEWNET).map_err(io::Error::from);
            let answer = Answer::of_trial(&namespace, &[]);
            let own = OWN.into_iter().filter(|(fact, _)| wanted.tries(*fact));
            // They are in the same namespace.
            let own: Vec<_> = own.map(|(fact, attempt)| (fact, scope.spawn(attempt))).collect();
            let mut answers = programs(cgroup, wanted);
            let joined = own.into_iter().map(|(fact, attempt)| (fact, attempt.join()));
            answers.extend(joined.map(|(fact, answer)| (fact, answer.unwrap_or_else(|panic| resume_unwind(panic)))));
            answers.extend(maps());
            answers.insert(Fact::Clsact, clsact(&answer));
            answers.insert(Fact::NetworkNamespaces, answer);
            answers
        });
        apart.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

fn programs(cgroup: Option<&Path>, wanted: &Requirements) -> BTreeMap<Fact, Answer> {
    let missing = Capability::missing(&Capability::TO_LOAD);
    let mut answers = BTreeMap::new();
    // How the first one behaves tells two more facts.
    let is_tried = |fact| fact == Fact::TcProgram || wanted.tries(fact);
    for &(fact, name, target) in TRIALS.iter().filter(|(fact, ..)| is_tried(*fact)) {
        if matches!(target, Target::Cgroup) && cgroup.is_none() {
            answers.insert(fact, Answer::unknown("no cgroup v2 to try it on"));
            continue;
        }
        let result = loaded(name).and_then(|object| {
            attach_and_detach(&load::program(&object, name), target, cgroup)
                .map(|()| (fact == Fact::TcProgram).then_some(object))
        });
        if let Ok(Some(object)) = &result {
            answers.extend(behaviour(&load::program(object, name)));
        }
        let result = result.map(drop);
        let busy = Err(Some(Errno::EBUSY as i32));
        let answer = if result.as_ref().map_err(io::Error::raw_os_error) == busy {
            Answer::unknown("another program occupies the hook where it was tried")
        } else {
            Answer::of_trial(&result, &missing)
        };
        answers.insert(fact, answer);
    }
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

/// Whether the kernel has the helper bpf_loop. True without privilege to try.
pub(crate) fn has_loop() -> bool {
    let refusal = loaded("try_loop").err();
    refusal.and_then(|error| error.raw_os_error()) != Some(Errno::EINVAL as i32)
}

/// Whether a program of the trials attaches to the hook that its section names.
pub(crate) fn attaches(name: &str) -> bool {
    let attached =
        loaded(name).and_then(|object| attach_and_detach(&load::program(&object, name), Target::Section, None));
    attached.is_ok()
}

fn attach_and_detach(program: &ProgramMut<'_>, target: Target, cgroup: Option<&Path>) -> io::Result<()> {
    let link = match target {
        Target::Nowhere => return Ok(()),
        Target::Section => program.attach(),
        Target::Loopback(hook, kind) => {
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
        Target::Cgroup => {
            let folder = File::open(cgroup.ok_or(Errno::ENOENT)?)?;
            program.attach_cgroup(folder.as_raw_fd())
        }
        Target::Netfilter => program.attach_netfilter_with_opts(NetfilterOpts {
            protocol_family: libbpf_rs::NFPROTO_IPV4,
            hooknum: libbpf_rs::NF_INET_LOCAL_IN,
            priority: 100,
            ..Default::default()
        }),
    };
    link.map(drop).map_err(|error| io_error(&error))
}

/// Finds out whether a loaded program is translated to machine code, and whether its runs are timed.
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

/// Loads and attaches the stack programs in the namespace of the trial, whose netfilter hooks see no traffic.
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

/// Loads the balancer with the smallest tables: whether there is memory for its own is another question.
fn balancer() -> Answer {
    let options = PlaneOptions {
        max_connections: 1 << 10,
        max_vips: 1,
        max_reals: 1,
        max_zero_vips: 1,
        max_zero_servers: 1,
        ..PlaneOptions::default()
    };
    of_loading(Plane::load(&options))
}

fn of_loading<T>(probe: Result<T, Error>) -> Answer {
    match probe {
        Ok(_) => Answer::yes(""),
        Err(Error::Load { io, detail, remedy, .. }) => {
            Answer { remedy: Some(remedy.into()), ..Answer::no(format!("{io}{detail}")) }
        }
        Err(other @ Error::NoLoop { .. }) => {
            Answer { remedy: Some(Fact::BpfLoop.remedy().to_owned()), ..Answer::no(other.to_string()) }
        }
        Err(other) => Answer::no(other.to_string()),
    }
}

fn maps() -> Vec<(Fact, Answer)> {
    /// The size of an array that is larger than the tables of `rtt`, unless --max-flows is raised.
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
                answer.detail = format!("{limit}, which does not limit BPF maps here");
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

/// Tries clsact, which would leave traces outside a namespace of its own.
fn clsact(namespace: &Answer) -> Answer {
    if namespace.holds != Some(true) {
        return Answer::untried("a network namespace");
    }
    let clsact = loaded("try_tc").and_then(|object| {
        attach_and_detach(
            &load::program(&object, "try_tc"),
            Target::Loopback(Hook::TcIngress, TcHookKind::Clsact),
            None,
        )
    });
    Answer::of_trial(&clsact, &Capability::missing(&Capability::TO_LOAD))
}

/// Finds a program on the search path, or in the usual folders for administrators' programs.
pub(super) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}
