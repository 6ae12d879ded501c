//! QUIC packets that are routed by their connection ID, in the kernel and natively.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use dwell_engine::{
    measure::Endpoint,
    quic_lb::{Config, Load, Stamp},
    rtt::Counter,
    steer::zero_rtt::{Heavy, HeavyHitters, OverloadConfig},
};
use dwell_probes::balancer::{
    CidEvent, Decision, Forward, HeavyScope, PlaneOptions, Protocol, Real, Reason, ServerId, ServerState, Verdict, Vip,
    VipKey, ZeroVip,
};
use nix::sched::sched_getcpu;

use crate::{
    options,
    packets::{Client, address, numbers, real, v4, v6},
    parity::Both,
    stay_on,
};

pub const KEY: [u8; 16] = *b"the key of zero.";
pub const NEXT_KEY: [u8; 16] = *b"the key of later";
/// The backend that Maglev selects for all.
pub const OWN: u32 = 1;
pub const OTHER: u32 = 2;
pub const THIRD: u32 = 3;
/// The servers' IDs in connection IDs.
pub const IDS: [(u32, u16); 3] = [(OWN, 0x0101), (OTHER, 0xbeef), (THIRD, 7)];

pub fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap().as_secs()
}

pub fn key(client: &Client) -> VipKey {
    VipKey { address: client.dst, protocol: Protocol::Udp, port: Some(443) }
}

pub fn zero_vip() -> ZeroVip {
    let servers = IDS.map(|(real, id)| (real, ServerId(id.into())));
    ZeroVip {
        overload: OverloadConfig {
            percentile: 0.5,
            margin: Duration::from_millis(20),
            stale: Some(Duration::from_secs(60)),
            slack: Duration::from_secs(5),
        },
        ..ZeroVip::new(vec![Config::own(0, KEY).unwrap()], servers)
    }
}

impl Both {
    /// Keeps the test's thread on its CPU: each CPU has its own cache of connection IDs, and its own budgets.
    pub fn quic(zero: &ZeroVip) -> Option<Both> {
        stay_on(sched_getcpu().unwrap());
        let options = PlaneOptions { max_zero_vips: 2, max_zero_servers: 16, ..options() };
        let mut both = Both::new(options)?;
        for number in [OWN, OTHER, THIRD] {
            both.set_server(number, false);
        }
        both.set_zero(zero);
        for (client, number) in [(v4(), 1), (v6(), 2)] {
            let vip = Vip { number, zero_slot: Some(number as u16), ..Vip::default() };
            both.set_vip(&key(&client), &vip, &[OWN; 31]);
        }
        Some(both)
    }

    pub fn set_server(&mut self, number: u32, down: bool) {
        let to = address(&format!("10.0.0.{number}"));
        let real = Real { down, ..real(to, Forward::L2, 70 + number) };
        self.set_real(number, &real);
    }

    pub fn set_zero(&mut self, zero: &ZeroVip) {
        for (client, slot) in [(v4(), 1), (v6(), 2)] {
            self.plane.set_zero(&key(&client), slot, zero).unwrap();
            self.native.set_zero(&key(&client), slot, zero);
        }
    }

    /// Returns where a frame goes, and the reason, which are the same in both cores, in a dry run and in a real one.
    pub fn pass(&mut self, frame: &[u8]) -> (Option<u32>, Reason) {
        let time_ns = now_s() * 1_000_000_000;
        let told = self.plane.dry_run(frame).unwrap();
        let (decision, out) = self.native.packet(frame, 0, time_ns, true, drop);
        assert_eq!(told.decision, decision, "{frame:x?}");
        assert_eq!(told.frame, out);
        let before = self.plane.counters().unwrap();
        self.plane.replay_packet(frame).unwrap();
        let after = self.plane.counters().unwrap();
        assert_eq!(after.get(told.decision.reason), before.get(told.decision.reason) + 1);
        self.native.packet(frame, 0, time_ns, false, drop);
        for event in CidEvent::ALL {
            assert_eq!(after.cid_events(event), self.native.cid_events(event), "{event:?}");
        }
        let Decision { real, reason, verdict, .. } = told.decision;
        assert_eq!(real.is_some(), verdict != Verdict::Drop);
        (real, reason)
    }

