//! The data plane outlives the control process.

use std::{thread, time::Duration};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{
    scene::{Scene, address, ask},
    support::{eventually, ip, object, skipped},
    traffic::events,
};

fn numbers(status: &Value) -> Vec<(String, u64)> {
    let backends = status["vips"][0]["backends"].as_array().unwrap().iter();
    backends.map(|backend| (backend["name"].as_str().unwrap().to_owned(), backend["real"].as_u64().unwrap())).collect()
}

#[test]
fn root_a_killed_balancer_is_taken_over_and_no_connection_breaks() {
    if skipped() {
        return;
    }
    let scene = Scene::new("killed", 3);
    scene.configure("", "policy = \"weights\"", &[0, 1, 2]);
    scene.run();
    scene.ok(&["drain", "s2"]);
    scene.ok(&["weight", "s1", "3"]);
    let before = scene.status();
    let load = scene.load(20);
    load.go_on();
    for _ in 0..3 {
        scene.kill();
        load.go_on();
        assert_eq!(scene.spread(10).get(&2), None, "the tables stay");
        scene.run();
        load.go_on();
    }
    let after = scene.status();
    assert_eq!(after["plane"]["start"], "taken-over");
    assert_eq!(numbers(&after), numbers(&before));
    assert_eq!(scene.backend(2)["phase"], "draining");
    assert_eq!(scene.backend(1)["weight"], 3.0);
    // Not forever: the file takes precedence after a reload, and after an edit.
    scene.ok(&["reload"]);
    assert_eq!(scene.backend(1)["weight"], 1.0);
    scene.ok(&["weight", "s1", "3"]);
    scene.kill();
    let path = scene.path("lb.toml");
    let file = std::fs::read_to_string(&path).unwrap();
    let edited = file.replace("name = \"s1\"", "name = \"s1\"\nweight = 0.5");
    std::fs::write(&path, edited).unwrap();
    scene.run();
    assert_eq!(scene.backend(1)["weight"], 0.5);
    assert_eq!(scene.backend(1)["configured"], 0.5);
    assert_eq!(load.end(), [""; 0]);
    let run = scene.end();
    assert_eq!(events(&run.stdout, "lb.started")[0]["start"], "taken-over", "{run}");
}

#[test]
fn root_a_backend_that_was_down_stays_down_over_a_restart_and_one_failure_takes_none_out() {
    if skipped() {
        return;
    }
    let scene = Scene::new("sick", 2);
    let check =
        |fall: u32| format!("health = {{ kind = \"tcp\", interval = \"100ms\", timeout = \"100ms\", fall = {fall} }}");
    scene.configure("", &check(1), &[0, 1]);
    scene.run();
    scene.servers[1].die();
    eventually("it is out", || scene.backend(1)["health"] == "down");
    scene.kill();
    // From here on no server answers; the one that was up may keep failing.
    scene.servers[0].die();
    scene.configure("", &check(1_000), &[0, 1]);
    scene.run();
    let shares = || [0, 1].map(|server| scene.backend(server)["share"].as_f64().unwrap());
    assert_eq!(shares(), [1.0, 0.0]);
    eventually("both are checked", || (0..2).all(|server| !scene.backend(server)["health_problem"].is_null()));
    assert_eq!(shares(), [1.0, 0.0]);
    assert_eq!(scene.backend(1)["health"], "down");
    let run = scene.end();
    assert_eq!(events(&run.stdout, "lb.weights").len(), 0, "{run}");
}

#[test]
fn root_a_backend_that_waits_for_its_first_checks_still_does_after_a_restart() {
    if skipped() {
        return;
    }
    let scene = Scene::new("pending", 2);
    // The second server never answers the check, which lasts for as long as this test.
    ip(&scene.servers[1].namespace, &format!("rule add to {} ipproto tcp blackhole\n", address(2)));
    let check = "health = { kind = \"tcp\", interval = \"60s\", timeout = \"60s\" }";
    scene.configure("", check, &[0]);
    scene.run();
    scene.configure("", check, &[0, 1]);
    scene.ok(&["reload"]);
    let is_pending = || scene.backend(1)["health"] == "pending" && scene.backend(1)["share"] == 0.0;
    assert!(is_pending(), "{}", scene.backend(1));
    scene.kill();
    scene.run();
    assert!(is_pending(), "{}", scene.backend(1));
    assert_eq!(scene.backend(0)["share"], 1.0);
}

#[test]
fn root_a_damaged_state_costs_numbers_and_no_connection() {
    if skipped() {
        return;
    }
    let scene = Scene::new("lost", 2);
    scene.configure("", "", &[0, 1]);
    scene.run();
    let load = scene.load(12);
    load.go_on();
    scene.kill();
    std::fs::write(scene.path("lb.sock.state"), "{").unwrap();
    scene.run();
    load.go_on();
    let status = scene.status();
    assert_eq!(status["leaving"].as_array().unwrap().len(), 2, "{status}");
    assert_eq!(scene.spread(30).len(), 2);
    assert_eq!(load.end(), [""; 0]);
    assert_eq!(std::fs::read_to_string(scene.path("lb.sock.state.bad")).unwrap(), "{");
    let run = scene.end();
    assert_eq!(events(&run.stdout, "lb.state-lost").len(), 1, "{run}");
}

