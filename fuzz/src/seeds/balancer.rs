//! Seeds for the balancer: frames to a VIP and to other addresses.

use dwell_engine::quic_lb::{Config, Load, Stamp, TokenStamp};

use super::{endpoints, framed, query};
use crate::frame::{self, Link};

/// Key of the connection IDs.
pub const QUIC_KEY: [u8; 16] = *b"a key to be hit.";

/// A connection, datagrams, pings and an ICMP error, for each forwarding method.
pub(super) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let tcp = |flags| frame::tcp((40_000, 80), 5, 6, flags, 1000, &[]);
    let ethernet = |proto, v6, l4: &[u8]| framed(Link::Ethernet, proto, v6, l4).data;
    let (client, vip) = endpoints(false, (0, 0));
    let answer = frame::tcp((80, 40_000), 5, 6, 16, 1000, &[]);
    let quoted = frame::ip(Link::Raw, 6, vip, client, &answer, answer.len()).data;
    let unreachable = [&[3, 4, 0, 0, 0, 0, 5, 0][..], &quoted].concat();
    let long = [tcp(24), vec![0; 200]].concat();
    let frames = |v6: bool| {
        let (icmp, ping) = match v6 {
            false => (1, [8, 0, 0, 0, 0, 7, 0, 1]),
            true => (58, [128, 0, 0, 0, 0, 7, 0, 1]),
        };
        let mut frames: Vec<Vec<u8>> = [2, 16, 24, 17, 4].map(|flags| ethernet(6, v6, &tcp(flags))).to_vec();
        frames.extend([
            ethernet(6, v6, &long),
            ethernet(17, v6, &query()),
            ethernet(icmp, v6, &ping),
            ethernet(icmp, v6, &unreachable),
            framed(Link::Tagged, 6, v6, &tcp(2)).data,
        ]);
        frames.extend(quic().iter().map(|l4| ethernet(17, v6, l4)));
        frames
    };
    let input = |choices: u8, v6: bool| {
        let mut input = vec![choices];
        for frame in frames(v6) {
            input.extend((frame.len() as u16).to_le_bytes());
            input.extend(frame);
        }
        input
    };
    [
        ("ipip", 0, false),
        ("ipip-6in4", 0, true),
        ("gue", 1, false),
        ("gue-6in6", 5, true),
        ("l2", 2, true),
        ("4in6", 4, false),
        ("down", 8, false),
        ("small", 16, false),
        ("small-6", 20, true),
    ]
    .map(|(name, choices, v6)| (name, input(choices, v6)))
    .to_vec()
}

/// QUIC packets with short and long headers, with connection IDs of servers in three layouts and with a foreign ID, and
/// Initials with tokens: of a server, of none, expired, forged, and one of versions 1 and 2 each.
fn quic() -> Vec<Vec<u8>> {
    let own = Config::own(0, QUIC_KEY).expect("a valid layout");
    let stamp = |second: u64, wait| Stamp { freshness: second << 16, load: Load::from_code(wait) };
    let other = |layout: Config| {
        let server = [vec![0; usize::from(layout.server_id_bytes()) - 1], vec![2]].concat();
        let nonce = vec![7; layout.nonce_bytes().into()];
        let cid = layout.encode(&server, &nonce).expect("lengths as configured");
        cid.to_vec()
    };
    let cids = [
        own.encode_stamped(1, stamp(1, 30_000)).to_vec(),
        own.encode_stamped(2, stamp(2, 5)).to_vec(),
        own.encode_stamped(9, stamp(3, 5)).to_vec(),
        other(Config::new(1, 3, 4, None).expect("a valid layout")),
        other(Config::new(2, 9, 10, Some(QUIC_KEY)).expect("a valid layout")),
        vec![0xff; 8],
    ];
    let short = |cid: &Vec<u8>| [&[0x40][..], cid, &[9; 20]].concat();
    let long = |cid: &Vec<u8>| [&[0xc0, 0, 0, 0, 1, cid.len() as u8][..], cid, &[9; 20]].concat();
    let token =
        |server, lifetime_minutes| own.encode_token(server, TokenStamp { freshness: 1 << 16, lifetime_minutes });
    let initial = |version: u32, first: u8, token: &[u8]| {
        let ids = [&[8][..], &[3; 8], &[2, 7, 7]].concat();
        let length = (0x4000 | (token.len() as u16 + 9)).to_be_bytes();
        [&[first][..], &version.to_be_bytes(), &ids, &length, token, &[9; 20]].concat()
    };
    let tokens = [
        initial(1, 0xc0, &token(2, 1000)),
        initial(0x6b33_43cf, 0xd0, &token(1, 1000)),
        initial(1, 0xc0, &token(9, 1000)),
        initial(1, 0xc0, &token(2, 0)),
        initial(1, 0xc0, &[0x10; 17]),
    ];
    let payloads = cids.iter().flat_map(|cid| [short(cid), long(cid)]).chain(tokens);
    payloads.map(|payload| datagram(&payload)).collect()
}

/// Returns a UDP datagram to the port of QUIC.
pub(crate) fn datagram(payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u16 + 8).to_be_bytes();
    let ports = [40_000u16.to_be_bytes(), 443u16.to_be_bytes()].concat();
    [&ports[..], &length, &[0, 0], payload].concat()
}

/// First packets with tokens: of each kind of server, and with each way to write their length.
pub(super) fn tokens() -> Vec<(&'static str, Vec<u8>)> {
    let seed = |options: u8, server: u16, age_s: i32, initial: Initial| {
        let minutes = 10_u16.to_le_bytes();
        [&[options][..], &server.to_le_bytes(), &minutes, &age_s.to_le_bytes(), &initial.payload()].concat()
    };
    let plain = Initial { first: 0xc3, version: 1, ids: [8, 5], length: &[0x40, 63] };
    let version_2 = Initial { first: 0xd3, version: 0x6b33_43cf, ..plain };
    vec![
        ("open", seed(2, 1, 0, plain)),
        ("down", seed(2, 3, 0, plain)),
        ("left", seed(3, 4, 599, plain)),
        ("unknown", seed(2, 9, -4, plain)),
        ("old", seed(2, 1, 601, plain)),
        ("early", seed(3, 1, -6, plain)),
        ("forged", seed(0, 1, 0, plain)),
        ("version-2", seed(2, 2, 0, version_2)),
        ("handshake", seed(2, 2, 0, Initial { first: 0xe3, ..plain })),
        ("one-octet", seed(2, 2, 0, Initial { length: &[17], ..plain })),
        ("four-octets", seed(2, 2, 0, Initial { length: &[0x80, 0, 0, 40], ..plain })),
        ("eight-octets", seed(2, 2, 0, Initial { length: &[0xc0, 0, 0, 0, 0, 0, 0, 63], ..plain })),
        ("too-long", seed(2, 2, 0, Initial { length: &[0x41, 0], ..plain })),
        ("long-ids", seed(2, 2, 0, Initial { ids: [20, 20], ..plain })),
        ("no-ids", seed(2, 2, 0, Initial { ids: [0, 0], ..plain })),
    ]
}

/// An Initial with this many octets of connection IDs, and this length of its token.
#[derive(Clone, Copy)]
struct Initial {
    first: u8,
    version: u32,
    ids: [u8; 2],
    length: &'static [u8],
}

impl Initial {
    fn payload(self) -> Vec<u8> {
        let ids = self.ids.map(|octets| [vec![octets], vec![0x5a; octets.into()]].concat()).concat();
        [&[self.first][..], &self.version.to_be_bytes(), &ids, self.length, &[0x10; 100]].concat()
    }
}
