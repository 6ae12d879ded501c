//! Attempts to open connections that failed, which the kernel counts for each network namespace.

use std::{
    fs::File,
    io::{Read, Seek},
};

/// The counter of a network namespace from now on.
pub(super) struct Attempts {
    file: Option<File>,
    before: Option<u64>,
}

impl Attempts {
    /// Opens the counter of the network namespace of the calling thread.
    pub(super) fn open() -> Attempts {
        let mut attempts = Attempts { file: File::open("/proc/thread-self/net/snmp").ok(), before: None };
        attempts.before = attempts.count();
        attempts
    }

    /// Returns how many have failed since; `None` if it is not known.
    pub(super) fn failed(&mut self) -> Option<u64> {
        Some(self.count()?.saturating_sub(self.before?))
    }

    fn count(&mut self) -> Option<u64> {
        let (mut text, file) = (String::new(), self.file.as_mut()?);
        file.rewind().ok()?;
        file.read_to_string(&mut text).ok()?;
        attempt_fails(&text)
    }
}

/// Finds tcpAttemptFails (RFC 4022): connections that were closed before they were open. Each protocol has a line of names
/// and one of figures.
fn attempt_fails(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, figures) = (lines.next()?, lines.next()?);
    let at = names.split_ascii_whitespace().position(|name| name == "AttemptFails")?;
    figures.split_ascii_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn connections_that_are_refused_are_counted() {
        let mut attempts = Attempts::open();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        // The listener is gone.
        assert!(TcpStream::connect(address).is_err());
        assert!(attempts.failed().is_some_and(|count| count > 0));
    }

    #[test]
    fn the_figure_is_found_by_its_name() {
        let text = "Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm AttemptFails EstabResets\nTcp: 1 17 3\nUdp: InDatagrams\nUdp: 5\n";
        assert_eq!(attempt_fails(text), Some(17));
        assert_eq!(attempt_fails("Tcp: RtoAlgorithm\nTcp: 1\n"), None);
    }
}
