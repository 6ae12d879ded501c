//! `dwell report -r clickhouse://…` where a server, which a test plays, does not finish.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::Command,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::Duration,
};

use nix::sys::signal::Signal;

use crate::support::{DWELL, Process, dwell, start};

/// A server that knows of an hour, and begins to answer when it is asked for the rows of it. Returns its address, and what
/// hears of each row that was asked for.
fn stalling_server() -> (String, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("clickhouse://{}/dwell", listener.local_addr().unwrap());
    let (tell, told) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let tell = tell.clone();
            thread::spawn(move || answer(stream, &tell));
        }
    });
    (address, told)
}

/// Reads a request to a ClickHouse server, and returns the query in it. `None` if the connection fails.
pub fn query(stream: &mut TcpStream) -> Option<String> {
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut buffer).ok()?;
        request.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&request);
        let Some((head, query)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if length == Some(query.len()) {
            return Some(query.to_owned());
        }
    }
}

fn answer(mut stream: TcpStream, tell: &Sender<()>) -> Option<()> {
    let query = query(&mut stream)?;
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    if query.starts_with("SELECT count()") {
        let line = "1\t0\t3600000000000\n";
        return write!(stream, "{head}{:x}\r\n{line}\r\n0\r\n\r\n", line.len()).ok();
    }
    if query.contains("ORDER BY max(n)") {
        return write!(stream, "{head}0\r\n\r\n").ok();
    }
    write!(stream, "{head}5\r\n36000").ok()?;
    tell.send(()).ok()?;
    // Until the other end has closed.
    stream.read(&mut [0; 4096]).ok().map(drop)
}

fn report(address: &str, temporary: &std::path::Path, more: &[&str]) -> Process {
    let mut command = Command::new(DWELL);
    command.args(["report", "--read", address]).args(more).env("TMPDIR", temporary).env_remove("SQLITE_TMPDIR");
    start(&mut command)
}

#[test]
fn nothing_is_left_of_what_was_copied_by_a_report_that_is_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let (address, asked) = stalling_server();
    let process = report(&address, folder.path(), &[]);
    asked.recv_timeout(Duration::from_secs(60)).unwrap();
    process.signal(Signal::SIGINT);
    assert_ne!(process.end().status, Some(0));
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_server_that_takes_too_long_is_told_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let (address, _asked) = stalling_server();
    let run = report(&address, folder.path(), &["--clickhouse-timeout", "500ms"]).end();
    assert_eq!(run.status, Some(2), "{run}");
    assert!(run.stderr.contains("did not answer within 500ms"), "{run}");
    assert!(run.stderr.contains("ask for less with --since, or wait longer with --clickhouse-timeout"), "{run}");
}

#[test]
fn options_of_a_server_are_refused_with_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (store, key) = (path("store"), path("key"));
    assert_eq!(dwell(&["collect", "--new-key", &key]).status, Some(0));
    let collect = ["collect", "--listen", "127.0.0.1:0", "--key-file", &key, "--store", &store];
    let report = ["report", "--read", &store, "--output", &path("page")];
    for (verb, option, value) in [
        (&report[..], "--clickhouse-password-file", "password"),
        (&report[..], "--clickhouse-timeout", "1m"),
        (&report[..], "--clickhouse-copy-limit", "1G"),
        (&collect[..], "--clickhouse-password-file", "password"),
        (&collect[..], "--spool", "spool"),
        (&collect[..], "--spool-limit", "100M"),
    ] {
        let run = dwell(&[verb, &[option, value]].concat());
        assert_eq!(run.status, Some(2), "{run}");
        let says = format!("{option} is for a store on a server, clickhouse://HOST:PORT/DATABASE");
        assert!(run.stderr.contains(&says), "{run}");
    }
}
