//! Tokens of QUIC that name a server, in the kernel and natively.

use std::sync::atomic::{AtomicU64, Ordering};

use dwell_engine::quic_lb::{Config, Stamp, TokenStamp};
use dwell_probes::balancer::{CidEvent, HeavyScope, Reason, ServerState, Vip, ZeroVip};

use crate::{
    packets::{Client, address, numbers, v4, v6},
    parity::Both,
    zero_rtt::{IDS, KEY, MS, NEXT_KEY, OTHER, OWN, THIRD, from, key, now_s, of_network, short, zero_vip},
};

const DAY: u16 = 24 * 60;

fn own() -> Config {
    Config::own(0, KEY).unwrap()
}

/// Returns an unused token of a server, which was issued at this Unix time.
fn issued(config: &Config, id: u16, seconds: u64, lifetime_minutes: u16) -> Vec<u8> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let freshness = seconds << 16 | NEXT.fetch_add(1, Ordering::Relaxed);
    let prefix = config.encode_token(id, TokenStamp { freshness, lifetime_minutes });
    [&prefix[..], &[0xee; 46]].concat()
}

fn token(id: u16) -> Vec<u8> {
    issued(&own(), id, now_s(), DAY)
}

/// The parts of a long header.
#[derive(Clone)]
struct Header<'a> {
    first: u8,
    version: u32,
    destination: &'a [u8],
    source: &'a [u8],
    /// The length of the token as it is written.
    length: Vec<u8>,
    token: &'a [u8],
}

impl Header<'_> {
    fn of(token: &[u8]) -> Header<'_> {
        let length = (0x4000 | token.len() as u16).to_be_bytes().to_vec();
        Header { first: 0xc3, version: 1, destination: &[0x5a; 20], source: &[7; 5], length, token }
    }

    fn payload(&self) -> Vec<u8> {
        let mut payload = vec![self.first];
        payload.extend(self.version.to_be_bytes());
        for id in [self.destination, self.source] {
            payload.push(id.len() as u8);
            payload.extend(id);
        }
        payload.extend(&self.length);
        payload.extend(self.token);
        payload
    }

    fn sent_by(&self, client: &Client) -> Vec<u8> {
        client.udp(&[self.payload(), vec![0; 100]].concat())
    }
}

/// Returns the first packet of a new connection.
fn initial(client: &Client, token: &[u8]) -> Vec<u8> {
    Header::of(token).sent_by(client)
}

#[test]
fn root_a_token_leads_to_its_server_from_any_address() {
    let Some(mut both) = Both::quic(&zero_vip()) else {
        return;
    };
    for (real, id) in IDS {
        for (at, client) in [v4(), v6(), of_network(5), of_network(6)].into_iter().enumerate() {
            let client = from(client, 7000 + id % 100 + at as u16);
            let first = initial(&client, &token(id));
            assert_eq!(both.pass(&first), (Some(real), Reason::Token));
            // The rest of the first flight follows: Initials have the token too, and early data has none.
            assert_eq!(both.pass(&first), (Some(real), Reason::Connection));
            let early = Header { first: 0xd3, length: vec![0x40, 50], ..Header::of(&[]) };
            assert_eq!(both.pass(&early.sent_by(&client)), (Some(real), Reason::Connection));
        }
    }
    assert_eq!(both.seen(CidEvent::Token), 24);
}

