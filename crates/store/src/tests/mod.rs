use std::{fs, process::Command, sync::LazyLock};

use dwell_engine::{
    flow_id,
    histogram::Histogram,
    layers::{Ends, PathSegment, Segment, SegmentHooks},
    measure::{Endpoint, Protocol},
};
use rusqlite::Connection;

#[path = "../../../../lab/testbed/src/skip.rs"]
mod skip;

pub(crate) mod gray;
mod retain;
mod versions;

use skip::skip;

use super::{
    BackendRow, BatchState, IntervalRow, PathMethod, PathRow, Progress, Reader, RefusedRow, Store, StoreError,
    Unfinished, Writing, sqlite::Writers, writing::MAX_ALL_RUNS,
};

const RUN: [u8; 16] = [7; 16];

fn histogram() -> Histogram {
    let mut histogram = Histogram::default();
    for ns in [100, 200, 300, 4_000] {
        histogram.record(ns);
    }
    histogram
}

pub(crate) fn endpoint(address: &str, port: u16) -> Endpoint {
    Endpoint { address: address.parse().unwrap(), port }
}

fn ends() -> Ends {
    Ends { src: endpoint("192.0.2.1", 44_321), dst: endpoint("2001:db8::1", 443) }
}

static HOOKS: LazyLock<SegmentHooks> =
    LazyLock::new(|| SegmentHooks { from: Some("tp_btf/net_dev_queue".into()), ..SegmentHooks::default() });

fn interval<'a>(host: &'a str, flow: Option<Ends>, histogram: &'a Histogram) -> IntervalRow<'a> {
    IntervalRow {
        time_ns: 1_795_237_800_000_000_000,
        time_clamped: false,
        length_ns: 1_000_000_000,
        host,
        flow,
        namespace: None,
        segment: Segment::Queueing,
        resent: false,
        histogram,
        hooks: Some(&HOOKS),
    }
}

#[test]
fn what_is_written_can_be_read_by_others_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut store = Store::open(&path).unwrap();
    let histogram = histogram();
    store
        .write(|store| {
            assert!(store.batch("a", &RUN, (1, 1), 5)? != BatchState::Known);
            store.interval(&interval("a", None, &histogram))?;
            store.interval(&interval("a", Some(ends()), &histogram))?;
            store.path(&PathRow {
                time_ns: 1,
                length_ns: 2,
                tx_host: Some("a"),
                rx_host: Some("b"),
                flow: Some(ends()),
                rx_flow: None,
                segment: PathSegment::Network,
                resent: true,
                method: PathMethod::Matched,
                histogram: &histogram,
                bound_ns: Some(700),
                clamped: 3,
                doubtful: 4,
            })
        })
        .unwrap();

    let reader = Connection::open(&path).unwrap();
    let count = |sql: &str| -> i64 { reader.query_row(sql, [], |row| row.get(0)).unwrap() };
    let mine = "host = 'a' AND segment = 'queueing' AND direction = 'tx' AND part_of = 'ip-driver'
        AND retransmitted = 0 AND count = 4 AND sum_ns = 4600 AND mean_ns = 1150 AND min_ns = 100 AND max_ns = 4000
        AND p50_ns BETWEEN 198 AND 202 AND p99_ns BETWEEN 3960 AND 4000
        AND hook_from = 'tp_btf/net_dev_queue' AND hook_to IS NULL";
    let all = count(&format!("SELECT count(*) FROM intervals WHERE {mine}"));
    assert_eq!(all, 2);
    let flow = "src = '192.0.2.1' AND sport = 44321 AND dst = '2001:db8::1' AND dport = 443";
    let flow = &format!("{flow} AND id = '{}'", flow_id(&ends().src, &ends().dst, Protocol::TCP));
    let one = count(&format!("SELECT count(*) FROM intervals WHERE {mine} AND {flow}"));
    assert_eq!(one, 1);
    let bytes: Vec<u8> = reader.query_row("SELECT histogram FROM interval LIMIT 1", [], |row| row.get(0)).unwrap();
    assert_eq!(Histogram::from_bytes(&bytes), Ok(histogram.clone()));
    let network = "tx_host = 'a' AND rx_host = 'b' AND segment = 'network' AND direction IS NULL
        AND retransmitted = 1 AND method = 'matched' AND bound_ns = 700 AND clamped = 3 AND doubtful = 4";
    let paths = count(&format!("SELECT count(*) FROM paths WHERE {network} AND {flow}"));
    assert_eq!(paths, 1);
    assert_eq!(count("SELECT count(*) FROM flow"), 1);
    assert_eq!(count("SELECT count(*) FROM hook"), 1);

    store.write(|store| store.interval(&interval("b", Some(ends()), &histogram))).unwrap();
    assert_eq!(count("SELECT count(*) FROM intervals WHERE host = 'b'"), 1);
    assert_eq!(count("SELECT count(*) FROM host"), 2);
}

