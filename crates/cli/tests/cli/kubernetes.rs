//! The manifests of `dist/kubernetes`: they are what the chart makes, the API server's types know them, and the settings of
//! their pods are enough for dwell.

use std::{
    fs,
    net::TcpStream,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Command,
};

use dwell_testbed::{Namespace, pages::root, skip};
use saphyr::{LoadableYamlNode, Yaml};
use serde_json::json;

use crate::{
    fleet::patiently,
    metrics::get_here,
    support::{DWELL, Pair, Process, Run, dwell, ip, run, skipped, spawn},
};

/// Address, name and interface of the node, as the API server and the values of the chart give them.
const NODE_IP: &str = "10.78.0.1";
const NODE_NAME: &str = "node-1";
const INTERFACE: &str = "eth0";
/// Files that kustomize and `kubectl apply` take, below `dist/kubernetes`.
const MANIFESTS: [&str; 4] = ["base/namespace.yaml", "base/dwell.yaml", "fleet/fleet.yaml", "podmonitor/monitor.yaml"];

/// Decodes manifests as the API server does, and prints their kinds.
const VALIDATE: &str = "kubernetes-validate";

fn folder() -> PathBuf {
    root().join("dist/kubernetes")
}

/// Returns whether a program is missing that `tests/kubernetes/setup` builds. `make test` does not, as that takes minutes.
fn lacks(program: &str) -> bool {
    let is_there = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap().status.success();
    if !is_there {
        skip::skip(format!("there is no {program}, which tests/kubernetes/setup builds"));
    }
    !is_there
}

#[test]
fn the_manifests_of_kustomize_are_those_of_the_chart() {
    if lacks("helm") {
        return;
    }
    let written = tempfile::tempdir().unwrap();
    let rendered = run(Command::new(folder().join("render")).arg(written.path()), b"");
    assert_eq!(rendered.status, Some(0), "{rendered}");
    for manifest in &MANIFESTS[1..] {
        let [here, there] =
            [folder(), written.path().into()].map(|folder| fs::read_to_string(folder.join(manifest)).unwrap());
        assert_eq!(here, there, "{manifest}: run dist/kubernetes/render");
    }
}

#[test]
fn the_api_server_knows_each_field_of_the_manifests() {
    if lacks(VALIDATE) {
        return;
    }
    for manifest in MANIFESTS {
        let text = fs::read(folder().join(manifest)).unwrap();
        let known = run(&mut Command::new(VALIDATE), &text);
        assert_eq!(known.status, Some(0), "{manifest}: {known}");
        let misspelt = String::from_utf8(text).unwrap().replace("metadata:", "metadate:");
        let unknown = run(&mut Command::new(VALIDATE), misspelt.as_bytes());
        assert_eq!(unknown.status, Some(1), "{manifest}: {unknown}");
    }
}

#[test]
fn the_chart_has_the_version_of_dwell() {
    for file in ["chart/Chart.yaml", "base/dwell.yaml", "fleet/fleet.yaml"] {
        let text = fs::read_to_string(folder().join(file)).unwrap();
        let mut versions = text.lines().filter_map(|line| {
            let (key, value) = line.trim().split_once(": ")?;
            (matches!(key, "version" | "appVersion" | "image")).then(|| value.trim_start_matches("dwell:"))
        });
        assert!(versions.clone().count() == 2, "{file}");
        assert!(
            versions.all(|version| version == env!("CARGO_PKG_VERSION")),
            "{file}: set the version, and run render"
        );
    }
}

/// What the guide shows for kustomize builds, and so does each folder that it names.
#[test]
fn the_kustomization_of_the_guide_has_all_objects() {
    if lacks("kustomize") || lacks(VALIDATE) {
        return;
    }
    let guide = fs::read_to_string(root().join("docs/guide/kubernetes.md")).unwrap();
    let shown = guide.split("```").find_map(|block| block.strip_prefix("yaml\n")).unwrap();
    let (mine, path) = share();
    for (base, kinds) in [("base", 8), ("fleet", 11)] {
        let kustomization = shown.replace("dwell/kubernetes/base ", &format!("dwell/kubernetes/{base} "));
        fs::write(&path, kustomization).unwrap();
        let built = run(Command::new("kustomize").arg("build").arg(mine.path()), b"");
        assert_eq!(built.status, Some(0), "{built}");
        for changed in ["image: registry.example/dwell:0.1.0", "- ens5"] {
            assert!(built.stdout.contains(changed), "{built}");
        }
        let known = run(&mut Command::new(VALIDATE), built.stdout.as_bytes());
        assert_eq!((known.status, known.stdout.lines().count()), (Some(0), kinds), "{known}");
    }
}

