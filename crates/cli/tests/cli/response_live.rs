//! `dwell response` on interfaces.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

use dwell_testbed::Namespace;

use crate::{
    metrics::{get, value},
    records::number,
    response::epochs_of,
    support::{DWELL, Pair, Process, eventually, programs, skipped, spawn, tool},
};

const ADDRESS: &str = "127.0.0.1:9469";

/// Starts it, and waits until it watches.
pub fn respond(namespace: &Namespace, hook_of: &str, arguments: &[&str]) -> Process {
    let before = programs(namespace, hook_of);
    let process = spawn(namespace, DWELL, &[&["response"], arguments].concat());
    eventually("the programs are attached", || programs(namespace, hook_of) != before);
    process
}

/// Sends requests one after the other, each of which is answered after 2 ms.
fn ask(pair: &Pair, requests: u32) {
    let listener = pair.right.enter(|| TcpListener::bind("10.78.0.2:7001")).unwrap().unwrap();
    let mut client = pair.left.enter(|| TcpStream::connect("10.78.0.2:7001")).unwrap().unwrap();
    let (mut server, _) = listener.accept().unwrap();
    [&client, &server].into_iter().for_each(|stream| stream.set_nodelay(true).unwrap());
    thread::scope(|scope| {
        scope.spawn(move || {
            while server.read_exact(&mut [0; 100]).is_ok() {
                thread::sleep(Duration::from_millis(2));
                server.write_all(&[1; 500]).unwrap();
            }
        });
        for _ in 0..requests {
            client.write_all(&[1; 100]).unwrap();
            client.read_exact(&mut [0; 500]).unwrap();
        }
        drop(client);
    });
}

#[test]
fn root_metrics_say_what_the_epochs_say() {
    if skipped() {
        return;
    }
    let pair = Pair::start("response-metrics");
    let with = ["-i", "right0", "--interval", "100ms", "--format", "jsonl", "--metrics", ADDRESS, "--prefix4", "32"];
    let dwell = respond(&pair.right, "right0", &with);
    ask(&pair, 400);
    thread::sleep(Duration::from_millis(500));
    let page = get(&pair.right, "/metrics");
    let run = dwell.interrupt();
    assert_eq!(run.status, Some(0), "{run}");

    let epochs = epochs_of(&run.stdout);
    let valid: Vec<_> = epochs.iter().filter(|epoch| epoch["latency"]["valid"] == true).collect();
    assert!(!valid.is_empty(), "{run}");
    let told = value(&page, r#"dwell_response_epochs_total{outcome="valid"}"#);
    assert_eq!(told, Some(valid.len() as f64), "{page}");
    let turns = valid.iter().filter(|epoch| epoch["latency"]["method"] == "turns");
    let responses: u64 = turns.map(|epoch| number(epoch, "count")).sum();
    let labels = r#"interface="right0",method="turns",prefix="10.78.0.2/32""#;
    let counted = value(&page, &format!("dwell_response_seconds_count{{{labels}}}"));
    assert_eq!(counted, Some(responses as f64), "{page}");
    let mean = value(&page, r#"dwell_response_mean_seconds{prefix="10.78.0.2/32"}"#);
    assert!(mean.is_some_and(|mean| mean > 0.0 && mean < 1.0), "{page}");
    // they end with tenths of the wall clock's seconds
    for epoch in &epochs {
        let time = epoch["time"].as_str().unwrap();
        assert!(time.ends_with("00000000Z"), "{time}");
    }
}

#[test]
fn root_a_program_array_is_used_and_given_back() {
    if skipped() {
        return;
    }
    let pair = Pair::start("response-chain");
    let map = format!("/sys/fs/bpf/dwell-test-{}", std::process::id());
    let dump = || tool(&pair.right, "bpftool", &["map", "dump", "pinned", &map]);
    tool(
        &pair.right,
        "bpftool",
        &["map", "create", &map, "type", "prog_array", "key", "4", "value", "4", "entries", "4", "name", "slots"],
    );
    let slot = format!("{map}:1:2");
    let dwell = respond(&pair.right, "right0", &["-i", "right0", "--tail-call", &slot]);
    assert!(dump().contains("Found 1 element"), "{}", dump());
    let second = spawn(&pair.right, DWELL, &["response", "-i", "right0", "--tail-call", &slot]).end();
    assert_eq!(second.status, Some(2), "{second}");
    assert!(second.stderr.contains("another program has this slot"), "{second}");
    let run = dwell.interrupt();
    assert_eq!(run.status, Some(0), "{run}");
    assert!(dump().contains("Found 0 elements"), "{}", dump());
    std::fs::remove_file(&map).unwrap();
}
