//! `--store`: the rows of a run are the figures of its JSON Lines, whatever ends it.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use dwell_engine::histogram::Histogram;
use dwell_store::Store;
use nix::sys::signal::Signal;
use rusqlite::{Connection, types::Value as Cell};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    live_traffic::{GO_ON, ping},
    records::{number, objects, of_type, text},
    stack::{connect, listen, stamp},
    support::{DWELL, Pair, Run, dwell, dwell_reading, eventually, run, skipped, watch},
    wire::{Packet, START_NS, Sender, capture, echo, everyday, pings},
};

/// A folder with a store.
struct Stored(TempDir);

impl Stored {
    fn new() -> Stored {
        Stored(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("store")
    }

    fn name(&self) -> String {
        self.path().to_str().unwrap().to_owned()
    }

    fn open(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }

    /// The rows of a view as objects of its columns; histograms are checked against the figures beside them.
    fn rows(&self, view: &str) -> Vec<Value> {
        let db = self.open();
        let mut statement = db.prepare(&format!("SELECT * FROM {view} ORDER BY time_ns")).unwrap();
        let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let mut rows = statement.query([]).unwrap();
        let mut all = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            let mut object = serde_json::Map::new();
            let mut histogram = None;
            for (column, name) in names.iter().enumerate() {
                let value = match row.get(column).unwrap() {
                    Cell::Null => Value::Null,
                    Cell::Integer(number) => number.into(),
                    Cell::Real(number) => number.into(),
                    Cell::Text(text) => text.into(),
                    Cell::Blob(bytes) => {
                        histogram = Some(Histogram::from_bytes(&bytes).unwrap());
                        continue;
                    }
                };
                object.insert(name.clone(), value);
            }
            if let Some(histogram) = histogram {
                assert_eq!(object["count"], histogram.count());
                assert_eq!(object["p99_ns"], json!(histogram.quantile_ns(0.99)));
                assert_eq!(u128::from(object["sum_ns"].as_u64().unwrap()), histogram.sum_ns());
            }
            all.push(object.into());
        }
        all
    }

    fn replay(&self, packets: &[Packet], options: &[&str]) -> Run {
        let name = self.name();
        let run = dwell_reading(&[&["rtt", "-r", "-", "--store", &name], options].concat(), &capture(packets));
        assert_eq!(run.status, Some(0), "{run}");
        run
    }
}

/// What a row of `latencies` must have of an object of JSON Lines whose latency is under `what`.
fn expected(object: &Value, what: &str) -> Value {
    let (flow, latency) = (&object["flow"], &object[what]);
    let mut row = serde_json::Map::new();
    for key in ["src", "sport", "dst", "dport", "proto", "id"] {
        row.insert(key.into(), flow[key].clone());
    }
    for key in ["method", "count", "mean_ns", "min_ns", "max_ns", "p50_ns", "p90_ns", "p95_ns", "p99_ns", "p99_9_ns"] {
        row.insert(key.into(), latency[key].clone());
    }
    for key in ["low_ns", "high_ns", "p99_low_ns", "p99_high_ns", "confidence", "reason"] {
        row.insert(key.into(), latency[key].clone());
    }
    for key in ["interface", "tunnel", "echo_id", "prefix", "key_id", "host"] {
        row.insert(key.into(), object[key].clone());
    }
    row.insert("prefix_name".into(), object["name"].clone());
    row.insert("flow_key".into(), object["key"].clone());
    row.insert("type".into(), object["type"].clone());
    row.insert("what".into(), what.into());
    row.insert("valid".into(), latency["valid"].as_bool().map_or(Value::Null, |valid| u8::from(valid).into()));
    row.insert("time_ns".into(), nanos(text(object, "time")).into());
    // In the store the figures of a whole run have no length.
    let is_whole_run = ["rtt.summary", "response.summary"].contains(&text(object, "type"));
    row.insert("interval_ns".into(), if is_whole_run { Value::Null } else { object["interval_ns"].clone() });
    row.into()
}

fn nanos(time: &str) -> i64 {
    time.parse::<jiff::Timestamp>().unwrap().as_nanosecond().try_into().unwrap()
}

