//! All connections of a network namespace, polled at once.

use std::collections::HashSet;

use dwell_engine::{
    layers::Ends,
    measure::Protocol,
    socket::{Reading, TcpInfo},
};

use super::{Error, diag::Diag, message::SocketReport};

/// A connection at the moment of a poll.
#[derive(Debug, Clone, Copy)]
pub struct PolledSocket {
    /// The kernel's number of the socket (SO_COOKIE), unique until the host restarts.
    pub cookie: u64,
    /// The inode of its file, which names its process; 0 if no process has it.
    pub inode: u32,
    /// The connection, from this host.
    pub ends: Ends,
    /// What the kernel reports of it.
    pub reading: Reading,
}

/// Polls every TCP connection of the network namespace in which it was opened, whoever has it. It takes no privilege.
pub struct Census {
    diag: Diag,
}

impl Census {
    /// Opens netlink.
    ///
    /// # Errors
    ///
    /// If netlink is not available.
    pub fn open() -> Result<Census, Error> {
        Ok(Census { diag: Diag::open()? })
    }

    /// Polls every connection. A query costs the kernel about 1 µs per connection.
    ///
    /// # Errors
    ///
    /// If the kernel does not report its sockets.
    pub fn poll(&mut self, mut each: impl FnMut(&PolledSocket)) -> Result<(), Error> {
        self.diag.dump_connected(true, &mut |time_ns, report| {
            if let Some(info) = report.info {
                each(&PolledSocket {
                    cookie: report.key.cookie(),
                    inode: report.inode,
                    ends: report.key.ends(),
                    reading: reading(time_ns, report, info),
                });
            }
        })
    }

    /// Returns the ports at which sockets of TCP listen.
    ///
    /// # Errors
    ///
    /// If the kernel does not report its sockets.
    pub fn listening_ports(&mut self) -> Result<HashSet<u16>, Error> {
        self.diag.listening_ports()
    }

    /// Passes the ends and the inode of every socket of TCP, also of those that listen, and of UDP. The other end of a socket
    /// that has none has port 0.
    ///
    /// # Errors
    ///
    /// If the kernel does not report its sockets.
    pub(crate) fn inodes(&mut self, mut each: impl FnMut(Protocol, Ends, u32)) -> Result<(), Error> {
        let mut tcp = |_: u64, report: &SocketReport| each(Protocol::TCP, report.key.ends(), report.inode);
        self.diag.dump_connected(false, &mut tcp)?;
        self.diag.dump_listening(&mut tcp)?;
        self.diag.dump_datagrams(&mut |_, report| each(Protocol::UDP, report.key.ends(), report.inode))
    }
}

/// Makes a reading of what the kernel reports of a socket.
pub(in crate::outside) fn reading(time_ns: u64, report: &SocketReport, info: TcpInfo) -> Reading {
    Reading {
        time_ns,
        info,
        unacknowledged: Some(report.unacknowledged.into()),
        readable: Some(report.readable.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    #[test]
    fn both_ends_of_a_connection_are_polled_with_what_they_have_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[0; 1000]).unwrap();
        server.read_exact(&mut [0; 1000]).unwrap();
        let port = client.local_addr().unwrap().port();
        let mut found = Vec::new();
        Census::open()
            .unwrap()
            .poll(|polled| {
                if [polled.ends.src.port, polled.ends.dst.port].contains(&port) {
                    found.push(*polled);
                }
            })
            .unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        let sent: u64 = found.iter().filter_map(|polled| polled.reading.info.bytes_sent).sum();
        assert_eq!(sent, 1000);
        assert_ne!(found[0].cookie, found[1].cookie);
        assert!(found.iter().all(|polled| polled.inode != 0));
    }
}
