//! Packets of connections that are under way and not known: the further backends that they name, and what tunnels' ends
//! make of them.

use std::{
    net::{IpAddr, TcpListener, TcpStream},
    process::Command,
};

use dwell_engine::{
    balance::{NextHop, TunnelEnd},
    rtt::Prefix,
};
use dwell_probes::balancer::{
    Decap, DecapOutcome, DecapRules, Forward, PlaneOptions, Protocol, Real, Reason, Vip, VipKey,
};
use dwell_testbed::{
    Namespace,
    skip::{lacks_program, lacks_root},
};
use etherparse::PacketBuilder;

use crate::{
    decap::{rules, wrapped},
    fixtures::{XDP_PASS, XDP_REDIRECT, taken_out},
    options,
    packets::{CLIENT_MAC, Client, GUE_PORT, OUR_MAC, address, hop_less, real, v4, v6},
    parity::Both,
};

/// The backends' addresses and forwarding, by number from 1.
const REALS: [(&str, Forward); 4] = [
    ("10.0.0.1", Forward::Ipip),
    ("10.0.0.2", Forward::Gue(GUE_PORT)),
    ("2001:db8:5::3", Forward::Ipip),
    ("2001:db8:5::4", Forward::Gue(GUE_PORT)),
];

fn reals() -> Vec<Real> {
    REALS.iter().map(|(to, forward)| real(address(to), *forward, 77)).collect()
}

/// A balancer whose table leads to the first backend, and had all others before.
fn both() -> Option<Both> {
    let mut both = Both::new(PlaneOptions { max_vips: 16, ..options() })?;
    for (number, real) in (1..).zip(reals()) {
        both.set_real(number, &real);
    }
    for (client, number) in [(v4(), 1), (v6(), 2)] {
        let key = VipKey { address: client.dst, protocol: Protocol::Tcp, port: Some(80) };
        both.set_vip(&key, &Vip { number, second_chance: true, ..Vip::default() }, &[1; 251]);
    }
    let recent = [[1, 2, 3, 4]; 251];
    for number in [1, 2] {
        both.plane.set_recent_tables(&[(number, &recent)]).unwrap();
        both.native.set_recent(number, &recent);
        assert_eq!(both.plane.recent_table(number).unwrap()[..251], recent);
    }
    Some(both)
}

/// Decides about a frame in both cores, which must agree, without changing anything.
fn ask(both: &mut Both, frame: &[u8]) -> (Option<u32>, Reason, Vec<u8>) {
    let told = both.plane.dry_run(frame).unwrap();
    let (decision, out) = both.native.packet(frame, 0, 1_000_000_000_000, true, drop);
    assert_eq!((told.decision, &told.frame), (decision, &out), "{frame:x?}");
    (decision.real, decision.reason, out)
}

/// The end of the tunnel to a backend, from which packets may go on to all others.
fn end(number: usize) -> DecapRules {
    let backends = ["10.0.0.0/24", "2001:db8:5::/64"].map(|text| text.parse::<Prefix>().unwrap());
    DecapRules { backends: backends.to_vec(), ..rules(REALS[number].0) }
}

fn hop() -> NextHop {
    NextHop { interface: 5, destination: [2, 0, 0, 0, 0, 9], source: [2, 0, 0, 0, 0, 8], mtu: 1500 }
}

/// A tunnel's end that knows the paths to all backends.
fn native_end(number: usize, owns: bool) -> TunnelEnd {
    let mut end = TunnelEnd::new(&end(number));
    let hops: Vec<(IpAddr, NextHop)> = REALS.iter().map(|(to, _)| (address(to), hop())).collect();
    end.set_others(owns, &hops);
    end
}

