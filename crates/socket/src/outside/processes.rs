//! Assigns sockets to processes, by /proc.

use std::{
    collections::{BTreeMap, HashMap, btree_map::Entry},
    fs,
    io::{self, ErrorKind},
    path::PathBuf,
};

use super::{
    Error, Scope,
    namespace::{members_of, number_of},
    remote,
};

/// A process and its descriptor of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) pid: u32,
    pub(super) fd: i32,
}

/// The processes whose sockets are wanted. A process stays in the set when its parent ends.
pub(super) struct Processes {
    selection: Selection,
    /// Process IDs with start times, as IDs are reused.
    known: BTreeMap<u32, u64>,
    denied: Vec<u32>,
    has_grown: bool,
}

enum Selection {
    Scope(Scope),
    /// All processes whose descriptors may be read.
    All,
    /// The processes of cgroups, all or those in the network namespace of this number.
    Cgroups {
        paths: Vec<PathBuf>,
        namespace: Option<u64>,
    },
}

impl Scope {
    /// Checks whether options can be set on the sockets.
    ///
    /// # Errors
    ///
    /// If the kernel does not lend the process's descriptors.
    pub fn check_options(&self) -> Result<(), Error> {
        remote::check(self.pid())
    }

    /// Checks whether the sockets can be seen.
    ///
    /// # Errors
    ///
    /// If there is no such process, its descriptors may not be read, or it is in another network namespace.
    pub fn check(&self) -> Result<(), Error> {
        self.check_readable()?;
        let pid = self.pid();
        let refused = |io| refused(pid, io);
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/net"));
        let own = namespace("thread-self").map_err(refused)?;
        match namespace(&pid.to_string()).map_err(refused)? {
            other if other == own => Ok(()),
            _ => Err(Error::Namespace { pid }),
        }
    }

    /// Lists the processes that are in it now.
    pub fn processes(self) -> Vec<u32> {
        let mut processes = Processes::new(self);
        processes.refresh();
        processes.known().collect()
    }

    /// Checks whether the process exists, and its descriptors may be read.
    pub(super) fn check_readable(&self) -> Result<(), Error> {
        let pid = self.pid();
        if started(pid).is_none() {
            return Err(Error::NoProcess { pid });
        }
        fs::read_dir(descriptors(pid)).map_err(|io| refused(pid, io))?;
        Ok(())
    }

    fn pid(&self) -> u32 {
        let (Scope::Tree(pid) | Scope::Process(pid)) = *self;
        pid
    }
}

/// Why the files of a process cannot be read.
fn refused(pid: u32, io: io::Error) -> Error {
    match io.kind() {
        ErrorKind::NotFound => Error::NoProcess { pid },
        _ => Error::Denied { pid, io },
    }
}

impl Processes {
    pub(super) fn new(scope: Scope) -> Processes {
        let pid = scope.pid();
        Processes {
            selection: Selection::Scope(scope),
            known: started(pid).map(|began| (pid, began)).into_iter().collect(),
            denied: Vec::new(),
            has_grown: false,
        }
    }

    pub(super) fn of_all() -> Processes {
        Processes { selection: Selection::All, known: BTreeMap::new(), denied: Vec::new(), has_grown: false }
    }

    pub(super) fn of_cgroups(paths: Vec<PathBuf>, namespace: Option<u64>) -> Processes {
        Processes {
            selection: Selection::Cgroups { paths, namespace },
            known: BTreeMap::new(),
            denied: Vec::new(),
            has_grown: false,
        }
    }

    /// Returns the current sockets of all processes, by inode.
    pub(super) fn sockets(&mut self) -> HashMap<u32, Owner> {
        self.refresh();
        self.denied.clear();
        let mut sockets = HashMap::new();
        for &pid in self.known.keys() {
            match add_sockets(pid, &mut sockets) {
                Err(error) if error.kind() == ErrorKind::PermissionDenied => self.denied.push(pid),
                // The process has ended in the meantime.
                _ => {}
            }
        }
        sockets
    }

