//! Mutual authentication of agents and collector, by TLS 1.3.

mod key;
mod shared_key;

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

/// The credentials of one side, and the credentials that it accepts from the other.
#[derive(Debug, Clone)]
pub struct Identity {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
    /// Whether the agent checks that the collector's certificate is for the host name that it connects to.
    checks_host: bool,
}

impl Identity {
    /// Authenticates by a shared key: every holder of the key is accepted.
    pub fn from_key(key: &Key) -> Identity {
        let (client, server) = shared_key::configs(key);
        Identity::new(client, server, false)
    }

    /// Authenticates by a certificate and its private key, and accepts certificates that an authority in `ca` has
    /// signed. All three are PEM files. A collector's certificate must be for the host name that its agents use.
    ///
    /// # Errors
    ///
    /// [`Error::Certificate`], if a file cannot be read or used.
    pub fn from_certificates(certificate: &Path, key: &Path, ca: &Path) -> Result<Identity, Error> {
        let chain = certificates(certificate)?;
        let private = PrivateKeyDer::from_pem_file(key).map_err(|reason| unusable(key, reason))?;
        let mut authorities = RootCertStore::empty();
        for authority in certificates(ca)? {
            let added = authorities.add(authority);
            added.map_err(|reason| unusable(ca, reason))?;
        }
        let (authorities, provider) = (Arc::new(authorities), provider());
        let agents = WebPkiClientVerifier::builder_with_provider(Arc::clone(&authorities), Arc::clone(&provider));
        let collectors = WebPkiServerVerifier::builder_with_provider(authorities, Arc::clone(&provider));
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(VERSIONS)
            .expect("the provider supports TLS 1.3")
            .with_webpki_verifier(collectors.build().map_err(|reason| unusable(ca, reason))?)
            .with_client_auth_cert(chain.clone(), private.clone_key())
            .map_err(|reason| unusable(certificate, reason))?;
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(VERSIONS)
            .expect("the provider supports TLS 1.3")
            .with_client_cert_verifier(agents.build().map_err(|reason| unusable(ca, reason))?)
            .with_single_cert(chain, private)
            .map_err(|reason| unusable(certificate, reason))?;
        Ok(Identity::new(client, server, true))
    }

    /// Disables session resumption, so that each connection authenticates both sides anew.
    fn new(mut client: ClientConfig, mut server: ServerConfig, checks_host: bool) -> Identity {
        client.resumption = Resumption::disabled();
        server.send_tls13_tickets = 0;
        Identity { client: Arc::new(client), server: Arc::new(server), checks_host }
    }

    /// Name that the certificate of the collector at `host` must carry.
    pub(crate) fn collector_name(&self, host: &str) -> Result<ServerName<'static>, Error> {
        let name = if self.checks_host { host } else { "dwell" };
        ServerName::try_from(name.to_owned()).map_err(|_| Error::Collector(host.into()))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let all: Vec<_> = all.map_err(|reason| unusable(path, reason))?;
    match all.is_empty() {
        true => Err(unusable(path, "it contains no certificate in PEM format")),
        false => Ok(all),
    }
}

fn unusable(path: &Path, reason: impl Into<Box<dyn std::error::Error>>) -> Error {
    Error::Certificate { path: path.into(), reason: reason.into().to_string() }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