/// Returns a copy of what the packages have in `share/dwell`, in a folder for a kustomization, and the path of that.
fn share() -> (tempfile::TempDir, PathBuf) {
    let mine = tempfile::tempdir().unwrap();
    let dist = root().join("dist");
    let share = mine.path().join("dwell");
    fs::create_dir(&share).unwrap();
    let copied =
        run(Command::new("cp").arg("-R").args(["kubernetes", "grafana"].map(|name| dist.join(name))).arg(share), b"");
    assert_eq!(copied.status, Some(0), "{copied}");
    let kustomization = mine.path().join("kustomization.yaml");
    (mine, kustomization)
}

#[test]
fn names_of_pods_take_the_processes_of_the_node_and_the_folders_of_the_kubelet_to_read() {
    if lacks("helm") || lacks("kustomize") {
        return;
    }
    let (mine, kustomization) = share();
    let text = "resources: [dwell/kubernetes/fleet]\ncomponents: [dwell/kubernetes/podnames]\n";
    fs::write(kustomization, text).unwrap();
    let by_kustomize = run(Command::new("kustomize").arg("build").arg(mine.path()), b"");
    let arguments = ["template", "dwell", "chart", "--set", "podNames.enabled=true", "--set", "agent.enabled=true"];
    let by_chart = run(Command::new("helm").args(arguments).current_dir(folder()), b"");
    for built in [by_kustomize, by_chart] {
        assert_eq!(built.status, Some(0), "{built}");
        let objects = parsed(built.stdout);
        let sets: Vec<_> = objects.iter().filter(|object| object["kind"].as_str() == Some("DaemonSet")).collect();
        assert_eq!(sets.len(), 3);
        sets.into_iter().filter_map(pod).for_each(has_names_unless_it_is_an_agent);
    }
}

fn has_names_unless_it_is_an_agent(pod: &Yaml<'static>) {
    let container = Container::read(pod, &pod["containers"].as_sequence().unwrap()[0]);
    let mut capabilities: Vec<_> = container.capabilities.iter().map(String::as_str).collect();
    capabilities.sort_unstable();
    let host_pid = pod.as_mapping_get("hostPID").and_then(Yaml::as_bool);
    if container.name == "agent" {
        assert_eq!((host_pid, &capabilities[..]), (None, &["CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"][..]));
        return;
    }
    let all = ["CAP_BPF", "CAP_DAC_READ_SEARCH", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_PERFMON", "CAP_SYS_PTRACE"];
    assert_eq!((host_pid, &capabilities[..]), (Some(true), &all[..]));
    assert_eq!(container.mounts, ["/var/log/pods", "/var/log/containers"].map(|path| (path.to_owned(), true)));
    for (volume, (path, _)) in pod["volumes"].as_sequence().unwrap().iter().zip(&container.mounts) {
        assert_eq!(volume["hostPath"]["path"].as_str(), Some(path.as_str()));
    }
}

#[test]
fn no_pod_has_a_token_or_a_right_that_dwell_does_not_need() {
    let mut objects = 0;
    for manifest in MANIFESTS {
        for object in documents(manifest) {
            objects += 1;
            let kind = object["kind"].as_str().unwrap();
            assert!(!kind.contains("Role"), "dwell asks the API server nothing");
            if let Some(pod) = pod(&object) {
                assert_eq!(pod["automountServiceAccountToken"].as_bool(), Some(false), "{manifest} {kind}");
                for pid_or_ipc in ["hostPID", "hostIPC", "shareProcessNamespace"] {
                    assert!(!pod.contains_mapping_key(pid_or_ipc), "{manifest} {kind}: {pid_or_ipc}");
                }
            }
        }
    }
    assert_eq!(objects, 8);
}

/// The bounds of one unit are those of its pod.
#[test]
fn pods_have_the_capabilities_of_their_units() {
    for (manifest, name, unit) in [
        ("base/dwell.yaml", "rtt", "dwell-rtt@.service"),
        ("base/dwell.yaml", "response", "dwell-response@.service"),
        ("fleet/fleet.yaml", "agent", "dwell-agent.service"),
        ("fleet/fleet.yaml", "collector", "dwell-collect.service"),
    ] {
        let unit = fs::read_to_string(root().join("dist/systemd").join(unit)).unwrap();
        let bounds = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
        let mut of_unit: Vec<_> = bounds.split_whitespace().map(str::to_owned).collect();
        let mut of_pod = Container::named(manifest, name).capabilities;
        of_unit.sort();
        of_pod.sort();
        assert_eq!(of_pod, of_unit, "{name}");
    }
}

fn documents(manifest: &str) -> Vec<Yaml<'static>> {
    parsed(fs::read_to_string(folder().join(manifest)).unwrap())
}

