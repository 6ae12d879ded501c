//! A small capture with a little of everything, in each format. What stands in the golden outputs
//! was checked by hand against the times in `wire::everyday`.

use std::{collections::BTreeMap, fs, io, process::Command};

use dwell_testbed::skip::lacks_program;
use flate2::read::GzDecoder;
use serde_json::Value;

use crate::{
    records::{field, number, objects, of_type, round_trips, text, without_cost},
    support::{DWELL, Run, dwell, dwell_reading, run},
    wire::{Packet, capture, everyday, pings, spinning},
};

fn replay(options: &[&str]) -> Run {
    dwell_reading(&[&["rtt", "-r", "-"], options].concat(), &capture(&everyday()))
}

fn printed(options: &[&str]) -> String {
    let run = replay(options);
    assert_eq!(run.status, Some(0), "{run}");
    run.stdout
}

#[test]
fn text_is_a_line_a_sample() {
    insta::assert_snapshot!(replay(&[]), @"
    exit 0
    stdout: 03:04:05.031500Z  5.50 ms  min 5.50 ms  tcp-seq         192.0.2.1:40000 → 198.51.100.7:443
    stdout: 03:04:05.052000Z  20.5 ms  min 20.5 ms  tcp-seq         198.51.100.7:443 → 192.0.2.1:40000
    stdout: 03:04:05.131200Z  5.20 ms  min 5.20 ms  tcp-seq         192.0.2.1:40001 → 198.51.100.7:443
    stdout: 03:04:05.152700Z  20.7 ms  min 20.7 ms  tcp-seq         198.51.100.7:443 → 192.0.2.1:40001
    stdout: 03:04:05.205123Z  5.12 ms  min 5.12 ms  icmp            192.0.2.1 → 198.51.100.7 id 7
    stdout: 03:04:05.215654Z  5.65 ms  min 5.65 ms  icmpv6          2001:db8::1 → 2001:db8:1::7 id 8
    stdout: 03:04:05.312500Z  12.5 ms  min 12.5 ms  dns             192.0.2.1:5353 → 198.51.100.7:53  [DNS example.org]
    stdout: 03:04:05.405900Z  5.90 ms  min 5.90 ms  quic-handshake  192.0.2.1:50000 → 198.51.100.7:443  handshake
    stderr: dwell: 25 packets, 8 samples, 0 events lost, 4550 bytes, 6 flows opened, 8 stamps
    ");
}

#[test]
fn handshakes_and_acks_are_measured_when_asked_for() {
    let plain = of_type(&printed(&["--format", "jsonl"]), "rtt.sample");
    let with = printed(&["--format", "jsonl", "--include-handshake"]);
    let with = of_type(&with, "rtt.sample");
    let is_tcp_handshake = |sample: &&Value| sample["handshake"] == true && sample["flow"]["proto"] == "TCP";
    assert_eq!(plain.iter().filter(is_tcp_handshake).count(), 0);
    let found: Vec<_> = with
        .iter()
        .filter(is_tcp_handshake)
        .map(|sample| {
            let (method, dst) = (text(sample, "method"), text(sample, "dst"));
            (method, dst, number(sample, "rtt_ns"))
        })
        .collect();
    let expected = [
        ("tcp-seq", "198.51.100.7", 5_000_000),
        ("tcp-seq", "192.0.2.1", 20_000_000),
        ("tcp-seq", "198.51.100.7", 5_000_000),
        ("tcp-seq", "192.0.2.1", 20_000_000),
    ];
    assert_eq!(found, expected);
    // Of the packets without data only the two FINs are echoed.
    let acks = printed(&["--format", "jsonl", "--include-acks", "--methods", "tcp-timestamp"]);
    let acks = round_trips(&of_type(&acks, "rtt.sample"));
    let to = |dst: &str| acks[&("tcp-timestamp".to_owned(), dst.to_owned())].as_slice();
    assert_eq!(to("198.51.100.7"), [5_500_000, 5_400_000]);
    assert_eq!(to("192.0.2.1"), [20_500_000, 20_600_000]);
}

#[test]
fn only_the_methods_asked_for_are_measured() {
    let trips = |methods: &str| {
        let told = printed(&["--format", "jsonl", "--methods", methods]);
        round_trips(&of_type(&told, "rtt.sample"))
    };
    let by_seq = trips("tcp-seq");
    assert!(by_seq.keys().all(|(method, _)| method == "tcp-seq"), "{by_seq:?}");
    // Both connections now.
    assert!(by_seq[&("tcp-seq".into(), "198.51.100.7".into())].len() >= 2);
    let by_ts = trips("tcp-timestamp");
    assert!(by_ts.keys().all(|(method, _)| method == "tcp-timestamp") && by_ts.len() == 2, "{by_ts:?}");
    assert_eq!(trips("tcp").keys().collect::<Vec<_>>(), by_seq.keys().collect::<Vec<_>>());
    let two = trips("icmp,dns");
    let names: Vec<_> = two.keys().map(|(method, _)| method.as_str()).collect();
    assert_eq!(names, ["dns", "icmp"]);
}

#[test]
fn jsonl_is_an_object_a_line() {
    insta::assert_snapshot!(without_cost(&printed(&["--format", "jsonl"])), @r#"
    {"type":"rtt.sample","schema":"dwell/2","time":"2026-01-02T03:04:05.031500000Z","host":null,"interface":null,"flow":{"src":"192.0.2.1","sport":40000,"dst":"198.51.100.7","dport":443,"proto":"TCP","id":"1:lWOTJwBjzASkHgo+w0kukpG9z0M=","client":"src"},"echo_id":null,"tunnel":null,"method":"tcp-seq","rtt_ns":5500000,"min_rtt_ns":5500000,"queue_ns":0,"handshake":false,"packets":5,"bytes":630}
    {"type":"rtt.sample","schema":"dwell/2","time":"2026-01-02T03:04:05.052000000Z","host":null,"interface":null,"flow":{"src":"198.51.100.7","sport":443,"dst":"192.0.2.1","dport":40000,"proto":"TCP","id":"1:lWOTJwBjzASkHgo+w0kukpG9z0M=","client":"dst"},"echo_id":null,"tunnel":null,"method":"tcp-seq","rtt_ns":20500000,"min_rtt_ns":20500000,"queue_ns":0,"handshake":false,"packets":6,"bytes":696}
    {"type":"rtt.sample","schema":"dwell/2","time":"2026-01-02T03:04:05.131200000Z","host":null,"interface":null,"flow":{"src":"192.0.2.1","sport":40001,"dst":"198.51.100.7","dport":443,"proto":"TCP","id":"1:Y3FAroZblQjUHTHH5ulsAD4YBHA=","client":"src"},"echo_id":null,"tunnel":null,"method":"tcp-seq","rtt_ns":5200000,"min_rtt_ns":5200000,"queue_ns":0,"handshake":false,"packets":5,"bytes":370}
    {"type":"rtt.sample","schema":"dwell/2","time":"2026-01-02T03:04:05.152700000Z","host":null,"interface":null,"flow":{"src":"198.51.100.7","sport":443,"dst":"192.0.2.1","dport":40001,"proto":"TCP","id":"1:Y3FAroZblQjUHTHH5ulsAD4YBHA=","client":"dst"},"echo_id":null,"tunnel":null,"method":"tcp-seq","rtt_ns":20700000,"min_rtt_ns":20700000,"queue_ns":0,"handshake":false,"packets":7,"bytes":528}
    {"type":"rtt.sample","schema":"dwell/2","time":"2026-01-02T03:04:05.205123456Z","host":null,"interface":null,"flow":{"src":"192.0.2.1","sport":null,"dst":"198.51.100.7","dport":null,"proto":"ICMP","id":"1:gWq+zk/5wiECNk6+x16LEy0O2tI=","client":"src"},"echo_id":7,"tunnel":null,"method":"icmp","rtt_ns":5123456,"min_rtt_ns":5123456,"queue_ns":0,"handshake":false,"packets":2,"bytes":196}
    {"type":"rtt.sample","schema":"dwell/2","time":"2026-01-02T03:04:05.215654321Z","host":null,"interface":null,"flow":{"src":"2001:db8::1","sport":null,"dst":"2001:db8:1::7","dport":null,"proto":"ICMPv6","id":"1:5+qmWhaRGZrwM2S70wWVlYcyO3I=","client":"src"},"echo_id":8,"tunnel":null,"method":"icmpv6","rtt_ns":5654321,"min_rtt_ns":5654321,"queue_ns":0,"handshake":false,"packets":2,"bytes":236}
    {"type":"rtt.sample","schema":"dwell/2","time":"2026-01-02T03:04:05.312500000Z","host":null,"interface":null,"flow":{"src":"192.0.2.1","sport":5353,"dst":"198.51.100.7","dport":53,"proto":"UDP","id":"1:5615i5H/0OxJeBIRD7EHdytj7/M=","client":"src","label":"DNS example.org"},"echo_id":null,"tunnel":null,"method":"dns","rtt_ns":12500000,"min_rtt_ns":12500000,"queue_ns":0,"handshake":false,"packets":2,"bytes":158}
    {"type":"rtt.sample","schema":"dwell/2","time":"2026-01-02T03:04:05.405900000Z","host":null,"interface":null,"flow":{"src":"192.0.2.1","sport":50000,"dst":"198.51.100.7","dport":443,"proto":"UDP","id":"1:esvAw4b5dhuf4CDDotVANc1Tv6E=","client":"src"},"echo_id":null,"tunnel":null,"method":"quic-handshake","rtt_ns":5900000,"min_rtt_ns":5900000,"queue_ns":0,"handshake":true,"packets":2,"bytes":2484}
    {"type":"rtt.status","schema":"dwell/2","time":"2026-01-02T03:04:05.405900000Z","host":null,"last":true,"lost":0,"counters":{"aggregate_other":0,"ambiguous":0,"backwards":0,"bytes":4550,"contended":0,"events_lost":0,"filtered":0,"flows_evicted":0,"flows_expired":0,"flows_opened":6,"fragment":0,"groups_freed":0,"malformed":0,"not_ip":0,"other_protocol":0,"packets":25,"samples":8,"server":0,"slots_freed":0,"spin_early":0,"spin_order":0,"stamps":8,"stamps_overwritten":0,"stray":0,"too_deep":0,"truncated":0,"unknown_link":0,"unreported":0,"untracked":0},"fail_if":null}
    "#);
}

#[test]
fn jsonl_has_every_key_in_every_sample_and_null_for_what_is_not() {
    let told = printed(&["--format", "jsonl"]);
    let samples = of_type(&told, "rtt.sample");
    assert_eq!(samples.len(), 8);
    for sample in &samples {
        assert_eq!(sample["schema"], "dwell/2");
        let time: &str = text(sample, "time");
        assert!(time.starts_with("2026-01-02T03:04:05.") && time.ends_with('Z'), "{time}");
        assert_eq!(time.len(), "2026-01-02T03:04:05.123456789Z".len());
        for key in ["rtt_ns", "min_rtt_ns", "packets", "bytes"] {
            assert!(number(sample, key) > 0, "{key}: {sample}");
        }
        assert!(number(sample, "min_rtt_ns") <= number(sample, "rtt_ns"), "{sample}");
        let object = sample.as_object().unwrap();
        let is_icmp = text(sample, "proto").starts_with("ICMP");
        for key in ["sport", "dport"] {
            assert_eq!(object["flow"][key].is_null(), is_icmp, "{sample}");
        }
        assert_eq!(object["echo_id"].is_u64(), is_icmp, "{sample}");
        // A pcap file does not name its interfaces.
        assert_eq!(object["interface"], Value::Null);
    }
    assert_eq!(objects(&told).last().unwrap()["type"], "rtt.status");
}

#[test]
fn the_last_line_of_jsonl_says_what_the_counter_line_says() {
    let run = replay(&["--format", "jsonl"]);
    let status = objects(&run.stdout).pop().unwrap();
    assert_eq!((&status["type"], &status["last"]), (&"rtt.status".into(), &true.into()));
    let said = crate::records::counters(&run.stderr);
    for (name, value) in status["counters"].as_object().unwrap() {
        let said = said.get(&name.replace('_', " ")).copied().unwrap_or(0);
        assert_eq!(said, value.as_u64().unwrap(), "{name}");
    }
    assert_eq!(number(&status, "lost"), 0);
    assert!(number(&status["cost"], "cpu_ns") > 0, "{status}");
    let samples = of_type(&run.stdout, "rtt.sample").len() as u64;
    assert_eq!((number(&status, "samples"), number(&status, "packets")), (samples, 25));
}

#[test]
fn ppviz_is_what_its_viewer_reads() {
    insta::assert_snapshot!(printed(&["--format", "ppviz"]), @"
    1767323045.031500000 0.005500000 0.005500000 198.51.100.7:443+192.0.2.1:40000
    1767323045.052000000 0.020500000 0.020500000 192.0.2.1:40000+198.51.100.7:443
    1767323045.131200000 0.005200000 0.005200000 198.51.100.7:443+192.0.2.1:40001
    1767323045.152700000 0.020700000 0.020700000 192.0.2.1:40001+198.51.100.7:443
    1767323045.205123456 0.005123456 0.005123456 198.51.100.7:7+192.0.2.1:7
    1767323045.215654321 0.005654321 0.005654321 2001:db8:1::7:8+2001:db8::1:8
    1767323045.312500000 0.012500000 0.012500000 198.51.100.7:53+192.0.2.1:5353
    1767323045.405900000 0.005900000 0.005900000 198.51.100.7:443+192.0.2.1:50000
    ");
}

#[test]
fn none_prints_nothing_and_counts() {
    let run = replay(&["--format", "none"]);
    assert_eq!(run.stdout, "");
    assert_eq!(run.stderr, replay(&[]).stderr);
}

#[test]
fn flow_events_as_text() {
    let events = printed(&["--flow-events"]);
    let flows = events.lines().filter(|line| !line.contains(" min "));
    // Those that the end of the capture closes come in no order of their own.
    let (mut last, flows): (Vec<_>, Vec<_>) = flows.partition(|line| line.contains("  end after "));
    last.sort_unstable();
    let flows = [flows, last].concat().join("\n");
    insta::assert_snapshot!(flows, @"
    03:04:05.000000Z  open                  TCP             192.0.2.1:40000 → 198.51.100.7:443
    03:04:05.031500Z  first rtt             TCP             192.0.2.1:40000 → 198.51.100.7:443  5.50 ms by tcp-seq
    03:04:05.058400Z  close                 TCP             192.0.2.1:40000 → 198.51.100.7:443  fin after 58.4 ms, 2 samples, 8 packets, 828 bytes
    03:04:05.100000Z  open                  TCP             192.0.2.1:40001 → 198.51.100.7:443
    03:04:05.131200Z  first rtt             TCP             192.0.2.1:40001 → 198.51.100.7:443  5.20 ms by tcp-seq
    03:04:05.153000Z  close                 TCP             192.0.2.1:40001 → 198.51.100.7:443  rst after 53.0 ms, 2 samples, 8 packets, 582 bytes
    03:04:05.200000Z  open                  ICMP            192.0.2.1 → 198.51.100.7 id 7
    03:04:05.205123Z  first rtt             ICMP            192.0.2.1 → 198.51.100.7 id 7  5.12 ms by icmp
    03:04:05.210000Z  open                  ICMPv6          2001:db8::1 → 2001:db8:1::7 id 8
    03:04:05.215654Z  first rtt             ICMPv6          2001:db8::1 → 2001:db8:1::7 id 8  5.65 ms by icmpv6
    03:04:05.300000Z  open                  UDP             192.0.2.1:5353 → 198.51.100.7:53  [DNS example.org]
    03:04:05.312500Z  first rtt             UDP             192.0.2.1:5353 → 198.51.100.7:53  12.5 ms by dns  [DNS example.org]
    03:04:05.400000Z  open                  UDP             192.0.2.1:50000 → 198.51.100.7:443
    03:04:05.405900Z  first rtt             UDP             192.0.2.1:50000 → 198.51.100.7:443  5.90 ms by quic-handshake
    03:04:05.405900Z  close                 ICMP            192.0.2.1 → 198.51.100.7 id 7  end after 206 ms, 1 sample, 2 packets, 196 bytes
    03:04:05.405900Z  close                 ICMPv6          2001:db8::1 → 2001:db8:1::7 id 8  end after 196 ms, 1 sample, 2 packets, 236 bytes
    03:04:05.405900Z  close                 UDP             192.0.2.1:50000 → 198.51.100.7:443  end after 5.90 ms, 1 sample, 2 packets, 2484 bytes
    03:04:05.405900Z  close                 UDP             192.0.2.1:5353 → 198.51.100.7:53  end after 106 ms, 1 sample, 2 packets, 158 bytes  [DNS example.org]
    ");
}

#[test]
fn flow_events_as_jsonl() {
    let told = printed(&["--flow-events", "--format", "jsonl"]);
    let samples = of_type(&told, "rtt.sample");
    let flows = of_type(&told, "rtt.flow");
    let mut lives = BTreeMap::<String, Vec<(String, Value)>>::new();
    for flow in &flows {
        let key = ["proto", "sport", "echo_id"].map(|key| field(flow, key).to_string()).join(" ");
        let event = (text(flow, "event").to_owned(), flow["reason"].clone());
        lives.entry(key).or_default().push(event);
        assert_eq!(flow["event"] == "first-rtt", flow["rtt_ns"].is_u64(), "{flow}");
        assert_eq!(flow["event"] == "close", flow["reason"].is_string(), "{flow}");
        // The client opened them all.
        assert!(["192.0.2.1", "2001:db8::1"].contains(&text(flow, "src")), "{flow}");
    }
    for (key, life) in &lives {
        let events: Vec<_> = life.iter().map(|(event, _)| event.as_str()).collect();
        assert_eq!(events, ["open", "first-rtt", "close"], "{key}");
    }
    let reasons: Vec<_> = lives.values().map(|life| life[2].1.as_str().unwrap()).collect();
    assert_eq!(reasons.len(), 6);
    assert_eq!((reasons[2], reasons[3]), ("fin", "rst"), "{lives:?}");
    let closed: u64 = flows.iter().filter(|flow| flow["event"] == "close").map(|flow| number(flow, "samples")).sum();
    assert_eq!(closed as usize, samples.len());
}

#[test]
fn two_runs_of_one_capture_say_the_same() {
    for options in [&[][..], &["--format", "jsonl", "--flow-events"], &["--summary"]] {
        let [first, second] = [replay(options), replay(options)];
        assert_eq!(without_cost(&first.stdout), without_cost(&second.stdout));
        assert_eq!((first.stderr, first.status), (second.stderr, second.status));
    }
}

#[test]
fn a_file_and_a_pipe_say_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("everyday.pcap");
    fs::write(&file, capture(&everyday())).unwrap();
    assert_eq!(dwell(&["rtt", "-r", file.to_str().unwrap()]), replay(&[]));
}

#[test]
fn filters_choose_flows() {
    let methods = |rules: &[&str]| {
        let mut options = vec!["--format", "jsonl"];
        for rule in rules {
            options.extend(["--filter", rule]);
        }
        let told = printed(&options);
        let trips = round_trips(&of_type(&told, "rtt.sample"));
        let mut names: Vec<_> = trips.into_keys().map(|(method, _)| method).collect();
        names.dedup();
        names
    };
    assert_eq!(methods(&["2001:db8::/32"]), ["icmpv6"]);
    assert_eq!(methods(&[":53"]), ["dns"]);
    assert_eq!(methods(&["198.51.100.0/24:5000-5999"]), Vec::<String>::new());
    assert_eq!(methods(&["!:443", "!:7-8"]), ["dns"], "an echo's identifier is where ports are");
    assert_eq!(methods(&["192.0.2.0/24", "!192.0.2.1:1024-65535"]), ["icmp"]);
}

#[test]
fn expressions_select_what_tcpdump_selects() {
    if lacks_program("tcpdump") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let paths = ["all.pcap", "some.pcap"].map(|name| folder.path().join(name));
    let [all, some] = paths.each_ref().map(|path| path.to_str().unwrap());
    let packed = fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures/line.pcap.gz")).unwrap();
    io::copy(&mut GzDecoder::new(packed), &mut fs::File::create(all).unwrap()).unwrap();
    let mut selected = 0;
    for expression in [
        "tcp",
        "not tcp",
        "udp port 53 or icmp",
        "ip6 and not icmp6",
        "host 10.77.4.2 and (tcp or udp portrange 50-60)",
        "net 10.77 or tcp and port 53",
        "tcp port 53 or 443 or 5201",
        "!(icmp || icmp6) && net 10.77.0.0 mask 255.255.0.0",
        "src or dst net fd00::/8 and not port 443",
        "not (net 10.77.4.0/24 and not icmp)",
    ] {
        let tcpdump = Command::new("tcpdump").args(["--nano", "-r", all, "-w", some, expression]).output().unwrap();
        assert!(tcpdump.status.success(), "{expression}: {}", String::from_utf8_lossy(&tcpdump.stderr));
        let filtered = dwell(&["rtt", "-r", all, "--filter", expression]).stdout;
        assert!(filtered == dwell(&["rtt", "-r", some]).stdout, "{expression}");
        selected += filtered.lines().count();
    }
    assert!(selected > 500, "{selected} samples compared");
}

#[test]
fn a_rate_limit_is_kept_in_the_capture_s_own_time() {
    let times = |options: &[&str]| {
        let run = dwell_reading(
            &[&["rtt", "-r", "-", "--format", "jsonl"], options].concat(),
            &capture(&crate::wire::pings(100)),
        );
        of_type(&run.stdout, "rtt.sample").len()
    };
    // A ping each 10 ms for a second.
    assert_eq!(times(&[]), 100);
    assert_eq!(times(&["--rate-limit", "100ms"]), 10);
    assert_eq!(times(&["--rate-limit", "1h"]), 1);
    // 4 round trips of 5 ms.
    assert_eq!(times(&["--rtt-rate", "4"]), 50);
}

#[test]
fn spin_bits_give_both_parts_of_the_path_and_the_whole_loop() {
    let told = dwell_reading(&["rtt", "-r", "-", "--format", "jsonl"], &capture(&spinning(60)));
    let trips = round_trips(&of_type(&told.stdout, "rtt.sample"));
    let ms = |method: &str, dst: &str| {
        let values = &trips[&(method.to_owned(), dst.to_owned())];
        assert!(values.len() > 10, "{trips:?}");
        assert!(values.iter().all(|value| *value == values[0]), "{trips:?}");
        values[0] as f64 / 1e6
    };
    assert_eq!(ms("quic-spin", "198.51.100.7"), 5.0);
    assert_eq!(ms("quic-spin", "192.0.2.1"), 20.0);
    assert_eq!(ms("quic-spin-loop", "198.51.100.7"), 25.0);
    assert_eq!(ms("quic-spin-loop", "192.0.2.1"), 25.0);
    assert_eq!(trips.len(), 4);
    // A whole loop is the way to neither end, and ppviz has no place for it.
    let ppviz = dwell_reading(&["rtt", "-r", "-", "--format", "ppviz"], &capture(&spinning(60)));
    let parts = trips.iter().filter(|(key, _)| key.0 == "quic-spin");
    assert_eq!(ppviz.stdout.lines().count(), parts.map(|(_, values)| values.len()).sum::<usize>());
}

#[test]
fn lines_have_a_date_once_a_capture_goes_on_for_more_than_a_day() {
    let day_ms = 24.0 * 3600.0 * 1000.0;
    let mut packets = pings(2);
    packets.extend(pings(2).into_iter().map(|packet| Packet { at_ms: packet.at_ms + day_ms, ..packet }));
    let text = dwell_reading(&["rtt", "-r", "-"], &capture(&packets)).stdout;
    let begins: Vec<_> = text.lines().map(|line| line.split("  ").next().unwrap()).collect();
    let all = ["03:04:05.005000Z", "03:04:05.015000Z", "2026-01-03 03:04:05.005000Z", "2026-01-03 03:04:05.015000Z"];
    assert_eq!(begins, all);
}

/// What is printed on a terminal, by `script` of util-linux.
fn on_a_terminal(environment: &[(&str, &str)], command: &str) -> String {
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-c", command, "/dev/null"]).env("TERM", "xterm").env_remove("NO_COLOR").env_remove("CI");
    script.env_remove("CLICOLOR").env_remove("CLICOLOR_FORCE").envs(environment.iter().copied());
    let run = run(&mut script, b"");
    assert_eq!(run.status, Some(0), "{run}");
    run.stdout
}

#[test]
fn text_is_coloured_on_a_terminal_and_nowhere_else() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capture.pcap");
    std::fs::write(&file, capture(&everyday())).unwrap();
    let command = |more: &str| format!("{DWELL} rtt -r {} --summary {more}", file.display());
    let coloured = on_a_terminal(&[], &command(""));
    assert_eq!(coloured.matches("\u{1b}[1m\u{1b}[33m").count(), 1, "the worst p99: {coloured}");
    let plain = dwell(&["rtt", "-r", file.to_str().unwrap(), "--summary"]);
    let stripped = coloured.replace("\u{1b}[1m\u{1b}[33m", "").replace("\u{1b}[0m", "").replace('\r', "");
    assert!(stripped.contains(&plain.stdout), "{stripped}\n{plain}");
    for (environment, more) in [
        (&[("NO_COLOR", "1")][..], ""),
        (&[("TERM", "dumb")], ""),
        (&[], "--format jsonl"),
        (&[], "| cat"),
        (&[], &*format!("-w {}; cat {0}", folder.path().join("written").display())),
    ] {
        let printed = on_a_terminal(environment, &command(more));
        assert!(!printed.is_empty() && !printed.contains('\u{1b}'), "{environment:?} {more}: {printed}");
    }
    // A condition that holds is red, on standard error.
    let failed = on_a_terminal(&[], &(command("--format text --fail-if 'p99>1us'") + "; true"));
    assert!(failed.contains("\u{1b}[31mp99 is "), "{failed}");
}
