//! The steps of zero-RTT steering in the core.
#![allow(unsafe_code)]

use std::{net::IpAddr, time::Duration};

use crate::{
    abi,
    balance::to_core,
    quic_lb::{Load, Stamp},
    steer::zero_rtt::MOST_SERVERS,
};

/// Returns a hash of a client's network.
pub(super) fn network(client: IpAddr) -> u64 {
    // SAFETY: a pure function.
    unsafe { abi::dwell_steer_network(&to_core(client)) }
}

/// Counts a packet of a client. `random` must be uniform.
pub(super) fn count(
    table: &mut abi::dwell_heavy,
    client: IpAddr,
    port: u16,
    random: u32,
    config: &abi::dwell_heavy_config,
) {
    // SAFETY: the core writes within the table and keeps no pointer.
    unsafe { abi::dwell_steer_heavy_count(table, &to_core(client), port, random, config) }
}

/// Returns whether a connection of the client is heavy.
pub(super) fn contains(table: &abi::dwell_heavy, client: IpAddr, config: &abi::dwell_heavy_config) -> bool {
    // SAFETY: the core reads within the table and keeps no pointer.
    unsafe { abi::dwell_steer_heavy_has(table, &to_core(client), config) != 0 }
}

/// Records the load report of a server. Returns the core's number of the result.
pub(super) fn update(
    server: &mut abi::dwell_server_load,
    stamp: Stamp,
    now: Duration,
    config: &abi::dwell_overload_config,
) -> u32 {
    let now_s = now.as_secs();
    // SAFETY: the core writes the one entry and keeps no pointer.
    unsafe { abi::dwell_steer_load_update(server, stamp.to_word(), now_s, now_s as u32, config) }
}

/// Returns the load of a server.
pub(super) fn load(server: &abi::dwell_server_load, now: Duration, config: &abi::dwell_overload_config) -> Load {
    // SAFETY: the core reads the one entry and keeps no pointer.
    Load::from_code(unsafe { abi::dwell_steer_load(server, now.as_secs() as u32, config) })
}

/// Returns the server to which a connection is diverted, given the number of servers, the server of the connection,
/// and the first server to consider among equals.
pub(super) fn divert(
    servers: &[abi::dwell_server_load],
    (count, server, from): (u32, usize, usize),
    now: Duration,
    config: &abi::dwell_overload_config,
) -> Option<usize> {
    assert!(servers.len() >= MOST_SERVERS, "the core may read all entries");
    let mut least = 0;
    // SAFETY: there are as many entries as the core may read.
    let diverts = unsafe {
        abi::dwell_steer_divert(
            servers.as_ptr(),
            count,
            server as u32,
            from as u32,
            now.as_secs() as u32,
            config,
            &mut least,
        )
    };
    (diverts != 0).then_some(least as usize)
}
