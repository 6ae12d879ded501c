//! Connections through a balancer while its configuration changes.

use std::net::TcpListener;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{
    scene::{Scene, TABLE_SIZE, address, ask},
    support::{DWELL, FullPipe, eventually, ip, object, skipped, spawn},
};

/// Health checks in quick succession.
pub const CHECKED: &str = "health = { kind = \"tcp\", interval = \"100ms\", timeout = \"100ms\", rise = 2, fall = 2 }";

/// The events of a type.
pub fn events(stdout: &str, kind: &str) -> Vec<Value> {
    let lines = stdout.lines().map(object);
    lines.filter(|event| event["type"] == kind).collect()
}

#[test]
fn root_connections_go_to_all_backends_and_stay_where_they_are() {
    if skipped() {
        return;
    }
    let scene = Scene::new("walk", 2);
    scene.configure("", "", &[0, 1]);
    scene.run();
    let spread = scene.spread(40);
    assert_eq!(spread.len(), 2, "{spread:?}");
    let mut stream = scene.connect().unwrap();
    let number = ask(&mut stream).unwrap();
    for _ in 0..20 {
        assert_eq!(ask(&mut stream).unwrap(), number);
    }
    eventually("connections are counted", || {
        let status = scene.status();
        status["vips"][0]["connections"] == 41
    });
    let status = scene.status();
    assert_eq!(status["plane"]["capacity"], 4096);
    let of = |server: usize, key: &str| status["vips"][0]["backends"][server][key].as_u64().unwrap();
    assert_eq!(of(0, "connections") + of(1, "connections"), 41);
    assert_eq!(of(usize::from(number), "active"), 1, "{status}");
    let table = scene.ok(&["status"]);
    assert!(table.contains("web  198.51.100.1:80/tcp, policy maglev, by l2"), "{table}");
    let run = scene.end();
    assert_eq!(run.status, Some(0), "{run}");
    let started = &events(&run.stdout, "lb.started")[0];
    assert_eq!((&started["start"], &started["backends"]), (&"new".into(), &2.into()), "{run}");
}

#[test]
fn root_a_hundred_reloads_under_load_break_no_connection() {
    if skipped() {
        return;
    }
    let scene = Scene::new("reloads", 3);
    scene.configure("", "", &[0, 1, 2]);
    scene.run();
    let load = scene.load(30);
    load.go_on();
    for round in 0..100 {
        let (vip, servers): (_, &[usize]) = match round % 4 {
            0 => ("", &[0, 1]),
            1 => ("policy = \"latency\"", &[0, 1, 2]),
            2 => ("", &[2, 1]),
            _ => ("hash = \"source\"", &[0, 2]),
        };
        let table_size = if round % 4 == 2 { 503 } else { TABLE_SIZE };
        scene.table_size.set(table_size);
        scene.configure("", vip, servers);
        let changes = scene.ok(&["reload"]);
        assert!(changes.contains("backend"), "{changes}");
        if round < 4 {
            assert_eq!(scene.status()["vips"][0]["table_size"], table_size, "round {round}");
        }
    }
    load.go_on();
    assert_eq!(load.end(), [""; 0]);
    let status = scene.status();
    assert_eq!(status["vips"][0]["backends"].as_array().unwrap().len(), 2);
    let leaving = status["leaving"].as_array().unwrap();
    assert_eq!((leaving.len(), &leaving[0]["name"]), (1, &"s1".into()), "{status}");
    let spread = scene.spread(30);
    assert!(!spread.contains_key(&1), "{spread:?}");
    let run = scene.end();
    assert_eq!(events(&run.stdout, "lb.changed").len(), 100, "{run}");
}

