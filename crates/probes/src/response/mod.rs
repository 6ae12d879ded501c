//! Response latency in the kernel, from the client's packets alone.

use dwell_engine::{
    abi,
    response::{Record, Watch},
    rtt::Counters,
};
use zerocopy::IntoBytes;

use crate::{
    Chain, Error, Hook, Interface, TcHookKind,
    vantage::{Spec, Vantage, jiffy_ns},
};

static TC_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/response_tc.bpf.o"));
static XDP_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/response_xdp.bpf.o"));

/// What to load.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// What to watch.
    pub watch: Watch,
    /// Where to watch packets that come in.
    pub ingress: Hook,
    /// Be called by another's XDP program, instead of attaching one.
    pub chain: Option<Chain>,
    /// How to attach at tc.
    pub tc: TcHookKind,
    /// Packets bring their time with them: for `replay_packet` only.
    pub replay: bool,
}

/// Epochs of all flows end at once: room for those of a quarter, or of half where
/// they have no modes, before somebody reads. At least 4 MiB, at most 64.
fn ring_bytes(max_flows: u32) -> u32 {
    let event_bytes = size_of::<abi::dwell_response_event>() as u32;
    (max_flows / 4).saturating_mul(event_bytes).clamp(1 << 22, 1 << 26).next_power_of_two()
}

/// The loaded program. Dropping it detaches and unloads everything.
pub struct Probe {
    vantage: Vantage<Record>,
}

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
        let buckets = options.watch.buckets();
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
            buckets,
            ring_bytes: ring_bytes(options.watch.max_flows),
            event_bytes: size_of::<abi::dwell_response_event>() as u32,
            sizes: &[("seats", program.slots), ("aliases", program.alias_mask + 1)],
            shared: &["seats", "pool", "aliases"],
        };
        Ok(Probe { vantage: Vantage::load(&spec, Record::from_kernel)? })
    }

    /// Watches what comes in and goes out at an interface; of loopback one, as
    /// its packets pass twice.
    pub fn attach(&mut self, interface: &Interface) -> Result<(), Error> {
        self.vantage.attach(interface, !interface.is_loopback())
    }

    /// Stops watching. What was measured can still be read.
    pub fn detach(&mut self) {
        self.vantage.detach();
    }

    /// Hands on the epochs that have ended. The kernel wakes nobody: call it
    /// often enough that the ring buffer does not fill. It has room for a quarter
    /// of the flows that the table holds.
    pub fn drain(&mut self, emit: impl FnMut(Record)) -> Result<(), Error> {
        self.vantage.drain(emit)
    }

    /// Ends the epochs that are over though no packet said so, and forgets idle
    /// flows.
    pub fn sweep(&mut self) -> Result<(), Error> {
        self.vantage.sweep(abi::DWELL_CLOSE_IDLE)
    }

    /// Ends all epochs: the run is over.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.vantage.sweep(abi::DWELL_CLOSE_END)
    }

    /// What was counted so far, over all CPUs.
    pub fn counters(&mut self) -> Result<Counters, Error> {
        self.vantage.counters()
    }

    /// Places in the flow table.
    pub fn places(&self) -> u64 {
        self.vantage.places()
    }

    /// How often each program ran and for how many nanoseconds, if the kernel
    /// keeps count (sysctl kernel.bpf_stats_enabled).
    pub fn run_times(&self) -> Vec<(&'static str, u64, u64)> {
        self.vantage.run_times()
    }

    /// Records that could not be read: always 0 unless kernel and user space
    /// come from different builds.
    pub fn unreadable_events(&self) -> u64 {
        self.vantage.unreadable_events()
    }

    /// Runs the program over one packet as if it had passed at `time_ns`
    /// (BPF_PROG_TEST_RUN). It must be loaded with `replay`.
    pub fn replay_packet(&mut self, data: &[u8], time_ns: u64) -> Result<(), Error> {
        self.vantage.replay_packet(data, time_ns)
    }
}
