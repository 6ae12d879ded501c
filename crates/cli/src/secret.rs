//! Files of secrets: an argument would be seen by every user of this host.

use std::{
    env,
    fs::File,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use anyhow::anyhow;
use dwell_store::Login;

use crate::exit::Failure;

/// Reads the start of a file that only its owner and group can reach; `what` names its content in errors.
pub fn read(path: &Path, what: &str, max_bytes: u64) -> Result<String, Failure> {
    let failed = |error: io::Error| Failure::usage(anyhow!("cannot read {what} in {}: {error}", path.display()));
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.permissions().mode() & 0o007 != 0 {
        return Err(Failure::usage(anyhow!(
            "every user of this host can reach {what} in {}: chmod 600 it",
            path.display()
        )));
    }
    let mut text = String::new();
    file.take(max_bytes).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// Longest file of a password, in bytes.
const MAX_PASSWORD_BYTES: u64 = 4096;

/// Returns who logs in to a ClickHouse server: the user of the environment, with the password of this file, or else of the
/// environment.
pub fn clickhouse_login(file: Option<&Path>) -> Result<Login, Failure> {
    let user = env::var("CLICKHOUSE_USER").unwrap_or_else(|_| "default".into());
    let Some(path) = file else {
        return Ok(Login { user, password: env::var("CLICKHOUSE_PASSWORD").ok() });
    };
    let text = read(path, "the password", MAX_PASSWORD_BYTES)?;
    Ok(Login { user, password: Some(text.trim_end_matches(['\r', '\n']).to_owned()) })
}