#[test]
fn root_a_reload_is_applied_completely_or_not_at_all() {
    if skipped() {
        return;
    }
    let scene = Scene::new("refused", 2);
    scene.configure("", "", &[0]);
    scene.run();
    scene.configure("", "policy = \"fast\"", &[0, 1]);
    let run = scene.lb(&["reload"]);
    assert_eq!(run.status, Some(2), "{run}");
    assert!(run.stderr.contains("vip.policy: unknown value \"fast\""), "{run}");
    assert!(run.stderr.contains("nothing was changed"), "{run}");
    scene.configure("interval = \"2s\"", "", &[0, 1]);
    let run = scene.lb(&["reload"]);
    assert!(run.stderr.contains("interval: cannot change while it runs: restart it, which keeps connections"), "{run}");
    assert_eq!(scene.status()["vips"][0]["backends"].as_array().unwrap().len(), 1);
    let warning = "warning: ";
    scene.configure("", "gue_port = 6081", &[0]);
    let dry = scene.lb(&["reload", "--dry-run"]);
    assert!(dry.stderr.contains("vip.gue_port: it has no effect, as forward is not \"gue\"; remove it"), "{dry}");
    assert!(!scene.lb(&["drain", "s0", "--undo"]).stderr.contains(warning), "only a reload reads the file");
    scene.configure("", "gue_port = 6082", &[1, 0]);
    scene.with_run(|run| run.signal(Signal::SIGHUP));
    eventually("the signal is handled", || scene.status()["vips"][0]["backends"].as_array().unwrap().len() == 2);
    // At the end of an interval.
    let packets = || scene.status()["vips"][0]["packets"].as_u64();
    let before = packets();
    scene.spread(2);
    eventually("an interval has ended", || packets() > before);
    let run = scene.end();
    assert!(run.stderr.contains(warning) && run.stderr.contains("vip.gue_port: it has no effect"), "{run}");
    assert_eq!(events(&run.stdout, "lb.refused").len(), 2, "{run}");
    let changes = &events(&run.stdout, "lb.changed")[0]["changes"];
    assert_eq!(changes[0], "VIP 'web': backend 's1' (10.79.0.4) joins with weight 1");
}

#[test]
fn root_a_drained_backend_keeps_its_connections_and_gets_no_more() {
    if skipped() {
        return;
    }
    let scene = Scene::new("drain", 2);
    scene.configure("", "", &[0, 1]);
    scene.run();
    let load = scene.load(12);
    load.go_on();
    let changes = scene.ok(&["drain", "web/s1"]);
    assert_eq!(changes, "VIP 'web': backend 's1' drains: no new connections; open ones stay\n");
    assert_eq!(scene.ok(&["drain", "s1"]), "nothing to change\n");
    let spread = scene.spread(20);
    assert_eq!(spread.get(&0), Some(&20), "{spread:?}");
    load.go_on();
    eventually("connections there are still active", || scene.backend(1)["active"].as_u64() > Some(0));
    assert_eq!(scene.backend(1)["phase"], "draining");
    assert_eq!(scene.backend(1)["share"], 0.0);
    // A reload does not end the drain.
    scene.configure("", "policy = \"latency\"\nchoices = 1", &[0, 1]);
    scene.ok(&["reload"]);
    assert_eq!(scene.spread(10).get(&0), Some(&10));
    scene.ok(&["drain", "10.79.0.4", "--undo"]);
    assert!(scene.spread(40).contains_key(&1));
    assert_eq!(load.end(), [""; 0]);
    // Nobody is left.
    assert_eq!(scene.lb(&["drain", "s1"]).stderr, "");
    let last = scene.lb(&["remove", "s0"]);
    let warning = "VIP 'web' has no backend left that takes new connections: they are dropped";
    assert!(last.status == Some(0) && last.stderr.contains(warning), "{last}");
}

