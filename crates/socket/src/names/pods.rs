//! Names of pods of Kubernetes, by the folders and links for logs that the kubelet makes on its node: no API server is asked.
//!
//! A pod has a folder `pods/NAMESPACE_NAME_UID` with a folder per container
//! (<https://kubernetes.io/docs/concepts/cluster-administration/logging/>), and each container of it a link
//! `containers/NAME_NAMESPACE_CONTAINER-ID.log` (`BuildPodLogsDirectory` and `logSymlink` of the kubelet's package
//! kuberuntime). None of these names has an underscore in it. Where a link would be longer than 255 bytes, the end of the ID is
//! missing, and the container has no name.

use std::{
    collections::HashMap,
    fs::{self, DirEntry},
    path::{Path, PathBuf},
    sync::Arc,
};

use dwell_engine::names::{Pod, PodName};

use super::unit::{PodMember, container_id, is_uid};

/// Where the folders are.
const LOGS: &str = "/var/log";
/// Entries of a folder that are read: a node has some hundreds of pods at most.
const MAX_ENTRIES: usize = 16_384;
/// The least time between two reads of the folders.
const PAUSE_NS: u64 = 5_000_000_000;
/// The longest name of Kubernetes.
const LONGEST: usize = 253;

/// The pods of this host that the folders name.
#[derive(Debug)]
pub struct Pods {
    logs: PathBuf,
    /// By UID.
    pods: HashMap<String, PodName>,
    /// The names of containers, with those of their pods, by ID.
    containers: HashMap<String, (PodName, Arc<str>)>,
    /// The containers of pods that have no other one, by the UID of the pod; `None` if it has several.
    only: HashMap<String, Option<Arc<str>>>,
    read_ns: Option<u64>,
}

impl Default for Pods {
    fn default() -> Pods {
        Pods::below(Path::new(LOGS))
    }
}

impl Pods {
    fn below(logs: &Path) -> Pods {
        let (pods, containers, only) = Default::default();
        Pods { logs: logs.to_owned(), pods, containers, only, read_ns: None }
    }

    /// Returns the UIDs of the pods that are called `NAME` or `NAMESPACE/NAME`, of all that have had logs on the host whose root
    /// is `root`.
    pub fn uids(root: &Path, name: &str) -> Vec<String> {
        let mut pods = Pods::below(&root.join(LOGS.trim_start_matches('/')));
        pods.read();
        let is_wanted = |pod: &PodName| match name.split_once('/') {
            Some((namespace, name)) => *pod.namespace == *namespace && *pod.name == *name,
            None => *pod.name == *name,
        };
        pods.pods.into_iter().filter(|(_, pod)| is_wanted(pod)).map(|(uid, _)| uid).collect()
    }

    /// Returns the pod and the container of a process. Their names are `None` where the folders do not have them.
    pub(super) fn name(&mut self, member: &PodMember, now_ns: u64) -> Pod {
        let is_due = self.read_ns.is_none_or(|read_ns| now_ns.saturating_sub(read_ns) > PAUSE_NS);
        if is_due && !self.knows(member) {
            self.read();
            self.read_ns = Some(now_ns);
        }
        let linked = member.container_id.as_ref().and_then(|id| self.containers.get(id));
        let name = linked.map(|(pod, _)| pod).or_else(|| self.pods.get(&member.uid)).cloned();
        let container = match (linked, &name) {
            (Some((_, container)), _) => Some(Arc::clone(container)),
            (None, Some(name)) => self.only_container(member, name),
            (None, None) => None,
        };
        Pod { uid: member.uid.as_str().into(), name, container }
    }

    fn knows(&self, member: &PodMember) -> bool {
        match &member.container_id {
            Some(id) => self.containers.contains_key(id),
            None => self.pods.contains_key(&member.uid),
        }
    }

    fn read(&mut self) {
        self.only.clear();
        self.pods = entries(&self.logs.join("pods")).filter_map(|entry| of_folder(&name(&entry)?)).collect();
        self.containers = entries(&self.logs.join("containers")).filter_map(|entry| of_link(&name(&entry)?)).collect();
    }

    /// Returns the container of a pod that has no other one: links to logs are not everywhere.
    fn only_container(&mut self, member: &PodMember, PodName { namespace, name }: &PodName) -> Option<Arc<str>> {
        member.container_id.as_ref()?;
        if let Some(known) = self.only.get(&member.uid) {
            return known.clone();
        }
        let folder = self.logs.join("pods").join(format!("{namespace}_{name}_{}", member.uid));
        let mut containers = entries(&folder).filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let only = containers.next().filter(|_| containers.next().is_none());
        let only = only.and_then(|only| only.file_name().to_str().filter(|name| is_name(name)).map(Arc::from));
        self.only.insert(member.uid.clone(), only.clone());
        only
    }
}

/// Returns what is in a folder; nothing if it cannot be read.
fn entries(folder: &Path) -> impl Iterator<Item = DirEntry> {
    fs::read_dir(folder).into_iter().flatten().take(MAX_ENTRIES).flatten()
}

fn name(entry: &DirEntry) -> Option<String> {
    entry.file_name().into_string().ok()
}

/// Reads `NAMESPACE_NAME_UID`.
fn of_folder(folder: &str) -> Option<(String, PodName)> {
    let (pod, uid) = folder.rsplit_once('_')?;
    let (namespace, name) = pod.split_once('_')?;
    Some((uid.to_owned(), pod_name(namespace, name)?)).filter(|_| is_uid(uid))
}