/// Each object has a row with its figures, and each row of its type an object.
fn same(rows: &[Value], objects: &[Value], what: &str) {
    let kind = text(&objects[0], "type");
    let rows: Vec<_> = rows.iter().filter(|row| row["type"] == kind && row["what"] == what).collect();
    let sorted = |mut all: Vec<String>| {
        all.sort();
        all
    };
    let wanted: Vec<Value> = objects.iter().map(|object| expected(object, what)).collect();
    let keys: Vec<String> = wanted[0].as_object().unwrap().keys().cloned().collect();
    let found = rows.iter().map(|row| keys.iter().map(|key| (key.clone(), row[key].clone())).collect::<Value>());
    let (found, wanted) =
        (sorted(found.map(|row| row.to_string()).collect()), sorted(wanted.iter().map(Value::to_string).collect()));
    let differs = found.iter().zip(&wanted).find(|(found, wanted)| found != wanted);
    assert_eq!(differs, None);
    assert_eq!(found.len(), wanted.len());
}

#[test]
fn a_summary_and_an_aggregate_are_stored_as_they_are_printed() {
    let stored = Stored::new();
    let summary = of_type(&stored.replay(&everyday(), &["--summary", "--format", "jsonl"]).stdout, "rtt.summary");
    assert_eq!(summary.len(), 8);
    same(&stored.rows("latencies"), &summary, "latency");
    let aggregate = ["--aggregate", "--interval", "100ms", "--format", "jsonl"];
    let groups = of_type(&stored.replay(&everyday(), &aggregate).stdout, "rtt.aggregate");
    assert!(groups.len() > 4);
    let rows = stored.rows("latencies");
    same(&rows, &groups, "latency");
    same(&rows, &summary, "latency");
}

#[test]
fn single_round_trips_are_stored_as_distributions_by_flow_and_interval() {
    let stored = Stored::new();
    let printed = stored.replay(&pings(250), &["--format", "jsonl"]);
    let samples = of_type(&printed.stdout, "rtt.sample");
    assert_eq!(samples.len(), 250);
    let rows = stored.rows("latencies");
    // Pings of 2.5 s: the intervals begin with the first sample, and the last one is shorter.
    let counts: Vec<_> = rows.iter().map(|row| number(row, "count")).collect();
    assert_eq!(counts, [100, 100, 50]);
    let first = nanos(text(&samples[0], "time"));
    let ends: Vec<_> = rows.iter().map(|row| row["time_ns"].as_i64().unwrap() - first).collect();
    assert_eq!(ends, [1_000_000_000, 2_000_000_000, 2_490_000_000]);
    assert_eq!(number(&rows[2], "interval_ns"), 490_000_000);
    for row in &rows {
        assert_eq!((text(row, "type"), text(row, "what"), text(row, "method")), ("rtt.sample", "latency", "icmp"));
        assert_eq!((text(row, "proto"), &row["sport"], number(row, "echo_id")), ("ICMP", &Value::Null, 7));
        assert_eq!((number(row, "min_ns"), number(row, "max_ns")), (5_000_000, 5_000_000));
        assert_eq!(row["id"], samples[0]["flow"]["id"]);
    }
    // Nothing has to be printed for that.
    let quiet = Stored::new();
    assert_eq!(quiet.replay(&pings(250), &["--format", "none"]).stdout, "");
    assert_eq!(quiet.rows("latencies"), rows);
}

#[test]
fn names_are_stored_with_their_flow_unless_they_are_not_to_be_shown() {
    let packets: Vec<Packet> = everyday();
    for (option, has_names) in [(&[][..], true), (&["--no-names"][..], false)] {
        let stored = Stored::new();
        let options = [&["--summary", "--format", "jsonl"], option].concat();
        let lines = of_type(&stored.replay(&packets, &options).stdout, "rtt.summary");
        let named = |line: &Value| line["flow"]["names"]["dst"]["host"].as_str().map(str::to_owned);
        let wanted: BTreeMap<_, _> =
            lines.iter().map(|line| (text(line, "id").to_owned() + text(line, "dst"), named(line))).collect();
        for row in stored.rows("latencies").iter().filter(|row| row["type"] == "rtt.summary") {
            let key = text(row, "id").to_owned() + text(row, "dst");
            assert_eq!(row["dst_host"].as_str(), wanted[&key].as_deref(), "{has_names}: {row}");
        }
    }
}

#[test]
fn epochs_are_stored_as_they_are_printed_with_bounds_and_reasons() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures");
    for file in ["one-direction.pcap.gz", "line.pcap.gz"] {
        let capture = folder.join(file).display().to_string();
        let stored = Stored::new();
        let run = dwell(&["response", "--format", "jsonl", "-r", &capture, "--store", &stored.name()]);
        assert_eq!(run.status, Some(0), "{run}");
        let epochs = of_type(&run.stdout, "response.epoch");
        same(&stored.rows("latencies"), &epochs, "latency");
        // What text leaves out, and what is only summed up, is stored too.
        for option in ["--format=text", "--summary", "--format=none"] {
            let other = Stored::new();
            let run = dwell(&["response", option, "-r", &capture, "--store", &other.name()]);
            assert_eq!(run.status, Some(0), "{run}");
            same(&other.rows("latencies"), &epochs, "latency");
        }
    }
}