    /// Returns true if the process itself has ended; its descendants may still run.
    pub(super) fn has_ended(&self) -> bool {
        let Selection::Scope(scope) = &self.selection else {
            return self.known.is_empty();
        };
        let pid = scope.pid();
        let began = self.known.get(&pid).copied();
        began.is_none() || started(pid) != began
    }

    /// Returns true if processes were added since the last call.
    pub(super) fn has_grown(&mut self) -> bool {
        std::mem::take(&mut self.has_grown)
    }

    /// Returns the processes whose descriptors may not be read.
    pub(super) fn denied(&self) -> &[u32] {
        &self.denied
    }

    /// Returns the processes as of the last update.
    pub(super) fn known(&self) -> impl Iterator<Item = u32> {
        self.known.keys().copied()
    }

    /// Updates the set of processes.
    pub(super) fn refresh(&mut self) {
        self.known.retain(|&pid, &mut began| started(pid) == Some(began));
        match &self.selection {
            Selection::Scope(Scope::Process(_)) => return,
            Selection::Scope(Scope::Tree(_)) => {}
            Selection::All => {
                self.known = numbered().filter_map(|pid| Some((pid, started(pid)?))).collect();
                return;
            }
            Selection::Cgroups { paths, namespace: wanted } => {
                let members = members_of(paths).unwrap_or_default().into_iter();
                let members = members.filter(|pid| wanted.is_none() || number_of(&pid.to_string()).ok() == *wanted);
                self.known = members.filter_map(|pid| Some((pid, started(pid)?))).collect();
                return;
            }
        }
        let mut parents: Vec<u32> = self.known.keys().copied().collect();
        while let Some(parent) = parents.pop() {
            for pid in children(parent) {
                if let (Entry::Vacant(place), Some(began)) = (self.known.entry(pid), started(pid)) {
                    place.insert(began);
                    parents.push(pid);
                    self.has_grown = true;
                }
            }
        }
    }
}

/// Returns true if libdwell is among the memory mappings of a process.
pub fn has_library(maps: &str) -> bool {
    maps.lines().any(|line| line.rsplit_once('/').is_some_and(|(_, name)| name.starts_with("libdwell_")))
}

/// Returns true if the library in a process has opened dwell's table: then it sets the options of its connections.
pub fn uses_library(maps: &str) -> bool {
    const TABLE: &str = "/memfd:dwell";
    has_library(maps) && maps.contains(TABLE)
}

/// Returns the memory mappings of a process; an empty text if they cannot be read.
pub fn maps(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default()
}

fn descriptors(pid: u32) -> PathBuf {
    format!("/proc/{pid}/fd").into()
}

pub(super) fn add_sockets(pid: u32, sockets: &mut HashMap<u32, Owner>) -> io::Result<()> {
    for entry in fs::read_dir(descriptors(pid))?.flatten() {
        let Ok(target) = fs::read_link(entry.path()) else {
            continue;
        };
        let inode = target
            .to_str()
            .and_then(|target| target.strip_prefix("socket:[")?.strip_suffix(']'))
            .and_then(|inode| inode.parse().ok());
        let fd = entry.file_name().to_str().and_then(|fd| fd.parse().ok());
        if let (Some(inode), Some(fd)) = (inode, fd) {
            sockets.entry(inode).or_insert(Owner { pid, fd });
        }
    }
    Ok(())
}

/// Returns the children of all threads of a process.
fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let lists = threads.flatten().map(|thread| fs::read_to_string(thread.path().join("children")));
    // Threads may end meanwhile. A kernel without CONFIG_PROC_CHILDREN has no list of any.
    let lists: Vec<String> = lists.flatten().collect();
    if lists.is_empty() {
        return children_among_all(pid);
    }
    let pids = lists.iter().flat_map(|list| list.split_ascii_whitespace());
    pids.filter_map(|pid| pid.parse().ok()).collect()
}

