//! Mutual authentication of agents and collector, by TLS 1.3.

mod agents;
mod files;
mod key;
mod raw_keys;
mod tokens;

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion,
    client::{Resumption, WebPkiServerVerifier, verify_server_name},
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    server::{ParsedCertificate, WebPkiClientVerifier},
};

use self::{agents::AgentKeys, raw_keys::Accepted};
use crate::{Error, wire::AgentName};

pub use key::{Key, KeyFile, NewKey};
pub use tokens::Token;

const VERSIONS: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// The credentials of one side, and the credentials that it accepts from the other.
#[derive(Debug, Clone)]
pub struct Identity {
    /// `None` if it is good for a collector only.
    client: Option<Arc<ClientConfig>>,
    /// `None` if it is good for an agent only.
    server: Option<Arc<ServerConfig>>,
    names: Names,
}

/// How a collector knows that an agent has the name that it claims.
#[derive(Debug, Clone)]
enum Names {
    /// It does not: each holder of the shared key may have any name.
    Unknown,
    /// The agent's certificate is for this name.
    Certificate,
    /// The list of agents has this name for the agent's key.
    List(Arc<AgentKeys>),
}

impl Identity {
    /// Authenticates by a key. A collector's key is then shared: all its holders are accepted, as agents of any name and
    /// as collectors. An agent's key is good for that agent.
    pub fn from_key(key: &Key) -> Identity {
        match key {
            Key::Collector(secret) => {
                let private = raw_keys::derive(secret, &[b"identity"]);
                let same = Accepted::One(raw_keys::public(&private));
                let (client, server) = (raw_keys::client(&private, same.clone()), raw_keys::server(&private, same));
                Identity::new(Some(client), Some(server), Names::Unknown)
            }
            Key::Agent(key) => {
                let client = raw_keys::client(&key.private, Accepted::One(key.collector.clone()));
                Identity::new(Some(client), None, Names::Unknown)
            }
        }
    }

    /// Authenticates by a token, which is good for nothing but asking for the key of its agent.
    pub(crate) fn from_token(token: &Token) -> Identity {
        Identity::from_key(&Key::Agent(token.0.clone()))
    }

    /// Authenticates as a collector by its key, and accepts the agents of a list, each by its own key: see
    /// [`Key::enroll`]. The list may change while the collector runs.
    ///
    /// # Errors
    ///
    /// [`Error`], if this is an agent's key, or the list cannot be read.
    pub fn from_agents(key: &Key, list: &Path) -> Result<Identity, Error> {
        let Key::Collector(secret) = key else {
            return Err(Error::NotCollector);
        };
        let agents = Arc::new(AgentKeys::open(secret, list)?);
        let accepted = Accepted::Agents(Arc::clone(&agents));
        let server = raw_keys::server(&agents::derive_collector(secret), accepted);
        Ok(Identity::new(None, Some(server), Names::List(agents)))
    }

    /// Authenticates by a certificate and its private key, and accepts certificates that an authority in `ca` has
    /// signed. All three are PEM files. A collector's certificate must be for the host name that its agents use, and an
    /// agent's for the agent's name.
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
        Ok(Identity::new(Some(client), Some(server), Names::Certificate))
    }

    /// Disables session resumption, so that each connection authenticates both sides anew.
    fn new(client: Option<ClientConfig>, server: Option<ServerConfig>, names: Names) -> Identity {
        let client = client.map(|mut client| {
            client.resumption = Resumption::disabled();
            Arc::new(client)
        });
        let server = server.map(|mut server| {
            server.send_tls13_tickets = 0;
            Arc::new(server)
        });
        Identity { client, server, names }
    }

    /// Whether each holder of the key may be an agent of any name, and a collector.
    pub fn is_shared(&self) -> bool {
        matches!(self.names, Names::Unknown) && self.client.is_some() && self.server.is_some()
    }

    pub(crate) fn client(&self) -> Result<Arc<ClientConfig>, Error> {
        self.client.clone().ok_or(Error::NotAgent)
    }

    pub(crate) fn server(&self) -> Result<Arc<ServerConfig>, Error> {
        self.server.clone().ok_or(Error::NotCollector)
    }

    /// Checks that an agent with these credentials, which were verified, may have a name.
    ///
    /// # Errors
    ///
    /// Why it may not; the agent receives this text.
    pub(crate) fn check_name(&self, presented: Option<&CertificateDer<'_>>, name: &AgentName) -> Result<(), String> {
        let presented = || presented.ok_or("it presents no credentials");
        match &self.names {
            Names::Unknown => Ok(()),
            Names::Certificate => {
                let certificate = ParsedCertificate::try_from(presented()?).map_err(|error| error.to_string())?;
                let wanted = ServerName::try_from(name.as_str())
                    .map_err(|_| format!("no certificate can be for the name '{name}': choose another --name"))?;
                verify_server_name(&certificate, &wanted)
                    .map_err(|_| format!("its certificate is not for '{name}': give it the --name of its certificate"))
            }
            Names::List(agents) => match agents.name_of(presented()?) {
                Some(known) if known == *name => Ok(()),
                Some(known) => Err(format!("its key is that of '{known}', not of '{name}'")),
                None => Err("its key is not accepted any more".into()),
            },
        }
    }

    /// Gives the agent of a token its key, as the content of a file, and its name. The token is good no longer.
    ///
    /// # Errors
    ///
    /// Why not; the agent receives this text.
    pub(crate) fn enroll(&self, presented: Option<&CertificateDer<'_>>) -> Result<(AgentName, String), String> {
        match (&self.names, presented) {
            (Names::List(agents), Some(presented)) => agents.enroll(presented).map_err(|error| error.to_string()),
            _ => Err("this collector gives no keys: it has no list of agents".into()),
        }
    }

    /// Name that the certificate of the collector at `host` must carry.
    pub(crate) fn collector_name(&self, host: &str) -> Result<ServerName<'static>, Error> {
        let name = if matches!(self.names, Names::Certificate) { host } else { "dwell" };
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
