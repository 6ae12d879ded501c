//! Attempts to open connections that failed, and connections that were reset, which the kernel counts for each network namespace.

use std::{
    fs::File,
    io::{Read, Seek},
};

/// The counters of a network namespace from now on.
pub(super) struct Attempts {
    file: Option<File>,
    before: Option<Failures>,
}

/// Connections that failed, whoever had them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failures {
    /// Attempts to open one.
    pub(super) attempts: u64,
    /// Open ones that were reset, by either end.
    pub(super) resets: u64,
}

impl Attempts {
    /// Opens the counters of the network namespace of the calling thread.
    pub(super) fn open() -> Attempts {
        let mut attempts = Attempts { file: File::open("/proc/thread-self/net/snmp").ok(), before: None };
        attempts.before = attempts.count();
        attempts
    }

    /// Returns how many have failed since; `None` if it is not known.
    pub(super) fn failed(&mut self) -> Option<Failures> {
        let (now, before) = (self.count()?, self.before?);
        Some(Failures {
            attempts: now.attempts.saturating_sub(before.attempts),
            resets: now.resets.saturating_sub(before.resets),
        })
    }

    fn count(&mut self) -> Option<Failures> {
        let (mut text, file) = (String::new(), self.file.as_mut()?);
        file.rewind().ok()?;
        file.read_to_string(&mut text).ok()?;
        failures(&text)
    }
}

/// Finds tcpAttemptFails and tcpEstabResets (RFC 4022): connections that were closed before they were open, and those that were closed
/// at once although they were open. Each protocol has a line of names and one of figures.
fn failures(text: &str) -> Option<Failures> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, figures) = (lines.next()?, lines.next()?);
    let figure = |wanted: &str| {
        let at = names.split_ascii_whitespace().position(|name| name == wanted)?;
        figures.split_ascii_whitespace().nth(at)?.parse().ok()
    };
    Some(Failures { attempts: figure("AttemptFails")?, resets: figure("EstabResets")? })
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        net::{TcpListener, TcpStream},
    };

    use super::*;

    #[test]
    fn connections_that_are_reset_are_counted() {
        let mut attempts = Attempts::open();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        client.write_all(b"GET /").unwrap();
        server.peek(&mut [0]).unwrap();
        // Who closes a connection without having read what has arrived resets it.
        drop(server);
        assert!(attempts.failed().is_some_and(|failed| failed.resets > 0));
    }

    #[test]
    fn connections_that_are_refused_are_counted() {
        let mut attempts = Attempts::open();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        // The listener is gone.
        assert!(TcpStream::connect(address).is_err());
        assert!(attempts.failed().is_some_and(|failed| failed.attempts > 0));
    }

    #[test]
    fn figures_are_found_by_their_names() {
        let text = "Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm AttemptFails EstabResets\nTcp: 1 17 3\nUdp: InDatagrams\nUdp: 5\n";
        assert_eq!(failures(text), Some(Failures { attempts: 17, resets: 3 }));
        assert_eq!(failures("Tcp: RtoAlgorithm\nTcp: 1\n"), None);
    }
}