#[test]
fn a_verdict_is_stored_as_it_is_printed() {
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures/line.pcap.gz").display().to_string();
    let stored = Stored::new();
    let run = dwell(&["why", "--format", "jsonl", "-r", &capture, "--store", &stored.name()]);
    let verdict = objects(&run.stdout).pop().unwrap_or_else(|| panic!("{run}"));
    let rows = stored.rows("verdicts");
    assert_eq!(rows.len(), 1);
    for key in ["target", "outcome", "cause", "certainty", "sentence", "observed_ns", "connections", "active_ns"] {
        assert_eq!(rows[0][key], verdict[key], "{key}");
    }
    for key in ["causes", "parts", "facts", "unseen", "remedies"] {
        assert_eq!(serde_json::from_str::<Value>(text(&rows[0], key)).unwrap(), verdict[key], "{key}");
    }
    assert_eq!(rows[0]["time_ns"], nanos(text(&verdict, "time")));
}

#[test]
fn a_file_that_is_no_store_is_refused_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(
        path("text"),
        "not a database, but a text of more than a hundred bytes, as any file of a user may be, of course",
    )
    .unwrap();
    let newer = Stored::new();
    newer.replay(&pings(1), &["--format", "none"]);
    newer.open().pragma_update(None, "user_version", 99).unwrap();
    let absent = path("no/such/folder");
    for (store, says) in [
        (path("text"), "is not a store of dwell"),
        (newer.name(), "has tables of version 99"),
        (absent, "No such file or directory"),
        (folder.path().to_str().unwrap().to_owned(), "Is a directory"),
        (
            "clickhouse://127.0.0.1:8123/dwell".to_owned(),
            "reach a ClickHouse server through `dwell agent` and `dwell collect`",
        ),
    ] {
        let run = dwell_reading(&["rtt", "-r", "-", "--store", &store], &capture(&pings(1)));
        assert_eq!(run.status, Some(2), "{run}");
        assert!(run.stderr.contains(says) && run.stdout.is_empty(), "{run}");
    }
}

/// A program that sends to another one in this host: intervals and the summary, of both ends.
#[test]
fn connections_of_a_program_are_stored_as_they_are_printed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let reading = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 1 << 16];
        while stream.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {
            thread::sleep(Duration::from_millis(5));
        }
    });
    let stored = Stored::new();
    let lines = stored.0.path().join("lines");
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && head -c 20000000 /dev/zero >&3");
    let always = ["run", "--outside", "--interval", "200ms", "--format", "jsonl", "--write", lines.to_str().unwrap()];
    let run = dwell(&[&always[..], &["--store", &stored.name(), "--", "bash", "-c", &script]].concat());
    assert_eq!(run.status, Some(0), "{run}");
    reading.join().unwrap();
    let lines = fs::read_to_string(&lines).unwrap();
    let (sockets, summary) = (of_type(&lines, "run.socket"), of_type(&lines, "run.summary"));
    let rows = stored.rows("latencies");
    assert!(sockets.len() > 2 && summary.len() > 1, "{lines}");
    for what in ["sender_delay", "receiver_delay", "network_rtt"] {
        // What is not known has no row, and the sum over all connections neither.
        let known = |all: &[Value]| -> Vec<Value> {
            let is_known = |object: &&Value| {
                !object["flow"].is_null()
                    && ["mean_ns", "min_ns", "max_ns"].iter().any(|key| !object[what][*key].is_null())
            };
            all.iter().filter(is_known).cloned().collect()
        };
        for objects in [known(&sockets), known(&summary)] {
            if what != "receiver_delay" {
                assert!(!objects.is_empty(), "{what}: {lines}");
            }
            if !objects.is_empty() {
                same(&rows, &objects, what);
            }
        }
    }
    let pids: Vec<_> = sockets.iter().filter_map(|socket| socket["pid"].as_u64()).collect();
    assert!(rows.iter().all(|row| row["src_pid"].as_u64().is_none_or(|pid| pids.contains(&pid))), "{rows:?}");
}

