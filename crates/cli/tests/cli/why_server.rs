//! `dwell why -r clickhouse://…`, where a test plays the server: it answers from the tables of a file, which has the same columns.

use std::{
    io::Write,
    net::{TcpListener, TcpStream},
    path::PathBuf,
    thread,
};

use rusqlite::{Connection, types::ValueRef};

use crate::{
    records::{objects, text},
    report_server::query,
    support::dwell,
    why_store::{MS, QUICK, Stored, Times, path, translated},
};

/// Serves what a file has, and returns the address.
fn serve(file: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("clickhouse://{}/dwell", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            answer(stream, &Connection::open(&file).unwrap());
        }
    });
    address
}

fn answer(mut stream: TcpStream, file: &Connection) {
    let query = query(&mut stream).unwrap();
    let mut lines = Vec::new();
    // No view has the other tables with the names of their hosts.
    if !["FROM clock", "FROM lost", "EXISTS TABLE"].iter().any(|other| query.contains(other)) {
        rows(file, &query, &mut lines);
    }
    write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", lines.len()).unwrap();
    stream.write_all(&lines).unwrap();
}

/// Writes what a query gives in the format TabSeparated. What of it is ClickHouse's own is put into words of SQLite.
fn rows(file: &Connection, query: &str, lines: &mut Vec<u8>) {
    let query =
        query.replace(" FINAL", "").replace(" FORMAT TabSeparated", "").replace(" LIMIT 1 BY host, time_ns", "");
    let query = query.replace("toInt64", "").replace("assumeNotNull", "").replace(") IN (", ") IN (VALUES ");
    let mut statement = file.prepare(&query).unwrap_or_else(|error| panic!("{error}: {query}"));
    let columns = statement.column_count();
    let mut rows = statement.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        for column in 0..columns {
            let bytes = match row.get_ref(column).unwrap() {
                // The least of nothing is 0 there.
                ValueRef::Null if query.starts_with("SELECT count()") => b"0".to_vec(),
                ValueRef::Null => b"\\N".to_vec(),
                ValueRef::Integer(number) => number.to_string().into_bytes(),
                ValueRef::Real(number) => number.to_string().into_bytes(),
                ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.iter().flat_map(|byte| escaped(*byte)).collect(),
            };
            lines.extend(bytes);
            lines.push(if column + 1 == columns { b'\n' } else { b'\t' });
        }
    }
}

fn escaped(byte: u8) -> Vec<u8> {
    match byte {
        b'\t' => b"\\t".to_vec(),
        b'\n' => b"\\n".to_vec(),
        b'\\' => b"\\\\".to_vec(),
        0 => b"\\0".to_vec(),
        byte => vec![byte],
    }
}

#[test]
fn a_server_has_the_same_verdict_as_a_file_with_the_same_rows() {
    let stored = Stored::new(|store| {
        path(store, ["web", "db"], 5432, &Times { socket_tcp: (MS, 400 * MS), ..QUICK })?;
        path(store, ["web", "cache"], 6379, &Times { application: (MS, 900 * MS), ..QUICK })?;
        translated(store, ["web", "proxy"], 8443, &Times { network: (10 * MS, 150 * MS), ..QUICK })
    });
    let address = serve(stored.path());
    for (target, cause) in [
        (&[":5432"][..], "send-backlog"),
        (&["10.78.0.2:6379"], "slow-reader"),
        // As the receiver sees it.
        (&["10.99.0.2:8443"], "path-queue"),
        (&[":5432", "--since", "3s"], "send-backlog"),
    ] {
        let (of_file, expected) = stored.why(target);
        let of_server = dwell(&[&["why", "--format", "jsonl", "-r", &address], target].concat());
        let verdict = objects(&of_server.stdout).pop().unwrap_or_else(|| panic!("{of_server}"));
        assert_eq!((of_server.status, text(&verdict, "cause")), (of_file.status, cause), "{target:?}: {verdict}");
        for key in ["sentence", "certainty", "connections", "observed_ns", "parts", "facts", "remedies"] {
            assert_eq!(verdict[key], expected[key], "{target:?}: {key}");
        }
    }
    let nothing = dwell(&["why", "-r", &address, ":7777"]);
    assert_eq!(nothing.status, Some(4), "{nothing}");
}

#[test]
fn what_says_nothing_of_a_server_or_of_a_file_is_refused() {
    let stored = Stored::new(|store| path(store, ["web", "db"], 5432, &QUICK));
    let file = stored.path();
    let file = file.to_str().unwrap();
    let empty = Stored::new(|_| Ok(()));
    let (nobody, without_rows) = ("clickhouse://127.0.0.1:1/dwell", serve(empty.path()));
    let limit = ["--clickhouse-copy-limit", "1G"];
    for (arguments, says) in [
        (vec!["-r", nobody, ":5432"], "cannot reach clickhouse://127.0.0.1:1/dwell"),
        (vec!["-r", &without_rows, ":5432"], "has no intervals yet"),
        (vec!["-r", nobody, "4242"], "a store has none"),
        ([&["-r", file, ":5432"], &limit[..]].concat(), "--clickhouse-copy-limit is for a store on a server"),
        ([&[":5432"], &limit[..]].concat(), "--clickhouse-copy-limit is for a store on a server"),
    ] {
        let run = dwell(&[&["why"], &arguments[..]].concat());
        assert_eq!(run.status, Some(2), "{run}");
        assert!(run.stderr.contains(says), "{run}");
    }
}
