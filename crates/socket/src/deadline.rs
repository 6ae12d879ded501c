//! TCP streams whose reads and writes end at a deadline.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

/// A TCP stream that fails with [`ErrorKind::TimedOut`] once its deadline has passed, however slowly the peer sends.
///
/// A timeout of the socket alone would start anew with each byte.
#[derive(Debug)]
pub struct DeadlineStream {
    stream: TcpStream,
    deadline: Instant,
    /// Once set, each byte that is read or written moves the deadline this far into the future.
    idle_timeout: Option<Duration>,
}

impl DeadlineStream {
    /// Wraps a connected stream.
    pub fn new(stream: TcpStream, deadline: Instant) -> DeadlineStream {
        DeadlineStream { stream, deadline, idle_timeout: None }
    }

    /// Connects to `address` before the deadline.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`] if the deadline passes first, and all errors of connecting.
    pub fn connect(address: SocketAddr, deadline: Instant) -> io::Result<DeadlineStream> {
        let stream = TcpStream::connect_timeout(&address, time_left(deadline)?)?;
        Ok(DeadlineStream::new(stream, deadline))
    }

    /// Replaces the fixed deadline by an idle timeout: from now on the stream fails once no byte has moved for this
    /// long. Calling it again starts the time anew.
    pub fn set_idle_timeout(&mut self, timeout: Duration) {
        self.deadline = Instant::now() + timeout;
        self.idle_timeout = Some(timeout);
    }

    /// Replaces deadline and idle timeout by a new deadline, which bytes do not move.
    pub fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
        self.idle_timeout = None;
    }

    /// The stream itself, whose own reads and writes have no deadline.
    pub fn get_ref(&self) -> &TcpStream {
        &self.stream
    }

    fn moved(&mut self, bytes: usize) -> usize {
        if let Some(timeout) = self.idle_timeout.filter(|_| bytes > 0) {
            self.set_idle_timeout(timeout);
        }
        bytes
    }

    /// Calls `transfer`, again after each signal.
    fn transfer(
        &mut self,
        mut transfer: impl FnMut(&mut TcpStream, Duration) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            let left = time_left(self.deadline)?;
            match transfer(&mut self.stream, left) {
                Ok(bytes) => return Ok(self.moved(bytes)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The system reports an expired socket timeout this way.
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(timed_out()),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Read for DeadlineStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.transfer(|stream, left| {
            stream.set_read_timeout(Some(left))?;
            stream.read(buffer)
        })
    }
}

impl Write for DeadlineStream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.transfer(|stream, left| {
            stream.set_write_timeout(Some(left))?;
            stream.write(buffer)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Returns the time until the deadline, which is never zero.
///
/// # Errors
///
/// [`ErrorKind::TimedOut`] if the deadline has passed.
pub fn time_left(deadline: Instant) -> io::Result<Duration> {
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(timed_out()),
        left => Ok(left),
    }
}

fn timed_out() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "the other side is silent or slow")
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    /// Returns a connection whose other side sends a byte every 200 ms, ten times, and then closes.
    fn slow_peer(deadline: Duration) -> DeadlineStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for _ in 0..10 {
                thread::sleep(Duration::from_millis(200));
                let _ = stream.write_all(b"x");
            }
        });
        DeadlineStream::connect(address, Instant::now() + deadline).unwrap()
    }

    #[test]
    fn bytes_that_move_do_not_extend_the_deadline() {
        let mut stream = slow_peer(Duration::from_millis(700));
        let mut received = Vec::new();
        let error = stream.read_to_end(&mut received).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "the other side is silent or slow");
        assert!(received.len() < 10);
        // Neither does a later read or write wait.
        assert_eq!(stream.write(b"x").unwrap_err().kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn bytes_that_move_restart_the_idle_timeout() {
        let mut stream = slow_peer(Duration::from_millis(700));
        stream.set_idle_timeout(Duration::from_millis(1_500));
        let mut received = Vec::new();
        assert_eq!(stream.read_to_end(&mut received).unwrap(), 10);
    }

    #[test]
    fn a_new_deadline_ends_the_idle_timeout() {
        let mut stream = slow_peer(Duration::from_millis(100));
        stream.set_idle_timeout(Duration::from_millis(1_500));
        stream.set_deadline(Instant::now() + Duration::from_millis(700));
        let mut received = Vec::new();
        assert_eq!(stream.read_to_end(&mut received).unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(received.len() < 10);
    }

    #[test]
    fn a_write_that_nobody_reads_ends_at_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let deadline = Instant::now() + Duration::from_millis(300);
        let mut stream = DeadlineStream::connect(listener.local_addr().unwrap(), deadline).unwrap();
        let error = stream.write_all(&vec![0; 64 << 20]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn nothing_is_tried_after_the_deadline() {
        let past = Instant::now();
        assert_eq!(time_left(past).unwrap_err().kind(), ErrorKind::TimedOut);
        let address = "127.0.0.1:1".parse().unwrap();
        assert_eq!(DeadlineStream::connect(address, past).unwrap_err().kind(), ErrorKind::TimedOut);
    }
}
