//! The fuzz targets. Each documents the format of its input.

mod any;
mod balancer;
mod clock;
mod dns;
mod fleet;
mod icmp;
mod labels;
mod quic;
mod response;
mod scene;
mod socket;
mod tcp;
mod token;
mod trace;

pub use any::{capture, filter, packet, replay};
pub use balancer::balancer;
pub use clock::clock;
pub use dns::dns;
pub use fleet::fleet;
pub use icmp::icmp;
pub use labels::labels;
pub use quic::quic;
pub use response::{response, response_replay};
pub use socket::socket;
pub use tcp::tcp;
pub use token::token;
pub use trace::trace;

pub(crate) use clock::session as clock_session;
