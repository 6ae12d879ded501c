//! `--annotate`: captures with samples as comments, as tshark reads them.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use dwell_testbed::skip::lacks_program;
use jiff::Timestamp;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::{
    records::of_type,
    support::{DWELL, Run, dwell, eventually, prepare, run},
    wire::{capture, everyday, pings, spinning},
};

/// A capture of the repository.
fn recorded(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures")).join(name)
}

/// Replays a capture and annotates it. Returns the run, and the comments that its samples should have become, each with the
/// time of its packet in nanoseconds.
fn annotated(input: &Path, output: &Path, methods: &[&str]) -> (Run, Vec<(i128, String)>) {
    let (input, output) = (input.to_str().unwrap(), output.to_str().unwrap());
    let always = ["rtt", "-r", input, "--format", "jsonl", "--annotate", output];
    let run = dwell(&[&always, methods].concat());
    let samples = of_type(&run.stdout, "rtt.sample");
    let expected = samples.iter().map(|sample| {
        let time: Timestamp = sample["time"].as_str().unwrap().parse().unwrap();
        (time.as_nanosecond(), comment(sample))
    });
    let expected = expected.collect();
    (run, expected)
}

fn comment(sample: &Value) -> String {
    let ns = |key: &str| sample[key].as_u64().unwrap();
    // As people write a number: as short as it goes, and exact.
    let ms = |ns: u64| format!("{} ms", ns as f64 / 1e6);
    let handshake = if sample["handshake"] == true { ", handshake" } else { "" };
    let method = sample["method"].as_str().unwrap();
    format!("dwell: rtt {}, {method}{handshake}, base {}", ms(ns("rtt_ns")), ms(ns("rtt_ns") - ns("queue_ns")))
}

/// The fields of each frame, by tshark.
fn frames(file: &Path, fields: &[&str]) -> Vec<Vec<String>> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-r"]).arg(file).args(["-T", "fields", "-E", "separator=/t", "-E", "aggregator=|"]);
    tshark.args(fields.iter().flat_map(|field| ["-e", field]));
    let run = run(&mut tshark, b"");
    assert_eq!(run.status, Some(0), "{run}");
    run.stdout.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// What a frame has but for its time and comments.
const FIELDS: [&str; 5] = ["frame.number", "frame.len", "frame.cap_len", "frame.protocols", "data.data"];

/// The frames of a capture without times and comments, and the comments, each with its time.
fn frames_and_comments(file: &Path) -> (Vec<Vec<String>>, Vec<(i128, String)>) {
    let mut all = Vec::new();
    let mut frames = frames(file, &[&["frame.time_epoch", "frame.comment"], &FIELDS[..]].concat());
    for frame in &mut frames {
        let [time, comments] = &frame.drain(..2).collect::<Vec<_>>()[..] else { unreachable!() };
        // A packet without a time has no comments either.
        if !comments.is_empty() {
            all.extend(comments.split('|').map(|comment| (nanoseconds(time), comment.to_owned())));
        }
    }
    (frames, all)
}

fn comments(file: &Path) -> Vec<(i128, String)> {
    frames_and_comments(file).1
}

/// The time that tshark writes with nine decimals.
fn nanoseconds(time: &str) -> i128 {
    let (seconds, nanoseconds) = time.split_once('.').unwrap();
    seconds.parse::<i128>().unwrap() * 1_000_000_000 + nanoseconds.parse::<i128>().unwrap()
}

/// Annotates, and compares with what tshark sees. Returns the number of comments.
fn agrees(input: &Path, output: &Path, methods: &[&str]) -> usize {
    let (run, expected) = annotated(input, output, methods);
    assert!(run.status == Some(0) || run.stderr.contains("packets have no time"), "{}: {run}", input.display());
    let (frames, comments) = frames_and_comments(output);
    assert_eq!(comments, expected, "{}", input.display());
    assert_eq!(frames, frames_and_comments(input).0, "{}", input.display());
    expected.len()
}

#[test]
fn tshark_sees_each_sample_at_the_packet_that_completed_it() {
    if lacks_program("tshark") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let made = folder.path().join("made.pcap");
    let (once, twice) = (folder.path().join("once.pcapng"), folder.path().join("twice.pcapng"));
    for packets in [spinning(30), everyday()] {
        fs::write(&made, capture(&packets)).unwrap();
        assert!(agrees(&made, &once, &[]) > 5);
    }
    // A pcapng file that has comments already keeps them.
    let (run, added) = annotated(&once, &twice, &[]);
    assert_eq!(run.status, Some(0), "{run}");
    let mut both: Vec<_> = comments(&once).into_iter().chain(added).collect();
    both.sort();
    let mut seen = comments(&twice);
    seen.sort();
    assert_eq!(seen, both);
    // TCP and QUIC between two hosts, tags, packets without a time.
    for name in ["delayed-acks.pcap.gz", "two-vlans.pcap.gz", "simple-packets.pcapng.gz", "line.pcap.gz"] {
        agrees(&recorded(name), &once, &[]);
    }
    // A spin edge has two samples, and so two comments.
    let of_line = comments(&once);
    let packets: BTreeSet<_> = of_line.iter().map(|(time_ns, _)| time_ns).collect();
    assert!(of_line.len() > packets.len() + 100, "{} of {} packets", of_line.len(), packets.len());
}