#[test]
fn root_segments_are_stored_as_they_are_printed() {
    if skipped() {
        return;
    }
    let pair = Pair::start("stored-stack");
    let stored = Stored::new();
    let options = ["--interval", "200ms", "--sample-bytes", "64", "--flows", "--include-retransmissions"];
    let dwell = stamp(&pair.left, &[&options[..], &["--store", &stored.name()]].concat());
    let (mut client, mut server) = connect(&pair, &listen(&pair));
    for _ in 0..50 {
        client.write_all(&[1; 640]).unwrap();
        server.read_exact(&mut [0; 640]).unwrap();
        thread::sleep(Duration::from_millis(10));
    }
    let run = dwell.interrupt();
    assert_eq!(run.status, Some(0), "{run}");
    let objects = of_type(&run.stdout, "stack.segment");
    let of_flows = objects.iter().filter(|object| !object["flow"].is_null()).count();
    assert!(of_flows > 0, "{run}");
    let key = |object: &Value, flow: &Value, latency: &Value| {
        let time = object["time_ns"].as_i64().unwrap_or_else(|| nanos(text(object, "time")));
        let retransmitted = object["retransmitted"].as_bool().unwrap_or(object["retransmitted"] == 1);
        let own = ["interval_ns", "host", "segment", "direction", "part_of"].map(|key| object[key].clone());
        let flow = ["src", "sport", "dst", "dport", "id"].map(|key| flow[key].clone());
        let figures = ["count", "mean_ns", "min_ns", "max_ns", "p50_ns", "p90_ns", "p95_ns", "p99_ns", "p99_9_ns"];
        json!([time, retransmitted, own, flow, figures.map(|key| latency[key].clone())]).to_string()
    };
    let sorted = |all: Vec<String>| {
        let mut all = all;
        all.sort();
        all
    };
    let printed = objects.iter().map(|object| key(object, &object["flow"], &object["latency"]));
    let rows = stored.rows("intervals");
    let kept = rows.iter().map(|row| key(row, row, row));
    assert_eq!(sorted(kept.collect()), sorted(printed.collect()));
    // The hooks are with the segments of all flows.
    let hooks =
        |object: &&Value| object["hook_from"].is_string() && object["src"].is_null() && object["flow"].is_null();
    assert_eq!(rows.iter().filter(hooks).count(), objects.iter().filter(hooks).count());
}

/// Two runs at once, and then a collector.
#[test]
fn runs_share_a_store_and_a_collector_does_not() {
    let stored = Stored::new();
    let name = stored.name();
    let both: Vec<_> = (0..2)
        .map(|_| {
            let name = name.clone();
            std::thread::spawn(move || {
                let options = ["rtt", "-r", "-", "--format", "none", "--interval", "10ms", "--store", &name];
                let run = dwell_reading(&options, &capture(&pings(2_000)));
                assert_eq!(run.status, Some(0), "{run}");
            })
        })
        .collect();
    both.into_iter().for_each(|run| run.join().unwrap());
    let counts = stored.rows("latencies").iter().map(|row| number(row, "count")).sum::<u64>();
    assert_eq!(counts, 4_000);
    let db = stored.open();
    assert_eq!(db.query_row("SELECT count(*) FROM flow", [], |row| row.get::<_, i64>(0)), Ok(1));
    drop(db);

    // As a collector has it.
    let held = Store::open(&stored.path()).unwrap();
    let run = dwell_reading(&["rtt", "-r", "-", "--store", &name], &capture(&pings(1)));
    assert_eq!(run.status, Some(2), "{run}");
    assert!(run.stderr.contains("is written by a collector"), "{run}");
    drop(held);
    let open = dwell_store::Recorder::start(dwell_store::Recording {
        path: stored.path(),
        interval_ns: 1,
        retain: None,
        origin: dwell_store::Origin::Live,
        longest_end: Duration::from_secs(20),
        log: |text| panic!("{text}"),
    });
    assert!(Store::open(&stored.path()).unwrap_err().to_string().contains("is written by another run of dwell"));
    drop(open);
    // A process that another test starts at that moment has the lock too, until it runs its program.
    eventually("the store is free", || Store::open(&stored.path()).is_ok());
}

