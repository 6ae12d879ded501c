//! `dwell why` on real connections whose trouble is known: over loopback, without privilege.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::{
    records::objects,
    support::{Run, dwell},
};

fn why(arguments: &[&str]) -> (Run, Option<Value>) {
    let run = dwell(&[&["why", "--format", "jsonl"], arguments].concat());
    let verdict = objects(&run.stdout).pop();
    (run, verdict)
}

/// A verdict on the connections of this listener, while `traffic` runs.
fn verdict(listener: &TcpListener) -> Value {
    let target = format!(":{}", listener.local_addr().unwrap().port());
    let (run, verdict) = why(&[&target, "--duration", "2s"]);
    let verdict = verdict.unwrap_or_else(|| panic!("{run}"));
    let parts = verdict["parts"].as_array().unwrap();
    let sum: f64 = parts.iter().map(|part| part["share"].as_f64().unwrap()).sum();
    assert!(parts.is_empty() || (sum - 1.0).abs() < 1e-4, "the parts add up: {verdict}");
    verdict
}

/// Checks the cause that is named. Other work on this machine may be the cause for once, so a look may be repeated.
fn names(listener: &TcpListener, cause: &str) -> Value {
    let mut found = verdict(listener);
    for _ in 0..4 {
        if found["cause"] == cause {
            break;
        }
        found = verdict(listener);
    }
    assert_eq!(found["cause"], cause, "{found}");
    found
}

fn pair() -> (TcpListener, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    (listener, client, server)
}

#[test]
fn a_service_that_works_long_is_slow() {
    let (listener, mut client, mut server) = pair();
    thread::spawn(move || {
        let mut request = [0; 100];
        while server.read_exact(&mut request).is_ok() {
            thread::sleep(Duration::from_millis(50));
            if server.write_all(&request).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        let mut answer = [0; 100];
        while client.write_all(&answer).is_ok() && client.read_exact(&mut answer).is_ok() {}
    });
    let verdict = names(&listener, "slow-service");
    assert!(!verdict["remedies"].as_array().unwrap().is_empty());
}

#[test]
fn a_reader_that_sleeps_is_slow() {
    let (listener, mut client, mut server) = pair();
    thread::spawn(move || while client.write_all(&[0; 65536]).is_ok() {});
    thread::spawn(move || {
        while server.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0) {
            thread::sleep(Duration::from_millis(5));
        }
    });
    names(&listener, "slow-reader");
}

#[test]
fn an_application_that_pauses_is_slow() {
    let (listener, mut client, mut server) = pair();
    thread::spawn(move || {
        while client.write_all(&[0; 10_000]).is_ok() {
            thread::sleep(Duration::from_millis(50));
        }
    });
    thread::spawn(move || while server.read(&mut [0; 65536]).is_ok_and(|bytes| bytes > 0) {});
    names(&listener, "slow-application");
}

#[test]
fn a_connection_without_traffic_is_idle_and_nothing_is_guessed() {
    let (listener, _client, _server) = pair();
    let target = format!(":{}", listener.local_addr().unwrap().port());
    let (run, verdict) = why(&[&target, "--duration", "1s"]);
    assert_eq!(run.status, Some(4), "{run}");
    let verdict = verdict.unwrap();
    assert_eq!((&verdict["outcome"], &verdict["cause"]), (&"no-traffic".into(), &Value::Null));
    assert_eq!(verdict["connections"], 2);
}

#[test]
fn a_program_is_looked_at_until_it_ends() {
    let (run, verdict) = why(&["--", "sh", "-c", "echo its output; sleep 0.2"]);
    assert_eq!(run.status, Some(4), "{run}");
    assert!(run.stderr.contains("its output"), "{run}");
    assert_eq!(verdict.unwrap()["outcome"], "no-traffic");
}

#[test]
fn a_target_that_is_not_one_is_refused_with_what_to_write() {
    for (target, wanted) in [
        ("4194304", "there is no process"),
        ("nginx.service", "MainPID"),
        (":http", "65535"),
        ("/sys/fs/cgroup", "pidof"),
    ] {
        let run = dwell(&["why", target]);
        assert_eq!(run.status, Some(2), "{run}");
        assert!(run.stderr.contains(wanted), "{run}");
    }
    let run = dwell(&["why"]);
    assert_eq!(run.status, Some(2), "{run}");
}

#[test]
fn the_text_has_the_sentence_first_and_says_how_sure_it_is() {
    let (listener, _client, _server) = pair();
    let target = format!(":{}", listener.local_addr().unwrap().port());
    let run = dwell(&["why", &target, "--duration", "1s"]);
    assert!(run.stdout.starts_with("The connections of the target were idle"), "{run}");
    assert!(run.stdout.contains("\nCertainty\n  none: 2 connections"), "{run}");
}
