//! Checks whether this host reports sockets.

use std::{
    io,
    net::{Ipv4Addr, TcpListener, TcpStream},
    time::Duration,
};

use dwell_engine::socket::TcpInfo;

use super::{Error, diag::Diag};

/// The longest wait for a connection on loopback, which may be down.
const LONGEST: Duration = Duration::from_secs(2);

/// Why the check failed.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// A loopback connection is impossible.
    #[error("cannot connect on loopback: {0}")]
    Connect(io::Error),
    /// The kernel does not answer.
    #[error(transparent)]
    Kernel(Error),
    /// The kernel answers, but does not report the connection.
    #[error("the kernel does not report an existing connection")]
    Missing,
}

/// Returns the kernel's report of a connection that this process makes with itself.
pub fn trial() -> Result<TcpInfo, TrialError> {
    let connect = || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let client = TcpStream::connect_timeout(&listener.local_addr()?, LONGEST)?;
        let port = client.local_addr()?.port();
        Ok((listener, client, port))
    };
    let (_listener, _client, port) = connect().map_err(TrialError::Connect)?;
    let mut reported = None;
    let mut diag = Diag::open().map_err(TrialError::Kernel)?;
    let dumped = diag.dump_connected(true, &mut |_, report| {
        if report.key.ends().src.port == port {
            reported = reported.or(report.info);
        }
    });
    dumped.map_err(TrialError::Kernel)?;
    reported.ok_or(TrialError::Missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_with_itself_is_reported() {
        assert!(trial().unwrap().is_connected());
    }
}
