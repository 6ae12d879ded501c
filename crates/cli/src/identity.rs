//! Options by which agents and collectors know each other.

use std::path::PathBuf;

use anyhow::anyhow;
use dwell_fleet::{Identity, Key};

use crate::exit::Failure;

/// A shared key, or certificates.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct IdentityArgs {
    /// The key that agents and collector share: a file that others cannot read, as
    /// `dwell collect --new-key FILE` makes it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cert", "key", "ca"])]
    key_file: Option<PathBuf>,

    /// Own certificate in PEM form, instead of a shared key; a collector's must be for the name by
    /// which its agents connect
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
    /// Reads the files.
    pub fn identity(&self) -> Result<Identity, Failure> {
        let IdentityArgs { key_file, cert, key, ca } = self;
        match (key_file, cert, key, ca) {
            (Some(file), ..) => Ok(Identity::from_key(&Key::read(file)?)),
            (None, Some(cert), Some(key), Some(ca)) => Ok(Identity::from_certificates(cert, key, ca)?),
            _ => Err(Failure::usage(anyhow!(
                "agents and collector must know each other: give both the same --key-file, or \
                 --cert, --key and --ca"
            ))),
        }
    }
}
