//! Names of containers, from the files that their engines keep. Nothing that is too large or damaged is used.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

use serde_json::Value;

/// The longest file that is read.
const MAX_BYTES: u64 = 16 << 20;
/// The most containers of an engine that are looked at.
const MAX_CONTAINERS: usize = 10_000;

/// Docker's containers: a folder per ID with this file, which has the name with a slash before it.
const DOCKER: &str = "var/lib/docker/containers";
const DOCKER_FILE: &str = "config.v2.json";
/// The lists of Podman and CRI-O; below each home for users without privilege.
const STORAGE: [&str; 2] = ["var/lib/containers/storage", ".local/share/containers/storage"];
const STORAGE_FILES: [&str; 2] = ["overlay-containers/containers.json", "vfs-containers/containers.json"];
/// What containerd hands to the runtime: a folder per namespace, below it one per ID.
const CONTAINERD: &str = "run/containerd/io.containerd.runtime.v2.task";
/// Annotations that have a container's name.
const ANNOTATIONS: [&str; 3] = ["nerdctl/name", "io.kubernetes.cri.container-name", "io.kubernetes.container.name"];

/// Returns the IDs of the containers of this name, on the system whose root is `root`.
pub(super) fn ids(root: &Path, name: &str) -> Vec<String> {
    let mut ids = docker(root, name);
    let homes = folders(&root.join("home")).into_iter().chain([root.join("root")]).map(|home| home.join(STORAGE[1]));
    for storage in [root.join(STORAGE[0])].into_iter().chain(homes) {
        STORAGE_FILES.iter().for_each(|file| ids.extend(storage_ids(&storage.join(file), name)));
    }
    ids.extend(containerd(root, name));
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn docker(root: &Path, name: &str) -> Vec<String> {
    let wanted = |folder: &PathBuf| {
        read(&folder.join(DOCKER_FILE))
            .is_some_and(|file| file["Name"].as_str().is_some_and(|own| own.strip_prefix('/').unwrap_or(own) == name))
    };
    folders(&root.join(DOCKER)).iter().filter(|folder| wanted(folder)).filter_map(|folder| last(folder)).collect()
}

fn storage_ids(list: &Path, name: &str) -> Vec<String> {
    let Some(Value::Array(containers)) = read(list) else {
        return Vec::new();
    };
    let has_name = |container: &&Value| {
        container["names"].as_array().is_some_and(|names| names.iter().any(|own| own.as_str() == Some(name)))
    };
    let found = containers.iter().take(MAX_CONTAINERS).filter(has_name);
    found.filter_map(|container| container["id"].as_str().map(str::to_owned)).collect()
}

fn containerd(root: &Path, name: &str) -> Vec<String> {
    let has_name = |folder: &PathBuf| {
        read(&folder.join("config.json"))
            .is_some_and(|file| ANNOTATIONS.iter().any(|key| file["annotations"][key].as_str() == Some(name)))
    };
    let namespaces = folders(&root.join(CONTAINERD));
    let containers = namespaces.iter().flat_map(|namespace| folders(namespace));
    containers.filter(has_name).filter_map(|folder| last(&folder)).collect()
}

/// Returns the folders in a folder; none if it cannot be read.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).take(MAX_CONTAINERS).collect()
}

fn last(folder: &Path) -> Option<String> {
    folder.file_name()?.to_str().map(str::to_owned)
}

fn read(path: &Path) -> Option<Value> {
    let mut text = String::new();
    File::open(path).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn names_of_each_engine_lead_to_ids() {
        let root = root(&[
            ("var/lib/docker/containers/d0c/config.v2.json", r#"{"ID":"d0c","Name":"/web"}"#),
            (
                "var/lib/containers/storage/overlay-containers/containers.json",
                r#"[{"id":"90d","names":["db"]},{"id":"91d","names":["k8s_api_pod_ns_uid_0"]},{"id":"92d"}]"#,
            ),
            (
                "home/me/.local/share/containers/storage/overlay-containers/containers.json",
                r#"[{"id":"93d","names":["mine"]}]"#,
            ),
            (
                "run/containerd/io.containerd.runtime.v2.task/k8s.io/c0d/config.json",
                r#"{"annotations":{"io.kubernetes.cri.container-name":"api"}}"#,
            ),
            (
                "run/containerd/io.containerd.runtime.v2.task/default/ced/config.json",
                r#"{"annotations":{"nerdctl/name":"cache"}}"#,
            ),
            ("run/containerd/io.containerd.runtime.v2.task/default/bad/config.json", "{"),
        ]);
        for (name, id) in [("web", "d0c"), ("db", "90d"), ("mine", "93d"), ("api", "c0d"), ("cache", "ced")] {
            assert_eq!(ids(root.path(), name), [id], "{name}");
        }
        assert!(ids(root.path(), "nobody").is_empty() && ids(root.path(), "").is_empty());
    }
}