    /// Returns an unused connection ID of a server with this waiting time.
    pub fn cid(&mut self, id: u16, wait: Duration) -> Vec<u8> {
        self.cid_of(&Config::own(0, KEY).unwrap(), id, wait, now_s())
    }

    fn cid_of(&mut self, config: &Config, id: u16, wait: Duration, seconds: u64) -> Vec<u8> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let stamp =
            Stamp { freshness: seconds << 16 | NEXT.fetch_add(1, Ordering::Relaxed), load: Load::from_wait(wait) };
        config.encode_stamped(id, stamp).to_vec()
    }

    pub fn seen(&mut self, seen: CidEvent) -> u64 {
        self.plane.counters().unwrap().cid_events(seen)
    }
}

/// The first octet of a packet with a long header.
struct Long(u8);

impl Long {
    const INITIAL: Long = Long(0xc3);
    const EARLY: Long = Long(0xd3);

    /// Returns a long header: version, connection IDs, and the rest.
    fn of(&self, client: &Client, cid: &[u8]) -> Vec<u8> {
        let mut payload = vec![self.0, 0, 0, 0, 1, cid.len() as u8];
        payload.extend(cid);
        payload.extend([0; 100]);
        client.udp(&payload)
    }
}

pub fn long(client: &Client, cid: &[u8]) -> Vec<u8> {
    Long::INITIAL.of(client, cid)
}

pub fn short(client: &Client, cid: &[u8]) -> Vec<u8> {
    let mut payload = vec![0x41];
    payload.extend(cid);
    payload.extend([9; 30]);
    client.udp(&payload)
}

pub fn from(client: Client, port: u16) -> Client {
    Client { port, ..client }
}

pub const MS: fn(u64) -> Duration = Duration::from_millis;

#[test]
fn root_a_connection_id_leads_to_its_server_and_a_new_connection_to_its_client_s() {
    let Some(mut both) = Both::quic(&zero_vip()) else {
        return;
    };
    for client in [v4(), v6()] {
        let random = [0x5a; 8];
        assert_eq!(both.pass(&long(&client, &random)), (Some(OWN), Reason::New));
        assert_eq!(both.pass(&long(&client, &random)), (Some(OWN), Reason::Connection));
        for (real, id) in IDS {
            let cid = both.cid(id, MS(1));
            let moved = from(client.clone(), 5000);
            assert_eq!(both.pass(&short(&client, &cid)), (Some(real), Reason::Cid));
            assert_eq!(both.pass(&short(&moved, &cid)), (Some(real), Reason::Cid), "migrated");
            assert_eq!(both.pass(&long(&moved, &cid)), (Some(real), Reason::Cid));
        }
    }
    // Once each, because later packets are cached.
    assert_eq!(both.seen(CidEvent::Opened), 6);
    let loads = both.plane.server_loads(1).unwrap();
    assert_eq!(loads.len(), 3);
    assert!(loads.iter().all(|(_, load)| load.stamp as u16 == Load::from_wait(MS(1)).code()));
}

#[test]
fn root_what_is_no_server_s_is_dropped_or_begins_anew() {
    let Some(mut both) = Both::quic(&zero_vip()) else {
        return;
    };
    let client = v4();
    let forged = [&[16][..], &[0x77; 16]].concat();
    let nobody = both.cid(0x4444, MS(1));
    let mut other_rotation = both.cid(7, MS(1));
    other_rotation[0] = 5 << 5 | 16;
    let unroutable = [&[7 << 5 | 16][..], &[3; 16]].concat();
    for (at, cid) in [forged, nobody, other_rotation, unroutable].iter().enumerate() {
        let port = 2000 + at as u16;
        let attempt = long(&from(client.clone(), port), cid);
        assert_eq!(both.pass(&short(&client, cid)), (None, Reason::Unroutable));
        assert_eq!(both.pass(&attempt), (Some(OWN), Reason::New), "{at}");
    }
    for seen in [CidEvent::Forged, CidEvent::Nobody] {
        assert_eq!(both.seen(seen), 2, "{seen:?}");
    }
    assert_eq!(both.seen(CidEvent::NoLayout), 4);
    for payload in [&b""[..], b"\x40", b"\x40\x10\x00"] {
        let why = if payload.is_empty() { Reason::Malformed } else { Reason::Unroutable };
        assert_eq!(both.pass(&client.udp(payload)), (None, why));
    }
    // These have no connection ID, one of another length, and one that is cut off.
    let attempt = long(&from(client.clone(), 2100), b"");
    assert_eq!(both.pass(&attempt), (Some(OWN), Reason::New));
    let attempt = long(&from(client.clone(), 2101), &[16; 20]);
    assert_eq!(both.pass(&attempt), (Some(OWN), Reason::New));
    for cut in [&[0xc3, 0, 0, 0, 1][..], &[0xc3, 0, 0, 0, 1, 17, 16, 1, 2]] {
        assert_eq!(both.pass(&client.udp(cut)), (None, Reason::Malformed));
    }
    // Other ports and protocols of the address are not the balancer's.
    let mut elsewhere = short(&client, &[1; 17]);
    elsewhere[36..38].copy_from_slice(&444u16.to_be_bytes());
    elsewhere[40..42].fill(0);
    assert_eq!(both.plane.dry_run(&elsewhere).unwrap().decision.reason, Reason::NotVip);
}