#[test]
fn root_silent_connections_show_that_a_backend_cannot_be_switched_off_yet() {
    if skipped() {
        return;
    }
    let scene = Scene::new("off", 2);
    let top = "interval = \"200ms\"\nactive_timeout = \"500ms\"\nmetrics.listen = \"127.0.0.1:9469\"";
    scene.configure(top, "", &[0, 1]);
    scene.run();
    let mut streams: Vec<_> = (0..20).map(|_| scene.connect().unwrap()).collect();
    let there = streams.iter_mut().filter_map(|stream| (ask(stream).unwrap() == 1).then_some(())).count();
    scene.ok(&["drain", "s1"]);
    let are_silent = |placed: &Value| placed["active"] == 0 && placed["tracked"] == there;
    // Neither number counts connections that were opened since the last interval.
    eventually("all are silent", || are_silent(&scene.backend(1)));
    let text = scene.ok(&["status"]);
    assert!(text.contains(&format!("{there} connections are still placed there, 0 of them active")), "{text}");
    let metric = format!("dwell_lb_backend_tracked_connections{{vip=\"web\",backend=\"s1\"}} {there}\n");
    eventually("metrics have them", || scene.get_metrics().contains(&metric));
    scene.ok(&["remove", "s1"]);
    eventually("they keep it", || are_silent(&scene.status()["leaving"][0]));
    let text = scene.ok(&["status"]);
    assert!(text.contains(&format!("s1 10.79.0.4: {there} connections are still placed there, 0 of them")), "{text}");
    let metric = format!("dwell_lb_leaving_tracked_connections {there}\n");
    eventually("metrics are updated", || scene.get_metrics().contains(&metric));
    assert!(streams.iter_mut().all(|stream| ask(stream).is_ok()));
}

#[test]
fn root_a_dead_server_is_taken_out_and_comes_back_gradually() {
    if skipped() {
        return;
    }
    let scene = Scene::new("health", 2);
    scene.configure("limits.reals = 2\nhealth.ramp = \"1h\"", CHECKED, &[0, 1]);
    scene.run();
    eventually("both are up", || (0..2).all(|server| scene.backend(server)["health"] == "up"));
    scene.servers[1].die();
    eventually("it is out", || scene.backend(1)["health"] == "down");
    let backend = scene.backend(1);
    assert_eq!(backend["share"], 0.0);
    assert!(backend["health_problem"].as_str().unwrap().contains("refused"), "{backend}");
    assert_eq!(scene.spread(20).get(&0), Some(&20));
    scene.servers[1].listen();
    eventually("it rises", || scene.backend(1)["health"] == "rising");
    // A tenth of its weight, compared with the whole weight of the other.
    let share = || scene.backend(1)["share"].as_f64().unwrap();
    assert!((0.08..0.1).contains(&share()), "{}", share());
    // A reload that is refused does not end the ramp: the leaving backend still takes room.
    let no_ramp = "limits.reals = 2\nhealth.ramp = \"0s\"";
    scene.configure(no_ramp, CHECKED, &[0, 2]);
    let refused = scene.lb(&["reload"]);
    assert!(refused.stderr.contains("no room for 3 backends"), "{refused}");
    assert_eq!(scene.backend(1)["health"], "rising");
    scene.configure(no_ramp, CHECKED, &[0, 1]);
    assert_eq!(scene.ok(&["reload"]), "health.ramp is 0ns, not 3600s\n");
    assert!((0.4..0.6).contains(&share()), "{}", share());
    let run = scene.end();
    let health = events(&run.stdout, "lb.health");
    let states: Vec<_> = health.iter().filter(|event| event["backend"] == "s1").map(|event| &event["up"]).collect();
    assert_eq!(states, [true, false, true], "{run}");
}

#[test]
fn root_a_backend_whose_route_or_neighbour_disappears_gets_no_connections_until_it_returns() {
    if skipped() {
        return;
    }
    let scene = Scene::new("route", 2);
    scene.configure("", "", &[0, 1]);
    scene.run();
    let gets = |what: &str, some: bool| {
        eventually(what, || (scene.backend(1)["share"].as_f64() > Some(0.0)) == some);
    };
    gets("both are reached", true);
    let there = address(4);
    ip(&scene.balancer, &format!("route add unreachable {there}/32\n"));
    gets("there is no route", false);
    let problem = scene.backend(1)["problem"].to_string();
    assert_eq!(problem.matches("os error").count(), 1, "{problem}");
    assert_eq!(scene.spread(20).get(&0), Some(&20));
    ip(&scene.balancer, &format!("route del unreachable {there}/32\n"));
    gets("the route is back", true);
    // The server is silent, and the kernel has to resolve it again.
    ip(&scene.servers[1].namespace, "link set eth0 down\n");
    ip(&scene.balancer, &format!("neigh del {there} dev eth0\n"));
    gets("the neighbour is silent", false);
    assert_eq!(scene.spread(20).get(&0), Some(&20));
    ip(&scene.servers[1].namespace, "link set eth0 up\n");
    gets("the neighbour answers again", true);
    assert_eq!(scene.spread(40).len(), 2);
}

