//! Seeds for the packet parser: each link type and encapsulation.

use super::{framed, query, segment};
use crate::frame::{self, Link};

pub(super) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let seed = |link: u8, data: &[u8]| [&[0, 0, 0, link, 0, 1][..], data].concat();
    let (ethernet, raw) = (Link::Ethernet, Link::Raw);
    let tcp4 = framed(raw, 6, false, &segment(false)).data;
    let dns6 = framed(raw, 17, true, &query()).data;
    // Indexes into LINK_TYPES: NULL, Ethernet, raw, SLL, SLL2.
    let (null, eth, bare, sll, sll2) = (0, 1, 4, 6, 9);
    let typed = |ethertype: [u8; 2], rest: &[u8]| [&[2; 12][..], &ethertype, rest].concat();
    // `inner` behind an IPv4 or IPv6 header.
    let within = |proto, v6, inner: &[u8]| framed(ethernet, proto, v6, inner).data;
    let echo = [8, 0, 0, 0, 0, 7, 0, 1];
    let quic = frame::udp((50_000, 443), &[0xc0, 0, 0, 0, 1, 8, 0]);
    let mut options = tcp4.clone();
    options[0] = 0x46;
    options.splice(20..20, [1, 1, 1, 0]);
    vec![
        ("tcp4", seed(eth, &within(6, false, &segment(false)))),
        ("tcp6", seed(eth, &within(6, true, &segment(false)))),
        ("raw", seed(bare, &tcp4)),
        ("options", seed(bare, &options)),
        ("null", seed(null, &[&[2, 0, 0, 0][..], &tcp4].concat())),
        ("sll", seed(sll, &[&[0; 14][..], &[8, 0], &tcp4].concat())),
        ("sll2", seed(sll2, &[&[0x86, 0xdd][..], &[0; 18], &dns6].concat())),
        ("unknown-link", seed(200, &tcp4)),
        ("arp", seed(eth, &typed([8, 6], &[0; 28]))),
        ("icmp4", seed(eth, &within(1, false, &echo))),
        ("icmp6", seed(eth, &within(58, true, &[128, 0, 0, 0, 0, 7, 0, 1]))),
        ("dns4", seed(eth, &within(17, false, &query()))),
        ("dns6", seed(bare, &dns6)),
        ("quic", seed(eth, &within(17, false, &quic))),
        ("vlans", seed(eth, &typed([0x88, 0xa8], &[&[0, 1, 0x81, 0, 0, 2, 8, 0][..], &tcp4].concat()))),
        ("pppoe", seed(eth, &typed([0x88, 0x64], &[&[0x11, 0, 0, 1, 0, 60, 0, 0x57][..], &dns6].concat()))),
        ("mpls", seed(eth, &typed([0x88, 0x47], &[&[0, 0, 0, 64, 0, 0, 1, 64][..], &tcp4].concat()))),
        ("pppoe4", seed(eth, &typed([0x88, 0x64], &[&[0x11, 0, 0, 1, 0, 60, 0, 0x21][..], &tcp4].concat()))),
        (
            // An inner header beyond the depth that the parser reads.
            "far",
            seed(eth, &within(60, true, &[&[4, 140][..], &[0; 1126], &tcp4].concat())),
        ),
        ("4in4", seed(eth, &within(4, false, &tcp4))),
        ("6in4", seed(eth, &within(41, false, &dns6))),
        ("gre", seed(eth, &within(47, false, &[&[0xb0, 0, 8, 0][..], &[0; 12], &tcp4].concat()))),
        ("gre-bridged", seed(eth, &within(47, false, &[&[0, 0, 0x65, 0x58][..], &typed([8, 0], &tcp4)].concat()))),
        (
            "extensions",
            seed(
                eth,
                &within(
                    0,
                    true,
                    &[
                        &[43, 0, 0, 0, 0, 0, 0, 0][..],
                        &[60, 0, 0, 0, 0, 0, 0, 0],
                        &[51, 0, 0, 0, 0, 0, 0, 0],
                        &[44, 1, 0, 0, 0, 0, 0, 0],
                        &[17, 0, 0, 0, 0, 0, 0, 0],
                        &query(),
                    ]
                    .concat(),
                ),
            ),
        ),
        ("fragment", seed(eth, &within(44, true, &[&[17, 0, 0, 9, 0, 0, 0, 0][..], &query()].concat()))),
    ]
}