/// Reads `NAME_NAMESPACE_CONTAINER-ID.log`.
fn of_link(link: &str) -> Option<(String, (PodName, Arc<str>))> {
    let link = link.strip_suffix(".log")?;
    let id = container_id(link)?;
    let [name, namespace, container] = <[&str; 3]>::try_from(link.split('_').collect::<Vec<_>>()).ok()?;
    let container = container.strip_suffix(id)?.strip_suffix('-').filter(|name| is_name(name))?;
    Some((id.to_owned(), (pod_name(namespace, name)?, container.into())))
}

fn pod_name(namespace: &str, name: &str) -> Option<PodName> {
    (is_name(namespace) && is_name(name)).then(|| PodName { namespace: namespace.into(), name: name.into() })
}

/// Returns true of what Kubernetes accepts as a name: no letter of it can harm a terminal.
fn is_name(text: &str) -> bool {
    let is_accepted = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    (1..=LONGEST).contains(&text.len()) && text.bytes().all(is_accepted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f9b3c1e-52d4-4c0a-9d7e-1a2b3c4d5e6f";

    fn id(digit: char) -> String {
        digit.to_string().repeat(64)
    }

    fn member(container: Option<char>) -> PodMember {
        PodMember { uid: UID.to_owned(), container_id: container.map(id) }
    }

    /// Folders and links as a kubelet makes them.
    fn logs(folders: &[&str], links: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for folder in ["pods", "containers"] {
            fs::create_dir_all(root.path().join("var/log").join(folder)).unwrap();
        }
        folders.iter().for_each(|name| fs::create_dir_all(root.path().join("var/log/pods").join(name)).unwrap());
        for link in links {
            let path = root.path().join("var/log/containers").join(link);
            std::os::unix::fs::symlink("/var/log/pods/some/log", path).unwrap();
        }
        root
    }

    fn shown(root: &tempfile::TempDir, member: &PodMember) -> String {
        Pods::below(&root.path().join("var/log")).name(member, 0).to_string()
    }

    #[test]
    fn a_process_has_the_names_of_its_pod_and_container() {
        let root = logs(
            &[&format!("shop_web-0_{UID}/nginx"), &format!("shop_web-0_{UID}/sidecar")],
            &[&format!("web-0_shop_nginx-{}.log", id('a')), &format!("web-0_shop_sidecar-{}.log", id('b'))],
        );
        assert_eq!(shown(&root, &member(Some('a'))), "shop/web-0/nginx");
        assert_eq!(shown(&root, &member(Some('b'))), "shop/web-0/sidecar");
        assert_eq!(shown(&root, &member(Some('c'))), "shop/web-0", "one of two containers, and not known which");
        assert_eq!(shown(&root, &member(None)), "shop/web-0");
    }

    #[test]
    fn either_folder_is_enough_for_a_pod_of_one_container_and_none_leaves_the_uid() {
        let folder = logs(&[&format!("shop_web-0_{UID}/nginx")], &[]);
        let link = logs(&[], &[&format!("web-0_shop_nginx-{}.log", id('a'))]);
        for root in [folder, link] {
            assert_eq!(shown(&root, &member(Some('a'))), "shop/web-0/nginx");
        }
        assert_eq!(shown(&logs(&[], &[]), &member(Some('a'))), UID);
        assert_eq!(shown(&tempfile::tempdir().unwrap(), &member(Some('a'))), UID);
    }

    #[test]
    fn what_no_kubelet_makes_names_nothing() {
        let root = logs(
            &[
                UID,
                &format!("shop_{UID}/c"),
                &format!("SHOP_web_{UID}/c"),
                &format!("shop_\u{1b}[2J_{UID}/c"),
                "a_b_c/d",
            ],
            &[&format!("web_shop_-{}.log", id('a')), &format!("web_nginx-{}.log", id('a')), "web_shop_nginx-aaaa.log"],
        );
        assert_eq!(shown(&root, &member(Some('a'))), UID);
    }

    #[test]
    fn folders_are_read_again_for_a_pod_that_is_new_but_not_at_once() {
        let root = logs(&[], &[]);
        let mut pods = Pods::below(&root.path().join("var/log"));
        assert_eq!(pods.name(&member(None), 0).name, None);
        fs::create_dir(root.path().join(format!("var/log/pods/shop_web-0_{UID}"))).unwrap();
        assert_eq!(pods.name(&member(None), PAUSE_NS).name, None);
        assert_eq!(pods.name(&member(None), PAUSE_NS + 1).to_string(), "shop/web-0");
    }

    #[test]
    fn the_only_container_of_a_pod_is_looked_for_once_in_a_while_and_not_for_each_process() {
        let root = logs(&[&format!("shop_web-0_{UID}/nginx")], &[]);
        let mut pods = Pods::below(&root.path().join("var/log"));
        assert_eq!(pods.name(&member(Some('a')), 0).to_string(), "shop/web-0/nginx");
        fs::create_dir(root.path().join(format!("var/log/pods/shop_web-0_{UID}/sidecar"))).unwrap();
        assert_eq!(pods.name(&member(Some('a')), PAUSE_NS).to_string(), "shop/web-0/nginx");
        assert_eq!(pods.name(&member(Some('a')), PAUSE_NS + 1).to_string(), "shop/web-0");
    }

    #[test]
    fn a_pod_is_found_by_its_name_in_one_namespace_or_in_all() {
        let other = UID.replace('0', "1");
        let root = logs(&[&format!("shop_web-0_{UID}"), &format!("blog_web-0_{other}")], &[]);
        let find = |name| Pods::uids(root.path(), name);
        assert_eq!(find("shop/web-0"), [UID]);
        assert_eq!(find("blog/web-0"), [other.as_str()]);
        assert_eq!(find("web-0").len(), 2);
        assert!(find("web").is_empty() && find("shop/").is_empty() && find("").is_empty());
    }
}
