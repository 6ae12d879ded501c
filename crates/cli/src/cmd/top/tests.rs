use dwell_engine::{
    filter::Filter,
    layers::Ends,
    measure::{Endpoint, Protocol},
    socket::{Reading, TcpInfo},
    top::{FlowKey, Metric, Row, RowKey, SocketReading, View},
};
use dwell_records::{Clock, Source};
use ratatui_core::{backend::TestBackend, terminal::Terminal};
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{
    Settings,
    app::{Action, App},
    backends::Balancer,
    columns::{Column, Columns, fit, sparkline},
    draw, label, look,
    shown::{Origin, Screenful},
};
use crate::names::NamesArgs;

const SECOND: u64 = 1_000_000_000;

/// The second interval of four connections.
fn shown() -> Screenful {
    let settings = Settings { max_flows: 100, idle_ns: SECOND, is_capture: false, prefix4: 24, prefix6: 48 };
    let clock = Clock::with_offset(1_795_237_800_000_000_000);
    let source = Source { clock, host: Some("web1".into()), ..Source::default() };
    let mut shown = Screenful::new(settings, Filter::default(), &NamesArgs::none(), source).unwrap();
    let end = |address: &str, port| Endpoint { address: address.parse().unwrap(), port };
    let server = end("192.0.2.1", 443);
    let connections = [
        (server, end("198.51.100.7", 51_234), 95_000, 12, 40_000_000),
        (server, end("198.51.100.9", 40_001), 20_000, 0, 900_000),
        (end("192.0.2.1", 40_000), end("203.0.113.80", 5432), 800, 0, 12_000),
        (end("2001:db8::1", 443), end("2001:db8:1234:5678:9abc:def0:1234:5678", 60_000), 4_000, 1, 7_000),
    ];
    for second in 1..=2u64 {
        for (cookie, (src, dst, rtt_us, again, bytes)) in (1..).zip(connections) {
            let sent = (second - 1) * bytes;
            let info = TcpInfo {
                rtt_us,
                min_rtt_us: Some(rtt_us / 2),
                bytes_acked: Some(sent + 1),
                bytes_received: Some(0),
                bytes_sent: Some(sent),
                bytes_retransmitted: Some(0),
                notsent_bytes: Some((bytes / 10) as u32),
                data_segments_out: Some(100),
                retransmissions: again * second as u32,
                busy_us: Some(second * 500_000),
                receiver_limited_us: Some(second * 100_000),
                buffer_limited_us: Some(0),
                ..TcpInfo::default()
            };
            let reading = Reading { time_ns: second * SECOND, info, ..Reading::default() };
            let pid = Some(4242 + u32::from(dst.port == 5432));
            let unit = shown.units.number(&if dst.port == 5432 { "batch.service" } else { "0123456789ab" }.into());
            shown.table.socket(&SocketReading { ends: Ends { src, dst }, cookie, pid, unit, reading: &reading });
        }
        shown.end_interval(second * SECOND);
    }
    shown
}

fn app(shown: &Screenful, view: View, by: Metric) -> App {
    let mut app = App::new(view, by);
    app.update(shown);
    app
}

