//! The cgroup of a unit of systemd, of a container or of a pod of Kubernetes, found where systemd, Docker, Podman, containerd and CRI-O keep it.
//! None of them is asked: the kernel's files and their own files on disk suffice, and a hung daemon does not matter.

mod names;

use std::{
    collections::{BTreeSet, VecDeque},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Result, anyhow, bail};
use dwell_probes::host::mount_points;
use dwell_socket::names::{Pods, container_id, is_id, is_uid, pod_uid};

/// Suffixes of the names of systemd's units that have cgroups.
const UNITS: [&str; 4] = [".service", ".scope", ".slice", ".socket"];
/// cgroups that are looked at; a host has hundreds.
const MAX_CGROUPS: usize = 100_000;
/// The least number of hexadecimal digits that identify a container.
const SHORTEST_ID: usize = 6;

/// Returns true if this is the name of a unit of systemd that has a cgroup.
pub fn is_unit(name: &str) -> bool {
    UNITS.iter().any(|suffix| name.len() > suffix.len() && name.ends_with(suffix)) && !name.contains('/')
}

/// Returns the cgroup of a unit of systemd.
///
/// # Errors
///
/// If no unit of this name runs, or several users run one.
pub fn of_unit(name: &str) -> Result<PathBuf> {
    let found = find(&roots()?, |folder| folder == name);
    one(found, name)?.ok_or_else(|| {
        anyhow!(
            "no unit '{name}' runs here: no cgroup has this name; `systemctl status {name}` shows whether it exists"
        )
    })
}

/// Returns the cgroup at a path, which may begin at the root of the file system or, as in /proc/PID/cgroup, at that of
/// the hierarchy.
///
/// # Errors
///
/// If there is no cgroup.
pub fn at_path(path: &str) -> Result<PathBuf> {
    let candidates = roots()?.into_iter().map(|root| root.join(path.trim_start_matches('/')));
    let mut candidates = [PathBuf::from(path)].into_iter().chain(candidates);
    candidates.find(|path| is_cgroup(path)).ok_or_else(|| {
        anyhow!(
            "'{path}' is not a cgroup: name a directory of the cgroup hierarchy, as in \
             /sys/fs/cgroup/system.slice/nginx.service, or a path in it as /proc/PID/cgroup shows it"
        )
    })
}

/// Returns the cgroup of a container by its name, or by its ID or the first digits of it. `None` if there is none, or no
/// cgroups are there at all.
///
/// # Errors
///
/// If several containers have this name or these first digits.
pub fn of_container(name: &str) -> Result<Option<PathBuf>> {
    let Ok(roots) = roots() else {
        return Ok(None);
    };
    of_container_below(&roots, Path::new("/"), name)
}

/// Finds a container in the hierarchies at `roots`, with the files of container engines below `system`.
fn of_container_below(roots: &[PathBuf], system: &Path, name: &str) -> Result<Option<PathBuf>> {
    let mut ids = names::ids(system, name);
    if is_id(name) && name.len() >= SHORTEST_ID {
        ids.push(name.to_owned());
    }
    let is_wanted = |folder: &str| {
        is_machine(folder, name)
            || container_id(folder).is_some_and(|id| ids.iter().any(|wanted| id.starts_with(wanted.as_str())))
    };
    one(find(roots, is_wanted), name)
}

/// Returns the cgroups of a pod of Kubernetes by its name, `NAME` or `NAMESPACE/NAME`, or by its UID: one with those of all of its
/// containers below it; where the kubelet lets systemd manage cgroups and containerd does not, one of each container, and maybe an
/// empty one. None if there is no such pod.
///
/// # Errors
///
/// If several pods have this name, as in several namespaces.
pub fn of_pod(name: &str) -> Result<Vec<PathBuf>> {
    let Ok(roots) = roots() else {
        return Ok(Vec::new());
    };
    of_pod_below(&roots, Path::new("/"), name)
}

/// Finds a pod in the hierarchies at `roots`, with the kubelet's files below `system`.
fn of_pod_below(roots: &[PathBuf], system: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let uids = if is_uid(name) { vec![name.to_owned()] } else { Pods::uids(system, name) };
    if uids.is_empty() {
        return Ok(Vec::new());
    }
    let found = find(roots, |folder| pod_uid(folder).is_some_and(|uid| uids.contains(&uid)));
    let pods: BTreeSet<_> = found.iter().filter_map(|path| pod_uid(path.file_name()?.to_str()?)).collect();
    match pods.len() {
        0 | 1 => Ok(found),
        _ => Ok(one(found, name)?.into_iter().collect()),
    }
}

