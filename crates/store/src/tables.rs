//! The tables of a store, and what brings those of older versions up to date.

/// The version of the tables in `schema.sql`, `latency.sql`, `backend.sql` and `gray.sql`.
pub(crate) const VERSION: i64 = 7;
/// The oldest version that is read, and brought up to date when it is opened for writing.
pub(crate) const OLDEST: i64 = 3;

const SCHEMA: &str = include_str!("schema.sql");
const LATENCY: &str = include_str!("latency.sql");
const BACKEND: &str = include_str!("backend.sql");
const GRAY: &str = include_str!("gray.sql");
const VIEWS: &str = include_str!("views.sql");
/// What brings version 3 up to version 4. Nothing is known about the end of its runs, so they are not said to have been
/// killed.
const UPGRADE_3: &str = "
    ALTER TABLE run ADD COLUMN last_ns INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE run ADD COLUMN ended_ns INTEGER;
    UPDATE run SET ended_ns = begun_ns;
    CREATE TABLE lost (
        time_ns INTEGER NOT NULL, host_id INTEGER NOT NULL REFERENCES host, run TEXT NOT NULL,
        from_batch INTEGER NOT NULL, to_batch INTEGER, from_ns INTEGER, to_ns INTEGER, why TEXT NOT NULL
    ) STRICT;
    CREATE INDEX lost_by_time ON lost (time_ns);";
/// What brings version 4 up to version 5, but for the tables that are new. All its flows are of TCP.
const UPGRADE_4: &str = "
    CREATE TABLE flow_5 (
        flow_id INTEGER PRIMARY KEY, src TEXT NOT NULL, sport INTEGER, dst TEXT NOT NULL, dport INTEGER,
        proto TEXT NOT NULL, id TEXT, last_ns INTEGER NOT NULL
    ) STRICT;
    INSERT INTO flow_5 SELECT flow_id, src, sport, dst, dport, 'TCP', id,
        max(ifnull((SELECT max(time_ns) FROM interval), 0), ifnull((SELECT max(time_ns) FROM path), 0)) FROM flow;
    DROP TABLE flow;
    ALTER TABLE flow_5 RENAME TO flow;
    CREATE UNIQUE INDEX flow_by_ends ON flow (src, ifnull(sport, -1), dst, ifnull(dport, -1), proto, ifnull(id, ''));
    CREATE INDEX flow_by_last ON flow (last_ns);";
/// What brings version 5 up to version 6. Its flows are of the namespaces of their agents.
const UPGRADE_5: &str = "
    ALTER TABLE interval ADD COLUMN namespace TEXT;";
/// What adds pods to the names of versions 5 and 6, but for the index of names. Older versions have no names.
const ADD_PODS: &str = "
    DROP INDEX names_by_all;
    ALTER TABLE names ADD COLUMN src_pod TEXT;
    ALTER TABLE names ADD COLUMN src_pod_uid TEXT;
    ALTER TABLE names ADD COLUMN dst_pod TEXT;
    ALTER TABLE names ADD COLUMN dst_pod_uid TEXT;";
/// What lets paths say how they were joined, and with which addresses the receiver's host saw them. Those of before do not.
const ADD_JOINED: &str = "
    ALTER TABLE path ADD COLUMN joined TEXT;
    ALTER TABLE path ADD COLUMN rx_flow_id INTEGER REFERENCES flow;";
/// What comes before all of these: views are made anew once the tables are those of today.
const DROP_VIEWS: &str = "
    DROP VIEW IF EXISTS intervals;
    DROP VIEW IF EXISTS paths;
    DROP VIEW IF EXISTS latencies;
    DROP VIEW IF EXISTS verdicts;
    DROP VIEW IF EXISTS backends;";

/// Returns what creates all tables and views.
pub(crate) fn schema() -> String {
    [SCHEMA, LATENCY, BACKEND, GRAY, VIEWS].concat()
}

/// Returns what brings the tables of an older version up to date, in steps.
pub(crate) fn upgrade(older: i64) -> Vec<String> {
    let pods = if older < 5 { String::new() } else { [ADD_PODS, names_index()].concat() };
    let steps = [
        (4, UPGRADE_3.to_owned()),
        (5, [UPGRADE_4, LATENCY].concat()),
        (6, UPGRADE_5.to_owned()),
        (7, [&pods, ADD_JOINED, BACKEND, GRAY].concat()),
    ];
    let steps = steps.into_iter().filter(|(version, _)| older < *version).map(|(_, step)| step);
    [DROP_VIEWS.to_owned()].into_iter().chain(steps).chain([VIEWS.to_owned()]).collect()
}

/// Returns the statement that makes the index of names, as in a new store.
fn names_index() -> &'static str {
    const BEGINNING: &str = "CREATE UNIQUE INDEX names_by_all";
    let from = LATENCY.find(BEGINNING).expect("names have an index");
    let length = LATENCY[from..].find(';').expect("a statement ends");
    &LATENCY[from..=from + length]
}