#[test]
fn a_batch_is_written_once_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut store = Store::open(&path).unwrap();
    assert_eq!(store.last_batch("a", &RUN).unwrap(), None);
    let note = |store: &mut Store, host: &str, run: &[u8], batch, now_ns| {
        store.write(|store| store.batch(host, run, (batch, batch), now_ns)).unwrap()
    };
    let new = |first, since_ns| BatchState::New { first, gap: None, since_ns };
    assert_eq!(note(&mut store, "a", &RUN, 1, 5), new(1, None));
    assert_eq!(note(&mut store, "a", &RUN, 2, 6), new(2, Some(5)));
    drop(store);
    let mut store = Store::open(&path).unwrap();
    assert_eq!(store.last_batch("a", &RUN).unwrap(), Some(2));
    assert_eq!(note(&mut store, "a", &RUN, 2, 7), BatchState::Known);
    assert_eq!(note(&mut store, "a", &RUN, 1, 8), BatchState::Known);
    assert_eq!(note(&mut store, "a", &RUN, 3, 9), new(3, Some(6)));
    assert_eq!(note(&mut store, "a", b"another run", 1, 10), new(1, None));
    assert_eq!(note(&mut store, "b", &RUN, 1, 11), new(1, None));
    assert_eq!(store.last_batch("a", &RUN).unwrap(), Some(3));
}

#[test]
fn numbers_that_are_missing_and_runs_that_took_no_leave_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut store = Store::open(&path).unwrap();
    store
        .write(|store| {
            let gap = |gap, first, since_ns| BatchState::New { first, gap: Some(gap), since_ns };
            assert_eq!(store.batch("a", &RUN, (3, 3), 5)?, gap((1, 2), 3, None));
            assert_eq!(store.batch("a", &RUN, (7, 9), 6)?, gap((4, 6), 7, Some(5)));
            // What is reported as lost may overlap with what is known.
            assert_eq!(
                store.batch("a", &RUN, (8, 11), 7)?,
                BatchState::New { first: 10, gap: None, since_ns: Some(6) }
            );
            let unfinished = Unfinished { run: RUN.to_vec(), last: 11, measured_ns: (5, 7) };
            assert_eq!(store.unfinished("a", b"the next")?, [unfinished]);
            assert_eq!(store.unfinished("a", &RUN)?, []);
            assert_eq!(store.unfinished("b", b"the next")?, []);
            store.end_run("a", &RUN, 8)?;
            assert_eq!(store.unfinished("a", b"the next")?, []);
            Ok(())
        })
        .unwrap();
}