/// The screen as text, without the spaces at the ends of lines.
fn picture(app: &mut App, shown: &Screenful, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw::page(app, shown, frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let lines = buffer.content().chunks(width.into()).map(|cells| {
        let line: String = cells.iter().map(|cell| cell.symbol()).collect();
        line.trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn flows_at_80_columns() {
    let shown = shown();
    insta::assert_snapshot!(picture(&mut app(&shown, View::Flows, Metric::Rtt), &shown, 80, 10), @"
    dwell top  web1  05:10:02Z  4 flows
     1 flows  2 peers  3 prefixes  4 processes  5 units
    FLOW                              ▼RTT    RESP  SNDBUF  RETR  BIT/S        TREND
    4242:443 ← 198.51.100.7:51234  95.0 ms       -  100 ms    12  320 M            █
    4242:443 ← 198.51.100.9:40001  20.0 ms       -  100 ms     0 7.20 M            █
    4242:443 ← [2001:…:5678]:60000 4.00 ms       -  100 ms     1 56.0 k            █
    4243 → 203.0.113.80:5432        800 µs       -  100 ms     0 96.0 k            █


    ? keys  Enter why  </> rank  f filter  p freeze  s save  q quit
    ");
}

#[test]
fn flows_at_40_columns() {
    let shown = shown();
    insta::assert_snapshot!(picture(&mut app(&shown, View::Flows, Metric::SendBuffer), &shown, 40, 9), @"
    dwell top  web1  05:10:02Z  4 flows
     1 flows  2 peers  3 prefixes  4 process
    FLOW                  RTT ▼SNDBUF  BIT/S
    4242:443….7:51234 95.0 ms  100 ms  320 M
    4242:443….9:40001 20.0 ms  100 ms 7.20 M
    4243 → 2….80:5432  800 µs  100 ms 96.0 k
    4242:443…8]:60000 4.00 ms  100 ms 56.0 k

    ? keys  Enter why  </> rank  f filter  p
    ");
}

#[test]
fn processes_by_rate_at_80_columns() {
    let shown = shown();
    insta::assert_snapshot!(picture(&mut app(&shown, View::Processes, Metric::Rate), &shown, 80, 8), @"
    dwell top  web1  05:10:02Z  4 flows
     1 flows  2 peers  3 prefixes  4 processes  5 units
    PROCESS                          FLOWS     RTT  SNDBUF  RETR ▼BIT/S        TREND
    4242                                 3 39.7 ms  100 ms    13  327 M            █
    4243                                 1  800 µs  100 ms     0 96.0 k            █


    ? keys  Enter why  </> rank  f filter  p freeze  s save  q quit
    ");
}

#[test]
fn units_and_containers_by_rate_at_80_columns() {
    let shown = shown();
    insta::assert_snapshot!(picture(&mut app(&shown, View::Units, Metric::Rate), &shown, 80, 8), @"
    dwell top  web1  05:10:02Z  4 flows
     1 flows  2 peers  3 prefixes  4 processes  5 units
    UNIT                             FLOWS     RTT  SNDBUF  RETR ▼BIT/S        TREND
    0123456789ab                         3 39.7 ms  100 ms    13  327 M            █
    batch.service                        1  800 µs  100 ms     0 96.0 k            █


    ? keys  Enter why  </> rank  f filter  p freeze  s save  q quit
    ");
}

#[test]
fn every_size_can_be_drawn_and_shows_what_rows_are_ranked_by() {
    let mut shown = shown();
    // Nothing is asked of this host.
    shown.origin = Origin::Capture;
    for width in 1..=200 {
        for height in [1, 2, 3, 4, 5, 24] {
            for view in View::ALL {
                picture(&mut app(&shown, view, Metric::Rtt), &shown, width, height);
            }
            for page in [KeyCode::Enter, KeyCode::Char('?')].into_iter().filter(|_| width % 20 < 2) {
                let mut app = app(&shown, View::Flows, Metric::Rtt);
                app.key(page);
                picture(&mut app, &shown, width, height);
            }
        }
    }
    for by in Metric::ALL {
        for width in [40, 60, 80, 120] {
            for view in View::ALL {
                let columns = Columns::of(width, view, by);
                let sum: usize = columns.others.iter().map(|column| column.width()).sum();
                assert_eq!(columns.name + sum, width);
                assert!(columns.others.contains(&Column::Metric(by)), "{by:?} at {width}");
                assert!(columns.others.contains(&Column::Metric(Metric::Rtt)), "{by:?} at {width}");
            }
        }
    }
}

#[test]
fn the_detail_of_a_flow_has_a_bar_that_fills_its_width() {
    let mut shown = shown();
    // Nothing is asked of this host.
    shown.origin = Origin::Capture;
    let mut app = app(&shown, View::Flows, Metric::Rtt);
    app.key(KeyCode::Enter);
    insta::assert_snapshot!(picture(&mut app, &shown, 40, 10), @"
    dwell top  web1  05:10:02Z  4 flows
     1 flows  2 peers  3 prefixes  4 process
    4242:443 ← 198.51.100.7:51234
    from 192.0.2.1:443 to 198.51.100.7:51234
    process 4242

    A pipe cannot be read again: ask dwell
      why -r FILE of a file with the
      capture.
    Esc back  ↑↓ scroll  p freeze  q quit
    ");
    insta::assert_snapshot!(picture(&mut app, &shown, 80, 20), @"
    dwell top  web1  05:10:02Z  4 flows
     1 flows  2 peers  3 prefixes  4 processes  5 units
    4242:443 ← 198.51.100.7:51234
    from 192.0.2.1:443 to 198.51.100.7:51234
    process 4242

      rtt                95.0 ms                         █
      shortest rtt       47.5 ms
      response                 -
      send-buffer         100 ms                         █
      retransmitted           12                         █
      rate                 320 M                         █

    Where its time went since dwell saw it, by the kernel's clocks
      ████████████████████████▒▒▒▒▒▒░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
      █ network 40 %  ▒ receive window 10 %  ▓ send buffer 0 %  ░ idle 50 %

    A pipe cannot be read again: ask dwell why -r FILE of a file with the capture.

    Esc back  ↑↓ scroll  p freeze  q quit
    ");
}

#[test]
fn the_page_of_keys_fits_a_terminal_of_80_by_24() {
    let shown = shown();
    let mut app = app(&shown, View::Flows, Metric::Rtt);
    app.key(KeyCode::Char('?'));
    insta::assert_snapshot!(picture(&mut app, &shown, 80, 24), @"
    dwell top: keys
     1 2 3 4 5 6, Tab     flows, peers, prefixes, processes, units, backends
     < >, ← →             rank by another column
     ↑ ↓, j k, PgUp PgDn  move the cursor; g and G: to the first and last row
     Enter                where the time of a row goes, and why
     f, /                 only flows of a filter, as with --filter
     p, Space             freeze the screen, and go on
     s                    save the flows as a store, in this directory
     n                    names on and off
     ?, h                 this page
     q, Ctrl-C            quit
    Columns; - is unknown
     RTT      round trip; grey: of an earlier interval
     RESP     how long the server took to respond; grey: in doubt
     SNDBUF   wait of bytes in the send buffer
     RETR     segments that were sent again
     BIT/S    rate in both directions
     TREND    the column that rows are ranked by, newest last





    any key: back
    ");
    assert_eq!(app.key(KeyCode::Down), Action::Nothing, "there is nothing to scroll");
    assert!(picture(&mut app, &shown, 80, 24).contains("FLOW"));
}

#[test]
fn the_page_of_keys_scrolls_where_it_does_not_fit() {
    let shown = shown();
    let mut app = app(&shown, View::Flows, Metric::Rtt);
    app.key(KeyCode::Char('?'));
    let top = picture(&mut app, &shown, 40, 8);
    insta::assert_snapshot!(top, @"
    dwell top: keys
     1 2 3 4 5 6, Tab     flows, peers,
        prefixes, processes, units, backends
     < >, ← →             rank by another
        column
     ↑ ↓, j k, PgUp PgDn  move the cursor; g
        and G: to the first and last row
    ↑↓ scroll  any other key: back
    ");
    for _ in 0..20 {
        app.key(KeyCode::PageDown);
    }
    let end = picture(&mut app, &shown, 40, 8);
    assert!(end.contains(" TREND    the column") && end.contains("newest last"), "{end}");
    for _ in 0..20 {
        app.key(KeyCode::PageUp);
    }
    assert_eq!(picture(&mut app, &shown, 40, 8), top);
    app.key(KeyCode::Esc);
    assert!(picture(&mut app, &shown, 40, 8).contains("FLOW"));
}

#[test]
fn a_message_takes_the_lines_that_it_needs() {
    let mut shown = shown();
    let mut app = app(&shown, View::Flows, Metric::Rtt);
    app.message = shown.set_filter(":7001ufoo").err();
    insta::assert_snapshot!(picture(&mut app, &shown, 40, 10), @"
    dwell top  web1  05:10:02Z  4 flows
     1 flows  2 peers  3 prefixes  4 process
    filter ':7001ufoo': a port is a number
    from 0 to 65535; write a rule,
    [!]PREFIX[:PORT[-PORT]] or
    [!]:PORT[-PORT], as in '10.0.0.0/8',
    '!10.1.0.0/16:53',
    '[2001:db8::/32]:443', ':8000-8099', or
    an expression as for tcpdump, as in 'tcp
    port 443 and not net 10.0.0.0/8'
    ");
}

#[test]
fn the_cursor_stays_with_its_row_once_it_was_moved() {
    let shown = shown();
    let mut app = app(&shown, View::Flows, Metric::Rtt);
    app.key(KeyCode::Down);
    let row = app.rows[1];
    let mut rows = app.rows.clone();
    rows.reverse();
    app.set_rows(rows);
    assert_eq!(app.rows[app.cursor.at], row);
    app.key(KeyCode::Home);
    app.set_rows(shown.rows(View::Flows, Metric::Rtt));
    assert_eq!(app.cursor.at, 0, "the worst row, whichever it is");
    for key in [KeyCode::End, KeyCode::PageDown, KeyCode::Down] {
        app.key(key);
        assert_eq!(app.cursor.at, app.rows.len() - 1);
    }
    app.set_rows(Vec::new());
    app.key(KeyCode::Down);
    app.key(KeyCode::Enter);
    assert_eq!(app.cursor.at, 0);
}

#[test]
fn keys_choose_views_and_ranks_and_a_filter_is_typed() {
    let shown = shown();
    let mut app = app(&shown, View::Flows, Metric::Rtt);
    assert_eq!(app.key(KeyCode::Char('4')), Action::Update);
    assert_eq!(app.view, View::Processes);
    app.key(KeyCode::Tab);
    app.key(KeyCode::Tab);
    assert_eq!(app.view, View::Flows);
    app.key(KeyCode::BackTab);
    assert_eq!(app.view, View::Units);
    app.key(KeyCode::Char('<'));
    assert_eq!(app.by, Metric::Rate);
    app.key(KeyCode::Char('f'));
    for letter in ":443q".chars() {
        assert_eq!(app.key(KeyCode::Char(letter)), Action::Nothing);
    }
    app.key(KeyCode::Backspace);
    let with = |letter, modifiers| KeyEvent::new(KeyCode::Char(letter), modifiers);
    let control = |letter| with(letter, KeyModifiers::CONTROL);
    for key in [control('a'), with('b', KeyModifiers::ALT)] {
        app.key(key);
    }
    assert_eq!(app.key(KeyCode::Enter), Action::Filter(":443".into()));
    app.key(KeyCode::Char('f'));
    " or tcp port 80 ".chars().for_each(|letter| drop(app.key(KeyCode::Char(letter))));
    app.key(control('w'));
    app.key(control('h'));
    assert_eq!(app.key(KeyCode::Enter), Action::Filter(":443 or tcp port".into()));
    app.key(KeyCode::Char('f'));
    app.key(control('u'));
    app.key(KeyCode::Char('x'));
    assert_eq!(app.key(KeyCode::Enter), Action::Filter("x".into()));
    // Escape and a letter, typed so quickly that they arrive together.
    app.key(KeyCode::Char('?'));
    assert_eq!(app.key(with('q', KeyModifiers::ALT)), Action::Quit);
    assert_eq!((app.key(control('s')), app.key(control('q'))), (Action::Nothing, Action::Nothing));
    assert_eq!(app.key(KeyCode::Char('q')), Action::Quit);
}

/// A client has the lower port.
#[test]
fn the_end_that_listens_is_the_server_whatever_the_ports() {
    let mut shown = shown();
    let end = |address: &str, port| Endpoint { address: address.parse().unwrap(), port };
    let ends = Ends { src: end("192.0.2.1", 50_051), dst: end("198.51.100.7", 40_000) };
    let key = RowKey::Flow(FlowKey { ends, protocol: Protocol::TCP });
    let row = Row { key, pid: None, ..shown.rows(View::Flows, Metric::Rtt).remove(0) };
    let told = |shown: &Screenful| {
        let names = label::names_of(&row, shown);
        (look::target(&row.key, &names, Origin::Live).unwrap(), label::line(&row, &names))
    };
    assert_eq!(told(&shown), ("192.0.2.1:50051".into(), "192.0.2.1:50051 → 198.51.100.7:40000".into()));
    shown.listening.insert(50_051);
    assert_eq!(told(&shown), ("198.51.100.7:40000".into(), "192.0.2.1:50051 ← 198.51.100.7:40000".into()));
}

#[test]
fn a_filter_hides_flows_and_a_wrong_one_is_explained() {
    let mut shown = shown();
    shown.set_filter("net 198.51.100.0/24").unwrap();
    assert_eq!(shown.table.flows(), 2);
    assert!(shown.set_filter(":99999").unwrap_err().contains("65535"));
    assert_eq!(shown.filter_text(), "net 198.51.100.0/24");
    let ends = |address: &str| {
        let end = |address: &str| Endpoint { address: address.parse().unwrap(), port: 1 };
        Ends { src: end("192.0.2.1"), dst: end(address) }
    };
    assert!(shown.admits(&ends("198.51.100.1"), Protocol::TCP) && !shown.admits(&ends("203.0.113.1"), Protocol::TCP));
    shown.set_filter(" ").unwrap();
    assert!(shown.admits(&ends("203.0.113.1"), Protocol::TCP));
}

#[test]
fn bars_are_as_high_as_values_and_unknown_ones_are_gaps() {
    let values = [None, Some(0.0), Some(4.0), Some(8.0)];
    assert_eq!(sparkline(values.into_iter(), 10), " ▁▅█");
    assert_eq!(sparkline(values.into_iter(), 2), "▅█");
    assert_eq!(sparkline([Some(0.0); 3].into_iter(), 5), "▁▁▁");
    assert_eq!((fit("abc", 3), fit("abcd", 3), fit("abc", 0)), ("abc".into(), "ab…".into(), String::new()));
}

/// The second interval of a balancer with three backends, one of which answers nobody.
fn balancer() -> Balancer {
    let backend = |name: &str, real: u32, mean_ns: Option<u64>, second: u64, health: &str| {
        let latency = mean_ns.map(|mean_ns| serde_json::json!({ "method": "turns", "count": 40, "mean_ns": mean_ns }));
        serde_json::json!({
            "name": name, "address": format!("10.0.0.{real}"), "real": real, "phase": "serving", "health": health,
            "configured": 1.0, "weight": 0.8, "share": if real == 1 { 0.2 } else { 0.4 }, "reason": "latency",
            "explanation": "answers later than the others", "latency": latency, "active": 7, "connections": 100 * second,
            "packets": 9_000 * second * u64::from(real), "bytes": 0,
            "pending": if mean_ns.is_none() { serde_json::json!({ "requests": 3, "oldest_ns": 4_000_000_000_u64 }) } else {
                serde_json::json!({ "requests": 0 })
            },
        })
    };
    let mut balancer = Balancer::at("/nowhere".into());
    for second in 1..=2 {
        let status = serde_json::json!({
            "time": "2026-11-23T05:10:02Z", "version": "0", "interface": "eth0", "config": "lb.toml", "loaded": "",
            "interval_ns": SECOND, "plane": { "start": "new", "connections": 21, "capacity": 4096, "packets": {} },
            "vips": [{
                "name": "web", "address": "192.0.2.10", "proto": "tcp", "port": 443, "policy": "latency", "forward": "l2",
                "table_size": 65_537, "packets": 0, "bytes": 0, "connections": 0, "all_down": false,
                "backends": [
                    backend("b1", 1, Some(9_500_000), second, "up"),
                    backend("b2", 2, Some(1_500_000), second, "up"),
                    backend("b3", 3, None, second, "unchecked"),
                ],
            }],
            "leaving": [], "warnings": [],
        });
        balancer.take(serde_json::from_value(status).unwrap(), second * SECOND);
    }
    balancer
}

#[test]
fn backends_of_a_balancer_are_a_view() {
    let mut shown = shown();
    shown.balancer = Some(balancer());
    let mut app = app(&shown, View::Units, Metric::Rtt);
    assert_eq!(app.key(KeyCode::Tab), Action::Nothing);
    insta::assert_snapshot!(picture(&mut app, &shown, 80, 10), @"
    dwell top  web1  05:10:02Z  lb.toml on eth0  21 connections
     1 flows  2 peers  3 prefixes  4 processes  5 units  6 backends
    BACKEND                 STATE      ▼RESP    PEND  ACTIVE  CONN/S   PKT/S   SHARE
    web/b1                  up       9.50 ms       0       7     100    9000  20.0 %
    web/b2                  up       1.50 ms       0       7     100   18000  40.0 %
    web/b3                  serving        -       3       7     100   27000  40.0 %

    web/b1: answers later than the others

    ? keys  </> rank  1 flows  p freeze  s save  q quit
    ");
    app.key(KeyCode::Char('>'));
    insta::assert_snapshot!(picture(&mut app, &shown, 120, 10), @"
    dwell top  web1  05:10:02Z  lb.toml on eth0  21 connections
     1 flows  2 peers  3 prefixes  4 processes  5 units  6 backends
    BACKEND                                            STATE       RESP   ▼PEND  ACTIVE  CONN/S   PKT/S   SHARE        TREND
    web/b3                                             serving        -       3       7     100   27000  40.0 %           ██
    web/b1                                             up       9.50 ms       0       7     100    9000  20.0 %           ▁▁
    web/b2                                             up       1.50 ms       0       7     100   18000  40.0 %           ▁▁

    web/b3: answers later than the others
    3 requests wait for an answer, the oldest for 4.00 s or more
    ? keys  </> rank  1 flows  p freeze  s save  q quit
    ");
    assert_eq!(app.key(KeyCode::Char('s')), Action::Save);
    app.key(KeyCode::Char('?'));
    app.key(KeyCode::Char('?'));
    assert_eq!(app.key(KeyCode::Tab), Action::Update);
    assert_eq!(app.view, View::Flows);
    assert!(picture(&mut app, &shown, 80, 10).contains("FLOW"));
}
