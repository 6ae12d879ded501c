//! Paths of cgroups by their IDs: a process that is gone has no other trace of where it was.

use std::{
    collections::{HashMap, HashSet},
    fs, mem,
    os::linux::fs::MetadataExt,
    path::Path,
    sync::Arc,
};

use crate::host::mount_point;

/// Cgroups that are looked at, and IDs that are remembered.
const MAX_CGROUPS: usize = 16_384;
/// The least time from the start of a walk to the next one, and how many times that of the walk it is: 1 % of a core.
const PAUSE_NS: u64 = 1_000_000_000;
const PAUSE_PER_COST: u64 = 100;

/// Paths of the hierarchy of version 2, as /proc/PID/cgroup shows them, also of cgroups that are gone by now.
#[derive(Debug, Default)]
pub(super) struct Cgroups {
    /// `None` of those that had gone before they were looked for: an ID is not given again.
    paths: HashMap<u64, Option<Arc<str>>>,
    unknown: HashSet<u64>,
    /// When the next walk may begin. `None` before the first one.
    due_ns: Option<u64>,
}

impl Cgroups {
    /// Returns the path of a cgroup. One that is not known is found by the next walk.
    pub fn path(&mut self, id: u64) -> Option<Arc<str>> {
        if let Some(path) = self.paths.get(&id) {
            return path.clone();
        }
        if self.unknown.len() < MAX_CGROUPS {
            self.unknown.insert(id);
        }
        None
    }

    /// Begins a walk, if one is due: the first one, or one for cgroups that are not known, which are returned.
    pub fn begin_walk(&mut self, now_ns: u64) -> Option<HashSet<u64>> {
        let is_due = self.due_ns.is_none_or(|due_ns| now_ns >= due_ns && !self.unknown.is_empty());
        is_due.then(|| mem::take(&mut self.unknown))
    }

    /// Learns what a walk has found. Of those that it `sought`, the others are gone. Takes when it began, and the CPU time that
    /// it took.
    pub fn end_walk(&mut self, sought: &HashSet<u64>, found: HashMap<u64, Arc<str>>, (begun_ns, cost_ns): (u64, u64)) {
        if self.paths.len() > 2 * MAX_CGROUPS {
            self.paths.clear();
        }
        self.paths.extend(sought.iter().map(|id| (*id, None)));
        self.paths.extend(found.into_iter().map(|(id, path)| (id, Some(path))));
        self.due_ns = Some(begun_ns + PAUSE_NS.max(cost_ns * PAUSE_PER_COST));
    }
}

/// Finds the cgroups that are there now. Takes some 20 µs for each.
pub(super) fn walk() -> HashMap<u64, Arc<str>> {
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
    mount_point(&mounts, "cgroup2").map_or_else(HashMap::new, |root| below(&root))
}

fn below(root: &Path) -> HashMap<u64, Arc<str>> {
    let (mut found, mut folders) = (HashMap::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop().filter(|_| found.len() < MAX_CGROUPS) {
        // The ID of a cgroup is the inode number of its directory.
        if let (Ok(metadata), Ok(path)) = (folder.metadata(), folder.strip_prefix(root)) {
            found.insert(metadata.st_ino(), format!("/{}", path.display()).into());
        }
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let inner = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.extend(inner.map(|entry| entry.path()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_keep_their_path_when_they_are_gone_and_those_that_no_walk_finds_are_not_sought_again() {
        let root = tempfile::tempdir().unwrap();
        let service = root.path().join("system.slice/web.service");
        fs::create_dir_all(&service).unwrap();
        let (id, gone) = (service.metadata().unwrap().st_ino(), u64::MAX);
        let mut cgroups = Cgroups::default();
        assert_eq!((cgroups.path(id), cgroups.path(gone)), (None, None));
        let sought = cgroups.begin_walk(0).unwrap();
        let found = below(root.path());
        // It comes while the walk goes on, which does not see it.
        let late = root.path().join("system.slice/late.service");
        fs::create_dir(&late).unwrap();
        let late_id = late.metadata().unwrap().st_ino();
        assert_eq!(cgroups.path(late_id), None);
        cgroups.end_walk(&sought, found, (0, 20_000_000));
        fs::remove_dir(&service).unwrap();
        assert_eq!(cgroups.begin_walk(1_999_999_999), None, "the walk took 20 ms");
        let sought = cgroups.begin_walk(2_000_000_000).unwrap();
        assert_eq!(sought, [late_id].into());
        cgroups.end_walk(&sought, below(root.path()), (2_000_000_000, 0));
        assert_eq!(cgroups.path(id).as_deref(), Some("/system.slice/web.service"));
        assert_eq!(cgroups.path(late_id).as_deref(), Some("/system.slice/late.service"));
        assert_eq!(cgroups.path(gone), None);
        assert_eq!(cgroups.begin_walk(u64::MAX), None, "nothing is unknown");
    }
}