/// Lists all processes.
fn numbered() -> impl Iterator<Item = u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn children_among_all(parent: u32) -> Vec<u32> {
    numbered().filter(|&pid| status(pid).is_some_and(|status| status.parent == parent)).collect()
}

/// Returns the start time of a process, in ticks since boot, or `None` if it does not exist or is a zombie.
fn started(pid: u32) -> Option<u64> {
    let status = status(pid)?;
    (!matches!(status.state, 'Z' | 'X')).then_some(status.began)
}

struct Status {
    state: char,
    parent: u32,
    began: u64,
}

/// Returns the state of a thread, from its file `stat`.
pub(super) fn task_state(path: &str) -> Option<char> {
    read_status(path).map(|status| status.state)
}

fn status(pid: u32) -> Option<Status> {
    read_status(&format!("/proc/{pid}/stat"))
}

fn read_status(path: &str) -> Option<Status> {
    let text = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&text);
    // The name may contain any character.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    Some(Status {
        state: fields.next()?.chars().next()?,
        parent: fields.next()?.parse().ok()?,
        began: fields.nth(17)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::{
        net::TcpListener,
        os::fd::AsRawFd,
        process::{self, Command, Stdio},
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn a_socket_has_its_process_and_descriptor() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut own = Processes::new(Scope::Process(process::id()));
        let fds: Vec<i32> = own.sockets().values().map(|owner| owner.fd).collect();
        assert!(fds.contains(&listener.as_raw_fd()), "{fds:?}");
        assert_eq!(own.denied(), [0; 0]);
    }

    #[test]
    fn a_folder_named_like_the_library_is_not_the_library() {
        let mapping =
            |path| format!("7f0c-7f0d r-xp 00000000 08:01 42    {path}\n7ffd-7ffe rw-p 0 00:00 0    [stack]\n");
        assert!(has_library(&mapping("/usr/lib/dwell/libdwell_calls.so")));
        assert!(has_library(&mapping("/usr/lib/dwell/libdwell_preload.so (deleted)")));
        assert!(!has_library(&mapping("/home/user/libdwell/target/server")));
        assert!(!has_library(&mapping("/usr/lib/x86_64-linux-gnu/libdwell.so.0")), "it intercepts nothing");
        assert!(!has_library(&maps(process::id())));
        let library = mapping("/usr/lib/dwell/libdwell_calls.so");
        assert!(!uses_library(&library) && !uses_library(&mapping("/memfd:dwell (deleted)")));
        assert!(uses_library(&format!("{library}\n{}", mapping("/memfd:dwell (deleted)"))));
    }

    #[test]
    fn children_are_found_by_their_parents_lists_and_by_all_processes() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let (listed, among_all) = (children(process::id()), children_among_all(process::id()));
        let mut tree = Processes::new(Scope::Tree(process::id()));
        tree.refresh();
        let all = Scope::Tree(process::id()).processes();
        child.kill().unwrap();
        let begun = Instant::now();
        while started(child.id()).is_some() {
            assert!(begun.elapsed() < Duration::from_secs(30), "a zombie");
        }
        child.wait().unwrap();
        assert!(listed.contains(&child.id()) && among_all.contains(&child.id()));
        assert!(tree.known.contains_key(&child.id()));
        assert!(all.contains(&process::id()) && all.contains(&child.id()), "{all:?}");
        assert!(tree.has_grown() && !tree.has_grown());
        tree.refresh();
        assert!(!tree.known.contains_key(&child.id()), "it has ended");
    }

    #[test]
    fn a_process_that_is_not_there_is_named() {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let error = Scope::Tree(child.id()).check().unwrap_err().to_string();
        assert!(error.contains(&child.id().to_string()), "{error}");
        Scope::Tree(process::id()).check().unwrap();
    }
}
