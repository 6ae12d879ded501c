use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::Arc,
    thread,
    time::Duration,
};

use dwell_engine::{
    histogram::Histogram,
    layers::{PathSegment, Segment, SegmentHooks},
};

use super::*;
use crate::{
    Address, ClockRow, GrayRow, IntervalRow, Login, Loss, LostRow, PathMethod, PathRow,
    html::{Choice, Report},
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
    // It was silent for two seconds.
    for second in [1, 2, 3, 6_i64] {
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
                rx_flow: flow.map(|Ends { src, dst }| Ends { src: dst, dst: src }),
                segment: PathSegment::EndToEnd,
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
    each((&GrayRow { time_ns: 2 * SECOND_NS, since_ns: 2 * SECOND_NS, failure: &failure }).into());
}

/// How a server answers.
#[derive(Debug, Clone, Copy)]
enum Manner {
    Well,
    /// After a pause.
    Late(Duration),
    /// With each row so often.
    Repeating(usize),
    /// An answer from this table lacks as many bytes at its end, and this comes instead; with or without a length of it all.
    BreakingOff {
        table: &'static str,
        bytes: usize,
        error: &'static str,
        has_length: bool,
    },
}

/// Answers the queries of a report as a server that has these rows. Returns its address.
fn serve(manner: Manner) -> Address {
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
            thread::spawn(move || answer(stream.unwrap(), &tables, manner));
        }
    });
    address
}

fn answer(mut stream: TcpStream, tables: &[(&str, bool, Vec<u8>)], manner: Manner) {
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
    let (mut text, mut has_length) = (lines(&query, tables, manner), true);
    match manner {
        Manner::BreakingOff { table, bytes, error, has_length: is_known } if table_of(&query) == table => {
            text.truncate(text.len() - bytes);
            text.extend_from_slice(error.as_bytes());
            has_length = is_known;
        }
        Manner::Late(pause) => thread::sleep(pause),
        _ => {}
    }
    let length = text.len();
    let head = match has_length {
        true => format!("Content-Length: {length}\r\n\r\n"),
        // No chunk that is the last one follows.
        false => format!("Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n"),
    };
    // The reader may have what it needs.
    _ = stream.write_all(&[format!("HTTP/1.1 200 OK\r\nConnection: close\r\n{head}").into_bytes(), text].concat());
}

/// The table that a query is of; `flows` for the one that ranks flows.
fn table_of(query: &str) -> &str {
    let from = query.split(" FROM ").nth(1).unwrap_or_default();
    if from.starts_with('(') { "flows" } else { from.split(' ').next().unwrap() }
}

fn lines(query: &str, tables: &[(&str, bool, Vec<u8>)], manner: Manner) -> Vec<u8> {
    if !query.ends_with(" FORMAT TabSeparated") {
        return b"{\"data\": \"as the user's profile says\"}\n".to_vec();
    }
    if query.starts_with("EXISTS TABLE") {
        return b"1\n".to_vec();
    }
    if query.starts_with("SELECT count()") {
        return format!("3\t0\t{}\n", 6 * SECOND_NS).into_bytes();
    }
    if table_of(query) == "flows" {
        let flow = |port: u16, received: &str| format!("192.0.2.1\t{port}\t2001:db8::1\t443\t{received}\n");
        // A balancer has led the second one to two servers.
        let mut received = vec!["192.0.2.8\t40000\t192.0.2.10\t80", "192.0.2.9\t30000\t192.0.2.20\t8080"];
        if !query.contains("rx_dport AS d") {
            received = vec!["192.0.2.9\t40000\t192.0.2.20\t8080"];
        }
        let none = [r"\N"; 4].join("\t");
        let ranked = [flow(7001, &none), flow(7002, &none)].into_iter();
        return ranked.chain(received.iter().map(|ends| flow(7002, ends))).collect::<String>().into_bytes();
    }
    let mut text = Vec::new();
    let wants_flows = query.contains("src IS NOT NULL");
    for (name, has_flow, row) in tables {
        let is_wanted = has_flow == &wants_flows && table_of(query) == *name;
        let port = if row.windows(6).any(|at| at == b"\t7001\t") { 7001 } else { 7002 };
        let is_named = !has_flow || query.contains(&format!("'192.0.2.1', {port},"));
        let time = |text: &[u8]| std::str::from_utf8(text).unwrap().parse::<i64>().unwrap();
        let since = query.split("time_ns > ").nth(1).map(|rest| time(rest.split(' ').next().unwrap().as_bytes()));
        let is_early = since.is_some_and(|since| time(row.split(|byte| *byte == b'\t').next().unwrap()) <= since);
        if *name == "gray" && is_early {
            continue;
        }
        let times = if let Manner::Repeating(times) = manner { times } else { 1 };
        for _ in 0..times * usize::from(is_wanted && is_named) {
            text.extend_from_slice(row.strip_suffix(b"\n").unwrap());
            text.extend_from_slice(if query.contains(", 1 FROM ") { b"\t1\n" } else { b"\n" });
        }
    }
    text
}