#[test]
fn root_a_packet_under_way_goes_from_backend_to_backend_until_one_has_its_connection() {
    let Some(mut both) = both() else { return };
    for client in [v4(), v6()] {
        let data = client.data(100);
        let (first, reason, mut frame) = ask(&mut both, &data);
        assert_eq!((first, reason), (Some(1), Reason::Second));
        for at in 0..4 {
            let kept = native_end(at, true).packet(&frame);
            let done = if at < 3 { DecapOutcome::Kept } else { DecapOutcome::Gue };
            assert_eq!(kept.0, done);
            assert_eq!(kept.1.unwrap()[14..], hop_less(&data[14..]), "at {at}");
            // The kernel has no such connection.
            let mut kernel = Decap::load(&end(at)).unwrap();
            if at == 3 {
                assert_eq!(taken_out(&mut kernel, &frame).unwrap()[14..], hop_less(&data[14..]));
                break;
            }
            assert_eq!(taken_out(&mut kernel, &frame), None, "no path is known");
            assert_eq!(kernel.others(), [(address(REALS[at + 1].0), false)]);
            kernel.set_other(address(REALS[at + 1].0), Some(hop())).unwrap();
            let (outcome, next) = native_end(at, false).packet(&frame);
            assert_eq!(outcome, DecapOutcome::SentOn);
            let next = next.unwrap();
            assert_eq!(next[..12], [hop().destination, hop().source].concat());
            assert_eq!(kernel.replay_packet(&frame).unwrap(), (XDP_REDIRECT, next.clone()));
            let counters = kernel.counters().unwrap();
            assert_eq!([DecapOutcome::SentOn, DecapOutcome::NoRoute].map(|outcome| counters.get(outcome)), [1, 1]);
            frame = next;
        }
        // Nothing is learnt, and what begins here is known as ever.
        for frame in [&data, &client.fin(), &client.rst()] {
            both.plane.replay_packet(frame).unwrap();
            assert_eq!(ask(&mut both, frame).1, Reason::Second);
        }
        let other = Client { port: 9, ..client };
        assert_eq!(ask(&mut both, &other.syn()).1, Reason::New);
        both.plane.replay_packet(&other.syn()).unwrap();
        both.native.packet(&other.syn(), 0, 1_000_000_000_000, false, drop);
        assert_eq!(ask(&mut both, &other.data(10)).1, Reason::Connection);
    }
    let counters = both.plane.counters().unwrap();
    assert_eq!([Reason::Second, Reason::Fallback].map(|reason| counters.get(reason)), [6, 0]);
}

/// The numbers of the backends to which a frame goes, in their order.
fn order(both: &mut Both, frame: &[u8]) -> Vec<usize> {
    let (first, _, mut frame) = ask(both, frame);
    let mut order = vec![first.unwrap() as usize];
    while let (DecapOutcome::SentOn, Some(next)) = native_end(order[order.len() - 1] - 1, false).packet(&frame) {
        frame = next;
        let next = (0..4).find(|at| native_end(*at, true).packet(&frame).0 != DecapOutcome::Other);
        order.push(next.unwrap() + 1);
    }
    order
}

#[test]
fn root_what_is_down_comes_last_and_what_cannot_be_reached_not_at_all() {
    let Some(mut both) = both() else { return };
    let data = v4().data(100);
    assert_eq!(order(&mut both, &data), [1, 2, 3, 4]);
    both.set_real(2, &Real { down: true, ..reals()[1] });
    assert_eq!(order(&mut both, &data), [1, 3, 4, 2]);
    both.set_real(3, &Real { next_hop: None, ..reals()[2] });
    assert_eq!(order(&mut both, &data), [1, 4, 2]);
    both.set_real(4, &Real { forward: Forward::L2, ..reals()[3] });
    assert_eq!(order(&mut both, &data), [1, 2]);
    both.plane.remove_reals(&[2]).unwrap();
    assert_eq!(both.plane.dry_run(&data).unwrap().decision.reason, Reason::Fallback);
}

/// Its client's packets may come by a balancer by which that backend was never down.
#[test]
fn root_a_connection_that_began_while_the_backend_of_its_entry_was_down_finds_the_one_that_took_it() {
    let Some(mut both) = both() else { return };
    let key = VipKey { address: v4().dst, protocol: Protocol::Tcp, port: Some(80) };
    let set = |both: &mut Both, table: &[u32], before: &[u32]| {
        both.set_vip(&key, &Vip { number: 1, second_chance: true, ..Vip::default() }, table);
        let recent: Vec<_> = table.iter().zip(before).map(|(real, had)| [*real, *had, 0, 0]).collect();
        both.plane.set_recent_tables(&[(1, &recent)]).unwrap();
        both.native.set_recent(1, &recent);
    };
    let entries: Vec<u32> = (0..251).map(|entry| 1 + entry % 4).collect();
    set(&mut both, &entries, &[0; 251]);
    let taken = |both: &mut Both, client: &Client| {
        let first = ask(both, &client.syn()).0.unwrap();
        let real = reals().swap_remove(first as usize - 1);
        both.set_real(first, &Real { down: true, ..real });
        let taken = ask(both, &client.syn()).0.unwrap() as usize;
        both.set_real(first, &real);
        (first as usize, taken)
    };
    let mut all = Vec::new();
    for port in 1_000..1_050 {
        let client = Client { port, ..v4() };
        let (first, taken) = taken(&mut both, &client);
        let order = order(&mut both, &client.data(100));
        assert_eq!(order[0], first);
        assert!(order.contains(&taken), "{port}: {taken} took it, {order:?} are asked");
        all.push((client, taken));
    }
    // Also after weights have moved: no entry has the backend that it had.
    let moved: Vec<u32> = (1..252).map(|entry| 1 + entry / 3 % 4).collect();
    set(&mut both, &moved, &entries);
    for (client, taken) in all {
        let order = order(&mut both, &client.data(100));
        assert!(order.contains(&taken), "{}: {taken} took it, {order:?} are asked", client.port);
    }
}

