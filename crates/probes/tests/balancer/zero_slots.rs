//! Slots of VIPs that route by connection ID, as user space sets and clears them.

use dwell_engine::quic_lb::Config;
use dwell_probes::balancer::{Plane, PlaneOptions, Protocol, ServerId, VipKey, ZeroVip};
use dwell_testbed::skip::lacks_root;

use crate::{options, packets::v4};

const SERVERS: u32 = 3;

fn plane() -> Option<Plane> {
    if lacks_root() {
        return None;
    }
    let options = PlaneOptions { max_zero_vips: 2, max_zero_servers: SERVERS, ..options() };
    Some(Plane::load(&options).unwrap())
}

fn key() -> VipKey {
    VipKey { address: v4().dst, protocol: Protocol::Udp, port: Some(443) }
}

/// Returns the maximum number of servers, numbered from this one on, in all layouts.
fn servers(first: u32) -> ZeroVip {
    let own = Config::own(0, *b"the key of slots").unwrap();
    let others = (1..=6).map(|rotation| Config::new(rotation, 2 + rotation, 4, None).unwrap());
    let servers = (first..first + SERVERS).map(|real| (real, ServerId(u128::from(real) * 257)));
    ZeroVip::new([own].into_iter().chain(others).collect(), servers)
}

#[test]
fn root_the_maps_tell_whose_server_id_is_whose() {
    let Some(mut plane) = plane() else { return };
    plane.set_zero(&key(), 2, &servers(4)).unwrap();
    let told = plane.server_ids(2).unwrap();
    let ids = [(4, 4), (5, 5), (6, 6)].map(|(real, id)| (real, ServerId(id * 257)));
    assert_eq!(told, ids);
    assert_eq!(plane.server_ids(1).unwrap(), []);
}

#[test]
fn root_all_servers_may_change_at_once_and_those_of_no_vip_make_room() {
    let Some(mut plane) = plane() else { return };
    plane.set_zero(&key(), 1, &servers(1)).unwrap();
    plane.set_zero(&key(), 1, &servers(7)).unwrap();
    assert_eq!(plane.server_ids(1).unwrap()[0], (7, ServerId(7 * 257)));
    plane.set_zero(&key(), 2, &servers(1)).unwrap_err();
    plane.remove_zero_except(&[1]).unwrap();
    assert_eq!(plane.server_ids(1).unwrap().len(), SERVERS as usize);
    plane.remove_zero_except(&[2]).unwrap();
    assert_eq!(plane.server_ids(1).unwrap(), []);
    plane.set_zero(&key(), 2, &servers(1)).unwrap();
}
