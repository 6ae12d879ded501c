//! `--write FILE`: rotation, a file that others move, and a disk that is full.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use nix::sys::signal::Signal;

use crate::{
    records::object,
    support::{DWELL, Pair, eventually, run, skipped, watch},
    wire::{capture, pings},
};

/// Echo requests of the capture: each line of JSON has more than 100 bytes.
const PINGS: u16 = 5_000;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("x.pcap"), capture(&pings(PINGS))).unwrap();
        Folder(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn replay(&self, options: &[&str]) -> Command {
        let mut command = Command::new(DWELL);
        command.current_dir(self.0.path()).args(["rtt", "-r", "x.pcap", "--format", "jsonl"]).args(options);
        command
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn rotated_files_have_whole_records_and_together_what_would_be_printed() {
    let folder = Folder::new();
    let printed = run(&mut folder.replay(&[]), b"");
    let written = run(&mut folder.replay(&["-w", "r.jsonl", "--rotate", "200k", "--keep", "50"]), b"");
    assert_eq!((written.status, written.stdout.as_str()), (Some(0), ""), "{written}");
    let mut parts = vec![read(&folder.path("r.jsonl"))];
    for number in 1.. {
        match fs::read_to_string(folder.path(&format!("r.jsonl.{number}"))) {
            Ok(part) => parts.insert(0, part),
            Err(_) => break,
        }
    }
    assert!(parts.len() > 2, "{}", parts.len());
    for part in &parts {
        assert!(part.len() <= 200_000 && part.ends_with("}\n"));
    }
    let samples = |text: &str| {
        let samples = text.lines().filter(|line| line.contains("rtt.sample")).map(str::to_owned);
        samples.collect::<Vec<_>>()
    };
    assert_eq!(samples(&parts.concat()), samples(&printed.stdout));

    let few = run(&mut folder.replay(&["-w", "few", "--rotate", "100k", "--keep", "2"]), b"");
    assert_eq!(few.status, Some(0), "{few}");
    assert!(folder.path("few.2").exists() && !folder.path("few.3").exists());
}

/// `--format none` mutes standard output. A file that was asked for has records.
#[test]
fn the_format_none_leaves_a_file_its_records() {
    let folder = Folder::new();
    let printed = run(&mut folder.replay(&[]), b"");
    let written = |arguments: &[&str]| {
        let mut command = Command::new(DWELL);
        let run = run(command.current_dir(folder.0.path()).args(arguments), b"");
        assert_eq!((run.status, run.stdout.as_str()), (Some(0), ""), "{run}");
        let file = folder.path("none.jsonl");
        let text = read(&file);
        fs::remove_file(&file).unwrap();
        text
    };
    let samples = |text: &str| text.lines().filter(|line| line.contains("rtt.sample")).count();
    let text = written(&["rtt", "-r", "x.pcap", "--format", "none", "-w", "none.jsonl"]);
    assert_eq!((samples(&text), samples(&printed.stdout)), (usize::from(PINGS), usize::from(PINGS)));
    let text = written(&["rtt", "-r", "x.pcap", "--format", "none", "--summary", "-w", "none.jsonl"]);
    assert_eq!(object(text.lines().next().unwrap())["type"], "rtt.summary");
    let text = written(&["response", "-r", "x.pcap", "--format", "none", "-w", "none.jsonl"]);
    assert_eq!(object(text.lines().last().unwrap())["type"], "response.status");
    for verb in ["rtt", "response"] {
        let mut command = Command::new(DWELL);
        command.current_dir(folder.0.path()).args([verb, "-r", "x.pcap", "--format", "none", "--summary"]);
        let refused = run(&mut command, b"");
        assert_eq!(refused.status, Some(2), "{refused}");
        assert!(refused.stderr.contains("--format none prints no summary"), "{refused}");
    }
    let text = written(&["rtt", "-r", "x.pcap", "--format", "text", "-w", "none.jsonl"]);
    assert!(text.contains("  icmp "), "{text}");
}

/// A run adds a verdict to a file.
#[test]
fn why_writes_to_a_file() {
    let folder = Folder::new();
    let why = |more: &[&str]| {
        let mut command = Command::new(DWELL);
        let always = ["why", ":1", "--duration", "200ms", "--format", "jsonl"];
        run(command.current_dir(folder.0.path()).args(always).args(more), b"")
    };
    for lines in 1..=2 {
        let run = why(&["-w", "why.jsonl"]);
        // Nobody has a connection of this port.
        assert_eq!((run.status, run.stdout.as_str()), (Some(4), ""), "{run}");
        let text = read(&folder.path("why.jsonl"));
        assert_eq!(text.lines().count(), lines, "{text}");
        assert!(text.lines().all(|line| object(line)["type"] == "why.verdict"), "{text}");
    }
    let refused = why(&["-w", "no/such/folder"]);
    assert_eq!(refused.status, Some(2), "{refused}");
    assert!(refused.stderr.contains("nothing was started: name a writable file"), "{refused}");
}

#[test]
fn what_is_not_a_regular_file_is_not_rotated() {
    let folder = Folder::new();
    insta::assert_snapshot!(run(&mut folder.replay(&["-w", "/dev/null", "--rotate", "1M"]), b""), @"
    exit 2
    stderr: dwell: cannot write to /dev/null: only a regular file can be rotated; nothing was started: leave out --rotate
    ");
    insta::assert_snapshot!(run(&mut folder.replay(&["-w", "/no/such/folder/x"]), b""), @"
    exit 2
    stderr: dwell: cannot write to /no/such/folder/x: No such file or directory (os error 2); nothing was started: name a writable file
    ");
    insta::assert_snapshot!(run(&mut folder.replay(&["-w", "x", "--rotate", "1T"]), b""), @"
    exit 2
    stderr: error: invalid value '1T' for '--rotate <SIZE>': write a size in bytes, as in 500k, 100M or 2G
    stderr:
    stderr: For more information, try '--help'.
    ");
    // Without a size nothing would ever be rotated, and so nothing kept.
    let kept = run(&mut folder.replay(&["-w", "x", "--keep", "3"]), b"");
    assert_eq!(kept.status, Some(2), "{kept}");
    assert!(kept.stderr.contains("required arguments were not provided:\n  --rotate <SIZE>\n"), "{kept}");
    assert!(!folder.path("x").exists());
}

#[test]
fn root_a_moved_file_is_opened_anew_on_sighup_and_the_run_goes_on() {
    if skipped() {
        return;
    }
    let (folder, pair) = (Folder::new(), Pair::start("write-hup"));
    let (file, moved) = (folder.path("r.jsonl"), folder.path("r.jsonl.1"));
    let name = file.to_str().unwrap();
    let process = watch(&pair.left, &["-i", "left0", "--interval", "50ms", "--format", "jsonl", "-w", name]);
    eventually("there are records", || file.metadata().is_ok_and(|file| file.len() > 0));
    fs::rename(&file, &moved).unwrap();
    process.signal(Signal::SIGHUP);
    eventually("there are records in the new file", || file.metadata().is_ok_and(|file| file.len() > 0));
    let end = process.interrupt();
    assert_eq!(end.status, Some(0), "{end}");
    for line in (read(&moved) + &read(&file)).lines() {
        assert_eq!(object(line)["type"], "rtt.status");
    }
    let last = read(&file);
    assert_eq!(object(last.lines().last().unwrap())["last"], true, "{last}");
}

/// Writes a file until it has 256 KiB, which is all that it may have. After its first records, `meanwhile` does something
/// to it. Returns what is in it.
fn written_to_a_limit(meanwhile: &str) -> String {
    let folder = Folder::new();
    let whole = fs::read(folder.path("x.pcap")).unwrap();
    let (first, rest) = whole.split_at(whole.len() / 50);
    fs::write(folder.path("first"), first).unwrap();
    fs::write(folder.path("rest"), rest).unwrap();
    let script = format!(
        "trap '' XFSZ; ulimit -f 512\n\
         {{ cat first; until [ -s r.jsonl ]; do sleep 0.01; done; {meanwhile}; cat rest; }} |\n\
         \"$0\" rtt -r - --format jsonl -w r.jsonl"
    );
    let run = run(Command::new("sh").current_dir(folder.0.path()).args(["-c", &script, DWELL]), b"");
    assert_eq!(run.status, Some(4), "{run}");
    assert!(run.stderr.contains("cannot write to r.jsonl: File too large"), "{run}");
    let kept = read(&folder.path("r.jsonl"));
    assert!(kept.len() > 250_000 && kept.ends_with('\n'), "{}", kept.len());
    kept
}

#[test]
fn a_second_writer_costs_no_whole_record_on_a_full_disk() {
    let kept = written_to_a_limit("yes 'from another program' | head -n 1000 >> r.jsonl");
    let (others, own): (Vec<_>, Vec<_>) = kept.lines().partition(|line| *line == "from another program");
    assert_eq!(others.len(), 1000);
    for line in own {
        assert_eq!(object(line)["type"], "rtt.sample");
    }
}

#[test]
fn a_file_that_was_cut_meanwhile_is_not_filled_up_on_a_full_disk() {
    let kept = written_to_a_limit("cp r.jsonl copy; : > r.jsonl");
    for line in kept.lines() {
        assert_eq!(object(line)["type"], "rtt.sample");
    }
}

#[test]
fn root_a_full_disk_ends_no_run_and_lines_follow_when_there_is_room_again() {
    if skipped() {
        return;
    }
    let folder = Folder::new();
    // The capture comes through a pipe: its second half, once the disk was full and has room again.
    let script = "mount -t tmpfs -o size=4m none full && mkfifo in && head -c 4000000 /dev/zero > full/other\n\
                  \"$0\" rtt -r in --format jsonl -w full/r.jsonl 2> said & exec 3> in\n\
                  half=$(($(wc -c < x.pcap) / 2)); head -c $half x.pcap >&3\n\
                  until grep -q 'cannot write' said; do sleep 0.01; done\n\
                  cp full/r.jsonl before; rm full/other; tail -c +$((half + 1)) x.pcap >&3; exec 3>&-\n\
                  wait $!; echo $?; wc -c < before; cat said >&2; cat full/r.jsonl";
    fs::create_dir(folder.path("full")).unwrap();
    let mut command = Command::new("unshare");
    command.current_dir(folder.0.path()).args(["--mount", "sh", "-c", script, DWELL]);
    let run = run(&mut command, b"");
    let mut parts = run.stdout.splitn(3, '\n');
    assert_eq!(parts.next(), Some("4"), "{}", run.stderr);
    let before: usize = parts.next().unwrap().trim().parse().unwrap();
    let kept = parts.next().unwrap();
    let told = "dwell: cannot write to full/r.jsonl: No space left on device (os error 28); measuring goes on, and lines \
                are missing there until that works: free some space\n";
    assert_eq!(run.stderr.matches(told).count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("dwell: writing to full/r.jsonl works again: "), "{}", run.stderr);
    assert!(run.stderr.contains(" could not be written to full/r.jsonl\n"), "{}", run.stderr);
    assert!(kept.len() > before && before > 100_000 && kept.ends_with('\n'), "{before} {}", kept.len());
    let last = kept.lines().last().map(object).unwrap();
    assert_eq!(last["type"], "rtt.status");
    assert!(last["counters"]["lines_lost"].as_u64().unwrap() > 0, "{last}");
}
