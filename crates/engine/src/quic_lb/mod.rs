//! Connection IDs that a balancer can route (draft-ietf-quic-load-balancers), and
//! what a server says of its load in them.

mod config;
mod load;
mod native;

pub use config::{Config, ConfigError, ConnectionId, Decoded, EncodeError, Stamp};
pub use load::Load;
