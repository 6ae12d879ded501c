//! Tokens of QUIC, where a second reader of RFC 9000 finds them, and where they lead.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use dwell_engine::{
    balance::{
        Balancer, CidEvent, Forward, NextHop, Protocol, Real, Reason, ServerId, ServerState, Vip, VipKey, ZeroServer,
        ZeroVip, config, successor_entry,
    },
    measure::Method,
    quic_lb::{Config, TOKEN_PREFIX, TokenStamp},
    response::{Key, Watch},
};

use crate::{
    bytes::Bytes,
    frame::Link,
    seeds::{QUIC_KEY, datagram, endpoints, framed},
};

const SEED: u64 = 7;
const TABLE: [u32; 7] = [1, 2, 1, 2, 1, 2, 1];
const NOW_S: u32 = 1_000_000;

/// The IDs of the servers, and whether they get new connections.
const SERVERS: [(u32, u16, ServerState); 4] =
    [(1, 1, ServerState::Open), (2, 2, ServerState::Open), (3, 3, ServerState::Down), (4, 4, ServerState::Left)];

/// Reads the token of a first packet. The input is a byte of options, the number of a server and the lifetime of a token
/// (two bytes each), its age in seconds (four), and the payload of a datagram. The options are IPv6 (1), and a token that
/// was made with the key and these values (2), in place of the one that the payload has.
pub fn token(bytes: &[u8]) -> BTreeSet<Method> {
    let mut bytes = Bytes::new(bytes);
    let options = bytes.u8();
    let [server, lifetime_minutes] = [bytes.array(), bytes.array()].map(u16::from_le_bytes);
    let seconds = NOW_S.wrapping_sub(u32::from_le_bytes(bytes.array()));
    let mut payload = bytes.rest().to_vec();
    payload.truncate(1200);
    let layout = Config::own(0, QUIC_KEY).expect("a valid layout");
    let at = find(&payload);
    if let Some(at) = at.filter(|_| options & 2 != 0) {
        let stamp = TokenStamp { freshness: u64::from(seconds) << 16, lifetime_minutes };
        payload[at..at + TOKEN_PREFIX].copy_from_slice(&layout.encode_token(server, stamp));
    }
    let v6 = options & 1 != 0;
    let mut balancer = new_balancer(v6, &layout);
    let frame = framed(Link::Ethernet, 17, v6, &datagram(&payload)).data;
    let time_ns = u64::from(NOW_S) * 1_000_000_000;
    let (preview, _) = balancer.packet(&frame, 1, time_ns, true, |_| {});
    let (decision, _) = balancer.packet(&frame, 1, time_ns, false, |_| {});
    assert_eq!((preview.real, preview.reason), (decision.real, decision.reason));
    if decision.reason == Reason::Cid {
        return BTreeSet::new();
    }
    let expected = at.map(|at| follow(&layout, &payload[at..]));
    for event in EVENTS {
        let count = u64::from(expected.is_some_and(|(expected, _)| expected == event));
        assert_eq!(balancer.cid_events(event), count, "{event:?}, expected {expected:?}");
    }
    let real = expected.and_then(|(_, real)| real);
    assert_eq!(decision.reason == Reason::Token, real.is_some(), "{decision:?}, expected {expected:?}");
    assert!(real.is_none() || decision.real == real, "{decision:?}, expected {expected:?}");
    BTreeSet::new()
}

/// What may be counted of a token.
const EVENTS: [CidEvent; 7] = [
    CidEvent::Token,
    CidEvent::TokenLeft,
    CidEvent::TokenDown,
    CidEvent::TokenOld,
    CidEvent::TokenOther,
    CidEvent::TokenForged,
    CidEvent::TokenUnopened,
];

/// Returns where the token of an Initial begins that may have a server's block (RFC 9000 section 17.2.2, RFC 9369).
fn find(payload: &[u8]) -> Option<usize> {
    let (first, rest) = payload.split_first()?;
    let (version, rest) = rest.split_first_chunk()?;
    let is_initial = match u32::from_be_bytes(*version) {
        1 => first & 0xb0 == 0x80,
        0x6b33_43cf => first & 0xb0 == 0x90,
        _ => false,
    };
    let rest = skip_cid(skip_cid(rest)?)?;
    let octets = 1 << (rest.first()? >> 6);
    let (length, rest) = rest.split_at_checked(octets)?;
    let length = length.iter().fold(0, |value: u64, octet| value << 8 | u64::from(*octet));
    let length = length & ((1 << (8 * octets - 2)) - 1);
    let is_token = (TOKEN_PREFIX as u64..=rest.len() as u64).contains(&length);
    (is_initial && is_token).then(|| payload.len() - rest.len())
}

fn skip_cid(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first()?;
    (*length <= 20).then(|| rest.get(usize::from(*length)..))?
}

/// Returns what is counted of a token, and the backend to which it leads.
fn follow(layout: &Config, token: &[u8]) -> (CidEvent, Option<u32>) {
    if token[0] != 16 {
        return (CidEvent::TokenOther, None);
    }
    let Some((id, stamp)) = layout.decode_token(token) else {
        return (CidEvent::TokenForged, None);
    };
    let age_s = NOW_S.wrapping_sub((stamp.freshness >> 16) as u32).cast_signed();
    if age_s > 60 * i32::from(stamp.lifetime_minutes) || age_s < -SLACK_S {
        return (CidEvent::TokenOld, None);
    }
    let server = SERVERS.iter().find(|(_, server, _)| *server == id);
    match server.map_or((0, ServerState::Left), |(real, _, state)| (*real, *state)) {
        (real, ServerState::Open) => (CidEvent::Token, Some(real)),
        (_, ServerState::Down) => (CidEvent::TokenDown, None),
        (_, ServerState::Left) => (CidEvent::TokenLeft, Some(TABLE[successor_entry(id, SEED, TABLE.len())])),
    }
}

const SLACK_S: i32 = 5;

fn new_balancer(v6: bool, layout: &Config) -> Balancer {
    let watch = Watch { key: Key::FiveTuple, max_flows: 64, ..Watch::default() };
    let prefix = Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0);
    let config = config(SEED, Ipv4Addr::new(172, 16, 0, 0), prefix, Duration::from_secs(1));
    let mut balancer = Balancer::new(&watch, config);
    for (number, ..) in SERVERS {
        let next_hop = NextHop { interface: 2, destination: [6; 6], source: [8; 6], mtu: 1500 };
        let address = Ipv4Addr::new(10, 0, 1, number as u8).into();
        let real = Real::new(address, Some(next_hop), Forward::L2);
        balancer.set_real(number, &real);
    }
    let (_, vip) = endpoints(v6, (0, 0));
    let key = VipKey { address: vip.address, protocol: Protocol::Udp, port: Some(443) };
    balancer.set_vip(&key, &Vip { number: 1, zero_slot: Some(1), ..Vip::default() }, &TABLE);
    let mut zero = ZeroVip::new(vec![layout.clone()], []);
    zero.overload.slack = Duration::from_secs(SLACK_S.unsigned_abs().into());
    zero.servers = SERVERS.map(|(real, id, state)| ZeroServer { real, id: ServerId(id.into()), state }).to_vec();
    balancer.set_zero(&key, 1, &zero);
    balancer
}
