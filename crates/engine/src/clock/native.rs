//! Synchronization packets processed in user space, frame by frame, as XDP sees them.
#![allow(unsafe_code)]

use std::net::{IpAddr, SocketAddr};

use super::{Counters, Exchange, Experiment, Key, Session, Stamper};
use crate::abi;

/// Returns the SipHash-2-4 of a message.
pub fn siphash(key: &Key, message: &[u8]) -> u64 {
    // SAFETY: the message is as long as is said, and the core keeps no pointer.
    unsafe { abi::dwell_sync_siphash(&key.to_core(), message.as_ptr().cast(), message.len() as u32) }
}

/// Authenticates a message.
pub(super) fn seal(key: &Key, message: &mut abi::dwell_sync) {
    // SAFETY: both are valid, and the core keeps no pointer.
    unsafe { abi::dwell_sync_seal(&key.to_core(), message) }
}

/// Returns whether a message of this kind is authentic.
pub(super) fn is_sealed(key: &Key, message: &abi::dwell_sync, kind: u8) -> bool {
    // SAFETY: both are valid, and the core keeps no pointer.
    unsafe { abi::dwell_sync_is_sealed(&key.to_core(), message, kind) != 0 }
}

/// Returns what the clock of an agent with a known error shows.
pub(super) fn claimed(experiment: Experiment, now_ns: u64) -> u64 {
    // SAFETY: the argument is valid, and the core keeps no pointer.
    unsafe { abi::dwell_sync_claimed(&experiment.to_core(0), now_ns) }
}

/// The fate of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The frame is not a request, and is unchanged.
    Passed,
    /// The request was refused.
    Refused,
    /// The frame now holds the reply.
    Answered,
}

/// An agent with one session.
#[derive(Debug, Clone)]
pub struct Agent(abi::dwell_sync_agent);

impl Agent {
    /// Creates an agent that answers one collector.
    pub fn new(session: &Session, collector: IpAddr, port: u16, experiment: Experiment) -> Agent {
        Agent(abi::dwell_sync_agent {
            program: experiment.to_core(port),
            session_id: session.id,
            session: session.to_core(collector),
            ..Default::default()
        })
    }

    /// Processes an incoming frame.
    pub fn frame(&mut self, frame: &mut [u8], now_ns: u64) -> Verdict {
        self.0.now_ns = now_ns;
        // SAFETY: the frame is as long as is said.
        let verdict =
            unsafe { abi::dwell_sync_agent_frame(&mut self.0, frame.as_mut_ptr().cast(), frame.len() as u32) };
        match verdict {
            0 => Verdict::Passed,
            1 => Verdict::Answered,
            _ => Verdict::Refused,
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        Counters::sum([&self.0.counters])
    }
}

/// A collector that probes one agent.
#[derive(Debug, Clone)]
pub struct Prober {
    session: u64,
    probe: abi::dwell_sync_probe,
    exchange: abi::dwell_sync_exchange,
}

impl Prober {
    /// Creates a prober of the agent at `to`.
    pub fn new(session: &Session, from: SocketAddr, to: SocketAddr) -> Prober {
        Prober {
            session: session.id,
            probe: abi::dwell_sync_probe {
                src_port: from.port(),
                dst_port: to.port(),
                src_mac: [2, 0, 0, 0, 0, 1],
                dst_mac: [2, 0, 0, 0, 0, 2],
                ..session.to_probe(from.ip(), to.ip())
            },
            exchange: abi::dwell_sync_exchange::default(),
        }
    }

    /// Addresses the request in a frame and records when it leaves. Returns false if the frame has no request.
    pub fn send(&mut self, frame: &mut [u8], sequence: u64, now_ns: u64) -> bool {
        self.exchange = abi::dwell_sync_exchange { sequence, t1_ns: now_ns, ..Default::default() };
        // SAFETY: the frame is as long as is said.
        let sent = unsafe { abi::dwell_sync_send_frame(&self.probe, frame.as_mut_ptr().cast(), frame.len() as u32) };
        sent != 0
    }

    /// Returns the exchange that the reply in a frame completes, or `None` if the frame has no valid reply.
    pub fn receive(&mut self, frame: &mut [u8], now_ns: u64) -> Option<(Exchange, Stamper)> {
        // SAFETY: the frame is as long as is said.
        let taken = unsafe {
            abi::dwell_sync_take_frame(
                self.session,
                &self.probe,
                &mut self.exchange,
                frame.as_mut_ptr().cast(),
                frame.len() as u32,
                now_ns,
            )
        };
        let exchange = Exchange {
            t1_ns: self.exchange.t1_ns,
            t2_ns: self.exchange.t2_ns,
            t3_ns: self.exchange.t3_ns,
            t4_ns: self.exchange.t4_ns,
        };
        let stamper = Stamper::from_core(self.exchange.stamper)?;
        (taken != 0).then_some((exchange, stamper))
    }
}
