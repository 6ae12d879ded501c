//! Mutual authentication of agents and collector, by TLS 1.3.

mod agents;
mod certificates;
mod files;
mod key;
mod raw_keys;
mod tokens;

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, ServerConfig, SupportedProtocolVersion,
    client::Resumption,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use self::{agents::AgentKeys, certificates::CertificateFiles, raw_keys::Accepted};
use crate::{
    Error,
    wire::{AgentName, Version},
};

pub(crate) use certificates::refusal;
pub use key::{Key, KeyFile, NewKey};
pub use tokens::Token;

const VERSIONS: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// The credentials of one side, and the credentials that it accepts from the other.
#[derive(Debug, Clone)]
pub struct Identity {
    configs: Configs,
    names: Names,
}

/// What TLS is told of the credentials.
#[derive(Debug, Clone)]
enum Configs {
    Keys {
        /// `None` if they are good for a collector only.
        client: Option<Arc<ClientConfig>>,
        /// `None` if they are good for an agent only.
        server: Option<Arc<ServerConfig>>,
    },
    Files(Arc<CertificateFiles>),
}

/// How a collector knows that an agent has the name that it claims.
#[derive(Debug, Clone)]
enum Names {
    /// It does not: each holder of the shared key may have any name.
    Unknown,
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
                Identity::of_keys(Some(client), Some(server), Names::Unknown)
            }
            Key::Agent(key) => {
                let client = raw_keys::client(&key.private, Accepted::One(key.collector.clone()));
                Identity::of_keys(Some(client), None, Names::Unknown)
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
        Ok(Identity::of_keys(None, Some(server), Names::List(agents)))
    }

    /// Authenticates by a certificate and its private key, and accepts certificates that an authority in `ca` has
    /// signed. All three are PEM files, which may be replaced at any time. A collector's certificate must be for the host name that
    /// its agents use, and an agent's for the agent's name.
    ///
    /// # Errors
    ///
    /// [`Error::Certificate`], if a file cannot be read or used.
    pub fn from_certificates(certificate: &Path, key: &Path, ca: &Path) -> Result<Identity, Error> {
        let files = CertificateFiles::open(certificate, key, ca)?;
        Ok(Identity { configs: Configs::Files(Arc::new(files)), names: Names::Unknown })
    }

    /// Returns why files that were replaced cannot be used, so that what was in them before stays in use, or what is wrong with a
    /// list of agents: once for each time they were replaced, and some seconds after it.
    pub(crate) fn take_problem(&self) -> Option<Error> {
        match (&self.configs, &self.names) {
            (Configs::Files(files), _) => files.take_problem(),
            (Configs::Keys { .. }, Names::List(agents)) => agents.take_problem(),
            (Configs::Keys { .. }, Names::Unknown) => None,
        }
    }

    fn of_keys(client: Option<ClientConfig>, server: Option<ServerConfig>, names: Names) -> Identity {
        let (client, server) = (client.map(tuned_client), server.map(tuned_server));
        Identity { configs: Configs::Keys { client, server }, names }
    }

    /// Whether each holder of the key may be an agent of any name, and a collector.
    pub fn is_shared(&self) -> bool {
        matches!(self.names, Names::Unknown)
            && matches!(&self.configs, Configs::Keys { client: Some(_), server: Some(_) })
    }

    pub(crate) fn client(&self) -> Result<Arc<ClientConfig>, Error> {
        match &self.configs {
            Configs::Keys { client, .. } => client.clone().ok_or(Error::NotAgent),
            Configs::Files(files) => Ok(files.current().client),
        }
    }

    pub(crate) fn server(&self) -> Result<Arc<ServerConfig>, Error> {
        match &self.configs {
            Configs::Keys { server, .. } => server.clone().ok_or(Error::NotCollector),
            Configs::Files(files) => Ok(files.current().server),
        }
    }

    /// Checks that an agent with these credentials, which were verified when it connected, may have a name now.
    ///
    /// # Errors
    ///
    /// Why it may not; the agent receives this text.
    pub(crate) fn check_agent(&self, presented: &[CertificateDer<'_>], name: &AgentName) -> Result<(), String> {
        if let Configs::Files(files) = &self.configs {
            return files.current().check_agent(presented, name, UnixTime::now());
        }
        match &self.names {
            Names::Unknown => Ok(()),
            Names::List(agents) => match agents.name_of(presented.first().ok_or("it presents no credentials")?) {
                Some(known) if known == *name => Ok(()),
                Some(known) => Err(format!("its key is that of '{known}', not of '{name}'")),
                None => Err("its key is not accepted any more".into()),
            },
        }
    }

    /// Checks that a collector, whose credentials were verified when the agent connected, may have its name now.
    ///
    /// # Errors
    ///
    /// Why it may not.
    pub(crate) fn check_collector(&self, presented: &[CertificateDer<'_>], host: &str) -> Result<(), String> {
        match &self.configs {
            Configs::Keys { .. } => Ok(()),
            Configs::Files(files) => {
                let name = self.collector_name(host).map_err(|error| error.to_string())?;
                files.current().check_collector(presented, &name, UnixTime::now())
            }
        }
    }

    /// Gives the agent of a token its key, as the content of a file, and its name. The token is no longer valid.
    ///
    /// # Errors
    ///
    /// Why not; the agent receives this text.
    pub(crate) fn enroll(&self, presented: &[CertificateDer<'_>]) -> Result<(AgentName, String), String> {
        match (&self.names, presented.first()) {
            (Names::List(agents), Some(presented)) => agents.enroll(presented).map_err(|error| error.to_string()),
            _ => Err("this collector gives no keys: it has no list of agents".into()),
        }
    }

    /// Name that the certificate of the collector at `host` must carry.
    pub(crate) fn collector_name(&self, host: &str) -> Result<ServerName<'static>, Error> {
        let name = if matches!(self.configs, Configs::Files(_)) { host } else { "dwell" };
        ServerName::try_from(name.to_owned()).map_err(|_| Error::Collector(host.into()))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Disables session resumption, so that each connection authenticates both sides anew, and offers all versions of the protocol.
fn tuned_client(mut client: ClientConfig) -> Arc<ClientConfig> {
    client.resumption = Resumption::disabled();
    client.alpn_protocols = protocols();
    Arc::new(client)
}

fn tuned_server(mut server: ServerConfig) -> Arc<ServerConfig> {
    server.send_tls13_tickets = 0;
    server.alpn_protocols = protocols();
    Arc::new(server)
}

fn protocols() -> Vec<Vec<u8>> {
    Version::ALL.map(|version| version.protocol().to_vec()).into()
}
