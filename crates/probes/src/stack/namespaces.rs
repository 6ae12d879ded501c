//! Names of network namespaces, for people.

use std::{collections::HashMap, fs, os::linux::fs::MetadataExt, path::Path};

/// Where `ip netns` keeps the names of namespaces.
const NAMED: &str = "/run/netns";

/// A cache of names of network namespaces by their inode numbers.
#[derive(Debug, Default)]
pub struct NamespaceNames {
    names: HashMap<u32, String>,
    /// The first process of each namespace, once one was looked for.
    processes: Option<HashMap<u32, u32>>,
}

impl NamespaceNames {
    /// Forgets all names. The kernel reuses the numbers of namespaces that are gone, so this is due now and then.
    pub fn clear(&mut self) {
        *self = NamespaceNames::default();
    }

    /// The name that `ip netns` gave a namespace, or else the first process in it, as in "nginx(1234)", which mostly is
    /// the container's; or else its number, as in "netns:4026531840".
    pub fn name(&mut self, number: u32) -> &str {
        let processes = &mut self.processes;
        let find = || {
            let process = || process_name(*processes.get_or_insert_with(first_processes).get(&number)?);
            named(number).or_else(process).unwrap_or_else(|| format!("netns:{number}"))
        };
        self.names.entry(number).or_insert_with(find)
    }
}

/// The name that `ip netns` gave a namespace.
pub(crate) fn named(number: u32) -> Option<String> {
    let names = fs::read_dir(NAMED).ok()?;
    let mut names = names.filter_map(Result::ok);
    let found = names.find(|name| number_of(&name.path()) == Some(number))?;
    Some(found.file_name().to_string_lossy().into_owned())
}

/// The process with the least number in each namespace.
fn first_processes() -> HashMap<u32, u32> {
    let mut first = HashMap::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|process| process.file_name().to_str()?.parse::<u32>().ok());
    for pid in pids {
        if let Some(number) = number_of(Path::new(&format!("/proc/{pid}/ns/net"))) {
            let known = first.entry(number).or_insert(pid);
            *known = pid.min(*known);
        }
    }
    first
}

fn process_name(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(format!("{}({pid})", name.trim()))
}

fn number_of(path: &Path) -> Option<u32> {
    path.metadata().ok()?.st_ino().try_into().ok()
}
