//! Gray failures in a store, and on its page.

use dwell_engine::{
    baseline::Figure,
    gray::{Component, End, Event, Finding, Measure, Subject},
    layers::{PathSegment, Segment},
};
use dwell_records::GrayFailure;
use rusqlite::Connection;

use super::{histogram, interval};
use crate::{
    GrayRow, IntervalRow, Origin, Reader, Retain, Store,
    html::{Choice, Report},
};

const SECOND_NS: i64 = 1_000_000_000;

pub(crate) fn finding() -> Finding {
    Finding {
        subject: Subject::Host(1),
        measure: Measure {
            component: Component::Time(PathSegment::Host(Segment::Queueing)),
            figure: Some(Figure::Median),
        },
        value: 20_000_000,
        past: 400_000,
        expected: 410_000,
        peers_value: 380_000,
        peers: 3,
        paths: Some([4, 6]),
        per_week: 1e-9,
    }
}

/// A gray failure that was noticed at 2 s, as of this second.
pub(crate) fn failure(second: u64, hosts: [Option<&str>; 2], finding: Finding, end: Option<End>) -> GrayFailure<'_> {
    let event = Event { finding, since_ns: 2_000_000_000, end };
    GrayFailure { time_ns: second * 1_000_000_000, interval_ns: 1_000_000_000, event, hosts }
}

#[test]
fn a_gray_failure_is_stored_and_is_on_the_page_from_its_beginning_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut store = Store::open(&path).unwrap();
    let share = Finding {
        subject: Subject::Path { tx_host: 1, rx_host: 2 },
        measure: Measure { component: Component::Retransmitted, figure: None },
        value: 30_000,
        paths: None,
        ..finding()
    };
    let (web, both) = ([Some("web-1"), None], [Some("web-1"), Some("db-1")]);
    let histogram = histogram();
    let write = |to: &mut crate::Writing<'_>| {
        (1..=9).try_for_each(|second| {
            to.interval(&IntervalRow { time_ns: second * SECOND_NS, ..interval("web-1", None, &histogram) })
        })?;
        to.gray(&GrayRow {
            time_ns: 2 * SECOND_NS,
            since_ns: 2 * SECOND_NS,
            failure: &failure(2, web, finding(), None),
        })?;
        to.gray(&GrayRow { time_ns: 2 * SECOND_NS, since_ns: 2 * SECOND_NS, failure: &failure(2, both, share, None) })?;
        to.gray(&GrayRow {
            time_ns: 8 * SECOND_NS,
            since_ns: 2 * SECOND_NS,
            failure: &failure(8, web, finding(), Some(End::Recovered)),
        })
    };
    store.write(write).unwrap();
    let db = Connection::open(&path).unwrap();
    let row = db.query_row(
        "SELECT event, reason, since_ns, host, component, direction, figure, value_ns, peers_ns, paths_compared FROM gray
            WHERE event = 'end'",
        [],
        |row| {
            let text = |column| row.get::<_, Option<String>>(column);
            let number = |column| row.get::<_, Option<i64>>(column);
            let words = [text(0)?, text(1)?, text(3)?, text(4)?, text(5)?, text(6)?].map(Option::unwrap);
            Ok((words, [number(2)?, number(7)?, number(8)?, number(9)?]))
        },
    );
    let words = ["end", "recovered", "web-1", "queueing", "tx", "p50"].map(str::to_owned);
    assert_eq!(row.unwrap(), (words, [Some(2 * SECOND_NS), Some(20_000_000), Some(380_000), Some(6)]));

    let page = |hosts: &[&str]| {
        let choice = Choice { hosts: hosts.iter().map(|host| (*host).into()).collect(), ..Choice::default() };
        let report = Report::read(&Reader::open(&path).unwrap(), &choice, 0).unwrap().unwrap();
        let html = report.html();
        let (_, data) = html.split_once("id=\"data\">").unwrap();
        let (data, _) = data.split_once("</script>").unwrap();
        serde_json::from_str::<serde_json::Value>(data).unwrap()
    };
    let shown = page(&[]);
    let [path_of, host] = &shown["gray"].as_array().unwrap()[..] else { panic!("{}", shown["gray"]) };
    assert_eq!((&path_of["subject"], &path_of["to_ms"]), (&"web-1 → db-1".into(), &serde_json::Value::Null));
    assert_eq!((&path_of["shares"][0], &path_of["ns"]), (&0.03.into(), &serde_json::Value::Null));
    assert_eq!((&host["subject"], &host["component"]), (&"host web-1".into(), &"tx queueing p50".into()));
    assert_eq!((&host["from_ms"], &host["to_ms"], &host["reason"]), (&2e3.into(), &8e3.into(), &"recovered".into()));
    assert_eq!((&host["ns"][2], &host["paths"][0], &shown["gray_known"]), (&410_000.into(), &4.into(), &2.into()));

    let retain = Retain { age: Some(std::time::Duration::from_secs(1)), bytes: None };
    (0..100).any(|_| store.retain(&retain, Origin::Live, 100 * SECOND_NS).unwrap() == 0);
    let left = db.query_row("SELECT count(*) FROM gray", [], |row| row.get::<_, i64>(0));
    assert_eq!(left, Ok(0));
}