#[test]
fn root_the_token_is_found_behind_connection_ids_of_any_length_in_versions_1_and_2() {
    let Some(mut both) = Both::quic(&zero_vip()) else {
        return;
    };
    let (long, brief) = (token(7), token(7)[..17].to_vec());
    let header = Header::of(&long);
    let found = [
        ("version 1", header.clone()),
        ("a fixed bit of 0", Header { first: 0x83, ..header.clone() }),
        ("version 2", Header { first: 0xd3, version: 0x6b33_43cf, ..header.clone() }),
        ("no source ID", Header { source: &[], ..header.clone() }),
        ("IDs of 20 and 8", Header { destination: &[9; 8], source: &[8; 20], ..header.clone() }),
        ("no ID at all", Header { destination: &[], source: &[], ..header.clone() }),
        ("a length of one octet", Header { length: vec![63], ..header.clone() }),
        ("a length of four octets", Header { length: vec![0x80, 0, 0, 63], ..header.clone() }),
        ("a length of eight octets", Header { length: vec![0xc0, 0, 0, 0, 0, 0, 0, 63], ..header.clone() }),
        ("nothing behind the block", Header { length: vec![17], token: &brief, ..header.clone() }),
    ];
    for (at, (name, header)) in (0..).zip(found) {
        assert_eq!(both.pass(&header.sent_by(&from(v4(), 7100 + at))), (Some(THIRD), Reason::Token), "{name}");
    }
    let [over, far_over] = [vec![0x45, 0], vec![0x80, 1, 0, 63]];
    let absent = [
        ("0-RTT", Header { first: 0xd3, ..header.clone() }),
        ("Handshake", Header { first: 0xe3, ..header.clone() }),
        ("type 0 of version 2", Header { version: 0x6b33_43cf, ..header.clone() }),
        ("another version", Header { version: 0xff00_001d, ..header.clone() }),
        ("a longer source ID", Header { source: &[8; 21], ..header.clone() }),
        ("no token", Header { length: vec![0], ..header.clone() }),
        ("a token of 16 octets", Header { length: vec![16], ..header.clone() }),
        ("a token beyond the datagram", Header { length: over, ..header.clone() }),
        ("a token far beyond the datagram", Header { length: far_over, ..header.clone() }),
        ("the longest length", Header { length: vec![0xff; 8], ..header.clone() }),
    ];
    for (at, (name, header)) in (0..).zip(absent) {
        assert_eq!(both.pass(&header.sent_by(&from(v4(), 7200 + at))), (Some(OWN), Reason::New), "{name}");
    }
    // Cut off anywhere, at the end of the datagram or of the frame.
    let payload = header.payload();
    for bytes in 26..payload.len() - 46 {
        assert_eq!(both.pass(&from(v4(), 7300 + bytes as u16).udp(&payload[..bytes])), (Some(OWN), Reason::New));
    }
    assert_eq!(both.seen(CidEvent::Token), 10);
}

#[test]
fn root_a_token_that_expired_or_was_forged_is_as_none() {
    let Some(mut both) = Both::quic(&zero_vip()) else {
        return;
    };
    let mut forged = token(7);
    forged[5] ^= 1;
    let cid = own().encode_stamped(7, Stamp::from_word(now_s() << 32 | 1));
    let as_token = [&cid[..], &[0xee; 46]].concat();
    let cases = [
        (issued(&own(), 7, now_s() - 590, 10), CidEvent::Token),
        (issued(&own(), 7, now_s() - 610, 10), CidEvent::TokenOld),
        (issued(&own(), 7, now_s() + 60, 10), CidEvent::TokenOld),
        (issued(&own(), 7, 0, u16::MAX), CidEvent::TokenOld),
        (forged, CidEvent::TokenForged),
        (as_token, CidEvent::TokenForged),
        (issued(&Config::own(0, NEXT_KEY).unwrap(), 7, now_s(), DAY), CidEvent::TokenForged),
        (issued(&Config::own(5, KEY).unwrap(), 7, now_s(), DAY), CidEvent::TokenOther),
        (vec![0xff; 63], CidEvent::TokenOther),
        ([&[15][..], &[1; 62]].concat(), CidEvent::TokenOther),
    ];
    for (at, (token, event)) in cases.into_iter().enumerate() {
        let before = both.seen(event);
        let client = from(v4(), 7400 + at as u16);
        let expected = if event == CidEvent::Token { (Some(THIRD), Reason::Token) } else { (Some(OWN), Reason::New) };
        assert_eq!(both.pass(&initial(&client, &token)), expected, "{at}: {event:?}");
        assert_eq!(both.seen(event), before + 1, "{at}: {event:?}");
    }
    // Nor does a token pass for a connection ID.
    assert_eq!(both.pass(&short(&v4(), &token(7)[..17])), (None, Reason::Unroutable));
}

