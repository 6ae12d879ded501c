//! HTTP/3: a client that asks as that of the web does, a stream a request, and a server whose answers take time.

mod client;
mod server;

use std::sync::Arc;

use dwell_testbed::Result;
use rustls::crypto::CryptoProvider;
use serde::{Deserialize, Serialize};

use super::client::ClientConfig;
use crate::loads::{quic::Identity, web::ServerConfig};

pub(super) use client::run;
pub(super) use server::serve;

/// What both sides call the protocol in the handshake.
const PROTOCOL: &[u8] = b"h3";

/// What the server is to do, and who it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ServerPart {
    pub(super) config: ServerConfig,
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// What the client is to do, and whom it trusts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ClientPart {
    pub(super) config: ClientConfig,
    certificate: Vec<u8>,
}

/// The identity of a server, for one run.
pub(super) struct Trust(Identity);

impl Trust {
    pub(super) fn new() -> Result<Self> {
        Identity::new().map(Self)
    }

    pub(super) fn server(&self, config: ServerConfig) -> ServerPart {
        ServerPart { config, certificate: self.0.certificate.to_vec(), key: self.0.key.secret_der().to_vec() }
    }

    pub(super) fn client(&self, config: ClientConfig) -> ClientPart {
        ClientPart { config, certificate: self.0.certificate.to_vec() }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