#[test]
fn runs_of_a_host_are_remembered_in_a_bounded_number() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut store = Store::open(&path).unwrap();
    store
        .write(|store| {
            store.batch("b", &RUN, (1, 1), 5)?;
            for run in 0..1_100_u128 {
                store.batch("a", &run.to_be_bytes(), (1, 1), 5)?;
            }
            Ok(())
        })
        .unwrap();
    let last = |host, run: u128| store.last_batch(host, &run.to_be_bytes()).unwrap();
    assert_eq!((last("a", 99), last("a", 100), last("a", 1_099)), (None, Some(1), Some(1)));
    assert_eq!(store.last_batch("b", &RUN).unwrap(), Some(1));
}

#[test]
fn runs_of_all_hosts_together_have_a_bound_but_those_that_may_go_on_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut store = Store::open(&path).unwrap();
    let ended = |store: &mut Store, host: &str| {
        let written = store.write(|store| {
            store.batch(host, &RUN, (1, 1), 5)?;
            store.end_run(host, &RUN, 6)
        });
        written.unwrap();
    };
    ended(&mut store, "gone");
    store.write(|store| store.batch("here", &RUN, (1, 1), 5)).unwrap();
    ended(&mut store, "later");
    // As if so many had come in between.
    let many = format!("UPDATE run SET run_id = run_id + {MAX_ALL_RUNS} WHERE run_id = 3");
    Connection::open(&path).unwrap().execute(&many, []).unwrap();
    ended(&mut store, "last");
    let last = |host: &str| store.last_batch(host, &RUN).unwrap();
    assert_eq!(["gone", "here", "later", "last"].map(last), [None, Some(1), Some(1), Some(1)]);
}

#[test]
fn only_the_owner_can_read_a_store_and_what_is_beside_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(&folder.path().join("store")).unwrap();
    store.write(|store| store.batch("a", &RUN, (1, 1), 5)).unwrap();
    let files: Vec<_> = fs::read_dir(folder.path()).unwrap().map(Result::unwrap).collect();
    assert!(files.len() >= 2, "{files:?}");
    for file in files {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{file:?}");
    }
}

/// What a backend did in the second that ends at 1 s.
pub(crate) fn backend() -> BackendRow<'static> {
    BackendRow {
        time_ns: 1_000_000_000,
        length_ns: 1_000_000_000,
        host: "edge",
        vip: Some("web"),
        backend: "a",
        address: "192.0.2.7".parse().unwrap(),
        state: "up",
        why: "",
        weight: 1.0,
        share: 0.5,
        active: 4,
        tracked: None,
        pending: 2,
        pending_oldest_ns: None,
        traffic: Some([2, 20, 200]),
        latency: None,
    }
}

#[test]
fn what_is_put_aside_is_there_until_it_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut store = Store::open(&path).unwrap();
    let aside = |store: &Store| {
        let mut all = Vec::new();
        store.pending(|host, bytes| all.push((host, bytes))).unwrap();
        all
    };
    assert_eq!(store.progress().unwrap(), None);
    let progress = Progress { boot: "this".into(), offset_ns: -5, told_at_ns: 15, told_until_ns: 10 };
    store
        .write(|store| {
            store.progress(&Progress { told_at_ns: 1, ..progress.clone() })?;
            store.put_aside("a", 10, b"first")?;
            store.put_aside("b", 20, b"second")?;
            store.progress(&progress)
        })
        .unwrap();
    let both = [("a".into(), b"first".to_vec()), ("b".into(), b"second".to_vec())];
    assert_eq!(aside(&store), both);
    store.write(|store| store.forget(20)).unwrap();
    drop(store);
    let store = Store::open(&path).unwrap();
    assert_eq!(aside(&store), both[1..]);
    assert_eq!(store.progress().unwrap(), Some(progress));
}

