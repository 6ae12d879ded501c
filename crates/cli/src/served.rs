//! `--metrics`: what the verbs that serve Prometheus have in common.

use std::{net::SocketAddr, sync::Arc};

use dwell_metrics::{Registry, Server, serve};

use crate::{exit::Failure, tell::tell};

/// Serves metrics while it lives.
pub struct Served {
    /// What is served.
    pub registry: Arc<Registry>,
    _server: Server,
}

impl Served {
    /// Binds the address at once, so that a wrong one is known before anything is attached.
    pub fn start(address: SocketAddr) -> Result<Served, Failure> {
        let registry = Arc::new(Registry::new(env!("CARGO_PKG_VERSION")));
        let server = serve(address, Arc::clone(&registry)).map_err(Failure::usage)?;
        tell(format_args!("metrics at http://{}/metrics", server.address()));
        Ok(Served { registry, _server: server })
    }
}
