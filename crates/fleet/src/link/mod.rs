//! A mutually authenticated connection between an agent and its collector.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    ops::DerefMut,
    sync::Arc,
    time::{Duration, Instant},
};

use dwell_socket::deadline::DeadlineStream;
use rustls::{
    ClientConfig, ClientConnection, ConnectionCommon, ServerConfig, ServerConnection, SideData, StreamOwned,
    pki_types::{CertificateDer, ServerName},
};

use crate::{
    Identity,
    wire::{self, FrameError, Message, Version},
};

/// A secret that only the two ends of a connection know. It keys what they exchange outside this connection.
pub type Secret = [u8; 32];

const SECRET_LABEL: &[u8] = b"EXPORTER-dwell-fleet-1";

/// Deadline for authentication and the agent's hello.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Deadline for each piece of a frame, of at most 64 KiB: some 17 kbit/s.
pub(crate) const PIECE_TIMEOUT: Duration = Duration::from_secs(30);

/// Frames over TLS.
pub(crate) struct Link {
    stream: Box<dyn Stream>,
    /// What both sides have agreed on.
    pub(crate) version: Version,
    pub(crate) secret: Secret,
    /// The certificates or the public key of the other side, its own first.
    pub(crate) presented: Vec<CertificateDer<'static>>,
}

impl Link {
    /// Authenticates as an agent.
    pub(crate) fn connect(
        stream: TcpStream,
        identity: &Identity,
        collector: ServerName<'static>,
    ) -> Result<Link, FrameError> {
        Link::by_client(stream, identity.client().map_err(io::Error::other)?, collector)
    }

    fn by_client(
        stream: TcpStream,
        config: Arc<ClientConfig>,
        collector: ServerName<'static>,
    ) -> Result<Link, FrameError> {
        let mut tls = ClientConnection::new(config, collector).map_err(tls)?;
        let mut stream = with_deadline(stream)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut stream).map_err(failed)?;
        }
        Link::established(tls, stream)
    }

    /// Authenticates as a collector.
    pub(crate) fn accept(stream: TcpStream, identity: &Identity) -> Result<Link, FrameError> {
        Link::by_server(stream, identity.server().map_err(io::Error::other)?)
    }

    fn by_server(stream: TcpStream, config: Arc<ServerConfig>) -> Result<Link, FrameError> {
        let mut tls = ServerConnection::new(config).map_err(tls)?;
        let mut stream = with_deadline(stream)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut stream).map_err(|io| {
                match failed(io) {
                    // An agent that rejects us may close the connection before its alert arrives.
                    FrameError::Io(io)
                        if tls.negotiated_cipher_suite().is_some() && io.kind() != io::ErrorKind::TimedOut =>
                    {
                        FrameError::Unauthenticated(io)
                    }
                    error => {
                        if matches!(error, FrameError::NoVersion) {
                            take_leave(&mut tls, &mut stream);
                        }
                        error
                    }
                }
            })?;
        }
        Link::established(tls, stream)
    }

    /// Makes the link of two sides that have authenticated each other.
    fn established<C, S>(tls: C, stream: DeadlineStream) -> Result<Link, FrameError>
    where
        C: DerefMut<Target = ConnectionCommon<S>> + Send + 'static,
        S: SideData + 'static,
    {
        let secret = tls.export_keying_material([0; 32], SECRET_LABEL, None);
        Ok(Link {
            version: Version::of_protocol(tls.alpn_protocol()).ok_or(FrameError::NoVersion)?,
            secret: secret.map_err(self::tls)?,
            presented: presented(tls.peer_certificates()),
            stream: Box::new(StreamOwned::new(tls, stream)),
        })
    }

    /// Replaces the deadline by an idle timeout: from now on the other side may pause for at most `timeout` between
    /// messages. Before the first call, everything must be over within [`HANDSHAKE_TIMEOUT`].
    pub(crate) fn set_idle_timeout(&mut self, timeout: Duration) {
        self.stream.socket().set_idle_timeout(timeout);
    }

    pub(crate) fn send(&mut self, message: &impl Message) -> Result<(), FrameError> {
        let content = wire::encode(self.version, message).ok_or(FrameError::Length(wire::MAX_FRAME_BYTES))?;
        wire::write(&mut self.stream, &content)
    }

    /// Sends an agent's message that was encoded for this version or another one.
    pub(crate) fn send_encoded(&mut self, content: &[u8]) -> Result<(), FrameError> {
        let content = wire::for_version(self.version, content)?;
        wire::write(&mut self.stream, &content)
    }

    /// Receives the content of a frame, for whose memory `may_take` is asked as it arrives. Returns `None` for a frame
    /// that had to be skipped. Each piece of it must arrive within [`PIECE_TIMEOUT`], however its bytes are spread.
    pub(crate) fn receive_frame(
        &mut self,
        max_bytes: usize,
        mut may_take: impl FnMut(usize) -> bool,
    ) -> Result<Option<Vec<u8>>, FrameError> {
        wire::read_within(&mut self.stream, max_bytes, |stream, bytes| {
            stream.socket().set_deadline(Instant::now() + PIECE_TIMEOUT);
            bytes == 0 || may_take(bytes)
        })
    }

    pub(crate) fn receive<M: Message>(&mut self, max_bytes: usize) -> Result<M, FrameError> {
        wire::decode(self.version, &wire::read(&mut self.stream, max_bytes)?)
    }
}

impl Drop for Link {
    /// Closes the TLS session, so that the other side can tell the end from a truncated stream.
    fn drop(&mut self) {
        self.stream.close();
    }
}

fn tls(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Tells a handshake that failed for want of a common version from others.
fn failed(io: io::Error) -> FrameError {
    use rustls::{
        AlertDescription,
        Error::{AlertReceived, NoApplicationProtocol},
    };
    match io.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(NoApplicationProtocol | AlertReceived(AlertDescription::NoApplicationProtocol)) => FrameError::NoVersion,
        _ => io.into(),
    }
}

/// Sends the alert of a failed handshake, and waits until the other side has closed the connection: the system may discard what
/// was sent if this side closes it first.
fn take_leave(tls: &mut ServerConnection, stream: &mut DeadlineStream) {
    while tls.wants_write() && tls.write_tls(stream).is_ok() {}
    let _ = stream.get_ref().shutdown(Shutdown::Write);
    let _ = io::copy(stream, &mut io::sink());
}

fn presented(certificates: Option<&[CertificateDer<'_>]>) -> Vec<CertificateDer<'static>> {
    certificates.into_iter().flatten().map(|certificate| certificate.clone().into_owned()).collect()
}

/// Whether the other side has closed the connection without taking leave. Where it refuses a credential, that may arrive before its
/// alert.
pub(crate) fn is_close(io: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(io.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

fn with_deadline(stream: TcpStream) -> io::Result<DeadlineStream> {
    stream.set_nodelay(true)?;
    Ok(DeadlineStream::new(stream, Instant::now() + HANDSHAKE_TIMEOUT))
}

trait Stream: Read + Write + Send {
    fn socket(&mut self) -> &mut DeadlineStream;
    fn close(&mut self);
}

impl<C, S> Stream for StreamOwned<C, DeadlineStream>
where
    C: DerefMut<Target = ConnectionCommon<S>> + Send,
    S: SideData,
{
    fn socket(&mut self) -> &mut DeadlineStream {
        &mut self.sock
    }

    fn close(&mut self) {
        self.conn.send_close_notify();
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests;
