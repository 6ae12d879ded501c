//! The kernel's and the native core with the same configuration.

use std::time::Duration;

use dwell_engine::{
    balance::{Balancer, config},
    response::{Key, Watch},
};
use dwell_probes::balancer::{Plane, PlaneOptions, Real, Vip, VipKey};
use dwell_testbed::skip::lacks_root;

use crate::options;

pub struct Both {
    pub plane: Plane,
    pub native: Balancer,
}

impl Both {
    pub fn new(options: PlaneOptions) -> Option<Both> {
        if lacks_root() {
            return None;
        }
        // The outer source address varies by a hash with this seed.
        let options = PlaneOptions { table_seed: 7, ..options };
        let watch = Watch {
            config: options.response.clone(),
            idle_timeout_ns: options.idle_timeout.as_nanos() as u64,
            seed: options.table_seed,
            ..Watch::default()
        };
        Some(Both { plane: Plane::load(&options).unwrap(), native: native(watch, 800) })
    }

    pub fn set_real(&mut self, number: u32, real: &Real) {
        self.plane.set_real(number, real).unwrap();
        self.native.set_real(number, real);
    }

    pub fn set_vip(&mut self, key: &VipKey, vip: &Vip, table: &[u32]) {
        self.plane.set_vip(key, vip).unwrap();
        self.plane.set_table(vip.number, table).unwrap();
        self.native.set_vip(key, vip, table);
    }
}

/// Returns the native core alone, with slots for this many connections.
pub fn native(watch: Watch, max_flows: u32) -> Balancer {
    let options = options();
    let config = config(options.hash_seed, options.outer_v4, options.outer_v6, Duration::from_secs(1));
    let watch = Watch { key: Key::FiveTuple, max_flows, ..watch };
    Balancer::new(&watch, config)
}