#[test]
fn root_a_long_header_with_an_old_connection_id_chooses_no_server() {
    let Some(mut both) = Both::quic(&zero_vip()) else {
        return;
    };
    let own = Config::own(0, KEY).unwrap();
    for (at, (age, is_young)) in
        [(0, true), (55, true), (70, false), (90_000, false), (-60, false)].into_iter().enumerate()
    {
        let seconds = now_s().checked_add_signed(-age).unwrap();
        let cid = both.cid_of(&own, 7, MS(1), seconds);
        let client = from(v4(), 3000 + at as u16);
        let expected = if is_young { (Some(THIRD), Reason::Cid) } else { (Some(OWN), Reason::New) };
        assert_eq!(both.pass(&long(&client, &cid)), expected, "{age}");
        // With a short header, the result is right whether it is cached or not.
        assert_eq!(both.pass(&short(&client, &cid)), (Some(THIRD), Reason::Cid));
        let again = if is_young { expected } else { (Some(OWN), Reason::Connection) };
        assert_eq!(both.pass(&long(&client, &cid)), again, "{age}");
    }
    // The newest ID is from the future; the others are merely older.
    assert_eq!(both.seen(CidEvent::Refused), 1);
}

#[test]
fn root_a_heavy_client_of_an_overloaded_server_is_sent_to_the_least_loaded() {
    let Some(mut both) = Both::quic(&zero_vip()) else {
        return;
    };
    for client in [v4(), v6()] {
        let heavy = both.cid(0x0101, MS(500));
        for _ in 0..4 {
            both.pass(&short(&client, &heavy));
        }
        // Its server is the only one with a known load.
        let begin = |port| long(&from(client.clone(), port), &[1; 8]);
        assert_eq!(both.pass(&begin(6000)), (Some(OWN), Reason::New));
        for (id, wait) in [(0xbeef, MS(100)), (7, MS(3))] {
            let cid = both.cid(id, wait);
            both.pass(&short(&from(client.clone(), 999), &cid));
        }
        assert_eq!(both.pass(&begin(6001)), (Some(THIRD), Reason::Diverted));
        // All packets of an attempt stay together, whatever loads are reported.
        let cid = both.cid(0x0101, MS(1));
        both.pass(&short(&client, &cid));
        assert_eq!(both.pass(&begin(6001)), (Some(THIRD), Reason::Connection));
        assert_eq!(both.pass(&begin(6000)), (Some(OWN), Reason::Connection));
        assert_eq!(both.pass(&begin(6002)), (Some(OWN), Reason::New));
        // Another client of an overloaded server is not a heavy hitter.
        let cid = both.cid(0x0101, MS(500));
        both.pass(&short(&client, &cid));
        let light = Client {
            src: match client.src.is_ipv4() {
                true => address("203.0.113.200"),
                false => address("2001:db8:77::1"),
            },
            ..client.clone()
        };
        assert_eq!(both.pass(&long(&light, &[1; 8])), (Some(OWN), Reason::New));
        // An IPv6 client is identified by its network.
        if !client.src.is_ipv4() {
            let neighbour = Client { src: address("2001:db8:9::abcd"), ..from(client.clone(), 7000) };
            assert_eq!(both.pass(&long(&neighbour, &[1; 8])), (Some(THIRD), Reason::Diverted));
        }
    }
    let heavy = both.plane.heavy_hitters(1, OWN).unwrap();
    assert_eq!(heavy[0].client.address, v4().src);
    assert_eq!(heavy[0].packets, 6);
}

