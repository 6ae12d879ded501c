//! What a store keeps, and what it deletes.

use std::{path::Path, time::Duration};

use dwell_engine::{layers::Ends, measure::Protocol};
use dwell_records::{FlowObject, LatencyLine, LatencyObject, NamesObject, Source};
use rusqlite::Connection;

use super::{endpoint, ends, histogram, interval};
use crate::{BackendRow, IntervalRow, Origin, Retain, Retention, Store, latency::latency_row};

const SECOND_NS: i64 = 1_000_000_000;
const HOUR_S: i64 = 3_600;

fn number(path: &Path, sql: &str) -> i64 {
    Connection::open(path).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
}

fn of_age(seconds: u64) -> Retain {
    Retain { age: Some(Duration::from_secs(seconds)), bytes: None }
}

/// A row of an interval of the n-th second and the n-th flow.
fn write_second(store: &mut Store, n: i64) {
    let histogram = histogram();
    let flow = Ends { src: endpoint("192.0.2.1", n as u16), ..ends() };
    let row = IntervalRow { time_ns: n * 1_000_000_000, ..interval("a", Some(flow), &histogram) };
    store.write(|store| store.interval(&row)).unwrap();
}

#[test]
fn rows_beyond_an_age_or_a_size_are_deleted_oldest_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut store = Store::open(&path).unwrap();
    let seconds = || -> (i64, Option<i64>, Option<i64>) {
        let sql = "SELECT count(*), min(time_ns) / 1000000000, max(time_ns) / 1000000000 FROM interval";
        Connection::open(&path).unwrap().query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap()
    };
    (1..=100).for_each(|n| write_second(&mut store, n));
    assert_eq!(store.retain(&of_age(30), Origin::Live, 100 * SECOND_NS).unwrap(), 69);
    assert_eq!(seconds(), (31, Some(70), Some(100)));
    assert_eq!(store.retain(&of_age(30), Origin::Live, 100 * SECOND_NS).unwrap(), 0);

    (101..=3_000).for_each(|n| write_second(&mut store, n));
    let bytes = |db: &Connection| -> i64 {
        let number = |pragma| db.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, i64>(0)).unwrap();
        (number("page_count") - number("freelist_count")) * number("page_size")
    };
    let db = Connection::open(&path).unwrap();
    let most = bytes(&db) * 2 / 3;
    let of_size = Retain { age: None, bytes: Some(most.cast_unsigned()) };
    for _ in 0..20 {
        store.retain(&of_size, Origin::Live, 0).unwrap();
    }
    let (count, first, last) = seconds();
    assert!(bytes(&db) <= most && last == Some(3_000), "{} of {most}", bytes(&db));
    assert!(count > 100 && first == Some(3_001 - count), "{count} rows from {first:?}");
    assert_eq!(store.retain(&of_size, Origin::Live, 0).unwrap(), 0);
    // What waits for its match displaces no row, however much it is.
    store.write(|store| store.put_aside("a", 1, &vec![7; 2 * most as usize])).unwrap();
    assert_eq!(store.retain(&of_size, Origin::Live, 0).unwrap(), 0);
}

/// Most rows are of one busy time long ago, as after a test of load.
#[test]
fn a_size_takes_the_rows_that_are_too_many_and_not_a_part_of_the_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut store = Store::open(&path).unwrap();
    let db = Connection::open(&path).unwrap();
    let pragma = |pragma: &str| db.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, i64>(0)).unwrap();
    let bytes = || (pragma("page_count") - pragma("freelist_count")) * pragma("page_size");
    let write = |table: &str, from_s: i64, to_s: i64, rows: i64| {
        let values = if table == "counter" { "NULL, 'name', n" } else { "1, 'run', 1, NULL, NULL, NULL, 'gap'" };
        let sql = format!(
            "WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < ?3 - 1)
                INSERT INTO {table} SELECT (?1 + (?2 - ?1) * n / ?3) * 1000000000 + n, {values} FROM n"
        );
        db.execute(&sql, [from_s, to_s, rows]).unwrap();
    };
    db.execute("INSERT INTO host VALUES (1, 'a')", []).unwrap();
    // A single row of another table is much older than all others.
    write("lost", 1, 2, 1);
    write("counter", 1_000, 4_600, 45_000);
    write("counter", 4_600, 2_600_000, 5_000);
    let most = bytes() * 96 / 100;
    let retain = Retain { age: None, bytes: Some(most.cast_unsigned()) };
    let mut retention = Retention::new(&store, Some(retain), Origin::Live).unwrap();
    retention.apply(&mut store, 0, Duration::from_secs(3_600)).unwrap();
    let left = number_of_rows(&path);
    assert!(bytes() <= most && (45_000..48_000).contains(&left), "{left} rows, {} bytes of {most}", bytes());
}

