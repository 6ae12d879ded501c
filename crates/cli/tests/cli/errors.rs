//! Wrong calls: each exits with 2, says what is wrong and what to do, and prints nothing else.

use std::fs;

use crate::{support::dwell, wire};

/// What a wrong call says.
#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let run = dwell(arguments);
    assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{run}");
    run.stderr
}

/// Runs `dwell rtt -r` with a valid capture and a wrong option.
#[track_caller]
fn refused_with_capture(arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("good.pcap");
    fs::write(&capture, wire::capture(&wire::pings(1))).unwrap();
    refused(&[&["rtt", "-r", capture.to_str().unwrap()], arguments].concat())
}

#[test]
fn no_source() {
    insta::assert_snapshot!(refused(&["rtt"]), @"
    error: the following required arguments were not provided:
      <--interface <IF>|--read <FILE>>

    Usage: dwell rtt <--interface <IF>|--read <FILE>>

    For more information, try '--help'.
    ");
}

#[test]
fn interface_and_capture() {
    insta::assert_snapshot!(refused(&["rtt", "-i", "lo", "-r", "x.pcap"]), @"
    error: the argument '--interface <IF>' cannot be used with '--read <FILE>'

    Usage: dwell rtt <--interface <IF>|--read <FILE>>

    For more information, try '--help'.
    ");
}

#[test]
fn an_option_of_live_runs_with_a_capture() {
    for option in
        [&["--duration", "1s"][..], &["--hook", "xdp"], &["--attach", "clsact"], &["--metrics", "127.0.0.1:0"]]
    {
        let said = refused_with_capture(option);
        let conflict = format!("the argument '--read <FILE>' cannot be used with '{}", option[0]);
        assert!(said.contains(&conflict), "{said}");
    }
}

#[test]
fn a_cause_is_told_once() {
    let said = refused(&["agent", "--collector", "127.0.0.1:1", "--key-file", "/no/such/key"]);
    assert_eq!(said.matches("No such file").count(), 1, "{said}");
}

#[test]
fn an_unknown_verb() {
    insta::assert_snapshot!(refused(&["rttt"]), @"
    error: unrecognized subcommand 'rttt'

      tip: a similar subcommand exists: 'rtt'

    Usage: dwell <COMMAND>

    For more information, try '--help'.
    ");
}

#[test]
fn an_unknown_method() {
    insta::assert_snapshot!(refused_with_capture(&["--methods", "tcp-timestamp,tcp-spin"]), @"
    error: invalid value 'tcp-spin' for '--methods <METHOD>': unknown method; the methods are auto, tcp, tcp-timestamp, tcp-seq, icmp, icmpv6, dns, quic-spin, quic-spin-loop, quic-handshake

    For more information, try '--help'.
    ");
}

#[test]
fn an_unknown_format() {
    insta::assert_snapshot!(refused_with_capture(&["--format", "xml"]), @"
    error: invalid value 'xml' for '--format <FORMAT>'
      [possible values: text, jsonl, ppviz, none]

    For more information, try '--help'.
    ");
}

#[test]
fn filters_that_are_none() {
    let said: String = ["10.0.0.0/33", "example.org", "esp", "!", "10.0.0.1:80-79", ":0x50"]
        .iter()
        .map(|rule| refused_with_capture(&["--filter", rule]))
        .collect();
    insta::assert_snapshot!(said, @"
    dwell: filter '10.0.0.0/33': the prefix is not an IP address or network; names are not looked up; write a rule, [!]PREFIX[:PORT[-PORT]] or [!]:PORT[-PORT], as in '10.0.0.0/8', '!10.1.0.0/16:53', '[2001:db8::/32]:443', ':8000-8099', or an expression as for tcpdump, as in 'tcp port 443 and not net 10.0.0.0/8'
    dwell: filter 'example.org': the prefix is not an IP address or network; names are not looked up; write a rule, [!]PREFIX[:PORT[-PORT]] or [!]:PORT[-PORT], as in '10.0.0.0/8', '!10.1.0.0/16:53', '[2001:db8::/32]:443', ':8000-8099', or an expression as for tcpdump, as in 'tcp port 443 and not net 10.0.0.0/8'
    dwell: filter 'esp': the prefix is not an IP address or network, nor one of the protocols tcp, udp, icmp, icmp6, ip and ip6; names are not looked up; write a rule, [!]PREFIX[:PORT[-PORT]] or [!]:PORT[-PORT], as in '10.0.0.0/8', '!10.1.0.0/16:53', '[2001:db8::/32]:443', ':8000-8099', or an expression as for tcpdump, as in 'tcp port 443 and not net 10.0.0.0/8'
    dwell: filter '!': it names neither prefix nor port; write a rule, [!]PREFIX[:PORT[-PORT]] or [!]:PORT[-PORT], as in '10.0.0.0/8', '!10.1.0.0/16:53', '[2001:db8::/32]:443', ':8000-8099', or an expression as for tcpdump, as in 'tcp port 443 and not net 10.0.0.0/8'
    dwell: filter '10.0.0.1:80-79': the port range runs backwards; write a rule, [!]PREFIX[:PORT[-PORT]] or [!]:PORT[-PORT], as in '10.0.0.0/8', '!10.1.0.0/16:53', '[2001:db8::/32]:443', ':8000-8099', or an expression as for tcpdump, as in 'tcp port 443 and not net 10.0.0.0/8'
    dwell: filter ':0x50': a port is a number from 0 to 65535; write a rule, [!]PREFIX[:PORT[-PORT]] or [!]:PORT[-PORT], as in '10.0.0.0/8', '!10.1.0.0/16:53', '[2001:db8::/32]:443', ':8000-8099', or an expression as for tcpdump, as in 'tcp port 443 and not net 10.0.0.0/8'
    ");
}

#[test]
fn more_filters_than_fit() {
    let rules: Vec<String> = (0..17).map(|n| format!("--filter=10.0.{n}.0/24")).collect();
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let said = refused_with_capture(&rules);
    let wanted = "dwell: filter '10.0.16.0/24': with it there are 17 terms, and there is room for 16; ";
    assert!(said.starts_with(wanted), "{said}");
}

#[test]
fn durations_that_are_none() {
    let said: String = [
        "--interval=5",
        "--interval=0",
        "--interval=soon",
        "--interval=-1s",
        "--rate-limit=-1s",
        "--idle-timeout=1e9999s",
    ]
    .iter()
    .map(|option| refused_with_capture(&[option]))
    .collect();
    insta::assert_snapshot!(said, @"
    error: invalid value '5' for '--interval <TIME>': write a number and a unit, as in 100ms, 1s or 2m

    For more information, try '--help'.
    error: invalid value '0' for '--interval <TIME>': it must be longer than 0

    For more information, try '--help'.
    error: invalid value 'soon' for '--interval <TIME>': write a number and a unit, as in 100ms, 1s or 2m

    For more information, try '--help'.
    error: invalid value '-1s' for '--interval <TIME>': write a number and a unit, as in 100ms, 1s or 2m

    For more information, try '--help'.
    error: invalid value '-1s' for '--rate-limit <TIME>': write a number and a unit, as in 100ms, 1s or 2m

    For more information, try '--help'.
    error: invalid value '1e9999s' for '--idle-timeout <TIME>': write a number and a unit, as in 100ms, 1s or 2m

    For more information, try '--help'.
    ");
}

#[test]
fn an_interval_too_short_to_do_anything_in() {
    assert_eq!(
        refused(&["rtt", "-i", "lo", "--interval", "9ms"]),
        "dwell: --interval 9ms is too short: live it is at least 10ms\n"
    );
}

#[test]
fn numbers_out_of_range() {
    let said: String =
        ["--rtt-rate=0", "--rtt-rate=nan", "--prefix4=33", "--prefix6=-1", "--max-flows=3", "--max-groups=0"]
            .iter()
            .map(|option| refused_with_capture(&[option]))
            .collect();
    insta::assert_snapshot!(said, @"
    error: invalid value '0' for '--rtt-rate <MULTIPLE>': write a number above 0, at most 10000

    For more information, try '--help'.
    error: invalid value 'nan' for '--rtt-rate <MULTIPLE>': write a number above 0, at most 10000

    For more information, try '--help'.
    error: invalid value '33' for '--prefix4 <BITS>': 33 is not in 0..=32

    For more information, try '--help'.
    error: invalid value '-1' for '--prefix6 <BITS>': -1 is not in 0..=128

    For more information, try '--help'.
    error: invalid value '3' for '--max-flows <N>': 3 is not in 4..=16000000

    For more information, try '--help'.
    error: invalid value '0' for '--max-groups <N>': 0 is not in 1..=65536

    For more information, try '--help'.
    ");
}

#[test]
fn a_format_that_has_no_place_for_what_was_asked() {
    for option in ["--summary", "--aggregate", "--flow-events"] {
        let said = refused_with_capture(&["--format", "ppviz", option]);
        assert_eq!(
            said,
            "dwell: the format ppviz has samples only: leave out --aggregate, --summary, --flow-events and --baseline, \
             or take --format text or jsonl\n"
        );
    }
}

#[test]
fn an_interface_that_does_not_exist() {
    let said = refused(&["rtt", "-i", "nosuch0"]);
    let beginning = "dwell: there is no interface 'nosuch0' in this network namespace; there are: ";
    assert!(said.starts_with(beginning), "{said}");
    assert!(said.contains("lo"), "{said}");
    assert_eq!(said, refused(&["doctor", "-i", "nosuch0"]));
}

#[test]
fn an_interface_name_longer_than_any() {
    let said = refused(&["rtt", "-i", &"x".repeat(300)]);
    assert!(said.contains("there is no interface 'xxx"), "{said}");
}

#[test]
fn addresses_that_cannot_serve_metrics() {
    let said = refused(&["rtt", "-i", "lo", "--metrics", "localhost"]);
    assert!(
        said.contains(
            "invalid value 'localhost' for '--metrics <ADDR:PORT>': write an IP address and a \
             port, as in 127.0.0.1:9469 or [::1]:9469, or a port alone for 127.0.0.1\n"
        ),
        "{said}"
    );
    // TEST-NET-1: no host has such an address.
    assert_eq!(
        refused(&["rtt", "-i", "lo", "--metrics", "192.0.2.1:9469"]),
        "dwell: cannot serve metrics on 192.0.2.1:9469: Cannot assign requested address (os error 99): no interface has this address; `ip address` lists those there are\n"
    );
}
