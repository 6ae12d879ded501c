//! What labs exist, so that those of killed runs can be removed: a file a lab in `/run/dwell/lab`.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    fs::{self, File},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use nix::{
    fcntl::{Flock, FlockArg},
    sys::{
        signal::{Signal, kill},
        wait::{WaitPidFlag, waitpid},
    },
    unistd::{Pid, Uid},
};
use serde::{Deserialize, Serialize};

use crate::{Error, Result, error::find_program, namespace, topology::Topology};

const FOLDER: &str = "/run/dwell/lab";

/// What there is to know about a lab from outside: the content of its state file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// `dwell.lab/1`.
    pub schema: String,
    /// Name of the lab; its namespaces are called `dwell-<name>-<role>`.
    pub name: String,
    /// Its network; absent for a namespace on its own.
    pub topology: Option<Topology>,
    /// The process with which it goes; absent for a lab that stays until it is taken down.
    pub owner: Option<ProcessId>,
    /// Namespace of each role.
    pub namespaces: BTreeMap<String, String>,
    /// The link emulator, where it runs as a process.
    pub emulator: Option<ProcessId>,
}

impl State {
    /// How to use the lab, for people.
    pub fn describe(&self) -> String {
        let mut text = format!("lab {}", self.name);
        let Some(topology) = &self.topology else {
            return text;
        };
        let _ = write!(text, ": {}", topology.describe());
        if let Some(emulator) = self.emulator {
            let life = if emulator.is_alive() { "" } else { " (it has ended: no packet passes a link)" };
            let _ = write!(text, "\n  link emulator: process {}{life}", emulator.pid);
        }
        for (role, address) in topology.endpoints() {
            if let Some(name) = self.namespaces.get(role.name()) {
                let _ = write!(text, "\n  {:<8} ip netns exec {name} ...", role.name());
                if let Some((v4, v6)) = address {
                    let _ = write!(text, "   # {v4}, {v6}");
                }
            }
        }
        let _ = write!(text, "\n  watch at the vantage point on: {}", topology.vantage_interfaces().join(", "));
        let _ = write!(text, "\n  remove with: dwell-lab down {}", self.name);
        text
    }

    /// Where files of this lab are.
    pub fn folder(&self) -> PathBuf {
        Path::new(FOLDER).join(&self.name)
    }

    fn file(&self) -> PathBuf {
        state_file(&self.name)
    }

    fn is_abandoned(&self) -> bool {
        self.owner.is_some_and(|owner| !owner.is_alive())
    }

    /// Ends its processes and removes its namespaces and files. Goes on past failures and gives the first.
    pub(crate) fn remove(&self) -> Result<()> {
        let mut first = Ok(());
        if let Some(emulator) = self.emulator {
            emulator.end();
        }
        for name in self.namespaces.values() {
            first = first.and(namespace::remove(name));
        }
        let _ = fs::remove_dir_all(self.folder());
        if first.is_ok() {
            let _ = fs::remove_file(self.file());
        }
        first
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}

/// A process, told from a later one of the same number by its start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its number.
    pub pid: i32,
    /// Start time in clock ticks since boot, field 22 of `/proc/<pid>/stat`.
    pub start_ticks: u64,
}

impl ProcessId {
    /// This process.
    pub fn own() -> Result<Self> {
        Self::of(std::process::id())
    }

    /// The process that has this number now.
    pub fn of(pid: u32) -> Result<Self> {
        let pid = i32::try_from(pid).map_err(|why| Error::invalid(format!("process {pid}"), why))?;
        let (_, start_ticks) =
            read_stat(pid).ok_or_else(|| Error::invalid(format!("process {pid}"), "it has ended"))?;
        Ok(Self { pid, start_ticks })
    }

    /// Whether it runs; one that only waits to be collected does not.
    pub fn is_alive(self) -> bool {
        read_stat(self.pid).is_some_and(|(state, start)| start == self.start_ticks && !matches!(state, 'Z' | 'X'))
    }

    /// Asks it to end, and kills it when it has not after two seconds.
    pub(crate) fn end(self) {
        let pid = Pid::from_raw(self.pid);
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            if !self.is_alive() {
                break;
            }
            let _ = kill(pid, signal);
            let begun = Instant::now();
            while self.is_alive() && begun.elapsed() < Duration::from_secs(2) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        // Collects it where it is a child of this process; otherwise there is nothing to collect.
        let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
    }
}

/// State letter and start time.
fn read_stat(pid: i32) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name stands in parentheses and may hold anything.
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let start = fields.nth(18)?.parse().ok()?;
    Some((state, start))
}

/// A lab's entry in the registry, removed when dropped unless the lab stays.
#[derive(Debug)]
pub(crate) struct Record {
    state: State,
    kept: bool,
}