#[test]
fn root_a_client_is_told_what_fits_with_all_headers() {
    let Some(mut both) = both() else { return };
    // 20 + 28 + 40 + 48 bytes.
    let fits = 1500 - 136 - 40;
    assert_eq!(ask(&mut both, &v4().data(fits)).1, Reason::Second);
    let (_, reason, frame) = ask(&mut both, &v4().data(fits + 1));
    assert_eq!(reason, Reason::TooBig);
    let icmp = &frame[14 + 20..];
    assert_eq!((icmp[0], u16::from_be_bytes([icmp[6], icmp[7]])), (3, 1500 - 136));
}

#[test]
fn root_forged_packets_go_nowhere_else() {
    let Some(mut both) = both() else { return };
    let data = v4().data(100);
    let (.., chance) = ask(&mut both, &data);
    let outcome = |rules: &DecapRules, frame: &[u8]| {
        let mut native = TunnelEnd::new(rules);
        native.set_others(false, &REALS.map(|(to, _)| (address(to), hop())));
        let mut kernel = Decap::load(rules).unwrap();
        for (to, _) in REALS {
            kernel.set_other(address(to), Some(hop())).unwrap();
        }
        let outcome = native.packet(frame).0;
        taken_out(&mut kernel, frame);
        assert_eq!(kernel.counters().unwrap().get(outcome), 1, "{outcome:?}");
        outcome
    };
    let prefix = |text: &str| text.parse::<Prefix>().unwrap();
    let ends = end(0);
    assert_eq!(outcome(&ends, &chance), DecapOutcome::SentOn);
    for (rules, expected) in [
        (DecapRules { backends: vec![], ..ends.clone() }, DecapOutcome::NotVip),
        (
            DecapRules { backends: vec![prefix("10.0.0.1/32"), prefix("10.0.1.0/24")], ..ends.clone() },
            DecapOutcome::NotVip,
        ),
        (DecapRules { vips: vec![prefix("203.0.113.1/32")], ..ends.clone() }, DecapOutcome::NotVip),
        (DecapRules { senders: vec![prefix("192.168.0.0/16")], ..ends.clone() }, DecapOutcome::Sender),
    ] {
        assert_eq!(outcome(&rules, &chance), expected, "{rules:?}");
    }
    // A listed sender wraps what claims to come from another one.
    let listed = DecapRules { senders: vec![prefix("172.16.0.0/16")], ..ends.clone() };
    let forged = |from: &str| wrapped(&wrapped(&data, from, "10.0.0.2", false), "172.16.0.1", "10.0.0.1", false);
    assert_eq!(outcome(&listed, &forged("172.16.0.1")), DecapOutcome::SentOn);
    assert_eq!(outcome(&listed, &forged("192.0.2.1")), DecapOutcome::NotVip);
    // A packet that would go on once more than a balancer lets it, and one without a client's packet inside.
    let deeper = wrapped(&wrapped(&chance, "172.16.0.1", "10.0.0.2", false), "172.16.0.1", "10.0.0.1", true);
    assert_eq!(outcome(&ends, &deeper), DecapOutcome::NotVip);
    let mut udp = Vec::new();
    let builder = PacketBuilder::ethernet2(CLIENT_MAC, OUR_MAC).ipv4([172, 16, 0, 1], [10, 0, 0, 2], 9);
    builder.udp(1, 53).write(&mut udp, b"query").unwrap();
    assert_eq!(outcome(&ends, &wrapped(&udp, "172.16.0.1", "10.0.0.1", false)), DecapOutcome::NotVip);
    // The hop limit ends it too.
    let (.., last) = ask(&mut both, &Client { ttl: 2, ..v4() }.data(100));
    assert_eq!(outcome(&ends, &last), DecapOutcome::NoRoute);
    // Each cut and each changed byte means the same to both.
    for at in 12..chance.len() {
        outcome_of_both(&ends, &chance[..at]);
        for bit in [1, 0x10, 0x80] {
            let mut changed = chance.clone();
            changed[at.min(170)] ^= bit;
            outcome_of_both(&ends, &changed);
        }
    }
}

