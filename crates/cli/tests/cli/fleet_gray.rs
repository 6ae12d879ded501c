//! Gray failures: one host of four becomes slow, and is well again.

use std::{
    net::Ipv4Addr,
    thread,
    time::{Duration, Instant},
};

use dwell_testbed::Namespace;

use crate::{
    fleet::{Chat, Office, ended, get},
    records::objects,
    support::{ip, skipped, tool},
};

/// Shorter than any operator's, so that there is a past soon.
const INTERVAL: &str = "400ms";

/// Hosts on one switch, which is the collector's.
struct Switch {
    middle: Namespace,
    hosts: Vec<Namespace>,
}

impl Switch {
    const COLLECTOR: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 254);

    fn start(hosts: &[&str]) -> Switch {
        let middle = Namespace::create("gray-switch").unwrap();
        ip(&middle, "link add br0 type bridge\naddr add 10.79.0.254/24 dev br0\nlink set br0 up\n");
        let hosts = hosts.iter().zip(1..).map(|(name, number)| {
            let host = Namespace::create(&format!("gray-{name}")).unwrap();
            ip(
                &middle,
                &format!(
                    "link add to-{name} type veth peer name eth0 netns {}\n\
                     link set to-{name} master br0\nlink set to-{name} up\n",
                    host.name()
                ),
            );
            ip(&host, &format!("addr add 10.79.0.{number}/24 dev eth0\nlink set eth0 up\n"));
            host
        });
        let hosts = hosts.collect();
        Switch { middle, hosts }
    }

    fn address(host: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 79, 0, host as u8 + 1)
    }
}

#[test]
fn root_the_one_host_of_four_that_sends_late_is_a_gray_failure_until_it_does_not() {
    if skipped() {
        return;
    }
    let names = ["a", "b", "c", "d"];
    let switch = Switch::start(&names);
    let office = Office::new(Switch::COLLECTOR.into());
    let metrics = "10.79.0.254:9469";
    let lengths = ["--interval", INTERVAL, "--gray-interval", INTERVAL];
    let more = [&lengths[..], &["--format", "jsonl", "--metrics", metrics]].concat();
    let collector = office.collect(&switch.middle, &more);
    let agents: Vec<_> = names
        .iter()
        .zip(&switch.hosts)
        .map(|(name, host)| office.agent(host, name, &["--interval", INTERVAL]))
        .collect();
    office.waits_for_agents(4);
    // Each one to the next.
    let mut chats: Vec<_> = (0..4)
        .map(|from| {
            let to = (from + 1) % 4;
            Chat::open(&switch.hosts[from], &switch.hosts[to], Switch::address(to))
        })
        .collect();
    let mut talk_until = |what: &str, holds: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(240), "{what}: not so");
            chats.iter_mut().for_each(|chat| chat.say(3));
            thread::sleep(Duration::from_millis(20));
        }
    };
    let intervals =
        "SELECT count(DISTINCT time_ns) FROM intervals WHERE host = 'c' AND segment = 'queueing' AND count > 10";
    talk_until("there is a past", &|| office.number(intervals) >= Some(75));
    // A message takes 56 ms to leave host c; what its agent sends does not.
    for slow in [
        "qdisc add dev eth0 root handle 1: htb default 1",
        "class add dev eth0 parent 1: classid 1:1 htb rate 1gbit",
        "class add dev eth0 parent 1: classid 1:2 htb rate 100kbit burst 1500 cburst 1500",
        "filter add dev eth0 parent 1: protocol ip u32 match ip dport 5201 0xffff flowid 1:2",
    ] {
        tool(&switch.hosts[2], "tc", &slow.split(' ').collect::<Vec<_>>());
    }
    let of_c = |event: &str| {
        let sql =
            "SELECT count(*) FROM gray WHERE subject = 'host' AND host = 'c' AND component = 'queueing' AND peers = 3";
        office.number(&format!("{sql} AND event = '{event}'")) == Some(1)
    };
    talk_until("it is noticed", &|| of_c("begin"));
    let named = "dwell_collect_gray_failures{subject=\"host\",name=\"c\",component=\"queueing\"} 1\n";
    talk_until("a metric names it", &|| get(&switch.middle, metrics).contains(named));
    tool(&switch.hosts[2], "tc", &["qdisc", "del", "dev", "eth0", "root"]);
    talk_until("its end is noticed", &|| of_c("end"));
    let value = office.number("SELECT value_ns FROM gray WHERE host = 'c' AND event = 'begin'").unwrap();
    assert!(value >= 20_000_000, "{value}");
    agents.into_iter().for_each(|agent| drop(ended(agent, 0)));
    let run = ended(collector, 0);
    let objects = objects(&run.stdout);
    let of_c: Vec<_> =
        objects.iter().filter(|object| object["type"] == "collect.gray" && object["agent"] == "c").collect();
    let events: Vec<_> =
        of_c.iter().map(|object| (&object["event"], &object["reason"], &object["component"])).collect();
    assert!(events.contains(&(&"begin".into(), &serde_json::Value::Null, &"queueing".into())), "{of_c:?}");
    assert!(events.contains(&(&"end".into(), &"recovered".into(), &"queueing".into())), "{of_c:?}");
    assert!(run.stderr.contains("gray failure: host c differs from its 3 peers: tx queueing p50 is "), "{run}");
}