/// Returns the only cgroup that was found; `None` if none was.
fn one(mut found: Vec<PathBuf>, name: &str) -> Result<Option<PathBuf>> {
    match found.len() {
        0 | 1 => Ok(found.pop()),
        count => {
            let shown: Vec<_> = found.iter().take(4).map(|path| path.display().to_string()).collect();
            bail!("'{name}' is the name of {count} cgroups; name one of them: {}", shown.join(", "))
        }
    }
}

/// Whether this is the cgroup of a machine of this name: systemd-nspawn and LXC name cgroups by it.
fn is_machine(folder: &str, name: &str) -> bool {
    let escaped = name.replace('-', "\\x2d");
    [
        format!("lxc.payload.{name}"),
        format!("systemd-nspawn@{name}.service"),
        format!("machine-{escaped}.scope"),
        format!("machine-lxc\\x2d{escaped}.scope"),
    ]
    .iter()
    .any(|own| own == folder)
}

/// Returns the topmost cgroups with a wanted name, of the first hierarchy that has any.
fn find(roots: &[PathBuf], is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    for root in roots {
        let mut found = Vec::new();
        let mut folders = VecDeque::from([root.clone()]);
        let mut looked_at = 0;
        while let Some(folder) = folders.pop_front() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                if !entry.file_type().is_ok_and(|kind| kind.is_dir()) || looked_at >= MAX_CGROUPS {
                    continue;
                }
                looked_at += 1;
                match entry.file_name().to_str().is_some_and(&is_wanted) {
                    true => found.push(entry.path()),
                    false => folders.push_back(entry.path()),
                }
            }
        }
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

fn is_cgroup(path: &Path) -> bool {
    path.join("cgroup.procs").exists()
}

/// Returns where the hierarchies of cgroups are mounted, that of version 2 first.
fn roots() -> Result<Vec<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let roots = roots_in(&mounts);
    match roots.is_empty() {
        true => bail!("no hierarchy of cgroups is mounted here; name a process ID, HOST:PORT or :PORT instead"),
        false => Ok(roots),
    }
}