fn parsed(text: String) -> Vec<Yaml<'static>> {
    let documents = Yaml::load_from_str(text.leak()).unwrap();
    documents.into_iter().filter(|document| document.contains_mapping_key("kind")).collect()
}

fn pod<'a>(object: &'a Yaml<'static>) -> Option<&'a Yaml<'static>> {
    object.as_mapping_get("spec")?.as_mapping_get("template")?.as_mapping_get("spec")
}

/// What a manifest says of a container.
struct Container {
    name: String,
    arguments: Vec<String>,
    /// As `CAP_BPF`: those that are left when all others are dropped.
    capabilities: Vec<String>,
    user: i64,
    /// Where volumes are mounted, and whether to be read only.
    mounts: Vec<(String, bool)>,
    memory_bytes: i64,
    /// System calls that a seccomp filter forbids. The manifests leave that to the profile of the runtime.
    forbidden: Vec<&'static str>,
}

impl Container {
    fn named(manifest: &str, name: &str) -> Container {
        let objects = documents(manifest);
        let mut pods = objects.iter().filter_map(pod);
        let found = pods.find_map(|pod| {
            let mut containers = pod["containers"].as_sequence()?.iter();
            Some(Container::read(pod, containers.find(|container| container["name"].as_str() == Some(name))?))
        });
        found.unwrap_or_else(|| panic!("{manifest} has no container {name}"))
    }

    fn read(pod: &Yaml<'static>, container: &Yaml<'static>) -> Container {
        let words = |yaml: &Yaml<'static>| -> Vec<String> {
            yaml.as_sequence().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
        };
        let security = &container["securityContext"];
        // What the bundle of `Pod` is made of.
        assert_eq!(pod["hostNetwork"].as_bool(), Some(true));
        assert_eq!(security["readOnlyRootFilesystem"].as_bool(), Some(true));
        assert_eq!(security["allowPrivilegeEscalation"].as_bool(), Some(false));
        assert_eq!(security["privileged"].as_bool(), Some(false));
        assert_eq!(words(&security["capabilities"]["drop"]), ["ALL"]);
        let added = security["capabilities"].as_mapping_get("add").map(words).unwrap_or_default();
        let user = security.as_mapping_get("runAsUser").unwrap_or_else(|| &pod["securityContext"]["runAsUser"]);
        let mounts = container.as_mapping_get("volumeMounts").and_then(Yaml::as_sequence);
        let mounts = mounts.into_iter().flatten().map(|mount| {
            let read_only = mount.as_mapping_get("readOnly").and_then(Yaml::as_bool);
            (mount["mountPath"].as_str().unwrap().to_owned(), read_only.unwrap_or(false))
        });
        let memory = container["resources"]["limits"]["memory"].as_str().unwrap();
        Container {
            name: container["name"].as_str().unwrap().to_owned(),
            arguments: words(&container["args"])
                .iter()
                .map(|word| word.replace("$(NODE_IP)", NODE_IP).replace("$(NODE_NAME)", NODE_NAME))
                .collect(),
            capabilities: added.iter().map(|name| format!("CAP_{name}")).collect(),
            user: user.as_integer().unwrap(),
            mounts: mounts.collect(),
            forbidden: Vec::new(),
            memory_bytes: memory.strip_suffix("Gi").unwrap().parse::<i64>().unwrap() << 30,
        }
    }

    /// Where its metrics are.
    fn metrics(&self) -> &str {
        let at = self.arguments.iter().position(|word| word == "--metrics").unwrap();
        &self.arguments[at + 1]
    }
}