/// A client opens several connections from one socket, as a proxy does.
#[test]
fn root_connections_of_one_socket_are_told_apart_by_what_their_client_drew() {
    let Some(mut both) = Both::quic(&zero_vip()) else {
        return;
    };
    for client in [v4(), v6()] {
        for (id, wait) in [(0xbeef, MS(100)), (7, MS(3)), (0x0101, MS(1))] {
            let cid = both.cid(id, wait);
            both.pass(&short(&client, &cid));
        }
        let [first, second, third] = [[1; 8], [2; 8], [3; 8]];
        assert_eq!(both.pass(&long(&client, &first)), (Some(OWN), Reason::New));
        let load = both.cid(0x0101, MS(500));
        both.pass(&short(&client, &load));
        assert_eq!(both.pass(&long(&client, &second)), (Some(THIRD), Reason::Diverted));
        // The rest of each flight, including early data (0-RTT), follows, whatever happens to loads.
        let calm = both.cid(0x0101, MS(1));
        both.pass(&short(&client, &calm));
        for packet in [Long::INITIAL, Long::EARLY] {
            let packet = |cid: &[u8]| packet.of(&client, cid);
            assert_eq!(both.pass(&packet(&first)), (Some(OWN), Reason::Connection));
            assert_eq!(both.pass(&packet(&second)), (Some(THIRD), Reason::Connection));
        }
        assert_eq!(both.pass(&long(&client, &third)), (Some(OWN), Reason::New));
        // An ID that is shorter than any client's of version 1 is not used.
        assert_eq!(both.pass(&long(&client, &[1; 7])), (Some(OWN), Reason::New));
        assert_eq!(both.pass(&long(&client, &[2; 7])), (Some(OWN), Reason::Connection));
    }
}

/// With this setting, later packets are recognized by their addresses and ports alone.
#[test]
fn root_connections_of_one_socket_are_one_where_short_headers_follow_their_connection() {
    let zero = ZeroVip { is_unroutable_hashed: true, ..zero_vip() };
    let Some(mut both) = Both::quic(&zero) else {
        return;
    };
    assert_eq!(both.pass(&long(&v4(), &[1; 8])), (Some(OWN), Reason::New));
    both.plane.set_table(1, &[OTHER; 31]).unwrap();
    for packet in [long(&v4(), &[2; 8]), short(&v4(), &[3; 8])] {
        let told = both.plane.dry_run(&packet).unwrap().decision;
        assert_eq!((told.real, told.reason), (Some(OWN), Reason::Connection));
    }
}

#[test]
fn root_who_is_heavy_anywhere_counts_where_that_is_asked_for() {
    let mut zero = zero_vip();
    zero.heavy_scope = HeavyScope::Any;
    let Some(mut both) = Both::quic(&zero) else {
        return;
    };
    // The client is a heavy hitter of the third server, and its own server is overloaded.
    let cid = both.cid(7, MS(3));
    both.pass(&short(&v4(), &cid));
    let other = Client { src: address("203.0.113.77"), ..v4() };
    for (id, wait) in [(0x0101, MS(500)), (0xbeef, MS(100))] {
        let cid = both.cid(id, wait);
        both.pass(&short(&other, &cid));
    }
    let light = Client { src: address("203.0.113.78"), ..v4() };
    assert_eq!(both.pass(&long(&v4(), &[1; 8])), (Some(THIRD), Reason::Diverted));
    assert_eq!(both.pass(&long(&light, &[1; 8])), (Some(OWN), Reason::New));
}

