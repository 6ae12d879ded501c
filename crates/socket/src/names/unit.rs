//! The unit of systemd, the container and the pod of Kubernetes that a process belongs to, by the names of its cgroups.

use std::fs;

use dwell_engine::labels::harmless;

/// The length of a container's whole ID.
const ID: usize = 64;
/// The digits of an ID that are shown, as container engines do.
const SHORT_ID: usize = 12;

/// Returns the ID of a container whose cgroup has this name: `docker-ID.scope`, `libpod-ID.scope`, `crio-ID.scope`,
/// `cri-containerd-ID.scope`, `nerdctl-ID.scope` where systemd manages cgroups, and `ID` or `libpod-ID` where it does
/// not. Where the kubelet lets systemd manage them and containerd does not, it is `SLICE:cri-containerd:ID`. The monitors
/// of Podman and CRI-O (conmon) are no containers.
pub fn container_id(folder: &str) -> Option<&str> {
    let bare = folder.strip_suffix(".scope").unwrap_or(folder);
    let (engine, id) = bare.rsplit_once(['-', ':']).unwrap_or(("", bare));
    (id.len() == ID && is_id(id) && !engine.ends_with("conmon")).then_some(id)
}

/// Returns true of digits as those of a container's ID.
pub fn is_id(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Returns the UID of a pod of Kubernetes whose cgroup has this name: `podUID`, or `kubepods-burstable-podUID.slice` with
/// underscores in the UID where systemd manages cgroups. A UID is a UUID, or the MD5 sum of a static pod's manifest.
pub fn pod_uid(folder: &str) -> Option<String> {
    let slice = folder.split(':').next().unwrap_or(folder);
    let uid = match slice.strip_suffix(".slice") {
        Some(bare) => bare.rsplit_once("-pod").map(|(_, uid)| uid.replace('_', "-")),
        None => slice.strip_prefix("pod").map(str::to_owned),
    };
    uid.filter(|uid| is_uid(uid))
}

/// Returns true of a pod's UID.
pub fn is_uid(text: &str) -> bool {
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    matches!(lengths[..], [8, 4, 4, 4, 12] | [32]) && text.split('-').all(is_id)
}

/// What the cgroups of a process say of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Membership {
    /// The innermost unit or container: `nginx.service`, `session-2.scope`, or the first digits of a container's ID.
    pub(super) unit: Option<String>,
    pub(super) pod: Option<PodMember>,
}

/// A pod, and the container in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodMember {
    pub(super) uid: String,
    pub(super) container_id: Option<String>,
}

impl Membership {
    /// Reads the cgroups of a process.
    pub(super) fn of(pid: u32) -> Membership {
        Membership::parse(&fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default())
    }

    /// Interprets a list of cgroups (cgroups(7)).
    pub(super) fn parse(cgroups: &str) -> Membership {
        // Whoever may make a cgroup chooses its name.
        Membership { unit: unit(cgroups).map(|unit| harmless(&unit)), pod: pod(cgroups) }
    }
}

/// Finds a pod in the cgroups of a process, in whatever hierarchy: that of systemd is missing where nothing mounts it.
/// The outermost pod counts, and the outermost container in it: whoever may make cgroups below a pod's chooses neither.
fn pod(text: &str) -> Option<PodMember> {
    text.lines().find_map(|line| {
        let mut folders = line.splitn(3, ':').nth(2)?.split('/');
        let (uid, folder) = folders.find_map(|folder| Some((pod_uid(folder)?, folder)))?;
        let container_id = [folder].into_iter().chain(folders).find_map(container_id).map(str::to_owned);
        Some(PodMember { uid, container_id })
    })
}

/// Finds the unit in the cgroups of a process (cgroups(7)), those of version 2 or of systemd.
fn unit(text: &str) -> Option<String> {
    let paths = text.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        (controllers.is_empty() || controllers == "name=systemd").then_some(path)
    });
    paths.flat_map(|path| path.rsplit('/')).find_map(|folder| match container_id(folder) {
        Some(id) => Some(id[..SHORT_ID].to_owned()),
        None => [".service", ".scope"].iter().any(|suffix| folder.ends_with(suffix)).then(|| folder.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_unit_or_container_is_found() {
        let id = "0123456789abcdef".repeat(4);
        for (cgroups, unit) in [
            ("0::/system.slice/nginx.service\n".to_owned(), Some("nginx.service")),
            ("0::/system.slice/nginx.service/worker\n".to_owned(), Some("nginx.service")),
            (format!("0::/system.slice/docker-{id}.scope/app\n"), Some("0123456789ab")),
            (format!("0::/kubepods.slice/pod1/cri-containerd-{id}.scope\n"), Some("0123456789ab")),
            ("2:cpu:/x.service\n1:name=systemd:/user.slice/session-2.scope\n".to_owned(), Some("session-2.scope")),
            ("0::/\n".to_owned(), None),
            ("damaged".to_owned(), None),
        ] {
            assert_eq!(super::unit(&cgroups).as_deref(), unit, "{cgroups}");
        }
    }

    #[test]
    fn a_pod_is_found_in_the_layout_of_each_runtime_and_driver() {
        const UID: &str = "0f9b3c1e-52d4-4c0a-9d7e-1a2b3c4d5e6f";
        const STATIC: &str = "8f6a44fc62e8cb075753c843896568ca";
        let id = "0123456789abcdef".repeat(4);
        let slice = format!("kubepods-burstable-pod{}.slice", UID.replace('-', "_"));
        let burstable = format!("/kubepods.slice/kubepods-burstable.slice/{slice}");
        for (cgroups, uid) in [
            (format!("0::/kubepods/burstable/pod{UID}/{id}\n"), UID),
            (format!("0::/kubepods/pod{UID}/{id}/app\n"), UID),
            (format!("12:pids:/kubepods/besteffort/pod{STATIC}/{id}\n0::/system.slice/x.service\n"), STATIC),
            (format!("5:cpu:/\n1:name=systemd:/kubepods/pod{UID}/{id}\n"), UID),
            (format!("0::{burstable}/cri-containerd-{id}.scope\n"), UID),
            (format!("0::{burstable}/crio-{id}.scope/container\n"), UID),
            (format!("1:name=systemd:{burstable}/docker-{id}.scope\n"), UID),
            (format!("0::/kubepods.slice/kubepods-pod{STATIC}.slice/cri-containerd-{id}.scope\n"), STATIC),
            (format!("0::/kubelet.slice/kubelet-kubepods.slice/kubelet-{slice}/cri-containerd-{id}.scope\n"), UID),
            (format!("0::/system.slice/containerd.service/{slice}:cri-containerd:{id}\n"), UID),
            // A process may make cgroups below its own.
            (format!("0::{burstable}/cri-containerd-{id}.scope/pod{STATIC}/{}\n", "f".repeat(64)), UID),
            // As a process in a pod sees others.
            (format!("0::/../../pod{UID}/{id}\n"), UID),
        ] {
            let member = PodMember { uid: uid.to_owned(), container_id: Some(id.clone()) };
            assert_eq!(pod(&cgroups), Some(member), "{cgroups}");
        }
        let bare = PodMember { uid: UID.to_owned(), container_id: None };
        assert_eq!(pod(&format!("0::{burstable}/crio-conmon-{id}.scope\n")), Some(bare));
        for other in [
            format!("0::/system.slice/docker-{id}.scope\n"),
            format!("0::/machine.slice/machine-libpod_pod_{id}.slice/libpod-{id}.scope\n"),
            format!("0::/podium/{id}\n"),
            "damaged".to_owned(),
        ] {
            assert_eq!(pod(&other), None, "{other}");
        }
    }
}
