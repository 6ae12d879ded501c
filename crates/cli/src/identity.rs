//! Options by which agents and collectors know each other.

use std::{
    panic::resume_unwind,
    path::{Path, PathBuf},
    thread,
};

use anyhow::anyhow;
use dwell_fleet::{self as fleet, CollectorAddress, Confinement, Identity, Key, KeyFile, Token, wire::AgentName};
use dwell_socket::privilege;

use crate::{
    exit::{Exit, Failure},
    log::log,
    secret,
};

/// Longest file of a token, in bytes.
const MAX_TOKEN_BYTES: u64 = 4096;

/// A key, or certificates.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct IdentityArgs {
    /// Key file that others cannot read: of an agent, as `dwell collect --new-agent NAME` makes it; of a collector, as
    /// `dwell collect --new-key FILE` does. An agent may have a copy of the latter, for trying out
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cert", "key", "ca"])]
    key_file: Option<PathBuf>,

    /// Own certificate in PEM form, instead of a key; a collector's must be for the host name by which its agents
    /// connect, an agent's for the agent's name
    #[arg(long, value_name = "FILE", requires_all = ["key", "ca"])]
    cert: Option<PathBuf>,

    /// The private key of the certificate
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,

    /// The authorities that have signed the other side's certificates
    #[arg(long, value_name = "FILE", requires = "cert")]
    ca: Option<PathBuf>,
}

impl IdentityArgs {
    /// Reads the files. An agent's key tells its name too.
    pub fn identity(&self) -> Result<(Identity, Option<AgentName>), Failure> {
        let IdentityArgs { key_file, cert, key, ca } = self;
        match (key_file, cert, key, ca) {
            (Some(file), ..) => {
                let key = Key::read(file)?;
                Ok((Identity::from_key(&key), key.agent().cloned()))
            }
            (None, Some(cert), Some(key), Some(ca)) => Ok((Identity::from_certificates(cert, key, ca)?, None)),
            _ => Err(Failure::usage(anyhow!(
                "agents and collector must know each other: give each a --key-file, or --cert, --key and --ca"
            ))),
        }
    }

    /// Leaves the files of certificates within reach, which are read again when they change.
    pub fn keep_files(&self, kept: Confinement) -> Confinement {
        self.files().fold(kept, |kept, file| kept.reading(file))
    }

    /// The files of certificates.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        [&self.cert, &self.key, &self.ca].into_iter().flatten().map(PathBuf::as_path)
    }

    /// Gets an agent's key from its collector by the token in a file, unless the file of the key exists.
    pub fn enroll(&self, token: &Path, collector: &CollectorAddress) -> Result<(), Failure> {
        let Some(key_file) = self.key_file.as_deref().filter(|file| !file.exists()) else {
            return Ok(());
        };
        let token: Token = secret::read(token, "the token", MAX_TOKEN_BYTES)?.parse()?;
        let file = KeyFile::prepare(key_file)?;
        // What a stranger may answer is read without any privilege.
        let ask = || privilege::keep(&[]).map(|()| fleet::ask_for_key(collector, &token));
        let asked = thread::scope(|scope| scope.spawn(ask).join());
        let asked = asked.unwrap_or_else(|panic| resume_unwind(panic));
        let key = asked.map_err(|error| Failure::new(Exit::Host, anyhow!("cannot give up privileges: {error}")))?;
        file.keep(&key.map_err(|error| Failure::new(Exit::Host, error))?)?;
        log(format_args!("the collector has made the key of {}: it is in {}", token.agent(), key_file.display()));
        Ok(())
    }

    /// Reads the files of a collector. With a list of agents, each has a key of its own; without one, they share the
    /// collector's.
    pub fn of_collector(&self, agents: Option<&Path>) -> Result<Identity, Failure> {
        let Some(agents) = agents else {
            let (identity, _) = self.identity()?;
            if identity.is_shared() {
                log(format_args!(
                    "agents share the collector's key: each host that has it can act as any agent, and as a collector; give \
                     each a key of its own with --new-agent and --agents"
                ));
            }
            return Ok(identity);
        };
        Ok(Identity::from_agents(&self.collector_key()?, agents)?)
    }

    /// Reads the collector's key.
    pub fn collector_key(&self) -> Result<Key, Failure> {
        match &self.key_file {
            Some(file) => Ok(Key::read(file)?),
            None => Err(Failure::usage(anyhow!(
                "the keys of agents are made from that of the collector: name its --key-file"
            ))),
        }
    }
}