#[test]
fn root_tokens_of_both_keys_count_while_keys_are_rotated() {
    let next = Config::own(1, NEXT_KEY).unwrap();
    let layouts = vec![own(), next.clone()];
    let Some(mut both) = Both::quic(&ZeroVip { layouts, ..zero_vip() }) else {
        return;
    };
    for (at, config) in (0..).zip([own(), next.clone()]) {
        let old = initial(&from(v4(), 7500 + at), &issued(&config, 7, now_s(), DAY));
        assert_eq!(both.pass(&old), (Some(THIRD), Reason::Token));
    }
    both.set_zero(&ZeroVip { layouts: vec![next], ..zero_vip() });
    assert_eq!(both.pass(&initial(&from(v4(), 7502), &token(7))), (Some(OWN), Reason::New));
    assert_eq!(both.seen(CidEvent::TokenOther), 1);
}

/// All clients of a server that left get the same one in its place, which may have its sessions.
#[test]
fn root_the_clients_of_a_server_that_left_have_one_successor() {
    let Some(mut both) = Both::quic(&zero_vip()) else {
        return;
    };
    mix(&mut both);
    let mut successors = |id: u16, port: u16| {
        let clients = (0..20).map(|at| from(of_network(at), port));
        let mut all: Vec<_> = clients.map(|client| both.pass(&initial(&client, &token(id)))).collect();
        assert!(all.iter().all(|(_, reason)| *reason == Reason::Token), "{all:?}");
        all.dedup();
        assert_eq!(all.len(), 1, "{all:?}");
        all[0].0.unwrap()
    };
    // Such servers were never there, or have been removed.
    let gone: Vec<u32> = (0..8).map(|id| successors(0x4440 + id, 7600 + id)).collect();
    assert!(gone.contains(&OWN) && gone.contains(&OTHER), "servers have different successors: {gone:?}");
    assert_eq!(successors(7, 7610), THIRD);
    assert_eq!(both.seen(CidEvent::TokenLeft), 160);
    // A server that is drained gets no new connections, whether or not it is up.
    both.set_zero(&third_is(ServerState::Left));
    let (real, reason) = both.pass(&initial(&from(v4(), 7620), &token(7)));
    assert_eq!(reason, Reason::Token);
    assert_ne!(real, Some(THIRD));
    both.set_server(THIRD, true);
    assert_eq!(both.pass(&initial(&from(v4(), 7621), &token(7))), (real, Reason::Token));
    both.set_server(THIRD, false);
    both.set_zero(&zero_vip());
    assert_eq!(both.pass(&initial(&from(v4(), 7622), &token(7))), (Some(THIRD), Reason::Token));
    assert_eq!(both.seen(CidEvent::TokenLeft), 162);
}

/// Nobody has the sessions of a server that has crashed, so that its clients need not all go to one.
#[test]
fn root_the_clients_of_a_server_that_is_down_are_spread_as_new_ones() {
    let Some(mut both) = Both::quic(&zero_vip()) else {
        return;
    };
    mix(&mut both);
    let check_spread = |both: &mut Both, port: u16| {
        let clients = (0..20).map(|at| from(of_network(at), port));
        let all: Vec<_> = clients.map(|client| both.pass(&initial(&client, &token(7)))).collect();
        assert!(all.iter().all(|(_, reason)| *reason == Reason::New), "{all:?}");
        assert!([OWN, OTHER].iter().all(|real| all.contains(&(Some(*real), Reason::New))), "{all:?}");
    };
    // The kernel knows it by the backend at first.
    both.set_server(THIRD, true);
    check_spread(&mut both, 7630);
    both.set_zero(&third_is(ServerState::Down));
    check_spread(&mut both, 7631);
    both.set_server(THIRD, false);
    check_spread(&mut both, 7632);
    both.set_zero(&zero_vip());
    assert_eq!(both.pass(&initial(&from(v4(), 7633), &token(7))), (Some(THIRD), Reason::Token));
    assert_eq!((both.seen(CidEvent::TokenDown), both.seen(CidEvent::TokenLeft)), (60, 0));
}