/// A container that runc runs with the settings of a manifest, in the network namespace of a node, and removes.
struct Pod {
    folder: tempfile::TempDir,
    id: String,
    process: Option<Process>,
}

impl Pod {
    /// Starts dwell in it; `volumes` are the folders of the mounts, in their order.
    fn start(node: &Namespace, container: &Container, volumes: &[&Path]) -> Pod {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("rootfs")).unwrap();
        let hosts = folder.path().join("hosts");
        fs::write(&hosts, format!("{NODE_IP} dwell-collector.dwell.svc\n")).unwrap();
        let config = configuration(container, volumes, &hosts);
        fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let id = format!("dwell-test-{}-{}", container.name, std::process::id());
        let mut pod = Pod { folder, id, process: None };
        let [state, bundle] = pod.folders();
        pod.process = Some(spawn(node, "runc", &["--root", &state, "run", "--bundle", &bundle, &pod.id]));
        pod
    }

    fn folders(&self) -> [String; 2] {
        ["state", ""].map(|name| self.folder.path().join(name).display().to_string())
    }

    /// Waits until it serves this series.
    fn serves(&mut self, node: &Namespace, container: &Container, series: &str) {
        let process = self.process.as_mut().unwrap();
        let at = container.metrics();
        let has_series = || TcpStream::connect(at).is_ok() && get_here(at, "/metrics").contains(series);
        patiently(series, || process.has_ended() || node.enter(has_series).unwrap());
        if process.has_ended() {
            panic!("{}: {}", container.name, self.end());
        }
    }

    fn end(&mut self) -> Run {
        self.process.take().unwrap().end()
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let [state, _] = self.folders();
        let _ = Command::new("runc").args(["--root", &state, "delete", "--force", &self.id]).output();
    }
}

/// The configuration of a container, as a container runtime makes it of the manifest.
fn configuration(container: &Container, volumes: &[&Path], hosts: &Path) -> serde_json::Value {
    let bind = |from: &Path, to: &str, mode: &str| json!({"destination": to, "type": "bind", "source": from, "options": ["rbind", mode]});
    let mut mounts = vec![
        json!({"destination": "/proc", "type": "proc", "source": "proc"}),
        json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]}),
        json!({"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]}),
        bind(hosts, "/etc/hosts", "ro"),
        bind(Path::new(DWELL), "/dwell", "ro"),
    ];
    // Instead of the C library of the image, that of this host.
    for library in ["/usr", "/lib", "/lib64"].map(Path::new).into_iter().filter(|library| library.exists()) {
        mounts.push(bind(library, library.to_str().unwrap(), "ro"));
    }
    assert_eq!(volumes.len(), container.mounts.len(), "{}", container.name);
    for (from, (to, read_only)) in volumes.iter().zip(&container.mounts) {
        mounts.push(bind(from, to, if *read_only { "ro" } else { "rw" }));
    }
    let capabilities = &container.capabilities;
    // None is ambient or inheritable, and a user other than root has none at all.
    let held = if container.user == 0 { &capabilities[..] } else { &[] };
    let args = [&["/dwell".to_owned()][..], &container.arguments].concat();
    // With EPERM, as profiles do.
    let forbidden = container.forbidden.iter();
    let forbidden: Vec<_> = forbidden.map(|name| json!({"names": [name], "action": "SCMP_ACT_ERRNO"})).collect();
    // Not a network namespace: hostNetwork.
    let namespaces = ["pid", "mount", "ipc", "uts"].map(|kind| json!({"type": kind}));
    let memory = if has_memory_controller() { json!({"limit": container.memory_bytes}) } else { json!({}) };
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": container.user, "gid": container.user},
            "args": args,
            "cwd": "/",
            "capabilities": {"bounding": capabilities, "permitted": held, "effective": held},
            "noNewPrivileges": true,
        },
        "root": {"path": "rootfs", "readonly": true},
        "mounts": mounts,
        "linux": {
            "namespaces": namespaces,
            "resources": {"memory": memory},
            "seccomp": {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": forbidden},
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        },
    })
}

/// Returns whether cgroups can limit memory: a host that mounts the controller of the first version elsewhere has none.
fn has_memory_controller() -> bool {
    let unified = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    Path::new("/sys/fs/cgroup/memory").exists() || unified.split_whitespace().any(|name| name == "memory")
}

