//! `--filter`: which flows are followed.

use dwell_engine::{
    filter::Filter,
    rtt::{Config, Counter},
};

use crate::wire::{Segment, client, run, server, small};

fn scene(ipv6: bool) -> Vec<Segment> {
    let scene = [client(10.0).data(100, 50).ack(1).ts(5, 1), server(30.0).ack(150).ts(9, 5)];
    scene.into_iter().map(|packet| if ipv6 { packet.ipv6() } else { packet }).collect()
}

/// Returns whether the flow between 10.0.0.1:40000 and 10.0.0.2:80, or fd00::1 and fd00::2, is followed.
fn followed(rules: &[&str], ipv6: bool) -> bool {
    let config = Config { filter: Filter::parse(rules).unwrap(), ..small() };
    let run = run(&config, scene(ipv6));
    let (samples, filtered) = (run.samples.len(), run.count(Counter::Filtered));
    assert!(
        (samples, filtered) == (1, 0) || (samples, filtered) == (0, 2),
        "{rules:?}: {samples} samples, {filtered} packets filtered"
    );
    samples == 1
}

#[test]
fn a_flow_is_followed_if_one_end_lies_in_an_including_rule() {
    for (rules, v4, v6) in [
        (&[][..], true, true),
        (&["10.0.0.0/8"], true, false),
        (&["10.0.0.2"], true, false),
        (&["10.0.0.3"], false, false),
        (&["0.0.0.0/0"], true, false),
        (&["::/0"], false, true),
        (&["::/64"], false, false),
        (&["::ffff:10.0.0.0/104"], true, false),
        (&["fd00::/16"], false, true),
        (&["fd00::2/128"], false, true),
        (&["fd00::4/126"], false, false),
        (&[":80"], true, true),
        (&[":40000-40010"], true, true),
        (&[":81-39999"], false, false),
        (&["10.0.0.2:80"], true, false),
        (&["10.0.0.1:80"], false, false),
        (&["192.0.2.0/24", ":80"], true, true),
    ] {
        assert_eq!(followed(rules, false), v4, "{rules:?} over IPv4");
        assert_eq!(followed(rules, true), v6, "{rules:?} over IPv6");
    }
}

#[test]
fn an_answer_of_a_flow_that_is_left_out_is_filtered_and_no_stray() {
    let config = Config { filter: Filter::parse(&["192.0.2.0/24"]).unwrap(), ..small() };
    let scene = [client(10.0).rst().seq(100), server(30.0).syn(7).ack(101)];
    let run = run(&config, scene);
    assert_eq!((run.count(Counter::Filtered), run.count(Counter::Stray)), (2, 0));
}

#[test]
fn an_excluding_rule_wins_wherever_it_stands() {
    for (rules, v4) in [
        (&["!10.0.0.0/8"][..], false),
        (&["!192.0.2.0/24"], true),
        (&["10.0.0.0/8", "!:80"], false),
        (&["!:80", "10.0.0.0/8"], false),
        (&["10.0.0.0/8", "!:443"], true),
        (&["!10.0.0.1:80"], true),
        (&["!10.0.0.2:80"], false),
    ] {
        assert_eq!(followed(rules, false), v4, "{rules:?}");
    }
}

#[test]
fn an_expression_holds_for_both_ends_together() {
    for (rules, v4, v6) in [
        (&["tcp"][..], true, true),
        (&["udp"], false, false),
        (&["not tcp"], false, false),
        (&["ip6"], false, true),
        (&["tcp port 80 and not net 10.0.0.0/8"], false, true),
        (&["host 10.0.0.1 and port 80"], true, false),
        (&["host 10.0.0.1 and host 10.0.0.2"], true, false),
        (&["host 10.0.0.1 and host 10.0.0.3"], false, false),
        (&["port 53 or (net 10 and tcp)"], true, false),
        (&["not (port 80 or port 443)"], false, false),
        (&["udp", "!:80", "tcp"], false, false),
        (&["udp", ":80"], true, true),
    ] {
        assert_eq!(followed(rules, false), v4, "{rules:?} over IPv4");
        assert_eq!(followed(rules, true), v6, "{rules:?} over IPv6");
    }
}

#[test]
fn all_sixteen_rules_are_read() {
    let mut rules = vec!["192.0.2.0/24"; 15];
    rules.push(":80");
    assert!(followed(&rules, false));
    rules[15] = "!:80";
    assert!(!followed(&rules, false));
}
