//! `dwell sim`: tables, lines and pages, and what it says of wrong input.

use std::{fs, path::PathBuf, process::Command};

use dwell_capture::{LinkType, Writer};
use etherparse::PacketBuilder;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    records::{object, objects},
    support::{DWELL, dwell, eventually, prepare, start},
};

/// A folder with a scenario.
fn scenario(text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scenario.toml");
    fs::write(&file, text).unwrap();
    (folder, file)
}

const SMALL: &str = "\
policies = [\"zero-rtt\", \"least-loaded\"]
servers = [4, 8]
runs = 2
interval = \"100ms\"
[trace]
kind = \"synthetic\"
clients = 100
connections = 2000
packet_gap = \"1ms\"
";

fn lines(arguments: &[&str]) -> Vec<Value> {
    let run = dwell(arguments);
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{run}");
    objects(&run.stdout)
}

#[test]
fn a_scenario_becomes_a_table() {
    let (_folder, file) = scenario(SMALL);
    let run = dwell(&["sim", "--scenario", file.to_str().unwrap()]);
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{run}");
    let table: Vec<Vec<&str>> = run.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(table[0][..3], ["policy", "servers", "runs"], "{run}");
    let rows: Vec<_> = table[1..5].iter().map(|row| row[..3].to_vec()).collect();
    let expected =
        [["zero-rtt", "4", "2"], ["least-loaded", "4", "2"], ["zero-rtt", "8", "2"], ["least-loaded", "8", "2"]];
    assert_eq!(rows, expected, "{run}");
}

#[test]
fn a_seed_gives_the_same_lines_again() {
    let (_folder, file) = scenario(SMALL);
    let file = file.to_str().unwrap();
    let of = |seed| {
        let mut lines = lines(&["sim", "--scenario", file, "--format", "jsonl", "--seed", seed]);
        for line in &mut lines {
            assert!(line["elapsed_ns"].take()["mean"].as_f64().unwrap() > 0.0);
        }
        lines
    };
    let first = of("7");
    assert_eq!(first.len(), 4);
    assert_eq!(first, of("7"));
    assert_ne!(first, of("8"));
    let zero = &first[0];
    assert_eq!((&zero["policy"], &zero["servers"], &zero["runs"]), (&"zero-rtt".into(), &4.into(), &2.into()));
    let counts = |kind: &str, count: &str| zero["zero_rtt"][kind][count].as_u64().unwrap();
    assert_eq!(counts("short", "connections") + counts("long", "connections"), 4000);
    let p60 = &zero["first_byte_ratio"]["p60"];
    assert!(p60["mean"].as_f64().unwrap() >= 1.0 && p60["within"].is_f64(), "{zero}");
}

#[test]
fn a_page_needs_nothing_else() {
    let (folder, file) = scenario(SMALL);
    let page = folder.path().join("page.html");
    let run = dwell(&["sim", "--scenario", file.to_str().unwrap(), "--runs", "1", "--plot", page.to_str().unwrap()]);
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{run}");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!doctype html>"), "{page}");
    // five charts by servers, each with a line a policy
    assert_eq!(page.matches("<polyline").count(), 10, "{page}");
    assert!(page.contains(run.stdout.lines().next().unwrap()), "{page}");
    assert!(!page.contains("src=") && !page.contains("href="), "{page}");
}

#[test]
fn what_is_wrong_is_said_with_status_2() {
    let (folder, file) = scenario("[trace]\nkind = \"csv\"\npath = \"flows.csv\"\n");
    let file = file.to_str().unwrap();
    let flows = folder.path().join("flows.csv");
    fs::write(&flows, "start,client,packets,bytes\n0,a,1,10\n1,b,two,10\n").unwrap();
    let run = dwell(&["sim", "--scenario", file]);
    let expected =
        format!("dwell: '{}', line 3, column 5: packets is 'two'; it may be a number, 1 to 2^30\n", flows.display());
    assert_eq!((run.status, run.stderr.as_str()), (Some(2), expected.as_str()), "{run}");
    fs::remove_file(&flows).unwrap();
    for arguments in [
        &["sim"][..],
        &["sim", "--scenario", file],
        &["sim", "--scenario", "/nonexistent"],
        &["sim", "--scenario", file, "--runs", "0"],
    ] {
        let run = dwell(arguments);
        assert_eq!(run.status, Some(2), "{run}");
        assert!(run.stdout.is_empty() && !run.stderr.is_empty(), "{run}");
    }
}

