//! Groups of the kernel: listed prefixes, and groups that make room.

use std::{fs, net::IpAddr};

use dwell_testbed::workload::Ends;

use crate::{
    live_traffic::{GO_ON, ping},
    metrics::{get, value},
    records::{counters, of_type, text},
    support::{Pair, eventually, ip, skipped, watch},
};

#[test]
fn root_listed_prefixes_have_their_names_in_table_and_metrics() {
    if skipped() {
        return;
    }
    let pair = Pair::start("prefixes");
    let list = std::env::temp_dir().join(format!("dwell-prefixes-{}", std::process::id()));
    fs::write(&list, "10.0.0.0/8 wide\n10.78.0.2 right\n::/0 six\n").unwrap();
    let list_name = list.to_str().unwrap();
    let options = ["-i", "left0", "--aggregate", "--format", "jsonl", "--interval", "100ms", "--prefixes", list_name];
    let dwell = watch(&pair.left, &[&options[..], &["--metrics", "127.0.0.1:9469"]].concat());
    ip(&pair.right, "addr add 10.78.5.5/32 dev right0\n");
    ip(&pair.left, "route add 10.78.5.5/32 dev left0\n");
    ping(10).run(pair.ends(), &GO_ON).unwrap();
    let other: IpAddr = "10.78.5.5".parse().unwrap();
    ping(5).run(Ends { address: other, ..pair.ends() }, &GO_ON).unwrap();
    let unlisted: IpAddr = "192.0.2.5".parse().unwrap();
    ip(&pair.right, "addr add 192.0.2.5/32 dev right0\n");
    ip(&pair.left, "route add 192.0.2.5/32 dev left0\n");
    ping(3).run(Ends { address: unlisted, ..pair.ends() }, &GO_ON).unwrap();
    for (name, count) in [("right", 10.0), ("wide", 5.0), ("192.0.2.0/24", 3.0)] {
        let series = format!(r#"dwell_rtt_seconds_count{{interface="left0",method="icmp",prefix="{name}"}}"#);
        eventually("the pings in the metrics", || value(&get(&pair.left, "/metrics"), &series) == Some(count));
    }
    let run = dwell.interrupt();
    fs::remove_file(&list).unwrap();
    assert_eq!(run.status, Some(0), "{run}");
    let groups = of_type(&run.stdout, "rtt.aggregate");
    let pairs: Vec<_> = groups.iter().map(|group| (text(group, "prefix"), group["name"].as_str())).collect();
    assert!(pairs.contains(&("10.78.0.2/32", Some("right"))) && pairs.contains(&("10.0.0.0/8", Some("wide"))), "{run}");
}

#[test]
fn root_groups_without_samples_make_room() {
    if skipped() {
        return;
    }
    let pair = Pair::start("room");
    let options = ["-i", "left0", "--aggregate", "--format", "jsonl", "--interval", "100ms", "--methods", "icmp"];
    let more = ["--max-groups", "2", "--prefix4", "32", "--group-timeout", "300ms"];
    let dwell = watch(&pair.left, &[&options[..], &more].concat());
    let addresses: Vec<String> = (1..=5).map(|n| format!("10.78.5.{n}")).collect();
    for address in &addresses {
        ip(&pair.right, &format!("addr add {address}/32 dev right0\n"));
        ip(&pair.left, &format!("route add {address}/32 dev left0\n"));
        ping(5).run(Ends { address: address.parse().unwrap(), ..pair.ends() }, &GO_ON).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1_000));
    }
    let run = dwell.interrupt();
    assert_eq!(run.status, Some(0), "{run}");
    let groups = of_type(&run.stdout, "rtt.aggregate");
    for address in &addresses {
        let prefix = format!("{address}/32");
        let counts = groups.iter().filter(|group| group["prefix"] == prefix.as_str());
        assert_eq!(counts.map(|group| group["latency"]["count"].as_u64().unwrap()).sum::<u64>(), 5, "{address}: {run}");
    }
    assert!(counters(&run.stderr)["groups freed"] >= 4, "{run}");
    assert!(!counters(&run.stderr).contains_key("aggregate other"), "{run}");
}
