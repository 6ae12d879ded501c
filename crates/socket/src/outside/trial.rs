//! Whether this host can tell of sockets at all.

use std::{
    io,
    net::{Ipv4Addr, TcpListener, TcpStream},
};

use dwell_engine::socket::TcpInfo;

use super::{Error, diag::Diag};

/// Why it could not be tried, or what came of it.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// There is no loopback to try it on.
    #[error("cannot connect on loopback: {0}")]
    Connect(io::Error),
    /// The kernel does not answer.
    #[error(transparent)]
    Kernel(Error),
    /// It answers, and not of this connection.
    #[error("the kernel does not tell of a connection that is there")]
    Missing,
}

/// What the kernel tells of a connection that this process makes with itself.
pub fn trial() -> Result<TcpInfo, TrialError> {
    let connect = || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        let port = client.local_addr()?.port();
        Ok((listener, client, port))
    };
    let (_listener, _client, port) = connect().map_err(TrialError::Connect)?;
    let mut told = None;
    let mut diag = Diag::open().map_err(TrialError::Kernel)?;
    let all = diag.all(true, &mut |_, found| {
        if found.key.ends().src.port == port {
            told = told.or(found.info);
        }
    });
    all.map_err(TrialError::Kernel)?;
    told.ok_or(TrialError::Missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_with_itself_is_told_of() {
        assert!(trial().unwrap().is_connected());
    }
}