/// A scenario with a capture of UDP packets to port 443, of which the first `snap` bytes are kept.
fn captured(link: LinkType, snap: usize) -> (TempDir, PathBuf) {
    let (folder, file) =
        scenario("servers = [2]\ninterval = \"1ms\"\n[trace]\nkind = \"capture\"\npath = \"a.pcap\"\n");
    let mut writer = Writer::new(fs::File::create(folder.path().join("a.pcap")).unwrap(), link).unwrap();
    for number in 0..4 {
        let builder = PacketBuilder::ipv4([10, 0, 0, number], [10, 0, 1, 1], 64).udp(5000, 443);
        let mut data = Vec::new();
        builder.write(&mut data, &[0; 1000]).unwrap();
        writer.write(u64::from(number) * 1_000_000, &data[..data.len().min(snap)], data.len() as u32).unwrap();
    }
    writer.finish().unwrap();
    (folder, file)
}

#[test]
fn packets_of_a_capture_that_are_cut_or_cannot_be_read_are_reported() {
    let run = |link, snap| {
        let (folder, file) = captured(link, snap);
        let run = dwell(&["sim", "--scenario", file.to_str().unwrap(), "--format", "jsonl"]);
        let path = folder.path().join("a.pcap").display().to_string();
        (run.status, run.stderr.replace(&path, "FILE"), run.stdout)
    };
    let (status, stderr, whole) = run(LinkType::RAW, 2000);
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
    let (status, stderr, cut) = run(LinkType::RAW, 128);
    let expected = "dwell: 'FILE' has 4 packets to port 443 that are cut by the snap length: they count with the \
                    lengths in their IP headers\n";
    assert_eq!((status, stderr.as_str()), (Some(0), expected));
    let counts = |lines: &str| object(lines.lines().next().unwrap())["zero_rtt"].take();
    assert_eq!(counts(&cut), counts(&whole));
    let (status, stderr, _) = run(LinkType::IEEE802_11, 2000);
    assert_eq!(status, Some(2));
    assert!(stderr.contains("4 packets of link type IEEE802_11, which cannot be read"), "{stderr}");
}

/// Seconds of processor time that a process has used.
fn used(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    ticks as f64 / 100.0
}

#[test]
fn ctrl_c_prints_what_is_done() {
    let (_folder, file) = scenario(&SMALL.replace("servers = [4, 8]", "servers = [4]"));
    let mut command = Command::new(DWELL);
    command.args(["sim", "--scenario", file.to_str().unwrap(), "--runs", "10000", "--format", "jsonl"]);
    let process = start(prepare(&mut command));
    // far more than a run takes, and far less than all
    eventually("that it has run for a second", || used(process.id()) > 1.0);
    let run = process.interrupt();
    assert_eq!(run.status, Some(4), "{run}");
    assert_eq!(run.stderr, "dwell: stopped: the results are those of the runs so far\n");
    let first: Value = object(run.stdout.lines().next().unwrap());
    let runs = first["runs"].as_u64().unwrap();
    assert!((1..10_000).contains(&runs) && first["runs_requested"] == 10_000, "{run}");
}

#[test]
fn ctrl_c_before_a_run_is_complete_says_that_there_is_no_result() {
    let (_folder, file) = scenario(&SMALL.replace("connections = 2000", "connections = 1000000000"));
    let mut command = Command::new(DWELL);
    command.args(["sim", "--scenario", file.to_str().unwrap()]);
    let process = start(prepare(&mut command));
    eventually("it simulates", || used(process.id()) > 0.1);
    let run = process.interrupt();
    let said = (run.status, run.stdout.as_str(), run.stderr.as_str());
    assert_eq!(said, (Some(4), "", "dwell: stopped before a run was complete: there is no result\n"));
}