/// Any descriptor of a file that a process closes ends all of its locks on it.
#[test]
fn a_reader_leaves_the_locks_of_a_writer_of_the_same_process() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut store = Store::open(&path).unwrap();
    store.write(|store| store.batch("a", &RUN, (1, 1), 5)).unwrap();
    let locks = || {
        // A file of another device may have the same number.
        let (ends, pid) = (format!(":{}", fs::metadata(&path).unwrap().ino()), std::process::id().to_string());
        let locks = fs::read_to_string("/proc/locks").unwrap();
        let is_mine = |lock: &&str| {
            let has = |is: &dyn Fn(&str) -> bool| lock.split_whitespace().any(is);
            has(&|word| word == "POSIX") && has(&|word| word == pid) && has(&|word| word.ends_with(&ends))
        };
        locks.lines().filter(is_mine).count()
    };
    assert_eq!(locks(), 1);
    drop(crate::Reader::open(&path).unwrap());
    assert_eq!(locks(), 1);
}

#[test]
fn what_fails_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut store = Store::open(&path).unwrap();
    let histogram = histogram();
    let failed = store.write(|store| {
        store.batch("a", &RUN, (1, 1), 5)?;
        store.interval(&interval("a", Some(ends()), &histogram))?;
        Err::<(), _>(rusqlite::Error::InvalidQuery)
    });
    assert!(matches!(failed, Err(StoreError::Sqlite { .. })));
    assert_eq!(store.last_batch("a", &RUN).unwrap(), None);
    // The numbers of host and flow that it had are not used again.
    store.write(|store| store.interval(&interval("a", Some(ends()), &histogram))).unwrap();
}

#[test]
fn a_file_of_something_else_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "plain text, and more than the head of a database has, which is 100 bytes: so some more words")
        .unwrap();
    let before = fs::read(&path).unwrap();
    assert!(matches!(Store::open(&path), Err(StoreError::Foreign { .. })));
    assert_eq!(fs::read(&path).unwrap(), before);

    let path = folder.path().join("database");
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE mine (x)").unwrap();
    drop(other);
    assert!(matches!(Store::open(&path), Err(StoreError::Foreign { .. })));

    for version in [1, 99] {
        let path = folder.path().join(format!("version {version}"));
        drop(Store::open(&path).unwrap());
        let other = Connection::open(&path).unwrap();
        other.pragma_update(None, "user_version", version).unwrap();
        drop(other);
        let error = Store::open(&path).unwrap_err();
        assert!(matches!(error, StoreError::Version { found, .. } if found == version) && error.is_usage());
        assert!(error.to_string().contains("this dwell knows versions 3 to 7: use a dwell that knows it"), "{error}");
    }

    let error = Store::open(folder.path()).unwrap_err();
    assert!(matches!(error, StoreError::File { .. }), "{error}");
    let error = Store::open(&folder.path().join("no/such/folder")).unwrap_err();
    assert!(error.to_string().contains("No such file"), "{error}");
}

/// As of a collector that was killed, or had no room, before its tables were there.
#[test]
fn a_store_that_was_cut_off_while_it_was_made_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let cut_off = Connection::open(&path).unwrap();
    cut_off.pragma_update(None, "journal_mode", "WAL").unwrap();
    drop(cut_off);
    assert!(fs::metadata(&path).unwrap().len() > 0);
    let store = Store::open(&path).unwrap();
    assert_eq!(store.progress().unwrap(), None);
}

#[test]
fn a_store_has_one_writer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let first = Store::open(&path).unwrap();
    assert!(matches!(Store::open(&path), Err(StoreError::Taken { .. })));
    drop(first);
    Store::open(&path).unwrap();
}

/// A small file system of its own, where there is the right to mount one.
#[test]
fn root_a_full_disk_keeps_what_was_committed() {
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=400k dwell-test \"$1\" && exec \"$2\" --exact \
        tests::fills_a_disk --ignored --nocapture";
    let run = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(folder.path())
        .arg(std::env::current_exe().unwrap())
        .env("DWELL_TEST_DISK", folder.path())
        .output();
    let Ok(run) = run else {
        skip("there is no program unshare");
        return;
    };
    let said = String::from_utf8_lossy(&run.stderr);
    if said.contains("unshare failed") || said.contains("permission denied") {
        skip(&said);
        return;
    }
    let told = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && told.contains("1 passed"), "{told}{said}");
}

