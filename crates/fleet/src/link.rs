//! A connection on which both sides have shown who they are.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use rustls::{ClientConnection, ServerConnection, StreamOwned, pki_types::ServerName};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    Identity,
    wire::{self, FrameError},
};

/// Known to both sides of a connection and to nobody else: to key what they say beside it.
pub type Secret = [u8; 32];

const SECRET_LABEL: &[u8] = b"EXPORTER-dwell-fleet-1";

/// Until both sides have shown who they are and said hello.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);

/// Frames over TLS.
pub(crate) struct Link {
    stream: Box<dyn Stream>,
    pub(crate) secret: Secret,
}

impl Link {
    /// Of an agent.
    pub(crate) fn connect(
        stream: TcpStream,
        identity: &Identity,
        collector: ServerName<'static>,
    ) -> Result<Link, FrameError> {
        let mut tls = ClientConnection::new(identity.client.clone(), collector).map_err(tls)?;
        let mut stream = Timed::new(stream)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut stream)?;
        }
        let secret = tls.export_keying_material([0; 32], SECRET_LABEL, None);
        Ok(Link { secret: secret.map_err(self::tls)?, stream: Box::new(StreamOwned::new(tls, stream)) })
    }

    /// Of a collector.
    pub(crate) fn accept(stream: TcpStream, identity: &Identity) -> Result<Link, FrameError> {
        let mut tls = ServerConnection::new(identity.server.clone()).map_err(tls)?;
        let mut stream = Timed::new(stream)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut stream).map_err(|io| {
                // It may hang up on us before it says why.
                match tls.negotiated_cipher_suite() {
                    Some(_) if io.kind() != io::ErrorKind::TimedOut => FrameError::Stranger(io),
                    _ => io.into(),
                }
            })?;
        }
        let secret = tls.export_keying_material([0; 32], SECRET_LABEL, None);
        Ok(Link { secret: secret.map_err(self::tls)?, stream: Box::new(StreamOwned::new(tls, stream)) })
    }

    /// From now on the other side may pause for so long, in a message too: a great one may
    /// take long on a slow path. At first all must be over in [`HANDSHAKE`].
    pub(crate) fn give(&mut self, time: Duration) {
        self.stream.timed().give(time);
    }

    pub(crate) fn send(&mut self, message: &impl Serialize) -> Result<(), FrameError> {
        let content = wire::encode(message).ok_or(FrameError::Length(wire::MAX_FRAME_BYTES))?;
        self.send_encoded(&content)
    }

    pub(crate) fn send_encoded(&mut self, content: &[u8]) -> Result<(), FrameError> {
        wire::write(&mut self.stream, content)
    }

    pub(crate) fn receive<M: DeserializeOwned>(&mut self, most: usize) -> Result<M, FrameError> {
        wire::decode(&wire::read(&mut self.stream, most)?)
    }
}

impl Drop for Link {
    /// So that the other side knows that nothing was lost.
    fn drop(&mut self) {
        self.stream.close();
    }
}

fn tls(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

trait Stream: Read + Write + Send {
    fn timed(&mut self) -> &mut Timed;
    fn close(&mut self);
}

impl Stream for StreamOwned<ClientConnection, Timed> {
    fn timed(&mut self) -> &mut Timed {
        &mut self.sock
    }

    fn close(&mut self) {
        self.conn.send_close_notify();
        let _ = self.flush();
    }
}

impl Stream for StreamOwned<ServerConnection, Timed> {
    fn timed(&mut self) -> &mut Timed {
        &mut self.sock
    }

    fn close(&mut self) {
        self.conn.send_close_notify();
        let _ = self.flush();
    }
}

/// A connection that fails at a given time.
struct Timed {
    stream: TcpStream,
    until: Instant,
    /// Each byte that moves gives so long again. Without it, however slowly the other side goes
    /// on, the time is the same.
    pause: Option<Duration>,
}

impl Timed {
    fn new(stream: TcpStream) -> io::Result<Timed> {
        stream.set_nodelay(true)?;
        Ok(Timed { stream, until: Instant::now() + HANDSHAKE, pause: None })
    }

    fn give(&mut self, pause: Duration) {
        self.until = Instant::now() + pause;
        self.pause = Some(pause);
    }

    fn moved(&mut self, bytes: usize) -> usize {
        if let Some(pause) = self.pause.filter(|_| bytes > 0) {
            self.give(pause);
        }
        bytes
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        match self.until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(late()),
            left => Ok(Some(left)),
        }
    }
}

/// What the system says of a socket's timeout is hard to understand.
fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the other side is silent or slow")
}

fn told(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => late(),
        _ => error,
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        let bytes = self.stream.read(buffer).map_err(told)?;
        Ok(self.moved(bytes))
    }
}

impl Write for Timed {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        let bytes = self.stream.write(buffer).map_err(told)?;
        Ok(self.moved(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    /// A connection whose other side sends a byte each half second, ten times.
    fn slow() -> Timed {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for _ in 0..10 {
                thread::sleep(Duration::from_millis(500));
                let _ = stream.write_all(b"x");
            }
        });
        Timed::new(TcpStream::connect(address).unwrap()).unwrap()
    }

    #[test]
    fn bytes_that_move_give_new_time() {
        let mut stream = slow();
        stream.give(Duration::from_secs(4));
        let mut all = Vec::new();
        assert_eq!(stream.read_to_end(&mut all).unwrap(), 10);
    }

    #[test]
    fn before_it_is_known_who_it_is_they_do_not() {
        let mut stream = slow();
        stream.until = Instant::now() + Duration::from_secs(2);
        let error = stream.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
