//! Which bytes of which flows are stamped.

use super::{Direction, Layer};
use crate::{abi, rtt::FilterRule};

/// What to stamp.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// One byte in so many of a flow is stamped: a power of two from 64 to 2^24;
    /// others are rounded up to one.
    pub sample_bytes: u32,
    /// One end of a flow has this port.
    pub port: Option<u16>,
    /// Which flows are followed.
    pub filter: Vec<FilterRule>,
    /// The number of the network namespace that is looked at; `None` for all.
    pub namespace: Option<u32>,
    /// Bytes that may be on their way through the layers at once, over all flows,
    /// in units of `sample_bytes`: rounded up to a power of two.
    pub rows: u32,
    /// Which layers are stamped.
    pub layers: Vec<Layer>,
    /// Count each flow by itself too.
    pub flows: bool,
    /// Tell of each byte that went all the way.
    pub passages: bool,
    /// Count the bytes that TCP sent again, or that came in again, apart.
    pub again: bool,
    /// At most one byte of a flow in such a time; 0 for all on the grid. Each host
    /// takes others then.
    pub pace_ns: u64,
    /// Only the flows of chosen processes.
    pub processes: Option<PidNamespace>,
    /// Only the flows of processes of a chosen cgroup, or also those.
    pub cgroup: bool,
    /// Makes hashes of flows unpredictable.
    pub seed: u64,
}

/// The PID namespace that numbers of processes are of: the device and inode of
/// /proc/self/ns/pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PidNamespace {
    /// Its device.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            sample_bytes: 1 << 14,
            port: None,
            filter: Vec::new(),
            namespace: None,
            rows: 1 << 17,
            layers: Layer::ALL.to_vec(),
            flows: false,
            passages: false,
            again: false,
            pace_ns: 0,
            processes: None,
            cgroup: false,
            seed: 0,
        }
    }
}

impl Config {
    /// Rows of the table: a power of two.
    pub fn rows(&self) -> u32 {
        self.rows.clamp(1 << 6, 1 << 24).next_power_of_two()
    }

    /// One byte in so many really is stamped.
    pub fn sample_bytes(&self) -> u32 {
        self.sample_bytes.clamp(1 << 6, 1 << 24).next_power_of_two()
    }

    /// The first layer that is stamped in a direction: its total begins there.
    pub fn first(&self, direction: Direction) -> Layer {
        let layers = self.layers.iter().copied();
        layers.filter(|layer| layer.direction() == direction).min().unwrap_or(match direction {
            Direction::Tx => Layer::TxSocket,
            Direction::Rx => Layer::RxDriver,
        })
    }

    /// As the core takes it.
    pub fn to_core(&self) -> abi::dwell_stack_program {
        let shift = self.sample_bytes().trailing_zeros();
        // Half of the grid bytes that there are: see core/stack/layers.h.
        let cycle = 1 << (32 - shift - 1);
        abi::dwell_stack_program {
            filter: FilterRule::all_to_core(&self.filter),
            seed: self.seed,
            netns: self.namespace.unwrap_or(0),
            row_mask: self.rows() - 1,
            cycle_mask: cycle.min(self.rows()) - 1,
            hooked: self.layers.iter().fold(0, |bits, layer| bits | 1 << *layer as u32),
            port: self.port.unwrap_or(0),
            shift: shift as u8,
            tx_first: self.first(Direction::Tx) as u8,
            rx_first: self.first(Direction::Rx) as u8,
            flows: self.flows.into(),
            traces: self.passages.into(),
            again: self.again.into(),
            pace_ns: self.pace_ns,
            pidns_dev: self.processes.map_or(0, |namespace| namespace.device),
            pidns_ino: self.processes.map_or(0, |namespace| namespace.inode),
            chosen: self.chosen(),
            reserved: [0; 7],
        }
    }

    fn chosen(&self) -> u8 {
        let kinds = [(self.processes.is_some(), abi::DWELL_CHOSEN_PROCESS), (self.cgroup, abi::DWELL_CHOSEN_CGROUP)];
        let bits = kinds.map(|(is_chosen, bit)| if is_chosen { bit as u8 } else { 0 });
        bits[0] | bits[1]
    }
}