#[test]
#[ignore = "run by root_a_full_disk_keeps_what_was_committed"]
fn fills_a_disk() {
    let Some(folder) = std::env::var_os("DWELL_TEST_DISK") else {
        return;
    };
    let path = std::path::Path::new(&folder).join("store");
    let mut store = Store::open(&path).unwrap();
    let histogram = histogram();
    let mut fill = |batch| {
        store.write(|store| {
            store.batch("a", &RUN, (batch, batch), 5)?;
            for _ in 0..50 {
                store.interval(&interval("a", None, &histogram))?;
            }
            Ok(())
        })
    };
    let (batch, error) = (1..).find_map(|batch| fill(batch).err().map(|error| (batch, error))).unwrap();
    let text = error.to_string();
    assert!(!error.is_usage() && text.contains("what was stored before is kept"), "{text}");
    assert!(batch > 2, "some fitted");
    drop(store);
    let store = Connection::open(&path).unwrap();
    let number = |sql| store.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap().cast_unsigned();
    assert_eq!(number("SELECT last_batch + 1 FROM run"), batch);
    assert_eq!(number("SELECT count(*) FROM interval"), 50 * (batch - 1));
}

#[test]
fn what_goes_to_a_server_waits_in_its_order_until_it_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spool");
    let histogram = histogram();
    let write = |store: &mut Store, hosts: &[&str]| {
        store
            .write(|to| {
                for host in hosts {
                    to.interval(&interval(host, Some(ends()), &histogram))?;
                }
                to.counter(-7, None, "refused\tby \\ us\n\0\r", 3)
            })
            .unwrap();
    };
    let mut store = Store::open(&path).unwrap();
    let number = store.spool().unwrap();
    write(&mut store, &["a", "b"]);
    let waiting = store.waiting(10, usize::MAX).unwrap();
    let places: Vec<_> = waiting.iter().map(|row| (row.row, row.table.as_str(), row.time_ns)).collect();
    let at = 1_795_237_800_000_000_000;
    let expected = [(1, "intervals", at), (2, "intervals", at), (3, "counter", -7)];
    assert_eq!(places, expected);
    assert_eq!(waiting[2].line, b"-7\t\\N\trefused\\tby \\\\ us\\n\\0\\r\t3");
    let text = String::from_utf8_lossy(&waiting[0].line);
    let id = flow_id(&ends().src, &ends().dst, Protocol::TCP);
    let begin = format!(
        "{at}\t1000000000\ta\t192.0.2.1\t44321\t2001:db8::1\t443\t{id}\t\\N\tqueueing\ttx\tip-driver\t0\t4\t4600\t"
    );
    assert!(text.starts_with(&begin), "{text}");
    assert!(text.ends_with("\ttp_btf/net_dev_queue\t\\N\t\\N\t0"), "{text}");
    assert_eq!(store.waiting(1, usize::MAX).unwrap(), waiting[..1], "the first come first");
    store.sent(2, &[]).unwrap();
    assert_eq!(store.spool_size().rows, 1);
    store.sent(3, &[]).unwrap();
    assert_eq!(store.spool_size().rows, 0);
    // A number is never given again, nor is that of the spool.
    drop(store);
    let mut store = Store::open(&path).unwrap();
    assert_eq!(store.spool().unwrap(), number);
    write(&mut store, &[]);
    assert_eq!(store.waiting(10, usize::MAX).unwrap()[0].row, 4);
    // Nothing of it is in the tables of the file itself.
    let db = Connection::open(&path).unwrap();
    let sql = "SELECT (SELECT count(*) FROM interval) + (SELECT count(*) FROM counter)";
    let rows: i64 = db.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 0);
}

