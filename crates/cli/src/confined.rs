//! Files that the verbs of a fleet give up before strangers can speak to them.

use std::env;

use dwell_fleet::Confinement;

use crate::{exit::Failure, log::log};

/// Where the certificates of authorities are, if not at the system's place.
const AUTHORITIES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// Leaves no files to this thread, and to those that it starts from now on, but those of the system and `kept`.
pub fn confine(mut kept: Confinement) -> Result<(), Failure> {
    // SSL_CERT_DIR may be a list, as PATH is.
    let authorities = AUTHORITIES.into_iter().filter_map(env::var_os);
    kept.reads.extend(authorities.flat_map(|paths| env::split_paths(&paths).collect::<Vec<_>>()));
    if !dwell_fleet::confine(&kept)? {
        log(format_args!("this kernel has no Landlock: the process keeps access to all files of its user"));
    }
    Ok(())
}
