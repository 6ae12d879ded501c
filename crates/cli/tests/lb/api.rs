//! The API: who may ask, and what is no request.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream, process::CommandExt},
    process::Command,
};

use crate::{
    scene::Scene,
    support::{eventually, run, skipped},
};

/// A user who owns nothing.
const NOBODY: u32 = 65534;

#[test]
fn root_only_root_may_ask() {
    if skipped() {
        return;
    }
    let scene = Scene::new("others", 1);
    scene.configure("", "", &[0]);
    scene.run();
    let socket = scene.path("lb.sock");
    let mode = fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // All that is in the way is the socket's mode.
    let binary = scene.for_anybody();
    for verb in [&["status"][..], &["drain", "s0"], &["top"]] {
        let mut command = Command::new(&binary);
        command.args(["lb"]).args(verb).args(["--socket", &socket]);
        let refused = run(command.uid(NOBODY).gid(NOBODY), b"");
        assert_eq!((refused.status, refused.stdout.as_str()), (Some(3), ""), "{refused}");
        let said = "Permission denied (os error 13); only its owner may: be root";
        assert!(refused.stderr.contains(said), "{refused}");
    }
    assert_eq!(scene.backend(0)["phase"], "serving");
    assert_eq!(scene.spread(3).get(&0), Some(&3));
}

/// Says this on a connection of its own, and nothing more; the lines of the answer.
fn answers(socket: &str, said: &[u8]) -> Vec<String> {
    let mut stream = UnixStream::connect(socket).unwrap();
    let reader = BufReader::new(stream.try_clone().unwrap());
    // Who is told that a request is too long may be closed to.
    let _ = stream.write_all(said);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    reader.lines().map_while(Result::ok).collect()
}

#[test]
fn root_garbage_is_answered_and_disturbs_nobody() {
    if skipped() {
        return;
    }
    let scene = Scene::new("api", 1);
    scene.configure("", "", &[0]);
    scene.run();
    let socket = scene.path("lb.sock");
    let load = scene.load(4);
    load.go_on();
    let no_request = "{\"error\":\"this is no request";
    let lines = answers(&socket, b"GET / HTTP/1.1\r\n{\"do\":\"where\",\"frames\":[\"00\"]}\n{\"do\":\"status\"}\n");
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].starts_with(no_request), "{}", lines[0]);
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
        let lines = answers(&socket, garbage);
        assert!(lines.len() == 1 && lines[0].starts_with(no_request), "{lines:?}");
    }
    let lines = answers(&socket, &b"x".repeat(300_000));
    assert_eq!(lines, ["{\"error\":\"a request has at most 262144 bytes\"}"]);
    // Those who say nothing take up places, and give them back.
    let silent: Vec<_> = (0..40).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let mut line = String::new();
    BufReader::new(&silent[39]).read_line(&mut line).unwrap();
    assert!(line.contains("come again"), "{line}");
    load.go_on();
    drop(silent);
    eventually("there are places again", || scene.lb(&["status"]).status == Some(0));
    assert_eq!(scene.backend(0)["phase"], "serving");
    assert_eq!(scene.backend(0)["weight"], 1.0);
    load.go_on();
    assert_eq!(load.end(), [""; 0]);
    assert_eq!(scene.end().status, Some(0));
}