impl Record {
    /// An entry that goes with this process. Removes abandoned labs first.
    pub(crate) fn transient(lab: &str, topology: Option<&Topology>, roles: &[&str]) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self::enter(format!("{lab}-{}-{number}", std::process::id()), topology, roles)
    }

    /// An entry under exactly this name, which must be free.
    pub(crate) fn named(name: &str, topology: &Topology, roles: &[&str]) -> Result<Self> {
        Self::enter(name.to_owned(), Some(topology), roles)
    }

    fn enter(name: String, topology: Option<&Topology>, roles: &[&str]) -> Result<Self> {
        check_name(&name)?;
        require("make a lab")?;
        let lock = lock()?;
        // What fails for another lab is told by the list of them, and hinders no new one.
        list_locked()?;
        if state_file(&name).exists() {
            return Err(Error::Exists(name));
        }
        let namespaces = roles.iter().map(|role| ((*role).to_owned(), format!("dwell-{name}-{role}"))).collect();
        let record = Self {
            state: State {
                schema: "dwell.lab/1".to_owned(),
                name,
                topology: topology.cloned(),
                owner: Some(ProcessId::own()?),
                namespaces,
                emulator: None,
            },
            kept: false,
        };
        record.save()?;
        let folder = record.state.folder();
        fs::create_dir_all(&folder).map_err(Error::file("make", &folder))?;
        drop(lock);
        Ok(record)
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    pub(crate) fn set_emulator(&mut self, emulator: ProcessId) -> Result<()> {
        self.state.emulator = Some(emulator);
        self.save()
    }

    /// From now on the lab stays until it is taken down by name.
    pub(crate) fn keep(mut self) -> Result<State> {
        self.state.owner = None;
        self.save()?;
        self.kept = true;
        Ok(self.state.clone())
    }

    fn save(&self) -> Result<()> {
        let file = self.state.file();
        write_atomically(&file, &serde_json::to_string(&self.state).map_err(|why| Error::invalid("state", why))?)
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if !self.kept {
            // What cannot be removed now is removed by the next lab, once this process has ended.
            let _ = self.state.remove();
        }
    }
}

/// All labs. What fails for one keeps none of the others from being seen to.
#[derive(Debug, Default)]
pub struct Labs {
    /// Those there are, by name.
    pub states: Vec<State>,
    /// State files that cannot be read, abandoned labs that cannot be removed.
    pub failures: Vec<Error>,
}

/// All labs there are, after removing what killed runs left: labs whose owner is gone.
pub fn list() -> Result<Labs> {
    require("read which labs there are")?;
    let _lock = lock()?;
    list_locked()
}

fn list_locked() -> Result<Labs> {
    let mut labs = read_all()?;
    let Labs { states, failures } = &mut labs;
    states.retain(|state| {
        if !state.is_abandoned() {
            return true;
        }
        let removed = state.remove();
        let stays = removed.is_err();
        failures.extend(removed.err());
        stays
    });
    Ok(labs)
}

fn read_all() -> Result<Labs> {
    let folder = Path::new(FOLDER);
    let mut labs = Labs::default();
    for entry in fs::read_dir(folder).map_err(Error::file("list", folder))? {
        let file = entry.map_err(Error::file("list", folder))?.path();
        if file.extension().is_some_and(|extension| extension == "json") {
            match read_file(&file) {
                Ok(state) => labs.states.extend(state),
                Err(why) => labs.failures.push(why),
            }
        }
    }
    labs.states.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(labs)
}

/// None where there is no such file: a lab's owner may remove it at any time.
fn read_file(file: &Path) -> Result<Option<State>> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(Error::file("read", file)(why)),
    };
    let unreadable = |why: String| {
        let remedy = "what it is of cannot be removed; `ip netns list` shows namespaces, \
                      and the file may be deleted";
        Error::invalid(file.display().to_string(), format!("{why}: {remedy}"))
    };
    let state: State = serde_json::from_str(&text).map_err(|why| unreadable(why.to_string()))?;
    if state_file(&state.name) != file {
        return Err(unreadable(format!("it is of a lab named {:?}", state.name)));
    }
    Ok(Some(state))
}

/// Looks at no other lab's file.
pub(crate) fn read(name: &str) -> Result<State> {
    check_name(name)?;
    read_file(&state_file(name))?.ok_or_else(|| Error::Unknown(name.to_owned()))
}

fn state_file(name: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{name}.json"))
}

/// Readers see the old content or the new, never a part.
pub(crate) fn write_atomically(file: &Path, text: &str) -> Result<()> {
    let fresh = file.with_extension("new");
    fs::write(&fresh, text).map_err(Error::file("write", &fresh))?;
    fs::rename(&fresh, file).map_err(Error::file("write", file))
}

fn lock() -> Result<Flock<File>> {
    let folder = Path::new(FOLDER);
    fs::create_dir_all(folder).map_err(Error::file("make", folder))?;
    let path = folder.join("lock");
    let file = File::create(&path).map_err(Error::file("open", &path))?;
    Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, errno)| Error::os(format!("lock {}", path.display()))(errno))
}

/// The first thing this host lacks for a lab: a sentence with its remedy, or nothing.
pub fn missing_requirement() -> Option<String> {
    require("make a lab").err().map(|error| error.to_string())
}

fn require(wanted: &'static str) -> Result<()> {
    if !Uid::effective().is_root() {
        let fact = "this process is not root".to_owned();
        return Err(Error::Host { wanted, fact, remedy: "Run it with sudo." });
    }
    let programs = [
        ("ip", "Install the package iproute2."),
        ("iptables-legacy-restore", "Install the package iptables."),
        ("ip6tables-legacy-restore", "Install the package iptables."),
        ("nsenter", "Install the package util-linux."),
        ("setpriv", "Install the package util-linux."),
    ];
    for (program, remedy) in programs {
        if find_program(program).is_none() {
            return Err(Error::Host { wanted, fact: format!("there is no program {program}"), remedy });
        }
    }
    Ok(())
}

fn check_name(name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > 64 || name.starts_with('-') || !name.chars().all(fits) {
        return Err(Error::invalid(
            format!("lab name {name:?}"),
            "it must be 1 to 64 of the characters a-z, 0-9 and -, and not begin with -",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_itself_and_nobody_with_its_number() {
        let own = ProcessId::own().unwrap();
        assert!(own.is_alive());
        assert!(!ProcessId { start_ticks: own.start_ticks + 1, ..own }.is_alive());
    }

    #[test]
    fn names_stay_inside_their_folder() {
        for good in ["demo", "line-12-0"] {
            check_name(good).unwrap();
        }
        for bad in ["", "../x", "a/b", "A", "-x", "lock.json"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
