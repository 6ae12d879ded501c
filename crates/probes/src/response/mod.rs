//! Response latency in the kernel, from the client's packets alone.

use dwell_engine::{
    abi,
    response::{Record, Watch},
};
use zerocopy::IntoBytes;

use crate::{
    Chain, Error, Hook, TcHookKind,
    vantage::{Spec, Vantage, jiffy_ns},
};

static TC_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/response_tc.bpf.o.z"));
static XDP_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/response_xdp.bpf.o.z"));

/// What to load, and how to attach it.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// What to watch.
    pub watch: Watch,
    /// The hook that watches incoming packets.
    pub ingress: Hook,
    /// A slot of another's program array to be called from, instead of attaching an XDP program.
    pub chain: Option<Chain>,
    /// How to attach at tc.
    pub tc: TcHookKind,
    /// Take the time from the packet, for [`Probe::replay_packet`] only.
    pub replay: bool,
}

impl Options {
    /// Watches incoming packets at tc.
    pub fn new(watch: Watch) -> Options {
        Options { watch, ingress: Hook::TcIngress, chain: None, tc: TcHookKind::Auto, replay: false }
    }
}

/// The size of the ring buffer. Epochs of all flows end at the same time: there is room for those of a quarter of the
/// flows, or of half where they have no modes, until the next poll. At least 4 MiB, at most 64 MiB.
fn ring_bytes(max_flows: u32) -> u32 {
    let event_bytes = size_of::<abi::dwell_response_event>() as u32;
    (max_flows / 4).saturating_mul(event_bytes).clamp(1 << 22, 1 << 26).next_power_of_two()
}

/// The loaded programs. Dropping it detaches and unloads everything.
///
/// A full ring buffer loses records: it has room for those of a quarter of the flows that the table holds.
pub type Probe = Vantage<Record>;

impl Probe {
    /// Loads the programs. Nothing is attached yet.
    pub fn load(options: &Options) -> Result<Probe, Error> {
        let program = abi::dwell_response_program {
            jiffy_ns: jiffy_ns(),
            replay: options.replay.into(),
            stores_in_order: cfg!(any(target_arch = "x86_64", target_arch = "s390x")).into(),
            chain_next: options.chain.as_ref().and_then(|chain| chain.next).map_or(0, |next| next.saturating_add(1)),
            ..options.watch.to_core()
        };
        let spec = Spec {
            what: "the response program",
            tc: TC_OBJECT,
            xdp: XDP_OBJECT,
            ingress: match options.chain {
                Some(_) => Hook::Xdp,
                None => options.ingress,
            },
            chain: options.chain.as_ref(),
            kind: options.tc,
            program: program.as_bytes(),
            buckets: options.watch.buckets(),
            slots: program.table.slots,
            ring_bytes: ring_bytes(options.watch.max_flows),
            event_bytes: size_of::<abi::dwell_response_event>() as u32,
            sizes: &[("slots", program.table.slots), ("aliases", program.alias_mask + 1)],
            shared: &["slots", "pool", "aliases"],
        };
        Vantage::open(&spec, Record::from_kernel, ())
    }
}