#[test]
fn a_cut_capture_is_annotated_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("cut.pcap"), folder.path().join("out.pcapng"));
    let whole = capture(&pings(100));
    fs::write(&input, &whole[..whole.len() - 20]).unwrap();
    let (run, expected) = annotated(&input, &output, &[]);
    assert_eq!((run.status, expected.len()), (Some(4), 99), "{run}");
    assert!(run.stderr.contains("is cut off inside the record"), "{run}");
    assert_eq!(samples_of(&output), 99);
}

/// How many samples a whole capture gives.
fn samples_of(capture: &Path) -> usize {
    let run = dwell(&["rtt", "-r", capture.to_str().unwrap(), "--format", "jsonl"]);
    assert_eq!(run.status, Some(0), "{run}");
    of_type(&run.stdout, "rtt.sample").len()
}

#[test]
fn a_copy_is_valid_after_ctrl_c_and_complete_though_nobody_reads_the_samples() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.pcapng");
    let mut command = Command::new(DWELL);
    prepare(&mut command).stdin(Stdio::piped());
    command.args(["rtt", "-r", "-", "--annotate"]).arg(&output);
    let mut child = command.spawn().unwrap();
    // Nobody reads what it prints.
    drop(child.stdout.take());
    let mut pipe = child.stdin.take().unwrap();
    let many = capture(&pings(3000));
    pipe.write_all(&many[..many.len() - 20]).unwrap();
    // It has read as much as the pipe does not hold, and nothing of the copy is flushed before the end.
    eventually("the copy is begun", || output.metadata().is_ok_and(|file| file.len() > 100_000));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let status = child.wait_with_output().unwrap();
    drop(pipe);
    assert_eq!(status.status.code(), Some(4), "{}", String::from_utf8_lossy(&status.stderr));
    assert_eq!(samples_of(&output), 2999);
}

#[test]
fn a_full_disk_leaves_whole_packets_and_is_said() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("x.pcap"), capture(&pings(5000))).unwrap();
    let script = "trap '' XFSZ; ulimit -f 512; \"$0\" rtt -r x.pcap --format none --annotate out.pcapng";
    let run = run(Command::new("sh").current_dir(folder.path()).args(["-c", script, DWELL]), b"");
    assert_eq!(run.status, Some(4), "{run}");
    assert!(run.stderr.contains("cannot write to out.pcapng: File too large"), "{run}");
    let kept = samples_of(&folder.path().join("out.pcapng"));
    assert!((500..5000).contains(&kept), "{kept}");
}

#[test]
fn what_would_destroy_a_file_or_has_no_sense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let in_folder = |arguments: &[&str]| {
        let mut command = Command::new(DWELL);
        run(command.current_dir(folder.path()).arg("rtt").args(arguments), b"")
    };
    let bytes = capture(&pings(3));
    let input = folder.path().join("x.pcap");
    fs::write(&input, &bytes).unwrap();
    std::os::unix::fs::symlink("x.pcap", folder.path().join("link")).unwrap();
    for (arguments, words) in [
        (
            &["-r", "x.pcap", "--annotate", "link"][..],
            "--annotate link: this is the capture that is read: name another file",
        ),
        (&["-r", "x.pcap", "--annotate", "-"], "--annotate -: the copy cannot go to standard output: name a file"),
        (&["-r", "x.pcap", "--annotate", "no/such"], "No such file or directory (os error 2); name a writable file"),
        (&["-r", "x.pcap", "-w", "new", "--annotate", "new"], "this is that of --write: name another file"),
        (&["-i", "lo", "--annotate", "new"], "'--interface <IF>' cannot be used with '--annotate <FILE>'"),
    ] {
        let run = in_folder(arguments);
        assert_eq!(run.status, Some(2), "{arguments:?}: {run}");
        assert!(run.stderr.contains(words), "{arguments:?}: {run}");
    }
    let mut itself = Command::new(DWELL);
    itself.args(["rtt", "-r", "-", "--annotate"]).arg(&input).stdin(File::open(&input).unwrap());
    assert_eq!(itself.output().unwrap().status.code(), Some(2));
    assert_eq!(fs::read(&input).unwrap(), bytes);
    // What is not a capture costs neither an old file nor leaves a new one.
    fs::write(folder.path().join("text"), "text").unwrap();
    fs::write(folder.path().join("old"), "old").unwrap();
    for output in ["old", "fresh"] {
        assert_eq!(in_folder(&["-r", "text", "--annotate", output]).status, Some(2));
    }
    assert_eq!(fs::read_to_string(folder.path().join("old")).unwrap(), "old");
    assert!(!folder.path().join("fresh").exists());
}
