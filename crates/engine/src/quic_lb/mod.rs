//! Connection IDs that a balancer can route (draft-ietf-quic-load-balancers), the load reports of servers in them, and
//! tokens that lead clients back to a server.

mod cipher;
mod config;
mod load;
mod native;

pub use config::{Config, ConfigError, ConnectionId, Decoded, EncodeError, Stamp, TOKEN_PREFIX, TokenStamp};
pub use load::Load;