fn server(manner: Manner) -> Server {
    let login = Login { user: "default".into(), password: None };
    Server::new(serve(manner), login, ureq::tls::TlsConfig::default())
}

const SPAN: Span = (0, 6 * SECOND_NS);

fn choice() -> Choice {
    Choice { most_flows: 10, ..Choice::default() }
}

fn patience() -> Patience {
    Patience::new(Duration::from_secs(60))
}

fn fetch(
    server: &Server,
    choice: &Choice,
    span: Span,
    patience: Patience,
    most_bytes: u64,
) -> Result<(Reader, usize), StoreError> {
    let takes = |ends: &Ends| choice.takes(ends);
    let flows = choice.is_of_flows().then_some(&takes as &dyn Fn(&Ends) -> bool);
    let wanted = Wanted { flows, hosts: &choice.hosts, most_flows: choice.most_flows };
    server.fetch(&wanted, span, patience, most_bytes)
}

fn page(store: &Reader, choice: &Choice) -> serde_json::Value {
    let html = Report::read(store, choice, 0).unwrap().unwrap().html();
    let (_, data) = html.split_once("id=\"data\">").unwrap();
    serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
}

/// A file with the rows of the server.
fn file(path: &Path) -> Reader {
    let mut store = Store::open(path).unwrap();
    rows(|row| store.write(|store| store.insert(row)).unwrap());
    store.write(|store| store.batch("it's\nhere", &[0; 16], (1, 1), 1)).unwrap();
    drop(store);
    Reader::open(path).unwrap()
}

#[test]
fn the_page_of_a_server_is_that_of_a_file_with_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let of_file = file(&folder.path().join("file"));
    let server = server(Manner::Well);
    let span = server.span(patience()).unwrap().unwrap();
    assert_eq!(span, SPAN);
    let (of_server, left_out) = fetch(&server, &choice(), span, patience(), u64::MAX).unwrap();
    assert_eq!(left_out, 0);
    let whole = page(&of_file, &choice());
    assert_eq!(page(&of_server, &choice()), whole);
    assert_eq!((&whole["clocks"][0]["steps"], &whole["losses"][0]["why"]), (&1.into(), &"gap".into()));
    assert_eq!((&whole["flows"][0]["src"], &whole["hosts"][0]), (&"192.0.2.1:7001".into(), &"it's\nhere".into()));
    assert_eq!((&whole["gray"][0]["subject"], &whole["gray"][0]["peers"]), (&"host it's\nhere".into(), &3.into()));
    // One flow of two is kept apart.
    let few = Choice { most_flows: 1, ..Choice::default() };
    let (of_few, left_out) = fetch(&server, &few, span, patience(), u64::MAX).unwrap();
    assert_eq!(left_out, 1);
    assert_eq!(page(&of_few, &Choice { left_out, ..few.clone() }), page(&of_file, &few));
}

#[test]
fn the_page_of_a_server_has_what_began_before_its_time_and_has_not_ended() {
    let folder = tempfile::tempdir().unwrap();
    let of_file = file(&folder.path().join("file"));
    let late = Choice { since_ns: Some(3 * SECOND_NS), ..choice() };
    let (of_server, _) = fetch(&server(Manner::Well), &late, (3 * SECOND_NS, SPAN.1), patience(), u64::MAX).unwrap();
    let whole = page(&of_server, &late);
    assert_eq!((&whole["gray"][0]["from_ms"], &whole["gray"]), (&2_000.0.into(), &page(&of_file, &late)["gray"]));
}

