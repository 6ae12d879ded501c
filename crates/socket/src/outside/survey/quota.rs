//! Limits of the processor time of the cgroups that a process is in, which hold up whatever runs there.

use std::{
    fs,
    path::{Path, PathBuf},
};

use dwell_engine::why::Quota;

/// Where cgroups are mounted.
const ROOT: &str = "/sys/fs/cgroup";

/// The cgroups of a process that can have a limit, from the first look on.
pub(super) struct Quotas(Vec<(PathBuf, Periods)>);

/// Periods in which something ran, and of these the ones in which all that is allowed was used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Periods {
    all: u64,
    throttled: u64,
}

impl Quotas {
    /// Finds those of a process.
    pub(super) fn of(pid: u32) -> Quotas {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        Quotas::at(Path::new(ROOT), &text)
    }

    /// Finds those of which /proc/PID/cgroup says `text`: that of the controller cpu, or that of version 2, and all above it.
    fn at(root: &Path, text: &str) -> Quotas {
        let folders = text.lines().filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, Path::new(fields.next()?.trim_start_matches('/')));
            let is_of_cpu = controllers.is_empty() || controllers.split(',').any(|name| name == "cpu");
            is_of_cpu.then(|| path.ancestors().map(|path| root.join(controllers).join(path)).collect::<Vec<_>>())
        });
        let counted = |folder: PathBuf| periods(&folder).map(|periods| (folder, periods));
        Quotas(folders.flatten().filter_map(counted).collect())
    }

    /// Returns the limit that was reached most often since; `None` if there is none, or nothing ran.
    pub(super) fn reached(&self) -> Option<Quota> {
        let reached = self.0.iter().filter_map(|(folder, before)| {
            let now = periods(folder)?;
            let all = now.all.checked_sub(before.all).filter(|all| *all > 0)?;
            let throttled = (now.throttled.saturating_sub(before.throttled) as f64 / all as f64).min(1.0);
            let limit =
                ["cpu.max", "cpu.cfs_quota_us"].map(|name| folder.join(name)).into_iter().find(|it| it.exists())?;
            let limit = limit.to_str().filter(|path| !path.contains(char::is_control))?.to_owned();
            Some(Quota { throttled, limit })
        });
        reached.max_by(|a, b| a.throttled.total_cmp(&b.throttled))
    }
}

/// Reads how often a cgroup was held up; `None` if it cannot have a limit, as the root.
fn periods(folder: &Path) -> Option<Periods> {
    let text = fs::read_to_string(folder.join("cpu.stat")).ok()?;
    let figure = |name: &str| {
        let mut figures = text.lines().filter_map(|line| line.split_once(' '));
        figures.find(|(key, _)| *key == name).and_then(|(_, value)| value.parse().ok())
    };
    Some(Periods { all: figure("nr_periods")?, throttled: figure("nr_throttled")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_is_reached_most_is_found_in_both_versions_and_above_the_process() {
        let root = std::env::temp_dir().join(format!("dwell-quota-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let file = root.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let stat = |all: u64, throttled: u64| format!("usage_usec 1\nnr_periods {all}\nnr_throttled {throttled}\n");
        for (text, parent, limit) in [
            ("0::/web/app\n", "web", "cpu.max"),
            ("4:cpu,cpuacct:/web/app\n3:memory:/web\n", "cpu,cpuacct/web", "cpu.cfs_quota_us"),
        ] {
            // As the root, which has no limit.
            write("cpu.stat", "usage_usec 1\n");
            for folder in [parent.to_owned(), format!("{parent}/app")] {
                write(&format!("{folder}/cpu.stat"), &stat(10, 1));
                write(&format!("{folder}/{limit}"), "max 100000");
            }
            let quotas = Quotas::at(&root, text);
            assert_eq!(quotas.reached(), None, "nothing ran");
            write(&format!("{parent}/cpu.stat"), &stat(30, 16));
            write(&format!("{parent}/app/cpu.stat"), &stat(30, 2));
            let reached = quotas.reached().unwrap();
            assert_eq!(reached.throttled, 0.75, "{text}");
            assert_eq!(reached.limit, root.join(parent).join(limit).display().to_string());
        }
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(Quotas::at(&root, "0::/gone\n").reached(), None);
    }
}
