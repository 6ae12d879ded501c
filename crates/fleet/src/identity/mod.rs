//! Who may speak with whom: TLS 1.3, in which both sides show who they are.

mod key;
mod shared;

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion,
    client::{Resumption, WebPkiServerVerifier},
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    server::WebPkiClientVerifier,
};

use crate::Error;

pub use key::Key;

const VERSIONS: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// What a side shows of itself, and whom it lets in.
#[derive(Debug, Clone)]
pub struct Identity {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
    /// The name of the collector is part of what is checked.
    is_named: bool,
}

impl Identity {
    /// Of all who have this key.
    pub fn of_key(key: &Key) -> Identity {
        let (client, server) = shared::configs(key);
        Identity::new(client, server, false)
    }

    /// Of a certificate and its key; lets in who has one that the authorities of `ca` have
    /// signed. All are PEM files. A collector's certificate must be for the name that its
    /// agents use.
    ///
    /// # Errors
    ///
    /// [`Error::Certificate`], if they cannot be read or used.
    pub fn of_certificates(certificate: &Path, key: &Path, ca: &Path) -> Result<Identity, Error> {
        let chain = certificates(certificate)?;
        let private = PrivateKeyDer::from_pem_file(key).map_err(|why| unusable(key, why))?;
        let mut authorities = RootCertStore::empty();
        for authority in certificates(ca)? {
            let added = authorities.add(authority);
            added.map_err(|why| unusable(ca, why))?;
        }
        let (authorities, provider) = (Arc::new(authorities), provider());
        let agents = WebPkiClientVerifier::builder_with_provider(Arc::clone(&authorities), Arc::clone(&provider));
        let collectors = WebPkiServerVerifier::builder_with_provider(authorities, Arc::clone(&provider));
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(VERSIONS)
            .expect("the provider knows TLS 1.3")
            .with_webpki_verifier(collectors.build().map_err(|why| unusable(ca, why))?)
            .with_client_auth_cert(chain.clone(), private.clone_key())
            .map_err(|why| unusable(certificate, why))?;
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(VERSIONS)
            .expect("the provider knows TLS 1.3")
            .with_client_cert_verifier(agents.build().map_err(|why| unusable(ca, why))?)
            .with_single_cert(chain, private)
            .map_err(|why| unusable(certificate, why))?;
        Ok(Identity::new(client, server, true))
    }

    /// Each connection proves anew who is there.
    fn new(mut client: ClientConfig, mut server: ServerConfig, is_named: bool) -> Identity {
        client.resumption = Resumption::disabled();
        server.send_tls13_tickets = 0;
        Identity { client: Arc::new(client), server: Arc::new(server), is_named }
    }

    /// The name that the collector at this host must have.
    pub(crate) fn collector(&self, host: &str) -> Result<ServerName<'static>, Error> {
        let name = if self.is_named { host } else { "dwell" };
        ServerName::try_from(name.to_owned()).map_err(|_| Error::Collector(host.into()))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let all: Vec<_> = all.map_err(|why| unusable(path, why))?;
    match all.is_empty() {
        true => Err(unusable(path, "it has no certificate in PEM form")),
        false => Ok(all),
    }
}

fn unusable(path: &Path, why: impl Into<Box<dyn std::error::Error>>) -> Error {
    Error::Certificate { path: path.into(), why: why.into().to_string() }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