#[test]
fn a_page_has_the_gray_failures_that_lasted_in_its_time_and_those_of_its_hosts_however_many_others_have() {
    const DAY: i64 = 24 * 3_600;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut store = Store::open(&path).unwrap();
    let histogram = histogram();
    let write = |to: &mut crate::Writing<'_>| {
        for host in ["old", "web-1", "web-2"] {
            to.interval(&IntervalRow { time_ns: (3 * DAY + 300) * SECOND_NS, ..interval(host, None, &histogram) })?;
        }
        let mut gray = |second: i64, since: i64, host, end| {
            let failure = failure(second.cast_unsigned(), [Some(host), None], finding(), end);
            to.gray(&GrayRow { time_ns: second * SECOND_NS, since_ns: since * SECOND_NS, failure: &failure })
        };
        // Of a collector that was killed: a day is the longest.
        gray(DAY, DAY, "old", None)?;
        gray(3 * DAY - 60, 3 * DAY - 60, "web-1", None)?;
        (1..=210).try_for_each(|second| gray(3 * DAY - 30 + second, 3 * DAY - 30 + second, "web-2", None))
    };
    store.write(write).unwrap();
    let page = |hosts: &[&str]| {
        let hosts = hosts.iter().map(|host| (*host).into()).collect();
        let since_ns = Some((3 * DAY - 40) * SECOND_NS);
        let choice = Choice { hosts, since_ns, until_ns: Some(4 * DAY * SECOND_NS), ..Choice::default() };
        let report = Report::read(&Reader::open(&path).unwrap(), &choice, 0).unwrap().unwrap();
        let html = report.html();
        let (_, data) = html.split_once("id=\"data\">").unwrap();
        let data = serde_json::from_str::<serde_json::Value>(data.split_once("</script>").unwrap().0).unwrap();
        let names: Vec<_> = data["gray"].as_array().unwrap().iter().map(|gray| gray["subject"].clone()).collect();
        (names, data["gray_known"].clone())
    };
    assert_eq!(page(&["web-1"]), (vec!["host web-1".into()], 1.into()));
    assert_eq!(page(&["old"]), (vec![], 0.into()));
    let (names, known) = page(&[]);
    assert_eq!((names.len(), known), (200, 211.into()));
}

#[test]
fn a_store_without_the_table_of_gray_failures_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let histogram = histogram();
    Store::open(&path).unwrap().write(|to| to.interval(&interval("a", None, &histogram))).unwrap();
    Connection::open(&path).unwrap().execute_batch("DROP TABLE gray; PRAGMA user_version = 6").unwrap();
    let report = Report::read(&Reader::open(&path).unwrap(), &Choice::default(), 0).unwrap().unwrap();
    assert!(report.html().contains("\"gray\":[]"));
}
