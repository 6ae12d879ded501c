//! Stores of older versions, which are read as they are and brought up to date when they are written.

use std::path::Path;

use dwell_engine::{
    flow_id,
    histogram::Histogram,
    measure::Protocol,
    names::{Pod, PodName},
};
use dwell_records::{EndNamesObject, FlowObject, LatencyLine, LatencyObject, NamesObject, Source};
use rusqlite::Connection;

use super::{RUN, backend, ends, histogram, interval};
use crate::{
    IntervalRow, Reader, Store,
    columns::Row,
    html::{Choice, Report},
};

/// A file of version 4, or of version 3, which knew no losses, with a row of each table that later ones changed.
fn old_store(path: &Path, version: i64) {
    let old = Connection::open(path).unwrap();
    old.pragma_update(None, "journal_mode", "WAL").unwrap();
    old.execute_batch(include_str!("schema_4.sql")).unwrap();
    let id = flow_id(&ends().src, &ends().dst, Protocol::TCP);
    old.execute_batch(&format!(
        "INSERT INTO host VALUES (1, 'a');
        INSERT INTO run (host_id, run, begun_ns, last_batch) VALUES (1, x'07070707070707070707070707070707', 5, 4);
        INSERT INTO flow VALUES (3, '192.0.2.1', 44321, '2001:db8::1', 443, '{id}');
        INSERT INTO interval VALUES (7, 1, 1, 3, 'queueing', 'tx', NULL, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
            NULL, x'0100000000', NULL, NULL, NULL, 0)"
    ))
    .unwrap();
    if version == 3 {
        let older = "DROP TABLE lost; ALTER TABLE run DROP COLUMN last_ns; ALTER TABLE run DROP COLUMN ended_ns";
        old.execute_batch(older).unwrap();
    }
    old.pragma_update(None, "application_id", 0x6477_656c).unwrap();
    old.pragma_update(None, "user_version", version).unwrap();
}

/// A file of version 6, with names, which has neither pods nor backends.
fn store_of_version_6(path: &Path) {
    drop(Store::open(path).unwrap());
    let old = Connection::open(path).unwrap();
    old.execute_batch(
        "DROP VIEW backends; DROP TABLE backend; DROP TABLE gray; DROP VIEW latencies; DROP INDEX names_by_all;
        DROP VIEW paths; ALTER TABLE path DROP COLUMN joined; ALTER TABLE path DROP COLUMN rx_flow_id;
        ALTER TABLE names DROP COLUMN src_pod; ALTER TABLE names DROP COLUMN src_pod_uid;
        ALTER TABLE names DROP COLUMN dst_pod; ALTER TABLE names DROP COLUMN dst_pod_uid;
        CREATE VIEW latencies AS SELECT time_ns, src_unit FROM latency LEFT JOIN names USING (names_id);
        CREATE UNIQUE INDEX names_by_all ON names (ifnull(src_unit, ''), ifnull(dst_unit, ''));
        INSERT INTO names (names_id, src_unit, dst_unit, last_ns) VALUES (1, '0123456789ab', 'nginx.service', 0);
        PRAGMA user_version = 6",
    )
    .unwrap();
}

/// Returns the columns of all tables and views, and the indices.
fn columns_and_indices(path: &Path) -> Vec<String> {
    let db = Connection::open(path).unwrap();
    let sql = "SELECT m.name || '.' || c.name || ' ' || c.type || c.\"notnull\" || ifnull(c.dflt_value, '')
        FROM sqlite_schema m JOIN pragma_table_info(m.name) c ORDER BY 1";
    let mut statement = db.prepare(sql).unwrap();
    let columns: Vec<_> = statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let mut indices = db.prepare("SELECT sql FROM sqlite_schema WHERE type = 'index' ORDER BY name").unwrap();
    let indices = indices.query_map([], |row| row.get::<_, Option<String>>(0)).unwrap();
    columns.into_iter().chain(indices.map(|sql| sql.unwrap().unwrap_or_default())).collect()
}