/// Gives half of the addresses to each of two servers.
fn mix(both: &mut Both) {
    let vip = Vip { number: 1, zero_slot: Some(1), ..Vip::default() };
    let mixed: Vec<u32> = (0..31).map(|at| [OWN, OTHER][at % 2]).collect();
    both.set_vip(&key(&v4()), &vip, &mixed);
}

fn third_is(state: ServerState) -> ZeroVip {
    let mut zero = zero_vip();
    zero.servers[2].state = state;
    zero
}

#[test]
fn root_a_heavy_client_with_a_token_of_an_overloaded_server_is_diverted() {
    let Some(mut both) = Both::quic(&zero_vip()) else {
        return;
    };
    for (id, wait) in [(7, MS(500)), (0x0101, MS(100)), (0xbeef, MS(3))] {
        let cid = both.cid(id, wait);
        both.pass(&short(&v4(), &cid));
    }
    assert_eq!(both.pass(&initial(&from(v4(), 7700), &token(7))), (Some(OTHER), Reason::Diverted));
    // From a new address nobody knows that the client is heavy.
    let moved = Client { src: address("203.0.113.99"), ..v4() };
    assert_eq!(both.pass(&initial(&moved, &token(7))), (Some(THIRD), Reason::Token));
    // Where all count as heavy, that does not matter.
    both.set_zero(&ZeroVip { heavy_scope: HeavyScope::All, ..zero_vip() });
    assert_eq!(both.pass(&initial(&from(moved, 7701), &token(7))), (Some(OTHER), Reason::Diverted));
}

/// Forged tokens are decrypted at the limited rate of forged connection IDs, which other networks do not notice.
#[test]
fn root_forged_tokens_have_a_budget() {
    let Some(mut both) = Both::quic(&zero_vip()) else {
        return;
    };
    check_budget(&mut both);
    both.plane.replay_packet(&initial(&of_network(2), &token(7))).unwrap();
    assert_eq!(both.seen(CidEvent::Token), 1);
}

/// Who has an old token can send it for ever, from anywhere: it is no proof that there are clients in a network. Nor is it
/// forged: clients keep tokens for longer than they are good.
#[test]
fn root_old_tokens_neither_spend_nor_raise_the_budget_of_their_network() {
    const OLD: u16 = 600;
    let Some(mut both) = Both::quic(&zero_vip()) else {
        return;
    };
    let old = issued(&own(), 7, now_s() - 610, 10);
    for port in 0..OLD {
        both.plane.replay_packet(&initial(&from(of_network(1), 10_000 + port), &old)).unwrap();
    }
    assert_eq!((both.seen(CidEvent::TokenOld), both.seen(CidEvent::TokenUnopened)), (OLD.into(), 0));
    check_budget(&mut both);
}

/// Sends forged tokens from a network that is not known.
fn check_budget(both: &mut Both) {
    const FORGED: u64 = 1000;
    let began_s = now_s();
    for count in 0..FORGED {
        let forged = [&[16][..], &count.to_be_bytes(), &[0x77; 54]].concat();
        both.plane.replay_packet(&initial(&from(of_network(1), count as u16), &forged)).unwrap();
    }
    let seconds = now_s() - began_s + 2;
    let (opened, unopened) = (both.seen(CidEvent::TokenForged), both.seen(CidEvent::TokenUnopened));
    assert!((64..=64 * seconds).contains(&opened), "{opened} in {seconds} s");
    assert_eq!(opened + unopened, FORGED);
}

/// Damaged Initials: both cores agree on them.
#[test]
fn root_kernel_and_native_agree_about_damaged_tokens() {
    let Some(mut both) = Both::quic(&zero_vip()) else {
        return;
    };
    let mut next = numbers();
    for at in 0..300 {
        let token = token(IDS[at % 3].1);
        let source = vec![3; next() % 24];
        let mut payload = Header { source: &source, ..Header::of(&token) }.payload();
        for _ in 0..next() % 3 {
            let place = next() % payload.len();
            payload[place] = next() as u8;
        }
        payload.truncate(7 + next() % (2 * payload.len()));
        // Each from another network, as so many from one would not be opened.
        both.pass(&from(of_network(at as u32), 1000).udp(&payload));
    }
    assert!(both.seen(CidEvent::Token) > 20, "it was tried");
}