#[test]
fn root_when_all_fail_all_are_kept_and_that_is_reported() {
    if skipped() {
        return;
    }
    let scene = Scene::new("all-down", 2);
    // Nothing listens on the port that is checked, but all servers listen on the VIP's.
    let check = "health = { kind = \"tcp\", port = 9, interval = \"100ms\", timeout = \"100ms\" }";
    scene.configure("", check, &[0, 1]);
    scene.run();
    eventually("all fail", || scene.status()["vips"][0]["all_down"] == true);
    eventually("both are down", || (0..2).all(|server| scene.backend(server)["health"] == "down"));
    let spread = scene.spread(40);
    assert_eq!(spread.len(), 2, "{spread:?}");
    let status = scene.status();
    let warnings = status["warnings"].to_string();
    assert!(warnings.contains("all backends fail their checks"), "{warnings}");
    let run = scene.end();
    assert_eq!(events(&run.stdout, "lb.all-down").last().unwrap()["all_down"], true, "{run}");
}

#[test]
fn root_a_reload_that_leaves_only_failing_backends_keeps_them_and_reports_it() {
    if skipped() {
        return;
    }
    let scene = Scene::new("only-down", 2);
    let check = "health = { kind = \"tcp\", port = 81, interval = \"100ms\", timeout = \"100ms\" }";
    let healthy = scene.servers[0].namespace.enter(|| TcpListener::bind("0.0.0.0:81"));
    let healthy = healthy.unwrap().unwrap();
    std::thread::spawn(move || for _ in healthy.incoming() {});
    scene.configure("", check, &[0, 1]);
    scene.run();
    eventually("one is up", || scene.backend(0)["health"] == "up");
    eventually("one is down", || scene.backend(1)["health"] == "down");
    assert_eq!(scene.spread(20).get(&0), Some(&20));
    scene.configure("", check, &[1]);
    scene.ok(&["reload"]);
    assert_eq!(scene.status()["vips"][0]["all_down"], true);
    assert_eq!(scene.spread(20).get(&1), Some(&20));
    let run = scene.end();
    let turned = events(&run.stdout, "lb.all-down");
    let states: Vec<_> = turned.iter().map(|event| &event["all_down"]).collect();
    assert_eq!(states, [true], "{run}");
}

