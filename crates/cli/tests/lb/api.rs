//! The API: its permissions, and malformed requests; and the file of events.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream, process::CommandExt},
    process::Command,
};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{
    scene::Scene,
    support::{DWELL, eventually, object, run, skipped},
    traffic::events,
};

/// The user ID of nobody.
const NOBODY: u32 = 65534;

#[test]
fn root_only_root_may_connect() {
    if skipped() {
        return;
    }
    let scene = Scene::new("others", 1);
    scene.configure("", "", &[0]);
    scene.run();
    let socket = scene.path("lb.sock");
    let mode = fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Only the mode of the socket keeps others out.
    let binary = scene.for_anybody();
    for verb in [&["status"][..], &["drain", "s0"], &["top"]] {
        let mut command = Command::new(&binary);
        command.args(["lb"]).args(verb).args(["--socket", &socket]);
        let refused = run(command.uid(NOBODY).gid(NOBODY), b"");
        assert_eq!((refused.status, refused.stdout.as_str()), (Some(3), ""), "{refused}");
        let message = "Permission denied (os error 13); only its owner may connect: run as root";
        assert!(refused.stderr.contains(message), "{refused}");
    }
    // Nor can they run a balancer of their own.
    let mut command = Command::new(&binary);
    command.args(["lb", "run", &scene.path("lb.toml")]).uid(NOBODY).gid(NOBODY);
    let text = fs::read_to_string(scene.path("lb.toml")).unwrap();
    fs::write(scene.path("lb.toml"), text.replace(&socket, "/run/dwell-of-others/lb.sock")).unwrap();
    let refused = run(&mut command, b"");
    assert_eq!((refused.status, refused.stdout.as_str()), (Some(3), ""), "{refused}");
    assert!(refused.stderr.contains("write an api.socket in a writable folder, or run as root"), "{refused}");
    assert_eq!(scene.backend(0)["phase"], "serving");
    assert_eq!(scene.spread(3).get(&0), Some(&3));
}

#[test]
fn root_backends_are_a_view_of_top() {
    if skipped() {
        return;
    }
    let scene = Scene::new("top", 2);
    scene.configure("", "", &[0, 1]);
    scene.run();
    scene.spread(8);
    let socket = scene.path("lb.sock");
    let top = |options: &[&str]| {
        let all = [&["top", "--once", "--interval", "200ms", "--view", "backends", "--socket"], options].concat();
        run(Command::new(DWELL).args(all), b"")
    };
    let table = top(&[&socket]);
    assert_eq!((table.status, table.stderr.as_str()), (Some(0), ""), "{table}");
    let lines: Vec<_> = table.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{table}");
    assert!(lines[0].contains("BACKEND") && lines[0].contains("▼RESP"), "{table}");
    assert!(lines[1..].iter().all(|line| line.starts_with("web/s") && line.contains("serving")), "{table}");
    let json = top(&[&socket, "--format", "jsonl"]);
    let status = object(&json.stdout);
    assert_eq!(
        (&status["type"], &status["vips"][0]["backends"][1]["name"]),
        (&"lb.state".into(), &"s1".into()),
        "{json}"
    );
    let gone = top(&["/nowhere"]);
    assert_eq!((gone.status, gone.stdout.as_str()), (Some(3), ""), "{gone}");
    assert!(gone.stderr.contains("cannot reach the balancer at '/nowhere'"), "{gone}");
}

/// Sends bytes on a connection of its own. Returns the lines of the answer.
fn exchange(socket: &str, bytes: &[u8]) -> Vec<String> {
    let mut stream = UnixStream::connect(socket).unwrap();
    let reader = BufReader::new(stream.try_clone().unwrap());
    // The balancer closes the connection after a request that is too long.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    reader.lines().map_while(Result::ok).collect()
}

#[test]
fn root_garbage_is_answered_and_affects_nothing_else() {
    if skipped() {
        return;
    }
    let scene = Scene::new("api", 1);
    scene.configure("", "", &[0]);
    scene.run();
    let socket = scene.path("lb.sock");
    let load = scene.load(4);
    load.go_on();
    let not_a_request = "{\"error\":\"this is not a request";
    let lines = exchange(&socket, b"GET / HTTP/1.1\r\n{\"do\":\"where\",\"frames\":[\"00\"]}\n{\"do\":\"status\"}\n");
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].starts_with(not_a_request), "{}", lines[0]);
    assert!(lines[1].starts_with("{\"error\":\""), "{}", lines[1]);
    assert!(lines[2].starts_with("{\"ok\":{"), "{}", lines[2]);
    for garbage in [
        &[0xff; 100][..],
        &[0; 5000],
        &b"[".repeat(200_000),
        b"{\"do\":\"weight\",\"backend\":\"s0\",\"weight\":1e999}",
        b"{\"do\":\"drain\",\"backend\":\"s0\",\"undo\":false",
        b"{\"do\":\"status\",\"more\":1}",
        b"\n",
    ] {
        let lines = exchange(&socket, garbage);
        assert!(lines.len() == 1 && lines[0].starts_with(not_a_request), "{lines:?}");
    }
    let lines = exchange(&socket, &b"x".repeat(300_000));
    assert_eq!(lines, ["{\"error\":\"a request has at most 262144 bytes\"}"]);
    // Silent connections count against the limit until they close.
    let silent: Vec<_> = (0..40).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let mut line = String::new();
    BufReader::new(&silent[39]).read_line(&mut line).unwrap();
    assert!(line.contains("try again later"), "{line}");
    load.go_on();
    drop(silent);
    eventually("a connection is accepted again", || scene.lb(&["status"]).status == Some(0));
    assert_eq!(scene.backend(0)["phase"], "serving");
    assert_eq!(scene.backend(0)["weight"], 1.0);
    load.go_on();
    assert_eq!(load.end(), [""; 0]);
    assert_eq!(scene.end().status, Some(0));
}