/// As where routes send the connections of one client to several balancers.
#[test]
fn root_who_is_heavy_at_another_balancer_is_diverted_by_the_loads_that_servers_told_it() {
    let mut zero = zero_vip();
    let Some(mut both) = Both::quic(&zero) else {
        return;
    };
    let heavy = Heavy { client: Endpoint { address: v4().src, port: 999 }, packets: 7 };
    let table = HeavyHitters::of(&[heavy], zero.heavy).unwrap();
    // Other balancers know of servers that this one does not have.
    for real in [OWN, 7777] {
        both.plane.set_other_heavies(1, &[(real, table.clone())]).unwrap();
        both.native.set_other_heavies(1, real, &table);
    }
    let stamp = |seconds: u64, wait| Stamp { freshness: seconds << 16, load: Load::from_wait(wait) };
    let told = [(OWN, MS(500)), (OTHER, MS(100)), (THIRD, MS(3)), (7777, MS(1))];
    let mut stamps = told.map(|(real, wait)| (real, stamp(now_s(), wait))).to_vec();
    // One cannot be true: no server reports what will be.
    stamps.push((THIRD, stamp(now_s() + 3600, MS(900))));
    let now = Duration::from_secs(now_s());
    let take = |both: &mut Both, stamps: &[(u32, Stamp)]| {
        both.plane.take_loads(1, stamps).unwrap();
        both.native.take_loads(1, stamps, now);
    };
    take(&mut both, &stamps);
    let light = Client { src: address("203.0.113.78"), ..v4() };
    assert_eq!(both.pass(&long(&v4(), &[1; 8])), (Some(THIRD), Reason::Diverted));
    assert_eq!(both.pass(&long(&light, &[1; 8])), (Some(OWN), Reason::New));
    // What is older than what has arrived here changes nothing.
    take(&mut both, &[(OWN, stamp(now_s() - 30, MS(1)))]);
    assert_eq!(both.pass(&long(&from(v4(), 6001), &[2; 8])), (Some(THIRD), Reason::Diverted));
    // Who is heavy elsewhere at any server counts where that is asked for.
    zero.heavy_scope = HeavyScope::Any;
    both.set_zero(&zero);
    let none = HeavyHitters::new(zero.heavy).unwrap();
    for (real, table) in [(OWN, &none), (THIRD, &table)] {
        both.plane.set_other_heavies(1, &[(real, table.clone())]).unwrap();
        both.native.set_other_heavies(1, real, table);
    }
    assert_eq!(both.pass(&long(&from(v4(), 6002), &[3; 8])), (Some(THIRD), Reason::Diverted));
}

#[test]
fn root_of_the_connections_that_are_kept_only_the_heaviest_may_be_all_that_are_heavy() {
    let mut zero = zero_vip();
    zero.heavy.top = 1;
    let Some(mut both) = Both::quic(&zero) else {
        return;
    };
    let second = Client { src: address("203.0.113.77"), ..v4() };
    for (client, packets) in [(&second, 3), (&v4(), 5)] {
        let cid = both.cid(0x0101, MS(500));
        for _ in 0..packets {
            both.pass(&short(client, &cid));
        }
    }
    for (id, wait) in [(0xbeef, MS(100)), (7, MS(3))] {
        let cid = both.cid(id, wait);
        both.pass(&short(&from(v4(), 999), &cid));
    }
    let begin = |client: &Client, port| long(&from(client.clone(), port), &[1; 8]);
    assert_eq!(both.pass(&begin(&v4(), 6000)), (Some(THIRD), Reason::Diverted));
    assert_eq!(both.pass(&begin(&second, 6000)), (Some(OWN), Reason::New));
    zero.heavy.top = 2;
    both.set_zero(&zero);
    assert_eq!(both.pass(&begin(&second, 6001)), (Some(THIRD), Reason::Diverted));
}

#[test]
fn root_a_server_that_is_drained_or_down_keeps_its_connections() {
    let Some(mut both) = Both::quic(&zero_vip()) else {
        return;
    };
    let drained = both.cid(7, MS(1));
    let mut zero = zero_vip();
    zero.servers[2].state = ServerState::Left;
    both.set_zero(&zero);
    both.set_server(THIRD, true);
    assert_eq!(both.pass(&short(&v4(), &drained)), (Some(THIRD), Reason::Cid));
    // It is never the least loaded server.
    for (id, wait) in [(0x0101, MS(500)), (0xbeef, MS(100)), (7, MS(1))] {
        let cid = both.cid(id, wait);
        both.pass(&short(&v4(), &cid));
    }
    assert_eq!(both.pass(&long(&v4(), &[1; 8])), (Some(OTHER), Reason::Diverted));
    // It was removed: its packets belong to no server, although they were cached before.
    zero.servers.remove(2);
    both.set_zero(&zero);
    assert_eq!(both.pass(&short(&v4(), &drained)), (None, Reason::Unroutable));
    let stay = both.plane.server_loads(1).unwrap();
    assert_eq!(stay.iter().map(|(real, _)| *real).collect::<Vec<_>>(), [OWN, OTHER]);
    assert!(stay.iter().all(|(_, load)| load.stamp != 0), "what was known stays known");
}

