//! Paths of cgroups by their IDs: a process that is gone has no other trace of where it was.

use std::{
    collections::{HashMap, HashSet},
    fs,
    os::linux::fs::MetadataExt,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::host::mount_point;

/// Cgroups that are looked at, and IDs that are remembered.
const MAX_CGROUPS: usize = 16_384;
/// The least time between two walks.
const PAUSE: Duration = Duration::from_secs(1);

/// Paths of the hierarchy of version 2, as /proc/PID/cgroup shows them, also of cgroups that are gone by now.
#[derive(Debug, Default)]
pub(super) struct Cgroups {
    /// `None` of those that had gone before they were looked for: an ID is not given again.
    paths: HashMap<u64, Option<Arc<str>>>,
    unknown: HashSet<u64>,
    walked: Option<Instant>,
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

    /// Whether a walk is due: the first one, or one for cgroups that are not known.
    pub fn is_due(&mut self) -> bool {
        let is_due = match self.walked {
            Some(walked) => !self.unknown.is_empty() && walked.elapsed() >= PAUSE,
            None => true,
        };
        if is_due {
            self.walked = Some(Instant::now());
        }
        is_due
    }

    /// Learns what a walk has found.
    pub fn learn(&mut self, found: HashMap<u64, Arc<str>>) {
        if self.paths.len() > 2 * MAX_CGROUPS {
            self.paths.clear();
        }
        self.paths.extend(self.unknown.drain().map(|id| (id, None)));
        self.paths.extend(found.into_iter().map(|(id, path)| (id, Some(path))));
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
    fn a_cgroup_that_is_gone_keeps_its_path_and_one_that_was_never_seen_is_not_looked_for_again() {
        let root = tempfile::tempdir().unwrap();
        let service = root.path().join("system.slice/web.service");
        fs::create_dir_all(&service).unwrap();
        let (id, gone) = (service.metadata().unwrap().st_ino(), u64::MAX);
        let mut cgroups = Cgroups::default();
        assert!(cgroups.is_due() && !cgroups.is_due());
        assert_eq!((cgroups.path(id), cgroups.path(gone)), (None, None));
        cgroups.learn(below(root.path()));
        fs::remove_dir(&service).unwrap();
        cgroups.learn(below(root.path()));
        assert_eq!(cgroups.path(id).as_deref(), Some("/system.slice/web.service"));
        assert_eq!(cgroups.path(gone), None);
        assert!(cgroups.unknown.is_empty());
    }
}
