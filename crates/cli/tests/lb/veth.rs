//! A balancer whose interface is a veth, as in containers and network namespaces.

use std::io::{Read, Write};

use crate::{
    scene::{Scene, ask},
    support::{eventually, skipped},
    traffic::events,
};

#[test]
fn root_a_balancer_on_a_veth_serves_without_preparations() {
    if skipped() {
        return;
    }
    let scene = Scene::unprepared("veth", 2);
    scene.configure("", "", &[0, 1]);
    scene.run();
    assert_eq!(scene.spread(40).len(), 2);
    // The client's segments arrive joined, as no card has cut them.
    let mut upload = scene.connect().unwrap();
    let mut echoed = vec![0; 20_000];
    upload.write_all(&echoed).unwrap();
    upload.read_exact(&mut echoed).unwrap();
    let status = scene.status();
    assert_eq!(status["plane"]["packets"]["too-big"].as_u64().unwrap_or(0), 0, "{status}");
    assert_eq!(status["plane"]["xdp"], "generic");
    assert_eq!(status["warnings"].as_array().map(Vec::len), Some(0), "{status}");
    // The next process attaches the program anew, as its configuration says.
    scene.poll_at_the_switch("on");
    scene.offload_checksums("off");
    scene.end();
    scene.configure("xdp = \"native\"", "", &[0, 1]);
    scene.run();
    let status = scene.status();
    assert_eq!((&status["plane"]["xdp"], &status["plane"]["start"]), (&"native".into(), &"taken-over".into()));
    scene.spread(10);
}

#[test]
fn root_a_device_that_takes_nothing_is_reported_with_the_remedy_and_serves_nothing() {
    if skipped() {
        return;
    }
    let scene = Scene::unprepared("deaf", 2);
    scene.configure("xdp = \"native\"\nmetrics.listen = \"127.0.0.1:9469\"", "", &[0, 1]);
    scene.run();
    let problem = |server| scene.backend(server)["problem"].as_str().map(str::to_owned);
    for server in 0..2 {
        let problem = problem(server).unwrap_or_default();
        assert!(problem.contains("takes no packets from XDP"), "{problem}");
        assert!(problem.contains("ethtool -K PEER gro on"), "{problem}");
        assert_eq!(scene.backend(server)["share"], 0.0);
    }
    assert!(scene.ok(&["status"]).contains("no path"));
    eventually("metrics tell it", || {
        let page = scene.get_metrics();
        page.contains("dwell_lb_device_delivers{device=\"eth0\"} 0\n")
            && page.contains("dwell_lb_backend_reachable{vip=\"web\",backend=\"s0\"} 0\n")
    });
    let metrics = scene.get_metrics();
    let refused = "dwell_lb_refused_packets_total{device=\"eth0\",by=\"redirect\"} 0\n";
    assert!(metrics.contains(refused), "test frames are no clients' packets: {metrics}");
    // The remedies help at once.
    scene.poll_at_the_switch("on");
    eventually("the device takes packets", || (0..2).all(|server| problem(server).is_none()));
    assert!(scene.connect().is_err(), "checksums are unfinished");
    eventually("the status says so", || scene.ok(&["status"]).contains("`ethtool -K DEVICE tx off`"));
    scene.offload_checksums("off");
    scene.spread(10);
    eventually("the warning ends", || !scene.ok(&["status"]).contains("warning"));
    let run = scene.end();
    let reached = events(&run.stdout, "lb.reach");
    assert!(reached.len() >= 4, "{run}");
}

#[test]
fn root_packets_that_a_device_refuses_are_counted() {
    if skipped() {
        return;
    }
    let scene = Scene::apart("refused", 1);
    scene.configure("", "", &[0]);
    scene.run();
    let mut open = scene.connect().unwrap();
    ask(&mut open).unwrap();
    let refused = || scene.status()["plane"]["devices"][0]["refused_redirect"].as_u64();
    assert_eq!(refused(), Some(0));
    scene.stop_polling_behind();
    eventually("packets are counted as refused", || {
        let _ = open.write_all(&[7]);
        refused().is_some_and(|refused| refused > 0)
    });
    assert!(scene.ok(&["status"]).contains("refused by eth1"));
}

#[test]
fn root_a_backend_added_behind_a_device_that_takes_nothing_has_an_event() {
    if skipped() {
        return;
    }
    let scene = Scene::unprepared("added", 2);
    scene.configure("xdp = \"native\"", "", &[0]);
    scene.run();
    eventually("the device is found out", || scene.backend(0)["problem"].is_string());
    scene.configure("xdp = \"native\"", "", &[0, 1]);
    scene.ok(&["reload"]);
    eventually("the backend has a problem", || {
        let problem = &scene.backend(1)["problem"];
        problem.as_str().is_some_and(|problem| problem.contains("takes no packets from XDP"))
    });
    let run = scene.end();
    let address = crate::scene::address(4).to_string();
    let told = events(&run.stdout, "lb.reach");
    assert!(told.iter().any(|event| event["address"] == *address && event["problem"].is_string()), "{run}");
}