#[test]
fn root_keys_roll_over_without_a_broken_connection() {
    let Some(mut both) = Both::quic(&zero_vip()) else {
        return;
    };
    let old = both.cid(7, MS(1));
    let next = Config::own(1, NEXT_KEY).unwrap();
    let new = both.cid_of(&next, 0xbeef, MS(1), now_s());
    assert_eq!(both.pass(&short(&v4(), &new)), (None, Reason::Unroutable));
    let mut zero = zero_vip();
    zero.layouts.push(next);
    both.set_zero(&zero);
    assert_eq!(both.pass(&short(&v4(), &old)), (Some(THIRD), Reason::Cid));
    assert_eq!(both.pass(&short(&v4(), &new)), (Some(OTHER), Reason::Cid));
    zero.layouts.remove(0);
    both.set_zero(&zero);
    assert_eq!(both.pass(&short(&v4(), &old)), (None, Reason::Unroutable));
    assert_eq!(both.pass(&short(&v4(), &new)), (Some(OTHER), Reason::Cid));
}

#[test]
fn root_layouts_of_others_are_routed_too() {
    let layouts = vec![
        Config::new(1, 3, 4, None).unwrap(),
        Config::new(2, 8, 8, Some(KEY)).unwrap(),
        Config::new(3, 3, 4, Some(KEY)).unwrap(),
        Config::new(4, 10, 9, Some(KEY)).unwrap(),
        Config::new(5, 4, 15, Some(KEY)).unwrap(),
        Config::own(6, KEY).unwrap(),
    ];
    let zero = ZeroVip { layouts: layouts.clone(), ..zero_vip() };
    let Some(mut both) = Both::quic(&zero) else {
        return;
    };
    for layout in layouts.iter().filter(|layout| !layout.is_stamped()) {
        for (real, id) in IDS {
            let id = ServerId(u128::from(id)).octets(layout.server_id_bytes()).unwrap();
            let nonce = vec![0xa7; layout.nonce_bytes().into()];
            let cid = layout.encode(&id, &nonce).unwrap();
            for client in [v4(), v6()] {
                let case = format!("{layout:?} {id:x?}");
                assert_eq!(both.pass(&short(&client, &cid)), (Some(real), Reason::Cid), "{case}");
                assert_eq!(both.pass(&long(&client, &cid)), (Some(real), Reason::Cid), "{case}");
            }
        }
    }
    assert_eq!(both.seen(CidEvent::Noted), 0, "they say nothing of load");
}

#[test]
fn root_short_headers_of_nobody_follow_their_connection_where_that_is_asked_for() {
    let mut zero = zero_vip();
    zero.is_unroutable_hashed = true;
    let Some(mut both) = Both::quic(&zero) else {
        return;
    };
    assert_eq!(both.pass(&short(&v4(), &[1; 8])), (Some(OWN), Reason::New));
    both.plane.set_table(1, &[OTHER; 31]).unwrap();
    assert_eq!(both.plane.dry_run(&short(&v4(), &[1; 8])).unwrap().decision.real, Some(OWN));
}

/// A flood of new connections, from one socket and from many, while other connections are active.
#[test]
fn root_a_flood_of_initials_takes_nothing_from_those_who_know_their_server() {
    let Some(mut both) = Both::quic(&zero_vip()) else {
        return;
    };
    let cid = both.cid(0xbeef, MS(1));
    for round in 0..3000u32 {
        let client = match round % 2 {
            0 => v4(),
            _ => Client {
                src: std::net::Ipv4Addr::from(0x0a00_0000 + round * 77).into(),
                ..from(v4(), 1024 + round as u16)
            },
        };
        let flood = long(&client, &round.to_be_bytes().repeat(2));
        for _ in 0..3 {
            both.plane.replay_packet(&flood).unwrap();
        }
        if round % 100 == 0 {
            assert_eq!(both.plane.dry_run(&flood).unwrap().decision.real, Some(OWN));
            let told = both.plane.dry_run(&short(&v4(), &cid)).unwrap();
            assert_eq!((told.decision.real, told.decision.reason), (Some(OTHER), Reason::Cid));
        }
    }
    let counters = both.plane.counters().unwrap();
    let [new, again, full] = [Reason::New, Reason::Connection, Reason::Full].map(|why| counters.get(why));
    assert_eq!(new + again + full, 9000, "{counters:?}");
    // On a slow machine, some were silent for a second and made room.
    let held = new - counters.table.get(Counter::FlowsEvicted);
    assert!(held <= options().max_connections.into(), "{counters:?}");
    let active = both.plane.sweep(drop).unwrap().total();
    assert!((1..=held).contains(&active), "{active} of {held}");
}