#[test]
fn rows_are_read_from_a_spool_by_bytes_and_what_is_refused_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spool");
    let mut store = Store::open(&path).unwrap();
    store.spool().unwrap();
    let long = "x".repeat(1_000_000);
    store
        .write(|store| {
            store.counter(1, Some("a"), &long, 1)?;
            (2..=4).try_for_each(|value| store.counter(1, Some("b"), "short", value))?;
            store.counter(1, None, &long, 5)
        })
        .unwrap();
    let rows = |store: &Store, bytes| store.waiting(10, bytes).unwrap().iter().map(|row| row.row).collect::<Vec<_>>();
    assert_eq!(rows(&store, 10), [1], "one at least, however long it is");
    assert_eq!(rows(&store, 1_500_000), [1, 2, 3, 4]);
    let before = store.spool_size();
    assert_eq!(before.rows, 5);
    assert!((2_000_000..2_001_000).contains(&before.bytes), "{before:?}");
    assert_eq!(store.hosts_beyond(500_000).unwrap(), ["a"]);
    assert_eq!(store.sent(2, &[RefusedRow { row: 1, reason: "too long".into() }]).unwrap(), 0);
    assert_eq!((store.spool_size().rows, store.refused_size().rows), (3, 1));
    assert!(store.hosts_beyond(500_000).unwrap().is_empty());
    // What is counted is what a new collector counts.
    let (size, refused) = (store.spool_size(), store.refused_size());
    drop(store);
    let mut store = Store::open(&path).unwrap();
    store.spool().unwrap();
    assert_eq!((store.spool_size(), store.refused_size()), (size, refused));
    // A transaction that is rolled back queues nothing.
    let failed = store.write(|store| {
        store.counter(1, Some("a"), "short", 6)?;
        Err::<(), _>(rusqlite::Error::InvalidQuery)
    });
    assert!(failed.is_err());
    assert_eq!(store.spool_size(), size);
}

#[test]
fn a_path_says_how_each_host_sees_its_flow_and_by_what_they_are_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let (histogram, seen) = (histogram(), Ends { src: ends().dst, dst: ends().src });
    let row = PathRow {
        time_ns: 1,
        length_ns: 2,
        tx_host: Some("a"),
        rx_host: Some("b"),
        flow: None,
        rx_flow: None,
        segment: PathSegment::EndToEnd,
        resent: false,
        method: PathMethod::Matched,
        histogram: &histogram,
        bound_ns: None,
        clamped: 0,
        doubtful: 0,
    };
    let by_address = PathRow { flow: Some(ends()), ..row };
    let translated = PathRow { rx_flow: Some(seen), ..by_address };
    let estimated = PathRow { method: PathMethod::Estimated, ..by_address };
    let write = |to: &mut Writing<'_>| [row, by_address, translated, estimated].iter().try_for_each(|row| to.path(row));
    Store::open(&path).unwrap().write(write).unwrap();
    let db = Connection::open(&path).unwrap();
    let sql =
        "SELECT concat_ws(' ', sport, ifnull(joined, '-'), rx_src, rx_sport, rx_dst, rx_dport, rx_id = id) FROM paths";
    let mut statement = db.prepare(sql).unwrap();
    let rows: Vec<String> = statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(
        rows,
        ["-", "44321 address", "44321 sequence 2001:db8::1 443 192.0.2.1 44321 1", "44321 -"],
        "a reversed flow has the same id"
    );
    let translated = Reader::open(&path).unwrap().translated((0, 1)).unwrap();
    assert_eq!(translated.into_values().collect::<Vec<_>>(), [seen]);
}

#[test]
fn runs_that_create_a_store_at_once_share_it() {
    for _ in 0..50 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let open = || Store::open_for(&path, Writers::Several).map(drop);
        std::thread::scope(|scope| {
            let opens: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
            opens.into_iter().for_each(|open| open.join().unwrap().unwrap());
        });
    }
}