#[test]
fn the_page_of_chosen_flows_tells_when_hosts_were_silent() {
    let folder = tempfile::tempdir().unwrap();
    let of_file = file(&folder.path().join("file"));
    let chosen = Choice { port: Some(7002), ..choice() };
    let (of_server, _) = fetch(&server(Manner::Well), &chosen, SPAN, patience(), u64::MAX).unwrap();
    let page = page(&of_server, &chosen);
    let silence = serde_json::json!({
        "host": "it's\nhere", "from_ms": 3_000.0, "to_ms": 5_000.0, "batches": null, "why": "silent"
    });
    assert_eq!(page["losses"][1], silence);
    assert_eq!(page, self::page(&of_file, &chosen));
}

#[test]
fn a_flow_is_wanted_for_each_of_the_ends_that_receivers_have_seen() {
    let server = server(Manner::Well);
    for (src, dst, is_one) in [
        ("192.0.2.8:40000", "192.0.2.10:80", true),
        ("192.0.2.9:30000", "192.0.2.20:8080", true),
        ("192.0.2.9:40000", "192.0.2.20:8080", false),
    ] {
        let takes = |ends: &Ends| (ends.src.to_string(), ends.dst.to_string()) == (src.to_owned(), dst.to_owned());
        let wanted = Wanted { flows: Some(&takes), hosts: &[], most_flows: 0 };
        let (_, left_out) = server.fetch(&wanted, SPAN, patience(), u64::MAX).unwrap();
        assert_eq!(left_out, usize::from(is_one), "{src} to {dst}");
    }
}

/// As servers write it: in a line of its own, as older ones do, and with the marks of two newer versions.
const ERRORS: [&str; 4] = [
    "Code: 241. DB::Exception: Memory limit exceeded\n",
    "Code: 241, e.displayText() = DB::Exception: Memory limit exceeded, e.what() = DB::Exception",
    "__exception__\r\nCode: 241. DB::Exception: Memory limit exceeded\r\n",
    "\r\n__exception__\r\ndngjzjnxkvlwkeua\r\nCode: 241. DB::Exception: Memory limit exceeded\n\
        48 dngjzjnxkvlwkeua\r\n__exception__\r\n",
];

#[test]
fn an_error_after_the_first_rows_is_told_and_not_taken_for_data() {
    for table in ["flows", "intervals", "paths", "clock", "lost"] {
        for (bytes, has_length) in [(0, true), (1, true), (4, true), (0, false), (1, false), (4, false)] {
            for error in ERRORS {
                let manner = Manner::BreakingOff { table, bytes, error, has_length };
                let failed = fetch(&server(manner), &choice(), SPAN, patience(), u64::MAX).map(drop).unwrap_err();
                let StoreError::Refused { said, .. } = &failed else { panic!("{manner:?}: {failed:?}") };
                assert!(said.starts_with("Code: 241") && said.contains("Memory limit exceeded"), "{manner:?}: {said}");
            }
        }
        for (bytes, has_length) in [(1, true), (4, true), (0, false), (1, false), (4, false)] {
            let manner = Manner::BreakingOff { table, bytes, error: "", has_length };
            let failed = fetch(&server(manner), &choice(), SPAN, patience(), u64::MAX).map(drop).unwrap_err();
            assert!(matches!(failed, StoreError::Answer { .. }), "{manner:?}: {failed:?}");
        }
    }
}

#[test]
fn all_queries_together_have_a_limit_of_time() {
    // Each of them alone is soon answered.
    let limit = Duration::from_millis(300);
    let server = server(Manner::Late(limit / 3));
    let failed = fetch(&server, &choice(), SPAN, Patience::new(limit), u64::MAX).map(drop).unwrap_err();
    assert!(matches!(failed, StoreError::Slow { limit: told, .. } if told == limit), "{failed:?}");
}

#[test]
fn a_copy_has_a_limit_of_disk() {
    let failed = fetch(&server(Manner::Repeating(2_500)), &choice(), SPAN, patience(), 1_000_000);
    let failed = failed.map(drop).unwrap_err();
    assert!(matches!(failed, StoreError::Large { bytes: 1_000_000, .. }), "{failed:?}");
}