#[test]
fn a_store_of_version_6_is_read_without_backends_and_pods_and_gets_both_when_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (path, fresh) = (folder.path().join("store"), folder.path().join("fresh"));
    store_of_version_6(&path);
    let old = Connection::open(&path).unwrap();
    old.execute_batch(
        "INSERT INTO host VALUES (1, 'a');
        INSERT INTO latency (time_ns, interval_ns, host_id, type, what, names_id, count, mean_ns)
            VALUES (1, 1, 1, 'rtt.sample', 'latency', 1, 1, 1)",
    )
    .unwrap();
    drop(old);
    let reader = Reader::open(&path).unwrap();
    let units = |reader: &Reader, number| reader.names(number).unwrap().map(|end| end.unit);
    assert_eq!(units(&reader, 1), [Some("0123456789ab".to_owned()), Some("nginx.service".to_owned())]);
    assert!(Report::read(&reader, &Choice::default(), 0).unwrap().is_some());
    drop(reader);

    let mut store = Store::open(&path).unwrap();
    store.write(|store| store.backend(&backend())).unwrap();
    // The same names but for the pod; one of which only the UID is known.
    let named = |container: &str| (Some("shop/web-0"), Some(container.to_owned()));
    for (name, container) in [named("nginx"), named("sidecar"), (None, None), named("nginx")] {
        store.write(|store| store.insert(latency_in_pod(name, container))).unwrap();
    }
    drop(store);
    drop(Store::open(&fresh).unwrap());
    assert_eq!(columns_and_indices(&path), columns_and_indices(&fresh));
    let reader = Reader::open(&path).unwrap();
    assert_eq!(
        [1, 2, 3, 4].map(|number| units(&reader, number)[0].clone().unwrap()),
        ["0123456789ab", "shop/web-0/nginx", "shop/web-0/sidecar", UID]
    );
    let mut pods = Vec::new();
    reader.last_latencies((0, 9), |latency| pods.push(latency.names.src.pod.map(|pod| pod.to_string()))).unwrap();
    assert_eq!(
        pods,
        ["shop/web-0/nginx", "shop/web-0/sidecar", UID, "shop/web-0/nginx"].map(|pod| Some(pod.to_owned()))
    );
    let db = Connection::open(&path).unwrap();
    let count = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM latencies WHERE src_pod LIKE 'shop/web-0/%' AND dst_pod IS NULL"), 3);
    assert_eq!(count(&format!("SELECT count(*) FROM latencies WHERE src_pod_uid = '{UID}'")), 4);
    assert_eq!(count("SELECT count(*) FROM names"), 4);
    let row = db.query_row("SELECT host, vip, state, pending FROM backends", [], |row| {
        Ok::<(String, Option<String>, String, i64), _>((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
    });
    assert_eq!(row, Ok(("edge".into(), Some("web".into()), "up".into(), 2)));
}

const UID: &str = "8f6a44fc-62e8-cb07-5753-c843896568ca";

/// A round trip of a flow whose first end is in a pod with this `NAMESPACE/NAME`, if that is known.
fn latency_in_pod(name: Option<&str>, container: Option<String>) -> Row<'static> {
    let name = name.and_then(|name| name.split_once('/'));
    let name = name.map(|(namespace, name)| PodName { namespace: namespace.into(), name: name.into() });
    let pod = Pod { uid: UID.into(), name, container: container.map(Into::into) };
    let mut flow = FlowObject::new(&ends().src, &ends().dst, Protocol::TCP, None);
    let src = EndNamesObject { pod: Some((&pod).into()), ..EndNamesObject::default() };
    flow.names = Some(NamesObject { src, ..NamesObject::default() });
    let histogram = histogram();
    let latency = LatencyObject::new(None, &histogram);
    let line =
        LatencyLine { flow: Some(flow), interval_ns: Some(1), ..LatencyLine::new("rtt.sample", "latency", latency) };
    crate::latency::latency_row(5, &Source::default(), line).into_owned()
}

#[test]
fn a_store_of_version_5_gets_a_column_for_network_namespaces() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    store_of_version_6(&path);
    let old = Connection::open(&path).unwrap();
    old.execute_batch(
        "DROP VIEW intervals; ALTER TABLE interval DROP COLUMN namespace;
        CREATE VIEW intervals AS SELECT time_ns, segment FROM interval; PRAGMA user_version = 5",
    )
    .unwrap();
    drop(old);
    let mut store = Store::open(&path).unwrap();
    let histogram = Histogram::default();
    let row = interval("a", Some(ends()), &histogram);
    store
        .write(|to| to.interval(&row).and_then(|()| to.interval(&IntervalRow { namespace: Some("web"), ..row })))
        .unwrap();
    let db = Connection::open(&path).unwrap();
    let mut statement = db.prepare("SELECT namespace FROM intervals").unwrap();
    let names: Vec<Option<String>> = statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(names, [None, Some("web".to_owned())]);
}

#[test]
fn a_store_of_an_older_version_is_read_and_brought_up_to_date() {
    let folder = tempfile::tempdir().unwrap();
    let fresh = folder.path().join("fresh");
    drop(Store::open(&fresh).unwrap());
    for version in [3, 4] {
        let path = folder.path().join(version.to_string());
        old_store(&path, version);
        let reader = Reader::open(&path).unwrap();
        assert_eq!(reader.lost((0, i64::MAX), None, 5).unwrap(), (Vec::new(), 0));
        assert_eq!(reader.span().unwrap(), Some((6, 7)));
        assert_eq!(reader.flows((0, 9), &[]).unwrap(), []);
        assert_eq!(reader.verdicts((0, 9), None, 5).unwrap().1, 0);
        assert_eq!(reader.last_interval(None, 9).unwrap(), Some((6, 7)));
        assert_eq!(reader.last_interval(Some(3), 2).unwrap(), Some((4, 7)), "all rows are of the future");
        reader.last_latencies((0, 9), |_| panic!("no row is of a send buffer")).unwrap();
        assert_eq!(reader.last_backends((0, 9)).unwrap(), []);
        drop(reader);
        let mut store = Store::open(&path).unwrap();
        assert_eq!(store.last_batch("a", &RUN).unwrap(), Some(4));
        let unfinished = store.write(|store| store.unfinished("a", b"the next")).unwrap();
        // Nothing says of a run of version 3 whether it was killed.
        assert_eq!(unfinished.len(), usize::from(version == 4));
        let histogram = histogram();
        store.write(|store| store.interval(&interval("a", Some(ends()), &histogram))).unwrap();
        drop(store);
        assert_eq!(columns_and_indices(&path), columns_and_indices(&fresh));
        let upgraded = Connection::open(&path).unwrap();
        // The flow is the one that was known before.
        let sql = "SELECT count(*) FROM intervals WHERE src = '192.0.2.1' AND dport = 443 AND id IS NOT NULL";
        assert_eq!(upgraded.query_row(sql, [], |row| row.get::<_, i64>(0)), Ok(2));
        let sql = "SELECT count(*) FROM pragma_foreign_key_check";
        assert_eq!(upgraded.query_row(sql, [], |row| row.get::<_, i64>(0)), Ok(0));
    }
}