#[test]
fn root_events_go_to_a_file_that_a_hangup_opens_anew_besides_reloading() {
    if skipped() {
        return;
    }
    let scene = Scene::new("written", 2);
    scene.configure("", "", &[0]);
    let (file, moved) = (scene.path("events.jsonl"), scene.path("events.jsonl.1"));
    let script = format!("exec \"$0\" \"$@\" --write {file}");
    scene.run_by(&["sh", "-c", &script]);
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    eventually("it tells that it has started", || read(&file).contains("lb.started"));
    std::fs::rename(&file, &moved).unwrap();
    scene.configure("", "", &[0, 1]);
    scene.with_run(|run| run.signal(Signal::SIGHUP));
    eventually("the new file tells what changed", || read(&file).contains("lb.changed"));
    let run = scene.end();
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), ""), "{run}");
    assert_eq!(events(&read(&moved), "lb.started").len(), 1);
    let last = events(&read(&file), "lb.status");
    assert_eq!((last.len(), &last[0]["last"], &last[0]["lost"]), (1, &true.into(), &0.into()), "{last:?}");
    assert!(!read(&moved).contains("lb.changed"), "{}", read(&moved));
}

#[test]
fn root_a_change_that_cannot_be_saved_is_said_not_to_be_until_it_is() {
    if skipped() {
        return;
    }
    let scene = Scene::new("unsaved", 2);
    scene.configure("", "", &[0, 1]);
    scene.run();
    let in_the_way = scene.path("lb.sock.state.new");
    let warning = "it cannot be saved: '";
    let is_warned = || scene.status()["warnings"].to_string().contains(warning);
    assert!(!is_warned());
    std::fs::create_dir(&in_the_way).unwrap();
    let drained = scene.lb(&["drain", "s1"]);
    assert!(drained.status == Some(0) && drained.stderr.contains(warning), "{drained}");
    assert!(is_warned());
    std::fs::remove_dir(&in_the_way).unwrap();
    eventually("it is saved", || !is_warned());
    scene.kill();
    scene.run();
    assert_eq!(scene.backend(1)["phase"], "draining");
}

#[test]
fn root_events_say_who_asked_and_a_dry_run_of_a_reload_changes_nothing() {
    if skipped() {
        return;
    }
    let scene = Scene::new("audit", 2);
    scene.configure("", "", &[0]);
    scene.run();
    scene.configure("", "", &[0, 1]);
    let there = "VIP 'web': backend 's1' (10.79.0.4) joins with weight 1\n";
    let dry = scene.lb(&["reload", "--dry-run"]);
    assert_eq!((dry.status, dry.stdout.as_str()), (Some(0), there), "{dry}");
    assert!(dry.stderr.contains("a dry run: nothing was changed"), "{dry}");
    assert_eq!(scene.status()["vips"][0]["backends"].as_array().unwrap().len(), 1);
    assert_eq!(scene.ok(&["reload"]), there);
    scene.configure("", "policy = \"fast\"", &[0]);
    for arguments in [&["reload", "--dry-run"][..], &["reload"]] {
        let refused = scene.lb(arguments);
        assert_eq!(refused.status, Some(2), "{refused}");
        assert!(refused.stderr.contains("vip.policy: unknown value"), "{refused}");
    }
    scene.ok(&["drain", "s1"]);
    scene.configure("", "", &[0]);
    scene.with_run(|run| run.signal(Signal::SIGHUP));
    eventually("the signal is handled", || scene.status()["vips"][0]["backends"].as_array().unwrap().len() == 1);
    let run = scene.end();
    let (changed, refused) = (events(&run.stdout, "lb.changed"), events(&run.stdout, "lb.refused"));
    assert_eq!((changed.len(), refused.len()), (3, 1), "{run}");
    let is_by_root = |event: &Value| event["uid"] == 0 && event["pid"].as_u64() > Some(0);
    assert!(changed[..2].iter().chain(&refused).all(is_by_root), "{run}");
    assert_eq!(
        (&changed[2]["by"], &changed[2]["uid"], &changed[2]["pid"]),
        (&"reload".into(), &Value::Null, &Value::Null)
    );
}