#[test]
fn root_backends_are_added_removed_and_reweighted_until_the_next_reload() {
    if skipped() {
        return;
    }
    let scene = Scene::new("verbs", 3);
    scene.configure("", "policy = \"weights\"", &[0, 1]);
    scene.run();
    let there = address(5).to_string();
    let changes = scene.ok(&["add", "web", &there, "--name", "s2"]);
    assert_eq!(changes, "VIP 'web': backend 's2' (10.79.0.5) joins with weight 1\n");
    eventually("it is reached", || scene.backend(2)["problem"].is_null());
    eventually("it gets connections", || scene.spread(10).contains_key(&2));
    scene.ok(&["weight", "s0", "0"]);
    scene.ok(&["weight", "s1", "0.25"]);
    let share = scene.backend(1)["share"].as_f64().unwrap();
    assert!((share - 0.2).abs() < 0.01, "{share}");
    assert_eq!(scene.backend(1)["reason"], "manual");
    assert!(!scene.spread(20).contains_key(&0));
    scene.ok(&["remove", "web/s1"]);
    assert_eq!(scene.spread(10).get(&2), Some(&10));
    for (arguments, message) in [
        (&["remove", "s9"][..], "there is no backend 's9'"),
        (&["drain", "x/s0"], "there is no backend 's0' of a VIP 'x'"),
        (&["add", "x", "10.79.0.9"], "there is no VIP 'x'; the VIPs are: web"),
        (&["add", "web", &there], "already has the backend 's2' (10.79.0.5)"),
        (&["add", "web", "198.51.100.1"], "is the VIP 'web'"),
        (&["add", "web", "10.79.0.9", "--name", "a b\n"], "name: \"a b\\n\" is not a valid name"),
        (&["add", "web", "10.79.0.9", "--name", ""], "name: \"\" is not a valid name"),
        (&["add", "web", "10.79.0.9", "--name", "10.79.0.3"], "name: 10.79.0.3 is not the address of this backend"),
        (&["add", "web", "255.255.255.255"], "address: 255.255.255.255 is a multicast or broadcast address"),
        (
            &["add", "web", "::ffff:10.79.0.9"],
            "address: ::ffff:10.79.0.9 is an IPv4-mapped IPv6 address; write 10.79.0.9",
        ),
        (&["add", "web", "10.79.0.9", "--weight", "nan"], "the weight NaN is out of range: choose 0 to 1000000"),
        (&["weight", "s0", "inf"], "the weight inf is out of range"),
        (&["weight", "s0", "-1"], "out of range"),
        (&["where", "--frame", "00"], "this frame has 1 byte: give one of 14 to 3500"),
    ] {
        let run = scene.lb(arguments);
        assert_eq!(run.status, Some(2), "{run}");
        assert!(run.stderr.contains(message), "{message}: {run}");
    }
    scene.configure("", "policy = \"maglev\"", &[0, 1]);
    let changes = scene.ok(&["reload"]);
    assert!(changes.contains("backend 's2' (10.79.0.5) leaves"), "{changes}");
    let spread = scene.spread(40);
    assert_eq!(spread.keys().copied().collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn root_tunnels_end_at_backends_that_decapsulate_them() {
    if skipped() {
        return;
    }
    let scene = Scene::new("tunnel", 2);
    let decaps = scene.decapsulate();
    scene.configure("", "forward = \"ipip\"", &[0, 1]);
    scene.run();
    assert_eq!(scene.spread(30).len(), 2);
    let load = scene.load(6);
    load.go_on();
    let warnings = scene.status()["warnings"].to_string();
    assert!(warnings.contains("an MTU of 1520 on the path avoids that"), "{warnings}");
    // Open connections stay in the tunnel that they started in.
    scene.configure("", "forward = \"gue\"", &[0, 1]);
    let changes = scene.ok(&["reload"]);
    assert!(changes.contains("new connections are forwarded by gue:6080, no longer by ipip"), "{changes}");
    eventually("both are reached", || (0..2).all(|server| scene.backend(server)["share"].as_f64() > Some(0.4)));
    assert_eq!(scene.spread(30).len(), 2);
    load.go_on();
    assert_eq!(load.end(), [""; 0]);
    // Tunnels also end at addresses that the interface gets later.
    ip(&scene.servers[0].namespace, "addr add 10.79.0.40/24 dev eth0\n");
    scene.ok(&["add", "web", "10.79.0.40"]);
    for gone in ["web/s0", "web/s1"] {
        scene.ok(&["remove", gone]);
    }
    eventually("its new address is reached", || scene.connect().is_ok());
    let second = spawn(&scene.servers[0].namespace, DWELL, &["lb", "decap", "eth0"]).end();
    assert_eq!(second.status, Some(3), "{second}");
    assert!(second.stderr.contains("perhaps that of another `dwell lb decap`"), "{second}");
    for decap in decaps {
        let run = decap.interrupt();
        assert_eq!(run.status, Some(0), "{run}");
        assert!(run.stderr.contains("packets decapsulated from IPIP"), "{run}");
    }
}

#[test]
fn root_a_tunnel_leads_to_listed_vips_from_listed_balancers_alone() {
    if skipped() {
        return;
    }
    let scene = Scene::new("listed", 1);
    scene.configure("", "forward = \"ipip\"", &[0]);
    scene.run();
    // The balancer's outer headers come from 172.16.0.0/16, unless it is configured otherwise.
    for (options, refused) in [
        (&["--vip", "198.51.100.2"][..], Some("to inner addresses that are neither VIPs nor in --backend, dropped")),
        (&["--from", "10.0.0.0/8"], Some("from senders that --from does not name, passed on unchanged")),
        (&["--vip", "198.51.100.0/24", "--from", "10.0.0.0/8", "--from", "172.16.0.0/16"], None),
        (&[], None),
    ] {
        let decap = scene.decapsulate_with(options).remove(0);
        assert_eq!(scene.connect().is_err(), refused.is_some(), "{options:?}");
        let run = decap.interrupt();
        assert_eq!(run.status, Some(0), "{run}");
        match refused {
            Some(reason) => assert!(run.stderr.contains(reason), "{options:?}: {run}"),
            None => assert!(!run.stderr.contains("not decapsulated so far"), "{options:?}: {run}"),
        }
    }
    let defaults = "any address of this host (--vip names the VIPs alone), from any sender";
    let arguments = ["lb", "decap", "eth0", "--duration", "100ms", "--format", "jsonl"];
    let wrong = spawn(&scene.servers[0].namespace, DWELL, &arguments).end();
    assert!(wrong.stderr.contains(defaults), "{wrong}");
    let status = object(wrong.stdout.trim_end());
    assert_eq!((&status["type"], &status["last"]), (&"decap.status".into(), &true.into()));
    assert_eq!(status["counters"]["not_vip"], 0);
    // Nobody reads that status, and the end comes nevertheless.
    let folder = tempfile::tempdir().unwrap();
    let unread = FullPipe::new(folder.path()).spawn(&scene.servers[0].namespace, &arguments).end();
    assert_eq!(unread.status, Some(0), "{unread}");
    assert!(unread.stderr.contains("1 line of output could not be written in time"), "{unread}");
}

#[test]
fn root_a_dry_run_shows_where_packets_go() {
    if skipped() {
        return;
    }
    let scene = Scene::new("where", 2);
    scene.configure("", "", &[0, 1]);
    scene.run();
    let mut stream = scene.connect().unwrap();
    let number = ask(&mut stream).unwrap();
    let packet = format!("tcp:{}>198.51.100.1:80", stream.local_addr().unwrap());
    let output = scene.ok(&["where", &packet]);
    assert!(output.starts_with("VIP 'web': send to backend 's"), "{output}");
    let output = scene.ok(&["where", "tcp:10.79.0.1:1000>198.51.100.1:81", "--format", "jsonl"]);
    let route = object(&output);
    assert_eq!((&route["verdict"], &route["reason"]), (&"pass".into(), &"not-vip".into()), "{output}");
    let output = scene.ok(&["where", "tcp:10.79.0.1:1000>198.51.100.1:80", "--format", "jsonl"]);
    let route = object(&output);
    assert_eq!((&route["verdict"], &route["reason"]), (&"send".into(), &"new".into()), "{output}");
    assert!(route["frame"].as_str().unwrap().len() >= 2 * 54, "{output}");
    let flow = &route["flow"];
    assert_eq!((&flow["sport"], &flow["client"]), (&1000.into(), &"src".into()), "{output}");
    assert!(flow["id"].as_str().unwrap().starts_with("1:"), "{output}");
    // The dry runs have opened no connection.
    assert_eq!(scene.spread(1).len(), 1);
    eventually("two connections are counted", || scene.status()["vips"][0]["connections"] == 2);
    let run = scene.lb(&["where", "--frame", "zz"]);
    assert_eq!(run.status, Some(2), "{run}");
    assert_eq!(ask(&mut stream).unwrap(), number);
}

#[test]
fn root_a_backend_without_a_neighbour_is_reported_and_gets_nothing() {
    if skipped() {
        return;
    }
    let scene = Scene::new("reach", 1);
    scene.configure("", "", &[0, 90]);
    scene.run();
    let spread = scene.spread(20);
    assert_eq!(spread.get(&0), Some(&20), "{spread:?}");
    let problem = scene.backend(90)["problem"].to_string();
    assert!(problem.contains("10.79.0.93"), "{problem}");
    assert!(scene.ok(&["status"]).contains("warning: VIP 'web': backend 's90': "));
}

#[test]
fn root_there_is_one_balancer_per_interface() {
    if skipped() {
        return;
    }
    let scene = Scene::new("twice", 1);
    scene.configure("", "", &[0]);
    scene.run();
    let second = spawn(&scene.balancer, DWELL, &["lb", "run", &scene.path("lb.toml")]).end();
    assert_eq!(second.status, Some(2), "{second}");
    assert!(second.stderr.contains("a balancer already answers at"), "{second}");
    let text = std::fs::read_to_string(scene.path("lb.toml")).unwrap();
    let other = scene.path("other.toml");
    std::fs::write(&other, text.replace("lb.sock", "other.sock")).unwrap();
    let second = spawn(&scene.balancer, DWELL, &["lb", "run", &other]).end();
    assert_eq!(second.status, Some(2), "{second}");
    assert!(second.stderr.contains("one balancer per interface"), "{second}");
    assert_eq!(scene.spread(3).get(&0), Some(&3));
}

#[test]
fn root_an_interface_that_disappears_ends_it_with_a_message() {
    if skipped() {
        return;
    }
    let scene = Scene::new("vanish", 1);
    scene.configure("", "", &[0]);
    scene.run();
    crate::support::ip(&scene.balancer, "link del eth0\n");
    let run = scene.wait();
    assert_eq!(run.status, Some(3), "{run}");
    assert!(run.stderr.contains("the interface 'eth0' is gone"), "{run}");
    let status = scene.lb(&["status", "--format", "jsonl"]);
    assert_eq!(status.status, Some(3), "{status}");
    assert_eq!(crate::support::object(&status.stdout)["is_attached"], false);
    assert!(status.stderr.contains("nothing is balanced") && !status.stderr.contains("continues"), "{status}");
}

#[test]
fn root_metrics_agree_with_the_status() {
    if skipped() {
        return;
    }
    let scene = Scene::new("metrics", 2);
    scene.configure("metrics.listen = \"127.0.0.1:9469\"", CHECKED, &[0, 1]);
    scene.run();
    scene.spread(30);
    eventually("metrics are updated", || {
        scene.get_metrics().contains("dwell_lb_vip_connections_total{vip=\"web\"} 30\n")
    });
    let page = scene.get_metrics();
    for server in 0..2 {
        let backend = scene.backend(server);
        let labels = format!("{{vip=\"web\",backend=\"s{server}\"}}");
        let connections = format!("dwell_lb_backend_connections_total{labels} {}\n", backend["connections"]);
        assert!(page.contains(&connections), "{connections}{page}");
        assert!(page.contains(&format!("dwell_lb_backend_up{labels} 1\n")), "{page}");
        let share = format!("dwell_lb_backend_share_ratio{labels} {}", backend["share"]);
        assert!(page.contains(&share), "{share} {page}");
    }
    // All metrics are there, except those without a known value, and those of several balancers.
    let unknown = ["latency_seconds", "latency_quantile_seconds", "load_seconds", "load_age_seconds"];
    let unknown = unknown.map(|name| format!("dwell_lb_backend_{name}"));
    for metric in dwell_balancer::metrics::ALL {
        let is_there = page.contains(&format!("# TYPE {} {}\n", metric.name, metric.kind.name()));
        let is_shared = metric.name.starts_with("dwell_lb_shared_");
        let is_known = !is_shared && !unknown.iter().any(|name| name == metric.name);
        assert_eq!(is_there, is_known, "{} {page}", metric.name);
    }
}