/// More rows arrive between two calls than are deleted in one transaction.
#[test]
fn a_store_into_which_much_is_written_keeps_to_its_size() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut store = Store::open(&path).unwrap();
    let db = Connection::open(&path).unwrap();
    let number = |pragma: &str| db.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, i64>(0)).unwrap();
    let bytes = || (number("page_count") - number("freelist_count")) * number("page_size");
    let write = |second: i64| {
        let sql = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 50000)
            INSERT INTO counter SELECT ?1 * 1000000000 + n, NULL, 'name', n FROM n";
        db.execute(sql, [second]).unwrap();
    };
    write(1);
    let most = 2 * bytes();
    let retain = Retain { age: None, bytes: Some(most.cast_unsigned()) };
    let mut retention = Retention::new(&store, Some(retain), Origin::Live).unwrap();
    for second in 2..=10 {
        write(second);
        retention.apply(&mut store, second * SECOND_NS, Duration::from_secs(3_600)).unwrap();
        assert!(bytes() <= most, "{} of {most} after {second} s", bytes());
    }
    let left = number_of_rows(&path);
    assert!((50_000..110_000).contains(&left), "{left}");
    // Without time, a call is one transaction.
    write(11);
    retention.apply(&mut store, 11 * SECOND_NS, Duration::ZERO).unwrap();
    assert_eq!(number_of_rows(&path), left + 50_000 - 20_000);
}

fn number_of_rows(path: &Path) -> i64 {
    number(path, "SELECT count(*) FROM counter")
}

/// Another process may know the number of a flow that is deleted.
#[test]
fn flows_without_rows_are_deleted_and_come_back_with_a_new_number() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let [mut one, mut other] = [0, 1].map(|_| Store::open_for(&path, crate::sqlite::Writers::Several).unwrap());
    write_second(&mut one, 1);
    write_second(&mut other, 2);
    assert_eq!(one.retain(&of_age(1), Origin::Live, 100 * SECOND_NS).unwrap(), 2);
    assert_eq!(number(&path, "SELECT count(*) FROM flow"), 0);
    write_second(&mut other, 2);
    write_second(&mut one, 2);
    assert_eq!(number(&path, "SELECT count(*) FROM flow"), 1);
    assert_eq!(number(&path, "SELECT count(*) FROM intervals WHERE sport = 2"), 2);
    assert_eq!(number(&path, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
}

/// A day of a flow that lasts, and of one that is seen once in each hour, each deleted as it grows older than three hours.
#[test]
fn flows_are_kept_while_they_have_rows_and_not_much_longer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut store = Store::open(&path).unwrap();
    let histogram = histogram();
    for minute in 0..24 * 60 {
        let time_ns = minute * 60 * SECOND_NS;
        let ends = |port| Ends { src: endpoint("192.0.2.1", port), ..ends() };
        let row = |port| IntervalRow { time_ns, ..interval("a", Some(ends(port)), &histogram) };
        let written = store.write(|store| {
            store.interval(&row(1))?;
            if minute % 60 == 0 { store.interval(&row(1_000 + (minute / 60) as u16)) } else { Ok(()) }
        });
        written.unwrap();
        store.retain(&of_age(3 * HOUR_S as u64), Origin::Live, time_ns).unwrap();
        assert_eq!(number(&path, "SELECT count(*) FROM pragma_foreign_key_check"), 0, "in minute {minute}");
    }
    assert_eq!(number(&path, "SELECT count(*) FROM intervals WHERE sport = 1"), 181);
    // Three have rows.
    let flows = number(&path, "SELECT count(*) FROM flow WHERE sport > 1000");
    assert!((3..=4).contains(&flows), "{flows}");
}

/// Other writers wait for a transaction, and a disk for a commit.
#[test]
fn nothing_is_written_where_nothing_is_to_be_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut store = Store::open_for(&path, crate::sqlite::Writers::Several).unwrap();
    write_second(&mut store, 1);
    let other = Connection::open(&path).unwrap();
    let version = || other.query_row("PRAGMA data_version", [], |row| row.get::<_, i64>(0)).unwrap();
    let before = version();
    // Somebody else writes meanwhile.
    let busy = Connection::open(&path).unwrap();
    busy.execute_batch("BEGIN IMMEDIATE").unwrap();
    let retain = Retain { bytes: Some(1_000_000_000), ..of_age(60) };
    assert_eq!(store.retain(&retain, Origin::Live, 2 * SECOND_NS).unwrap(), 0);
    assert_eq!(version(), before);
}

/// A live run writes to a store in which captures of any time are, and captures may have impossible times.
#[test]
fn the_age_of_live_rows_is_nothing_to_those_of_captures_and_the_reverse() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut store = Store::open_for(&path, crate::sqlite::Writers::Several).unwrap();
    (1..=3).for_each(|n| write_second(&mut store, n));
    let db = Connection::open(&path).unwrap();
    for n in 1..=3 {
        for host in ["1", "NULL"] {
            db.execute_batch(&format!(
                "INSERT INTO latency (time_ns, host_id, type, what) VALUES ({n}000000000, {host}, 'rtt.sample', 'latency');
                INSERT INTO verdict VALUES ({n}000000000, {host}, '', '', NULL, NULL, '', 0, 0, 0, '', '', '', '', '')"
            ))
            .unwrap();
        }
    }
    let counts = || {
        ["interval", "latency", "verdict"].map(|table| {
            let captures = if table == "interval" { "0" } else { "host_id IS NULL" };
            let sql = format!("SELECT ifnull(sum(10 - 9 * ({captures})), 0) FROM {table}");
            number(&path, &sql)
        })
    };
    // Ten for each live row, and one for each of a capture.
    assert_eq!(counts(), [30, 33, 33]);
    assert_eq!(store.retain(&of_age(1), Origin::Live, 3 * SECOND_NS).unwrap(), 3);
    assert_eq!(counts(), [20, 23, 23]);
    assert_eq!(store.retain(&of_age(1), Origin::Capture, 100 * HOUR_S * SECOND_NS).unwrap(), 6);
    assert_eq!(counts(), [20, 20, 20]);
}

