//! The unit of systemd or the container that a process belongs to, by the name of its cgroup.

use std::fs;

/// The length of a container's whole ID.
const ID: usize = 64;
/// The digits of an ID that are shown, as container engines do.
const SHORT_ID: usize = 12;

/// Returns the ID of a container whose cgroup has this name: `docker-ID.scope`, `libpod-ID.scope`, `crio-ID.scope`,
/// `cri-containerd-ID.scope`, `nerdctl-ID.scope` where systemd manages cgroups, and `ID` or `libpod-ID` where it does
/// not. The monitors of Podman and CRI-O (conmon) are no containers.
pub fn container_id(folder: &str) -> Option<&str> {
    let bare = folder.strip_suffix(".scope").unwrap_or(folder);
    let (engine, id) = bare.rsplit_once('-').unwrap_or(("", bare));
    (id.len() == ID && is_id(id) && !engine.ends_with("conmon")).then_some(id)
}

/// Returns true of digits as those of a container's ID.
pub fn is_id(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Returns the innermost unit or container of a process: `nginx.service`, `session-2.scope`, or the first digits of a
/// container's ID.
pub(super) fn of_process(pid: u32) -> Option<String> {
    of_cgroups(&fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)
}

/// Interprets the cgroups of a process (cgroups(7)), those of version 2 or of systemd.
fn of_cgroups(text: &str) -> Option<String> {
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
            assert_eq!(of_cgroups(&cgroups).as_deref(), unit, "{cgroups}");
        }
    }
}
