use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use dwell_engine::{
    histogram::Histogram,
    layers::{PathSegment, Segment, SegmentHooks},
};

use super::*;
use crate::{
    Address, ClockRow, GrayRow, IntervalRow, Login, Loss, LostRow, PathMethod, PathRow,
    html::Report,
    spool::line,
    tests::{endpoint, gray},
};

const SECOND_NS: i64 = 1_000_000_000;

fn ends(port: u16) -> Ends {
    Ends { src: endpoint("192.0.2.1", port), dst: endpoint("2001:db8::1", 443) }
}

/// Calls `each` with the rows of a store: of all flows, and of two flows.
fn rows(mut each: impl FnMut(Row<'_>)) {
    let hooks = SegmentHooks { from: Some("a\tb\\".into()), to: None, missing: None };
    for second in 1..=3_i64 {
        for (flow, count) in [(None, 7), (Some(ends(7001)), 5), (Some(ends(7002)), 2)] {
            let mut histogram = Histogram::default();
            // Its bytes have zeros, tabs and ends of lines.
            histogram.record_many(9 + 1_280 * second.cast_unsigned(), count);
            histogram.record_many(13, 10);
            let interval = IntervalRow {
                time_ns: second * SECOND_NS,
                time_clamped: false,
                length_ns: SECOND_NS.cast_unsigned(),
                host: "it's\nhere",
                flow,
                namespace: None,
                segment: Segment::TxTotal,
                resent: false,
                histogram: &histogram,
                hooks: Some(&hooks),
            };
            each((&interval).into());
            let path = PathRow {
                time_ns: second * SECOND_NS,
                length_ns: SECOND_NS.cast_unsigned(),
                tx_host: Some("it's\nhere"),
                rx_host: None,
                flow,
                leg: PathSegment::EndToEnd,
                resent: false,
                method: PathMethod::Matched,
                histogram: &histogram,
                bound_ns: Some(9),
                clamped: 1,
                doubtful: 0,
            };
            each((&path).into());
        }
    }
    let clock = ClockRow {
        time_ns: SECOND_NS,
        host: "it's\nhere",
        offset_ns: -5,
        bound_ns: 7,
        drift_ppb: Some(-1.5),
        drift_bound_ppb: None,
        round_trip_ns: None,
        method: "xdp",
        stepped: true,
    };
    each((&clock).into());
    let lost = LostRow {
        time_ns: SECOND_NS,
        host: "it's\nhere",
        run: &[7; 16],
        batches: (2, None),
        since_ns: None,
        until_ns: None,
        why: Loss::Gap,
    };
    each((&lost).into());
    let failure = gray::failure(2, [Some("it's\nhere"), None], gray::finding(), None);
    each((&GrayRow { time_ns: 2 * SECOND_NS, failure: &failure }).into());
}

/// Answers the queries of a report as a server that has these rows. Returns its address.
fn serve(ends_badly: bool) -> Address {
    let mut tables: Vec<(&'static str, bool, Vec<u8>)> = Vec::new();
    rows(|row| {
        let (name, has_flow) = (row.table.name, row.cells.iter().any(|cell| matches!(cell, Cell::Flow(Some(_)))));
        let mut values = Vec::new();
        row.cells.into_iter().for_each(|cell| cell.expand(&mut values));
        tables.push((name, has_flow, [line(&values), b"\n".to_vec()].concat()));
    });
    let tables = Arc::new(tables);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("clickhouse://{}/dwell", listener.local_addr().unwrap()).parse().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let tables = Arc::clone(&tables);
            thread::spawn(move || answer(stream.unwrap(), &tables, ends_badly));
        }
    });
    address
}

fn answer(mut stream: TcpStream, tables: &[(&str, bool, Vec<u8>)], ends_badly: bool) {
    let (mut request, mut buffer) = (String::new(), [0; 4096]);
    let query = loop {
        let read = stream.read(&mut buffer).unwrap();
        request += std::str::from_utf8(&buffer[..read]).unwrap();
        let Some((head, body)) = request.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if Some(body.len()) == length {
            break body.to_owned();
        }
    };
    let mut text = Vec::new();
    if query.starts_with("SELECT count()") {
        text = format!("3\t0\t{}\n", 3 * SECOND_NS).into_bytes();
    } else if query.starts_with("EXISTS TABLE") {
        text = b"1\n".to_vec();
    } else if query.starts_with("SELECT src, sport, dst, dport FROM (") {
        text = b"192.0.2.1\t7001\t2001:db8::1\t443\n192.0.2.1\t7002\t2001:db8::1\t443\n".to_vec();
    } else {
        let wants_flows = query.contains("src IS NOT NULL");
        for (name, has_flow, row) in tables {
            let is_wanted = has_flow == &wants_flows && query.contains(&format!("FROM {name} FINAL"));
            let port = if row.windows(6).any(|at| at == b"\t7001\t") { 7001 } else { 7002 };
            let is_named = !has_flow || query.contains(&format!("'192.0.2.1', {port},"));
            if is_wanted && is_named {
                text.extend_from_slice(row);
            }
        }
        if ends_badly {
            text.extend_from_slice(b"Code: 241. DB::Exception: Memory limit exceeded\n");
        }
    }
    let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", text.len());
    stream.write_all(&[head.into_bytes(), text].concat()).unwrap();
}

fn server(ends_badly: bool) -> Server {
    let login = Login { user: "default".into(), password: None };
    Server::for_reading(serve(ends_badly), login, ureq::tls::TlsConfig::default())
}

#[test]
fn the_page_of_a_server_is_that_of_a_file_with_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let (of_file, of_server) = (folder.path().join("file"), folder.path().join("server"));
    let mut store = Store::open(&of_file).unwrap();
    rows(|row| store.write(|store| store.insert(row)).unwrap());
    store.write(|store| store.batch("it's\nhere", &[0; 16], (1, 1), 1)).unwrap();
    drop(store);
    let server = server(false);
    let choice = Choice { most_flows: 10, ..Choice::default() };
    let span = server.span().unwrap().unwrap();
    assert_eq!(span, (0, 3 * SECOND_NS));
    assert_eq!(server.fetch(&choice, span, &of_server).unwrap(), 0);
    let page = |path: &Path, choice: &Choice| -> serde_json::Value {
        let html = Report::read(&Reader::open(path).unwrap(), choice, 0).unwrap().unwrap().html();
        let (_, data) = html.split_once("id=\"data\">").unwrap();
        serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
    };
    let whole = page(&of_file, &choice);
    assert_eq!(page(&of_server, &choice), whole);
    assert_eq!((&whole["clocks"][0]["steps"], &whole["losses"][0]["why"]), (&1.into(), &"gap".into()));
    assert_eq!((&whole["flows"][0]["src"], &whole["hosts"][0]), (&"192.0.2.1:7001".into(), &"it's\nhere".into()));
    assert_eq!((&whole["gray"][0]["subject"], &whole["gray"][0]["peers"]), (&"host it's\nhere".into(), &3.into()));
    // One flow of two is kept apart.
    let few = Choice { most_flows: 1, ..Choice::default() };
    let of_few = folder.path().join("few");
    let left_out = server.fetch(&few, span, &of_few).unwrap();
    assert_eq!(left_out, 1);
    assert_eq!(page(&of_few, &Choice { left_out, ..few.clone() }), page(&of_file, &few));
}

#[test]
fn an_answer_that_ends_in_an_error_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let choice = Choice { most_flows: 10, ..Choice::default() };
    let error = server(true).fetch(&choice, (0, 3 * SECOND_NS), &folder.path().join("store")).unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }) && error.to_string().contains("Memory limit"), "{error}");
}
