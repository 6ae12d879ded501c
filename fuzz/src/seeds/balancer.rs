//! Frames to a VIP, and of others.

use super::{endpoints, framed, query};
use crate::frame::{self, Link};

/// A connection, datagrams, pings and an ICMP error, for each way of sending them on.
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
        let mut frames: Vec<Vec<u8>> = [2, 16, 24, 17, 4]
            .map(|flags| ethernet(6, v6, &tcp(flags)))
            .to_vec();
        frames.extend([
            ethernet(6, v6, &long),
            ethernet(17, v6, &query()),
            ethernet(icmp, v6, &ping),
            ethernet(icmp, v6, &unreachable),
            framed(Link::Tagged, 6, v6, &tcp(2)).data,
        ]);
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