/// Interprets a list of mounts.
fn roots_in(mounts: &str) -> Vec<PathBuf> {
    ["cgroup2", "cgroup"].into_iter().flat_map(|kind| mount_points(mounts, kind)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const DB: &str = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";

    fn hierarchy(folders: &[String]) -> (tempfile::TempDir, Vec<PathBuf>) {
        let root = tempfile::tempdir().unwrap();
        for folder in folders {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let roots = vec![root.path().to_owned()];
        (root, roots)
    }

    #[test]
    fn containers_are_found_in_the_layout_of_each_engine() {
        let pod = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234.slice";
        for folder in [
            format!("system.slice/docker-{WEB}.scope"),
            format!("docker/{WEB}"),
            format!("machine.slice/libpod-{WEB}.scope"),
            format!("user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{WEB}.scope"),
            format!("libpod_parent/libpod-{WEB}"),
            format!("{pod}/cri-containerd-{WEB}.scope"),
            format!("{pod}/crio-{WEB}.scope"),
            format!("kubepods/burstable/pod1234/{WEB}"),
            format!("system.slice/nerdctl-{WEB}.scope"),
        ] {
            let others =
                [format!("{folder}/container"), format!("libpod-conmon-{WEB}.scope"), format!("docker-{DB}.scope")];
            let (root, roots) = hierarchy(&others);
            let find = |name| of_container_below(&roots, root.path(), name).unwrap();
            assert_eq!(find(WEB), Some(root.path().join(&folder)), "{folder}");
            assert_eq!(find(&WEB[..12]), Some(root.path().join(&folder)), "{folder}");
            assert_eq!((find("0123"), find("web"), find(&"a".repeat(64))), (None, None, None));
        }
    }

    #[test]
    fn the_same_first_digits_twice_are_refused_with_both() {
        let other = WEB.replace("ef0123456789abcdef0123456789abcdef01", "ef0123456789abcdef0123456789abcdef02");
        let (root, roots) = hierarchy(&[format!("docker/{WEB}"), format!("docker/{other}")]);
        let error = of_container_below(&roots, root.path(), "012345").unwrap_err().to_string();
        assert!(error.contains(WEB) && error.contains(&other), "{error}");
    }

    #[test]
    fn machines_are_found_by_their_names() {
        for folder in [
            "machine.slice/machine-my\\x2dbox.scope",
            "lxc.payload.my-box",
            "machine.slice/systemd-nspawn@my-box.service",
        ] {
            let (root, roots) = hierarchy(&[folder.to_owned()]);
            assert_eq!(of_container_below(&roots, root.path(), "my-box").unwrap(), Some(root.path().join(folder)));
        }
    }

    #[test]
    fn a_pod_is_found_by_its_name_or_uid_with_either_driver() {
        const UID: &str = "0f9b3c1e-52d4-4c0a-9d7e-1a2b3c4d5e6f";
        let slice = format!("kubepods-burstable-pod{}.slice", UID.replace('-', "_"));
        for folder in
            [format!("kubepods/burstable/pod{UID}"), format!("kubepods.slice/kubepods-burstable.slice/{slice}")]
        {
            let (root, roots) = hierarchy(&[format!("{folder}/cri-containerd-{WEB}.scope"), format!("docker/{DB}")]);
            let logs = |pod: &str| fs::create_dir_all(root.path().join("var/log/pods").join(pod)).unwrap();
            let find = |name| of_pod_below(&roots, root.path(), name).unwrap();
            assert_eq!(find("shop/web-0"), [""; 0].map(PathBuf::from));
            logs(&format!("shop_web-0_{UID}"));
            // Its logs outlive a pod.
            logs("shop_old-0_8f6a44fc62e8cb075753c843896568ca");
            let found = vec![root.path().join(&folder)];
            assert_eq!((find("shop/web-0"), find("web-0"), find(UID)), (found.clone(), found.clone(), found));
            assert!(["old-0", "blog/web-0", "shop"].into_iter().all(|name| find(name).is_empty()));
        }
    }

    #[test]
    fn the_same_pod_in_two_namespaces_is_refused_with_both() {
        let uids = ["8f6a44fc62e8cb075753c843896568ca", "9f6a44fc62e8cb075753c843896568ca"];
        let (root, roots) = hierarchy(&uids.map(|uid| format!("kubepods/pod{uid}")));
        for (namespace, uid) in ["blog", "shop"].iter().zip(uids) {
            fs::create_dir_all(root.path().join(format!("var/log/pods/{namespace}_web-0_{uid}"))).unwrap();
        }
        let error = of_pod_below(&roots, root.path(), "web-0").unwrap_err().to_string();
        assert!(uids.iter().all(|uid| error.contains(uid)), "{error}");
        assert_eq!(of_pod_below(&roots, root.path(), "shop/web-0").unwrap().len(), 1);
    }

    #[test]
    fn a_pod_whose_containers_have_cgroups_beside_its_own_has_them_all() {
        let uids = ["8f6a44fc62e8cb075753c843896568ca", "9f6a44fc62e8cb075753c843896568ca"];
        let folders = |uid: &str| {
            let slice = format!("kubepods-pod{uid}.slice");
            [WEB, DB]
                .map(|id| format!("{slice}:cri-containerd:{id}"))
                .into_iter()
                .chain([format!("kubepods.slice/{slice}")])
        };
        let (root, roots) = hierarchy(&uids.into_iter().flat_map(folders).collect::<Vec<_>>());
        let mut found = of_pod_below(&roots, root.path(), uids[0]).unwrap();
        found.sort_unstable();
        assert_eq!(found, folders(uids[0]).map(|folder| root.path().join(folder)).collect::<Vec<_>>());
        // Two pods of one name are still two.
        for (namespace, uid) in ["blog", "shop"].iter().zip(uids) {
            fs::create_dir_all(root.path().join(format!("var/log/pods/{namespace}_web-0_{uid}"))).unwrap();
        }
        let error = of_pod_below(&roots, root.path(), "web-0").unwrap_err().to_string();
        assert!(uids.iter().all(|uid| error.contains(uid)), "{error}");
    }

    #[test]
    fn a_unit_is_known_by_its_suffix() {
        for name in ["nginx.service", "session-2.scope", "system.slice"] {
            assert!(is_unit(name), "{name}");
        }
        for name in ["nginx", ".service", "a/b.service", "example.org"] {
            assert!(!is_unit(name), "{name}");
        }
    }

    #[test]
    fn version_2_is_searched_first() {
        let mounts = "24 30 0:22 / /sys/fs/cgroup/pids rw shared:5 - cgroup cgroup rw,pids\n\
                      25 30 0:23 / /sys/fs/cgroup/unified rw,relatime shared:6 - cgroup2 cgroup2 rw\n\
                      26 30 0:24 / /sys rw - sysfs sysfs rw\n";
        assert_eq!(roots_in(mounts), ["/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids"].map(PathBuf::from));
    }
}
