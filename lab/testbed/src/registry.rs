//! The list of labs, from which those of killed runs are removed: one file per lab in `/run/dwell/lab`.

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

/// The content of a lab's state file: what other processes know about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The schema, `dwell.lab/1`.
    pub schema: String,
    /// Name of the lab; its namespaces are called `dwell-<name>-<role>`.
    pub name: String,
    /// The network; absent for a namespace that belongs to no lab.
    pub topology: Option<Topology>,
    /// The process with which the lab ends; absent for a lab that stays until it is taken down.
    pub owner: Option<ProcessId>,
    /// The namespace of each role.
    pub namespaces: BTreeMap<String, String>,
    /// The link emulator, if it is a process of its own.
    pub emulator: Option<ProcessId>,
}

impl State {
    /// Returns a text for users about how to use the lab.
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

    /// Returns the folder of the lab's files.
    pub fn folder(&self) -> PathBuf {
        Path::new(FOLDER).join(&self.name)
    }

    fn file(&self) -> PathBuf {
        state_file(&self.name)
    }

    fn is_abandoned(&self) -> bool {
        self.owner.is_some_and(|owner| !owner.is_alive())
    }

    /// Ends the lab's processes and removes its namespaces and files. Continues after a failure, and returns the first
    /// one.
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

/// A process. Its start time distinguishes it from a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its number.
    pub pid: i32,
    /// Its start time in clock ticks since boot, field 22 of `/proc/<pid>/stat`.
    pub start_ticks: u64,
}

impl ProcessId {
    /// Returns this process.
    pub fn own() -> Result<Self> {
        Self::of(std::process::id())
    }

    /// Returns the process that has this number now.
    pub fn of(pid: u32) -> Result<Self> {
        let pid = i32::try_from(pid).map_err(|why| Error::invalid(format!("process {pid}"), why))?;
        let (_, start_ticks) =
            read_stat(pid).ok_or_else(|| Error::invalid(format!("process {pid}"), "it has ended"))?;
        Ok(Self { pid, start_ticks })
    }

    /// Returns whether it runs. A zombie does not.
    pub fn is_alive(self) -> bool {
        read_stat(self.pid).is_some_and(|(state, start)| start == self.start_ticks && !matches!(state, 'Z' | 'X'))
    }

    /// Asks it to end, and kills it if it has not ended after two seconds.
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

/// Returns the state letter and the start time of a process.
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
    /// Creates an entry that ends with this process. Removes abandoned labs first.
    pub(crate) fn transient(lab: &str, topology: Option<&Topology>, roles: &[&str]) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self::enter(format!("{lab}-{}-{number}", std::process::id()), topology, roles)
    }

    /// Creates an entry with exactly this name, which must be unused.
    pub(crate) fn named(name: &str, topology: &Topology, roles: &[&str]) -> Result<Self> {
        Self::enter(name.to_owned(), Some(topology), roles)
    }

    fn enter(name: String, topology: Option<&Topology>, roles: &[&str]) -> Result<Self> {
        check_name(&name)?;
        require("make a lab")?;
        let lock = lock()?;
        // Failures of other labs are shown by `list`, and do not prevent a new lab.
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

    /// Makes the lab stay until it is taken down by name.
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

/// All labs, and the failures of single ones.
#[derive(Debug, Default)]
pub struct Labs {
    /// The existing labs by name.
    pub states: Vec<State>,
    /// Failures: state files that cannot be read, and abandoned labs that cannot be removed.
    pub failures: Vec<Error>,
}

/// Removes the labs of killed runs, whose owner is gone, and returns all others.
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

/// Reads a state file. `None` if it does not exist: a lab's owner may remove it at any time.
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

/// Finds a lab by its name, without reading the files of other labs.
pub(crate) fn read(name: &str) -> Result<State> {
    check_name(name)?;
    read_file(&state_file(name))?.ok_or_else(|| Error::Unknown(name.to_owned()))
}

fn state_file(name: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{name}.json"))
}

/// Writes a file so that readers see the old content or the new one, never a part.
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

/// Returns what this host lacks for a lab, as a sentence with the remedy, or `None`.
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
