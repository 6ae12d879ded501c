//! `dwell stack` where something goes wrong: packets that are dropped, runs that are killed, options that make no sense,
//! privileges that are missing.

use std::{
    io::{Read, Write},
    thread,
};

use dwell_testbed::Namespace;
use nix::sys::signal::Signal;

use crate::{
    records::number,
    stack::{connect, link_ids, listen, objects, objects_of, of, segments, stamp},
    support::{DWELL, Pair, dwell, eventually, ip, run, skipped, tool},
};

/// The second copy of a byte took as long as TCP needed to miss the first: no delay of a queue.
#[test]
fn root_what_the_queue_drops_is_left_out_and_told() {
    if skipped() {
        return;
    }
    const BYTES: usize = 60 << 10;
    let pair = Pair::start("stack-drop");
    ip(&pair.left, "route replace 10.78.0.0/24 dev left0 initcwnd 60 congctl cubic\n");
    // A burst of 60 KiB does not fit.
    let shape = "qdisc add dev left0 root tbf rate 8mbit burst 3000 limit 30000";
    tool(&pair.left, "tc", &shape.split(' ').collect::<Vec<_>>());
    let dwell = stamp(&pair.left, &["--interval", "1h", "--sample-bytes", "1024"]);
    let (mut client, mut server) = connect(&pair, &listen(&pair));
    client.write_all(&[1; BYTES]).unwrap();
    server.read_exact(&mut [0; BYTES]).unwrap();
    let run = dwell.interrupt();
    let told =
        run.stderr.lines().find_map(|line| line.split_once(" retransmitted before reaching")?.0.split_once("dwell: "));
    let left_out: u64 =
        told.and_then(|(_, bytes)| bytes.split(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("{run}"));
    let status = objects_of(&run, "stack.status");
    assert_eq!(number(&status[0], "tx_retransmitted"), left_out);
    let segments = segments(&run);
    let sent = number(of(&segments, "tx", "total"), "count");
    assert!(left_out >= 10, "a burst did not fit: {run}");
    assert!(sent >= 10, "some of it did: {run}");
    assert!(sent + left_out <= BYTES as u64 / 1024, "each byte once: {run}");
    // What did fit had at most the full queue before it, which is 30 ms.
    let median = number(of(&segments, "tx", "queueing"), "p50_ns");
    assert!(median < 150_000_000, "{median} ns");
}

/// Nobody reads them until others have gone through all rows of the table: what is left is not what was asked for, whatever its
/// figures say.
#[test]
fn root_bytes_that_lose_their_place_end_the_run_as_incomplete() {
    if skipped() {
        return;
    }
    const UNREAD: usize = 48 << 10;
    const BLOCK: usize = 32 << 10;
    let pair = Pair::start("stack-lost");
    let dwell = stamp(&pair.right, &["--interval", "1h", "--sample-bytes", "64", "--fail-if", "rx total p99>1h"]);
    let listener = listen(&pair);
    let (mut client, mut server) = connect(&pair, &listener);
    let (mut other_client, mut other_server) = connect(&pair, &listener);
    client.write_all(&vec![1; UNREAD]).unwrap();
    // The table has 131,072 rows, one for each of 64 bytes.
    for _ in 0..2 * (131_072 * 64) / BLOCK {
        other_client.write_all(&[1; BLOCK]).unwrap();
        other_server.read_exact(&mut [0; BLOCK]).unwrap();
    }
    server.read_exact(&mut vec![0; UNREAD]).unwrap();
    let run = dwell.interrupt();
    assert_eq!(run.status, Some(4), "{run}");
    assert!(run.stderr.contains("stamped bytes, reads or hops were lost"), "{run}");
    let status = objects_of(&run, "stack.status").pop().unwrap();
    let count = |name: &str| number(&status["counters"], name);
    assert!(count("rx_displaced") >= 500, "{run}");
    assert_eq!(number(&status, "lost"), count("rx_displaced") + count("rx_unwalked"), "{run}");
    assert_eq!(status["fail_if"]["failed"], false, "{run}");
}

/// The second copy of a byte that this host drops after IP comes when the sender's patience ends:
/// no delay of a layer.
#[test]
fn root_what_this_host_drops_on_the_way_up_is_left_out_and_told() {
    if skipped() {
        return;
    }
    const BYTES: usize = 64 << 10;
    let pair = Pair::start("stack-input");
    let arguments = ["--interval", "1h", "--sample-bytes", "64"];
    let dwell = stamp(&pair.right, &[&arguments[..], &["--include-retransmissions"]].concat());
    let (mut client, mut server) = connect(&pair, &listen(&pair));
    // one in four, between IP and TCP
    let drop = "-A INPUT -p tcp --dport 5201 -m statistic --mode nth --every 4 --packet 0 -j DROP";
    tool(&pair.right, "iptables-legacy", &drop.split(' ').collect::<Vec<_>>());
    let writer = thread::spawn(move || {
        for _ in 0..BYTES / 1024 {
            client.write_all(&[1; 1024]).unwrap();
        }
        client
    });
    server.read_exact(&mut [0; BYTES]).unwrap();
    writer.join().unwrap();
    let run = dwell.interrupt();
    let status = objects_of(&run, "stack.status");
    let left_out = number(&status[0], "rx_retransmitted");
    assert!(left_out > 0, "{run}");
    let total_of = |again: bool| {
        let objects = objects(&run);
        let total = objects.iter().find(|object| {
            object["segment"] == "total" && object["direction"] == "rx" && object["retransmitted"] == again
        });
        total.unwrap().clone()
    };
    assert_eq!(number(&total_of(true), "count"), left_out);
    // Waits for a second copy are at least the sender's patience: of milliseconds.
    let segment = |name: &str| {
        let objects = objects(&run);
        let found = objects.iter().find(|object| object["segment"] == name && object["retransmitted"] == false);
        number(found.unwrap(), "p90_ns")
    };
    assert!(segment("ip-tcp") < number(&total_of(true), "p50_ns"), "{run}");
}

#[test]
fn root_nothing_stays_attached_however_it_ends() {
    if skipped() {
        return;
    }
    let namespace = Namespace::create("stack-end").unwrap();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
        let process = stamp(&namespace, &[]);
        let ids = link_ids(process.id());
        let is_there = |id: &String| {
            let mut show = namespace.command("bpftool");
            let shown = run(show.args(["link", "show", "id", id]), b"");
            shown.status == Some(0)
        };
        assert!(ids.len() >= 10 && ids.iter().all(is_there), "{ids:?}");
        process.signal(signal);
        process.end();
        // The kernel takes them down when it comes to it.
        eventually("nothing is attached", || !ids.iter().any(is_there));
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for (arguments, says) in [
        (&["--sample-bytes", "1000"][..], "power of two"),
        (&["--sample-bytes", "32"], "power of two"),
        (&["--port", "0"], "from 1 to 65535"),
        (&["--hooks", "magic"], "tracepoint"),
        (&["--interval", "0"], "longer than 0"),
        (&["--filter", "nowhere"], "filter 'nowhere'"),
        (&["--max-flows", "5"], "--flows"),
    ] {
        let run = dwell(&[&["stack"], arguments].concat());
        assert_eq!(run.status, Some(2), "{arguments:?}: {run}");
        assert!(run.stderr.contains(says), "{arguments:?}: {run}");
    }
}

#[test]
fn root_without_privilege_it_says_what_is_missing() {
    if skipped() {
        return;
    }
    let run = run(
        std::process::Command::new("setpriv").args([
            "--bounding-set=-sys_admin,-bpf,-net_admin,-perfmon",
            "--inh-caps=-sys_admin,-bpf,-net_admin,-perfmon",
            DWELL,
            "stack",
        ]),
        b"",
    );
    assert_eq!(run.status, Some(3), "{run}");
    assert!(run.stderr.contains("lacks CAP_BPF"), "{run}");
}
