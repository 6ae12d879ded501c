//! Connection IDs that a balancer can route (draft-ietf-quic-load-balancers), and the load reports of servers in them.

mod cipher;
mod config;
mod load;
mod native;

pub use config::{Config, ConfigError, ConnectionId, Decoded, EncodeError, Stamp};
pub use load::Load;