/// Checks that both cores pass on the same of a frame whose next path is not known.
fn outcome_of_both(rules: &DecapRules, frame: &[u8]) {
    thread_local! {
        static KERNEL: std::cell::RefCell<Option<Decap>> = const { std::cell::RefCell::new(None) };
    }
    KERNEL.with_borrow_mut(|kernel| {
        let kernel = kernel.get_or_insert_with(|| Decap::load(rules).unwrap());
        let before = kernel.counters().unwrap();
        // The kernel refuses frames that are shorter than an Ethernet header.
        let Ok((verdict, passed)) = kernel.replay_packet(frame) else { return };
        let passed = (verdict == XDP_PASS).then_some(passed);
        let after = kernel.counters().unwrap();
        let outcome = DecapOutcome::ALL.into_iter().find(|each| after.get(*each) > before.get(*each)).unwrap();
        // A SYN and what is not TCP are always this host's.
        let is_same = |owns: bool| {
            let mut native = TunnelEnd::new(rules);
            native.set_others(owns, &[]);
            native.packet(frame) == (outcome, passed.clone())
        };
        assert!(is_same(false) || is_same(true), "{outcome:?} {frame:x?}");
    });
}

#[test]
fn root_a_connection_is_here_if_it_has_a_socket_that_is_open() {
    if lacks_root() || ["iptables-legacy", "ip6tables-legacy"].into_iter().any(lacks_program) {
        return;
    }
    let space = Namespace::create("lb-owns").unwrap();
    for (vip, own) in [("198.51.100.1/32", v4()), ("2001:db8:1::1/128", v6())] {
        let done = space.command("ip").args(["link", "set", "lo", "up"]).status().unwrap();
        assert!(done.success());
        let done = space.command("ip").args(["addr", "add", vip, "dev", "lo"]).status().unwrap();
        assert!(done.success());
        space
            .enter(|| {
                let mut both = both().unwrap();
                let mut decap = Decap::load(&end(0)).unwrap();
                let mut outcome = |frame: &[u8]| {
                    let (.., frame) = ask(&mut both, frame);
                    let before = decap.counters().unwrap();
                    taken_out(&mut decap, &frame);
                    let after = decap.counters().unwrap();
                    DecapOutcome::ALL.into_iter().find(|each| after.get(*each) > before.get(*each)).unwrap()
                };
                let listener = TcpListener::bind((own.dst, 80)).unwrap();
                assert_eq!(outcome(&own.data(10)), DecapOutcome::NoRoute, "it only listens");
                let client = TcpStream::connect((own.dst, 80)).unwrap();
                let (server, from) = listener.accept().unwrap();
                let here = Client { src: from.ip(), port: from.port(), ..own.clone() };
                assert_eq!(outcome(&here.data(10)), DecapOutcome::Kept);
                assert_eq!(outcome(&Client { port: from.port() ^ 1, ..here.clone() }.data(10)), DecapOutcome::NoRoute);
                // The server ends it first, and waits.
                drop(server);
                drop(client);
                assert_eq!(outcome(&here.data(10)), DecapOutcome::NoRoute);
                // A connection stays half open whose last ACK is lost. A packet that acknowledges another SYN-ACK is not its.
                let tables = if own.dst.is_ipv4() { "iptables-legacy" } else { "ip6tables-legacy" };
                let rule = ["-A", "INPUT", "-p", "tcp", "--tcp-flags", "SYN,ACK", "ACK", "-j", "DROP"];
                assert!(Command::new(tables).args(rule).status().unwrap().success());
                let client = TcpStream::connect((own.dst, 80)).unwrap();
                let here = Client { port: client.local_addr().unwrap().port(), ..here };
                assert_eq!(outcome(&here.data(10)), DecapOutcome::NoRoute, "another host's");
            })
            .unwrap();
    }
}
