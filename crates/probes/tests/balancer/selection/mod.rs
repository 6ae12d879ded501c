//! Which backend a new connection gets, in the native core, where time is an argument, and in the kernel.

mod choices;
mod reuse;
mod sampling;

use dwell_probes::balancer::{Protocol, VipKey};

use crate::packets::v4;

const MS: u64 = 1_000_000;
/// Backends alternate in the table.
const TABLE: [u32; 7] = [1, 2, 1, 2, 1, 2, 1];

fn key() -> VipKey {
    VipKey { address: v4().dst, protocol: Protocol::Tcp, port: Some(80) }
}