#[test]
fn root_packets_are_forwarded_after_the_end_until_it_is_detached() {
    if skipped() {
        return;
    }
    let scene = Scene::new("detach", 1);
    scene.configure("", "", &[0]);
    scene.run();
    let pin = scene.pin();
    let running = scene.lb_alone(&["detach", "--pin", &pin]);
    assert_eq!(running.status, Some(2), "{running}");
    assert!(running.stderr.contains("another `dwell lb run` uses"), "{running}");
    let run = scene.end();
    let detach = format!("packets are still forwarded as before: `dwell lb detach --pin {pin}` ends that");
    assert!(run.stderr.contains(&detach), "{run}");
    let mut stream = scene.connect().unwrap();
    assert_eq!(ask(&mut stream).unwrap(), 0);
    let done = scene.lb_alone(&["detach", "--pin", &pin]);
    assert_eq!(done.status, Some(0), "{done}");
    let again = scene.lb_alone(&["detach", "--pin", &pin]);
    assert_eq!(again.status, Some(1), "{again}");
    // No host has the VIP any more.
    eventually("it is gone", || scene.connect().is_err());
    scene.run();
    assert_eq!(scene.status()["plane"]["start"], "new");
    assert_eq!(scene.spread(3).get(&0), Some(&3));
}

/// Two servers of very different weights, and one that is drained.
fn unequal(name: &str, heartbeat: &str) -> Scene {
    let scene = Scene::new(name, 3);
    let top = format!("metrics.listen = \"127.0.0.1:9469\"\n[heartbeat]\nstale_after = \"1s\"\n{heartbeat}");
    scene.configure(&top, "policy = \"weights\"", &[0, 1, 2]);
    scene.run();
    scene.ok(&["drain", "s2"]);
    scene.ok(&["weight", "s1", "0.02"]);
    scene
}

/// The part of new connections that the light server gets. The drained one must get none.
fn light_part(scene: &Scene) -> f64 {
    let spread = scene.spread(60);
    assert_eq!(spread.get(&2), None, "{spread:?}");
    spread.get(&1).copied().unwrap_or(0) as f64 / 60.0
}

#[test]
fn root_a_stopped_control_plane_leaves_equal_weights_where_that_is_asked_for() {
    if skipped() {
        return;
    }
    let scene = unequal("silent", "when_stale = \"equal\"");
    assert!(light_part(&scene) < 0.2);
    let heartbeat = scene.status()["plane"]["heartbeat"].clone();
    assert_eq!((&heartbeat["when_stale"], &heartbeat["is_stale"]), (&"equal".into(), &false.into()), "{heartbeat}");
    let mut open = scene.connect().unwrap();
    let server = ask(&mut open).unwrap();

    scene.with_run(|run| run.signal(Signal::SIGSTOP));
    eventually("the weights are equal", || light_part(&scene) > 0.25);
    assert_eq!(ask(&mut open).unwrap(), server, "open connections stay");
    let silent = scene.lb(&["status", "--format", "jsonl"]);
    assert_eq!(silent.status, Some(3), "{silent}");
    let left = object(&silent.stdout);
    assert_eq!((&left["type"], &left["is_stale"]), (&"lb.heartbeat".into(), &true.into()), "{silent}");
    assert!(left["age_ns"].as_u64() > Some(1_000_000_000), "{silent}");
    assert!(silent.stderr.contains("so that it gives equal weights"), "{silent}");

    scene.with_run(|run| run.signal(Signal::SIGCONT));
    eventually("the weights are those of the operator", || light_part(&scene) < 0.1);
    assert_eq!(ask(&mut open).unwrap(), server);
    assert_eq!(scene.status()["plane"]["heartbeat"]["is_stale"], false);
}

#[test]
fn root_a_dead_control_plane_leaves_the_last_weights_and_the_next_one_tells_for_how_long() {
    if skipped() {
        return;
    }
    let scene = unequal("dead", "");
    let renewed = || -> Option<f64> {
        let metrics = scene.get_metrics();
        metrics.lines().find_map(|line| line.strip_prefix("dwell_lb_heartbeat_timestamp_seconds ")?.parse().ok())
    };
    eventually("the first interval is over", || renewed().is_some());
    let renewed = renewed().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((now - 60.0..now + 1.0).contains(&renewed), "{renewed} {now}");
    scene.kill();
    thread::sleep(Duration::from_secs(3));
    assert!(light_part(&scene) < 0.2);
    let silent = scene.lb(&["status"]);
    assert_eq!((silent.status, silent.stdout.as_str()), (Some(3), ""), "{silent}");
    assert!(silent.stderr.contains("so that it keeps the last weights"), "{silent}");
    scene.run();
    let run = scene.end();
    let started = &events(&run.stdout, "lb.started")[0];
    assert!(started["heartbeat_age_ns"].as_u64() > Some(3_000_000_000), "{run}");
}