/// Returns a client of the network with this number.
pub fn of_network(number: u32) -> Client {
    Client { src: std::net::Ipv4Addr::from(0x0a00_0000 + (number << 8) + 9).into(), ..v4() }
}

/// Forged connection IDs are decrypted at a limited rate, which those of other networks do not notice.
#[test]
fn root_forged_connection_ids_have_a_budget_and_those_of_others_are_opened() {
    const FORGED: u64 = 3000;
    let Some(mut both) = Both::quic(&zero_vip()) else {
        return;
    };
    let known = of_network(7);
    let (first, second, third) = (both.cid(0xbeef, MS(1)), both.cid(0xbeef, MS(1)), both.cid(0xbeef, MS(1)));
    let route = |both: &mut Both, client: &Client, cid: &[u8]| {
        let before = both.seen(CidEvent::Unopened);
        both.plane.replay_packet(&short(client, cid)).unwrap();
        let counters = both.plane.counters().unwrap();
        (counters.get(Reason::Cid), both.seen(CidEvent::Unopened) - before)
    };
    assert_eq!(route(&mut both, &known, &first), (1, 0));
    let began_s = now_s();
    for count in 0..FORGED {
        let forged = [&[16][..], &count.to_be_bytes(), &[0x77; 8]].concat();
        both.plane.replay_packet(&short(&from(of_network(1), count as u16), &forged)).unwrap();
    }
    let seconds = now_s() - began_s + 2;
    let (opened, unopened) = (both.seen(CidEvent::Forged), both.seen(CidEvent::Unopened));
    assert!((64..=64 * seconds).contains(&opened), "{opened} in {seconds} s");
    assert_eq!(opened + unopened, FORGED);
    // Those who send from other networks notice nothing, whether they are known or not.
    assert_eq!(route(&mut both, &known, &second), (2, 0));
    assert_eq!(route(&mut both, &of_network(2), &third), (3, 0));
}

/// Whoever has a connection ID cannot make somebody else heavy by it.
#[test]
fn root_an_id_with_the_address_of_a_stranger_does_not_make_him_heavy() {
    let Some(mut both) = Both::quic(&zero_vip()) else {
        return;
    };
    let cid = both.cid(0x0101, MS(1));
    for _ in 0..4 {
        both.pass(&short(&v4(), &cid));
    }
    let stranger = of_network(3);
    for _ in 0..100 {
        assert_eq!(both.pass(&short(&stranger, &cid)).0, Some(OWN));
    }
    let heavy = both.plane.heavy_hitters(1, OWN).unwrap();
    let clients: Vec<_> = heavy.iter().map(|heavy| (heavy.client.address, heavy.packets)).collect();
    assert_eq!(clients, [(v4().src, 4)]);
}

/// Damaged and invalid packets: both cores agree on them, and learn no load from them.
#[test]
fn root_kernel_and_native_agree_about_garbage() {
    let mut zero = zero_vip();
    zero.layouts.push(Config::new(3, 3, 4, Some(KEY)).unwrap());
    let Some(mut both) = Both::quic(&zero) else {
        return;
    };
    let mut next = numbers();
    for at in 0..1500 {
        // Each from another network, as so many from one would not be opened.
        let client = if at % 2 == 0 {
            of_network(at.into())
        } else {
            Client { src: address(&format!("2001:db8:{at:x}::9")), ..v6() }
        };
        let mut payload: Vec<u8> = (0..next() % 60).map(|_| next() as u8).collect();
        if let Some(first) = payload.get_mut(1).filter(|_| at % 3 == 0) {
            *first = 16;
        }
        if payload.len() > 6 && at % 5 == 0 {
            payload[0] |= 0x80;
            payload[5] = 17;
            payload[6] = 16;
        }
        both.pass(&from(client, 1000 + at).udp(&payload));
    }
    assert_eq!(both.seen(CidEvent::Noted) + both.seen(CidEvent::Refused), 0);
    assert!(both.seen(CidEvent::Forged) > 100, "it was tried");
}