/// A row of the n-th flow of a capture, or of one that was seen live, with names.
fn write_latency(store: &mut Store, time_ns: i64, n: u16, host: Option<&str>) {
    let histogram = histogram();
    let source = Source { host: host.map(str::to_owned), ..Source::default() };
    let mut flow = FlowObject::new(&endpoint("192.0.2.1", n), &endpoint("192.0.2.2", 443), Protocol::TCP, None);
    flow.names = Some(NamesObject { service: Some(format!("service-{n}")), ..NamesObject::default() });
    let line = LatencyLine {
        flow: Some(flow),
        histogram: Some(&histogram),
        ..LatencyLine::new("rtt.sample", "latency", LatencyObject::new(None, &histogram))
    };
    store.write(|store| store.insert(latency_row(time_ns, &source, line))).unwrap();
}

/// A capture of long ago is the oldest of all rows, and stays.
#[test]
fn flows_seen_live_are_deleted_although_a_capture_is_older_and_those_of_the_capture_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut store = Store::open_for(&path, crate::sqlite::Writers::Several).unwrap();
    (1..=3).for_each(|n| write_latency(&mut store, i64::from(n) * SECOND_NS, n, None));
    let hours = |n: u16| i64::from(n) * HOUR_S * SECOND_NS;
    for n in 3..=20 {
        write_latency(&mut store, hours(n), n, Some("web"));
        store.retain(&of_age(2 * HOUR_S as u64), Origin::Live, hours(n)).unwrap();
        assert_eq!(number(&path, "SELECT count(*) FROM pragma_foreign_key_check"), 0, "in hour {n}");
    }
    let left = |sql: &str| (number(&path, &format!("{sql} FROM flow")), number(&path, &format!("{sql} FROM names")));
    // Three of the capture, and three of the last two hours.
    assert_eq!(left("SELECT count(*)"), (6, 6));
    assert_eq!(number(&path, "SELECT count(*) FROM latency WHERE host_id IS NULL"), 3);
    // When the capture's rows are gone, so are its flows.
    store.retain(&of_age(1), Origin::Capture, hours(20)).unwrap();
    for n in 21..=24 {
        write_latency(&mut store, hours(n), n, Some("web"));
        store.retain(&of_age(2 * HOUR_S as u64), Origin::Live, hours(n)).unwrap();
        assert_eq!(number(&path, "SELECT count(*) FROM pragma_foreign_key_check"), 0, "in hour {n}");
    }
    assert_eq!(left("SELECT count(*)"), (3, 3));
}

/// As on a machine that starts with a wrong clock, until it has asked for the time. Captures have the times that they have.
#[test]
fn a_clock_that_is_years_ahead_for_a_while_deletes_nothing_that_was_measured_live() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut store = Store::open(&path).unwrap();
    (1..=3).for_each(|n| write_second(&mut store, n));
    write_latency(&mut store, SECOND_NS, 9, None);
    let rows = || [number(&path, "SELECT count(*) FROM interval"), number(&path, "SELECT count(*) FROM latency")];
    let year_s = 365 * 24 * HOUR_S;
    let mut live = Retention::new(&store, Some(of_age(60)), Origin::Live).unwrap();
    write_second(&mut store, year_s);
    live.apply(&mut store, year_s * SECOND_NS, Duration::from_secs(60)).unwrap();
    assert_eq!(rows(), [4, 1]);
    live.apply(&mut store, 62 * SECOND_NS, Duration::from_secs(60)).unwrap();
    assert_eq!(rows(), [3, 1], "ages count");
    let mut of_capture = Retention::new(&store, Some(of_age(60)), Origin::Capture).unwrap();
    of_capture.apply(&mut store, year_s * SECOND_NS, Duration::from_secs(60)).unwrap();
    assert_eq!(rows(), [3, 0]);
}

#[test]
fn backends_beyond_the_age_of_live_rows_are_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut store = Store::open(&path).unwrap();
    for second in 1..=10 {
        let row = BackendRow { time_ns: second * SECOND_NS, ..super::backend() };
        store.write(|store| store.backend(&row)).unwrap();
    }
    assert_eq!(store.retain(&of_age(4), Origin::Capture, 10 * SECOND_NS).unwrap(), 0);
    assert_eq!(store.retain(&of_age(4), Origin::Live, 10 * SECOND_NS).unwrap(), 5);
    assert_eq!(number(&path, "SELECT min(time_ns) FROM backend"), 6 * SECOND_NS);
}
