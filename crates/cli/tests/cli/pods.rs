//! Names of pods, for a process in a cgroup as of a pod, with the kubelet's folders for logs in a mount namespace of their own.

use std::{
    fs,
    os::unix::fs::symlink,
    path::PathBuf,
    process::{Child, Command, Output},
};

use serde_json::{Value, json};

use crate::{
    records::{objects, of_type},
    support::{DWELL, eventually, skipped},
    why::Service,
};

/// A pod with a process and folders for logs, or with none.
struct Pod {
    service: Service,
    uid: String,
    id: String,
    logs: tempfile::TempDir,
    /// Another container, which does nothing, in a cgroup of its own.
    sidecar: (Child, PathBuf),
}

impl Drop for Pod {
    fn drop(&mut self) {
        let (process, cgroup) = &mut self.sidecar;
        _ = process.kill();
        _ = process.wait();
        eventually("the cgroup is free", || fs::remove_dir(&*cgroup).is_ok());
    }
}

impl Pod {
    fn start(test: &str) -> Option<Pod> {
        let uid = format!("{:08x}-52d4-4c0a-9d7e-1a2b3c4d5e6f", std::process::id());
        let id = format!("{:032x}{}", std::process::id(), "e".repeat(32));
        // As of a kubelet that lets systemd manage cgroups, with a containerd that does not: one folder.
        let slice = format!("kubepods-burstable-pod{}.slice", uid.replace('-', "_"));
        let service = Service::start(test, &format!("{slice}:cri-containerd:{id}"))?;
        let logs = tempfile::tempdir().unwrap();
        let cgroup = service.cgroup.with_file_name(format!("{slice}:cri-containerd:{}", "d".repeat(64)));
        fs::create_dir(&cgroup).unwrap();
        let process = service.namespace.command("sleep").arg("1000").spawn().unwrap();
        fs::write(cgroup.join("cgroup.procs"), process.id().to_string()).unwrap();
        Some(Pod { service, uid, id, logs, sidecar: (process, cgroup) })
    }

    /// Makes the folders and links of a kubelet.
    fn log(&self) {
        let [pods, containers] = ["pods", "containers"].map(|name| self.logs.path().join(name));
        for container in ["nginx", "sidecar"] {
            fs::create_dir_all(pods.join(format!("shop_web-0_{}", self.uid)).join(container)).unwrap();
        }
        fs::create_dir_all(&containers).unwrap();
        symlink("/nowhere", containers.join(format!("web-0_shop_nginx-{}.log", self.id))).unwrap();
    }

    /// Runs dwell where these are the host's logs, in the pod's network namespace or in that of the test.
    fn dwell(&self, is_inside: bool, arguments: &[&str]) -> String {
        let script = format!("mount --bind '{}' /var/log && exec '{DWELL}' \"$@\"", self.logs.path().display());
        let mut command = match is_inside {
            true => self.service.namespace.command("unshare"),
            false => Command::new("unshare"),
        };
        let Output { stdout, stderr, .. } =
            command.args(["-m", "sh", "-c", &script, "sh"]).args(arguments).output().unwrap();
        let stdout = String::from_utf8(stdout).unwrap();
        assert!(!stdout.is_empty(), "{}", String::from_utf8_lossy(&stderr));
        stdout
    }
}

#[test]
fn root_a_pod_is_named_with_its_flows_and_why_is_asked_of_it() {
    if skipped() {
        return;
    }
    let Some(pod) = Pod::start("pod") else {
        return;
    };
    let units = ["top", "--once", "--view", "units", "--format", "jsonl"];
    let row = &objects(&pod.dwell(true, &units))[0];
    let unnamed = json!({"uid": pod.uid, "namespace": null, "name": null, "container": null});
    assert_eq!((&row["pod"], &row["flows"]), (&unnamed, &2.into()), "{row}");

    pod.log();
    let named = json!({"uid": pod.uid, "namespace": "shop", "name": "web-0", "container": "nginx"});
    let row = &objects(&pod.dwell(true, &units))[0];
    let all = json!({"uid": pod.uid, "namespace": "shop", "name": "web-0", "container": null});
    assert_eq!(row["pod"], all, "of a row of several processes: {row}");
    let table = pod.dwell(true, &["top", "--once", "--view", "units", "-n"]);
    assert!(table.contains("\nshop/web-0 "), "{table}");

    let flows = pod.dwell(true, &["rtt", "-i", "lo", "--duration", "3s", "--format", "jsonl"]);
    let samples = of_type(&flows, "rtt.sample");
    let ends = samples.iter().flat_map(|sample| [&sample["flow"]["names"]["src"], &sample["flow"]["names"]["dst"]]);
    let pods: Vec<&Value> = ends.map(|end| &end["pod"]).filter(|pod| !pod.is_null()).collect();
    assert!(!pods.is_empty() && pods.iter().all(|found| **found == named), "{flows}");
    let unit = samples.iter().find_map(|sample| sample["flow"]["names"]["src"]["unit"].as_str());
    assert_eq!(unit, Some(&pod.id[..12]), "the container's ID stays");
    let text = pod.dwell(true, &["rtt", "-i", "lo", "--duration", "2s"]);
    assert!(text.contains(" shop/web-0/nginx →"), "{text}");

    for target in ["shop/web-0", "web-0", pod.uid.as_str()] {
        let verdict = objects(&pod.dwell(false, &["why", target, "--duration", "2s", "--format", "jsonl"]));
        let verdict = verdict.last().unwrap();
        assert_eq!(verdict["connections"], 2, "{target}: {verdict:#}");
        assert_eq!(verdict["about"]["pod"], named, "{target}: {verdict:#}");
    }
}