/// A node with the interface that the manifests name; the other end is not looked at.
fn node(name: &str) -> Pair {
    let pair = Pair::start(name);
    ip(&pair.left, &format!("link set left0 down\nlink set left0 name {INTERFACE}\nlink set {INTERFACE} up\n"));
    pair
}

#[test]
fn root_the_settings_of_its_pod_are_what_each_measurement_needs() {
    if skipped() || skip::lacks_program("runc") {
        return;
    }
    let pair = node("kube");
    for name in ["rtt", "response"] {
        let container = Container::named("base/dwell.yaml", name);
        let mut pod = Pod::start(&pair.left, &container, &[]);
        pod.serves(&pair.left, &container, &format!("\ndwell_{name}_packets_total "));
        drop(pod);
        for needed in 0..container.capabilities.len() {
            let mut less = Container::named("base/dwell.yaml", name);
            let capability = less.capabilities.remove(needed);
            less.arguments.extend(["--duration", "1s"].map(str::to_owned));
            let run = Pod::start(&pair.left, &less, &[]).end();
            assert_eq!(run.status, Some(3), "{name} without {capability}: {run}");
            assert!(run.stderr.contains(&capability), "{name} without {capability}: {run}");
        }
    }
}

#[test]
fn root_where_the_profile_of_the_runtime_forbids_programs_a_seccomp_filter_is_suspected() {
    if skipped() || skip::lacks_program("runc") {
        return;
    }
    let pair = node("kube-seccomp");
    let mut container = Container::named("base/dwell.yaml", "rtt");
    container.forbidden.push("bpf");
    let run = Pod::start(&pair.left, &container, &[]).end();
    assert_eq!(run.status, Some(3), "{run}");
    assert!(run.stderr.contains("a seccomp filter"), "{run}");
}

#[test]
fn root_the_settings_of_their_pods_are_enough_for_an_agent_and_a_collector() {
    if skipped() || skip::lacks_program("runc") {
        return;
    }
    let pair = node("kube-fleet");
    let [collector, agent] = ["collector", "agent"].map(|name| Container::named("fleet/fleet.yaml", name));
    let folder = tempfile::tempdir().unwrap();
    let [of_collector, of_agents, store, queue] =
        ["collector", "agents", "store", "queue"].map(|name| folder.path().join(name));
    for made in [&of_collector, &of_agents, &store, &queue] {
        fs::create_dir(made).unwrap();
    }
    // The secrets: as the guide makes them, as the kubelet mounts them.
    let path = |name: &str| of_collector.join(name).display().to_string();
    for new in [
        &["--new-key", &path("fleet.key")][..],
        &["--new-agent", NODE_NAME, "--key-file", &path("fleet.key"), "--agents", &path("agents")],
    ] {
        let made = dwell(&[&["collect"], new].concat());
        assert_eq!(made.status, Some(0), "{made}");
    }
    let key = format!("{NODE_NAME}.key");
    fs::rename(of_collector.join(&key), of_agents.join(&key)).unwrap();
    let group = Some(u32::try_from(collector.user).unwrap());
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for (file, owner, mode) in [
        (of_agents.join(&key), Some(0), 0o400),
        (of_collector.join("fleet.key"), group, 0o440),
        (of_collector.join("agents"), group, 0o440),
        (store.clone(), group, 0o2770),
    ] {
        chown(&file, Some(0), owner).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
    }

    let mut collecting = Pod::start(&pair.left, &collector, &[&of_collector, &store]);
    collecting.serves(&pair.left, &collector, "\ndwell_collect_agents 0\n");
    let mut measuring = Pod::start(&pair.left, &agent, &[&of_agents, &queue]);
    measuring.serves(&pair.left, &agent, "\ndwell_agent_backlog_bytes ");
    collecting.serves(&pair.left, &collector, "\ndwell_collect_agents 1\n");
    let clock = "SELECT count(*) FROM clock";
    patiently("the collector knows the agent's clock", || {
        let store = rusqlite::Connection::open(store.join("fleet.db")).unwrap();
        store.query_row(clock, [], |row| row.get::<_, i64>(0)).is_ok_and(|count| count > 0)
    });
}
