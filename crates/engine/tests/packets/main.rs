//! Packets built by hand, and what the engine must make of them.

#![allow(clippy::unwrap_used)] // also in the helpers of tests, which clippy does not see as tests

mod ahead;
mod definitions;
mod dns;
mod filter;
mod flows;
mod groups;
mod histograms;
mod icmp;
mod limits;
mod links;
mod path;
mod properties;
mod quic;
mod quic_path;
mod quic_random;
mod table;
mod tcp_auto;
mod tcp_seq;
mod tcp_timestamp;
mod time;
mod truncation;
mod tunnels;
mod udp_length;
mod wire;