/// A disk of 300 KB for a capture of thousands of flows.
#[test]
fn root_a_full_disk_ends_neither_the_run_nor_what_is_printed() {
    if skipped() {
        return;
    }
    let flows = |flow: u16| {
        let at_ms = f64::from(flow);
        [echo(at_ms, Sender::Client, flow, 1), echo(at_ms + 0.5, Sender::Server, flow, 1)]
    };
    let packets: Vec<_> = (1..=6_000).flat_map(flows).collect();
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("capture");
    fs::write(&input, capture(&packets)).unwrap();
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let script =
        "mount -t tmpfs -o size=300k dwell-test \"$1\" && \"$2\" rtt -r \"$3\" --format jsonl --store \"$1/store\"";
    let arguments = ["--mount", "sh", "-c", script, "sh", disk.to_str().unwrap(), DWELL, input.to_str().unwrap()];
    let run = run(Command::new("unshare").args(arguments), b"");
    assert_eq!(run.status, Some(4), "{run}");
    assert_eq!(of_type(&run.stdout, "rtt.sample").len(), 6_000);
    assert!(
        run.stderr.contains("free some space") && run.stderr.contains("rows are missing in the store"),
        "{}",
        run.stderr
    );
}

/// Killed in the middle, the store has all but what was last measured, and the next run continues it.
#[test]
fn root_what_was_measured_before_a_run_was_killed_is_stored() {
    if skipped() {
        return;
    }
    let pair = Pair::start("stored-kill");
    let stored = Stored::new();
    let name = stored.name();
    let options = ["-i", "left0", "--format", "none", "--interval", "100ms", "--store", &name];
    let watching = watch(&pair.left, &options);
    ping(50).run(pair.ends(), &GO_ON).unwrap();
    let rows = || stored.rows("latencies").iter().map(|row| number(row, "count")).sum::<u64>();
    eventually("most of the pings are stored", || rows() >= 40);
    watching.signal(Signal::SIGKILL);
    watching.end();
    let check: String = stored.open().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    let before = rows();
    let again = watch(&pair.left, &options);
    ping(20).run(pair.ends(), &GO_ON).unwrap();
    let run = again.interrupt();
    assert_eq!(run.status, Some(0), "{run}");
    assert_eq!(rows(), before + 20, "at the end of a run all is there");
    let rows = stored.rows("latencies");
    assert!(rows.iter().all(|row| row["src"] == "10.78.0.1" && row["dst"] == "10.78.0.2"), "{rows:?}");
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(stored.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn what_is_to_be_retained_is_said_clearly() {
    let stored = Stored::new();
    for retain in ["yesterday", "1d,2d", "30", "500m"] {
        let run = dwell_reading(&["rtt", "-r", "-", "--store", &stored.name(), "--retain", retain], b"");
        assert_eq!(run.status, Some(2), "{run}");
        assert!(run.stderr.contains("30d, 30G or 12h,500M"), "{run}");
    }
    // Pings of 25 s, of which the last ten are kept.
    let run = stored.replay(&pings(2_500), &["--format", "none", "--retain", "10s"]);
    assert!(run.stderr.contains("the oldest rows of the store are deleted, which keeps the rows of 10s"), "{run}");
    let rows = stored.rows("latencies");
    assert!((10..=12).contains(&rows.len()), "{}", rows.len());
}

/// Rows that are missing in the store leave the baseline as it would be without one.
#[test]
fn a_baseline_is_recorded_although_rows_could_not_be_stored() {
    let stored = Stored::new();
    stored.replay(&pings(1), &["--format", "none"]);
    let refuse = "CREATE TRIGGER full BEFORE INSERT ON latency BEGIN SELECT RAISE(ABORT, 'no room'); END";
    stored.open().execute_batch(refuse).unwrap();
    let baseline = stored.0.path().join("baseline");
    let options = ["--interval", "200ms", "--format", "none", "--baseline", baseline.to_str().unwrap()];
    let name = stored.name();
    let run = dwell_reading(&[&["rtt", "-r", "-", "--store", &name], &options[..]].concat(), &capture(&pings(800)));
    assert_eq!(run.status, Some(4), "{run}");
    assert!(run.stderr.contains("rows are missing in the store"), "{run}");
    assert!(run.stderr.contains("recorded a baseline of 40 intervals"), "{run}");
    assert!(baseline.exists());
}

/// What others have stored today is younger than an age, whatever a capture says of the time.
#[test]
fn a_packet_of_the_next_century_deletes_nothing_of_today() {
    let stored = Stored::new();
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as f64 - START_NS as f64 / 1e6;
    let store = |at_ms: f64, options: &[&str]| {
        let packets = [echo(at_ms, Sender::Client, 7, 1), echo(at_ms + 5.0, Sender::Server, 7, 1)];
        let run = stored.replay(&packets, &[&["--format", "none"], options].concat());
        assert_eq!(run.status, Some(0), "{run}");
        stored.rows("latencies").len()
    };
    assert_eq!(store(now_ms, &[]), 1);
    assert_eq!(store(2.5e12, &["--retain", "30d"]), 2);
}
