//! Sync packets in user space, frame by frame, as XDP has them.
#![allow(unsafe_code)]

use std::net::{IpAddr, SocketAddr};

use super::{Counters, Exchange, Experiment, Key, Session, Stamper};
use crate::abi;

/// SipHash-2-4 of a message.
pub fn siphash(key: &Key, message: &[u8]) -> u64 {
    // SAFETY: the message is as long as is said, and the core keeps no pointer.
    unsafe { abi::dwell_sync_siphash(&key.to_core(), message.as_ptr().cast(), message.len() as u32) }
}

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is nobody's business here, and as it was.
    Passed,
    /// It was refused.
    Refused,
    /// A reply is in its place.
    Answered,
}

/// An agent that knows one session.
#[derive(Debug, Clone)]
pub struct Agent(abi::dwell_sync_agent);

impl Agent {
    /// It answers a collector.
    pub fn new(session: &Session, collector: IpAddr, port: u16, experiment: Experiment) -> Agent {
        Agent(abi::dwell_sync_agent {
            program: experiment.to_core(port),
            session_id: session.id,
            session: session.to_core(collector),
            ..Default::default()
        })
    }

    /// A frame comes in.
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

    /// What became of all frames.
    pub fn counters(&self) -> Counters {
        Counters::sum([&self.0.counters])
    }
}

/// A collector that asks one agent.
#[derive(Debug, Clone)]
pub struct Asker {
    session: u64,
    probe: abi::dwell_sync_probe,
    exchange: abi::dwell_sync_exchange,
}

impl Asker {
    /// From one address to the other.
    pub fn new(session: &Session, from: SocketAddr, to: SocketAddr) -> Asker {
        Asker {
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

    /// Addresses the request in a frame, and notes that it leaves; false if there
    /// is none.
    pub fn send(&mut self, frame: &mut [u8], sequence: u64, now_ns: u64) -> bool {
        self.exchange = abi::dwell_sync_exchange { sequence, t1_ns: now_ns, ..Default::default() };
        // SAFETY: the frame is as long as is said.
        let sent = unsafe { abi::dwell_sync_send_frame(&self.probe, frame.as_mut_ptr().cast(), frame.len() as u32) };
        sent != 0
    }

    /// The exchange that the reply in a frame completes; none where there is none.
    pub fn take(&mut self, frame: &mut [u8], now_ns: u64) -> Option<(Exchange, Stamper)> {
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
