//! Names of network namespaces, for people.

use std::{collections::HashMap, fs, os::linux::fs::MetadataExt, path::Path};

/// Where `ip netns` keeps the names of namespaces.
const NAMED: &str = "/run/netns";

/// A cache of names of network namespaces by their inode numbers.
#[derive(Debug, Default)]
pub struct NamespaceNames(HashMap<u32, String>);

impl NamespaceNames {
    /// Forgets all names. The kernel reuses the numbers of namespaces that are gone, so this is due now and then.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The name that `ip netns` gave a namespace, or else the first process in it, as in "nginx(1234)", which mostly is
    /// the container's; or else its number, as in "netns:4026531840".
    pub fn name(&mut self, number: u32) -> &str {
        let find = || named(number).or_else(|| process_in(number)).unwrap_or_else(|| format!("netns:{number}"));
        self.0.entry(number).or_insert_with(find)
    }
}

/// The name that `ip netns` gave a namespace.
pub(crate) fn named(number: u32) -> Option<String> {
    let names = fs::read_dir(NAMED).ok()?;
    let mut names = names.filter_map(Result::ok);
    let found = names.find(|name| is_namespace(&name.path(), number))?;
    Some(found.file_name().to_string_lossy().into_owned())
}

fn process_in(number: u32) -> Option<String> {
    let processes = fs::read_dir("/proc").ok()?;
    let pids = processes.filter_map(|process| {
        let name = process.ok()?.file_name();
        name.to_str()?.parse::<u32>().ok()
    });
    let pid = pids.filter(|pid| is_namespace(Path::new(&format!("/proc/{pid}/ns/net")), number)).min()?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(format!("{}({pid})", name.trim()))
}

fn is_namespace(path: &Path, number: u32) -> bool {
    path.metadata().is_ok_and(|namespace| namespace.st_ino() == u64::from(number))
}
