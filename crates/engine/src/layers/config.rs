//! Configuration: which bytes of which flows are stamped.

use super::{Direction, Layer};
use crate::{abi, filter::Filter};

/// What to stamp.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// One byte in `sample_bytes` of a flow is stamped: a power of two from 64 to 2^24. Other values are rounded up to
    /// one.
    pub sample_bytes: u32,
    /// Only flows with this port at one end are followed.
    pub port: Option<u16>,
    /// The flows to follow.
    pub filter: Filter,
    /// The number of the network namespace to observe; `None` for all of the host, whose flows are told apart.
    pub namespace: Option<u32>,
    /// The number of bytes, over all flows, that may be on their way through the layers at once, in units of
    /// `sample_bytes`: rounded up to a power of two.
    pub rows: u32,
    /// The layers to stamp.
    pub layers: Vec<Layer>,
    /// Count each flow separately as well.
    pub flows: bool,
    /// Report the trace of each byte that passed all layers.
    pub traces: bool,
    /// Count retransmitted bytes, and bytes that arrived again, separately.
    pub again: bool,
    /// The least time between two stamped bytes of a flow, in nanoseconds; 0 stamps each byte on the sampling grid.
    /// With a limit, the two hosts stamp different bytes.
    pub pace_ns: u64,
    /// Follow only flows of selected processes, whose numbers are of this PID namespace.
    pub processes: Option<PidNamespace>,
    /// Follow only flows of processes of a selected cgroup, in addition to `processes`.
    pub cgroup: bool,
    /// Packets leave IP where their first device queues them, as no hook of IP is used.
    pub ip_at_queue: bool,
    /// Makes the hashes of flows unpredictable.
    pub seed: u64,
}

/// The PID namespace to which process numbers belong: the device and inode of /proc/self/ns/pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PidNamespace {
    /// The device number.
    pub device: u64,
    /// The inode number.
    pub inode: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            sample_bytes: 1 << 14,
            port: None,
            filter: Filter::default(),
            namespace: None,
            rows: 1 << 17,
            layers: Layer::ALL.to_vec(),
            flows: false,
            traces: false,
            again: false,
            pace_ns: 0,
            processes: None,
            cgroup: false,
            ip_at_queue: false,
            seed: 0,
        }
    }
}

impl Config {
    /// Returns the number of rows of the table: a power of two.
    pub fn rows(&self) -> u32 {
        self.rows.clamp(1 << 6, 1 << 24).next_power_of_two()
    }

    /// Returns the actual sampling interval in bytes.
    pub fn sample_bytes(&self) -> u32 {
        self.sample_bytes.clamp(1 << 6, 1 << 24).next_power_of_two()
    }

    /// Returns the first layer that is stamped in a direction. The total starts there.
    pub fn first(&self, direction: Direction) -> Layer {
        let layers = self.layers.iter().copied();
        layers.filter(|layer| layer.direction() == direction).min().unwrap_or(match direction {
            Direction::Tx => Layer::TxSocket,
            Direction::Rx => Layer::RxDriver,
        })
    }

    /// Converts to the core's format.
    pub fn to_core(&self) -> abi::dwell_stack_program {
        let shift = self.sample_bytes().trailing_zeros();
        // Half of the bytes of the sampling grid: see core/stack/layers.h.
        let cycle = 1 << (32 - shift - 1);
        abi::dwell_stack_program {
            filter: self.filter.to_core(),
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
            traces: self.traces.into(),
            again: self.again.into(),
            pace_ns: self.pace_ns,
            pidns_dev: self.processes.map_or(0, |namespace| namespace.device),
            pidns_ino: self.processes.map_or(0, |namespace| namespace.inode),
            chosen: self.chosen(),
            ip_at_queue: self.ip_at_queue.into(),
            reserved: [0; 6],
        }
    }

    fn chosen(&self) -> u8 {
        let kinds = [(self.processes.is_some(), abi::DWELL_CHOSEN_PROCESS), (self.cgroup, abi::DWELL_CHOSEN_CGROUP)];
        let bits = kinds.map(|(is_chosen, bit)| if is_chosen { bit as u8 } else { 0 });
        bits[0] | bits[1]
    }
}
