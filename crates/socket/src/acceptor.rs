//! Stops a thread that blocks in `accept`.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    time::Duration,
};

/// How long to wait for the connection; the listener is on this host.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Wakes the thread that accepts connections on `listener`, by connecting to it. The caller first sets the flag that
/// the thread checks after each `accept`. Returns false if the connection failed; the thread may then still block, and
/// must not be joined.
pub fn wake(listener: SocketAddr) -> bool {
    let ip = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    TcpStream::connect_timeout(&SocketAddr::new(ip, listener.port()), TIMEOUT).is_ok()
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    #[test]
    fn a_thread_that_waits_for_connections_is_woken_on_every_kind_of_address() {
        for address in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let address = listener.local_addr().unwrap();
            let acceptor = thread::spawn(move || listener.accept().is_ok());
            assert!(wake(address), "{address}");
            assert!(acceptor.join().unwrap());
            assert!(!wake(address), "nothing listens on {address} any more");
        }
    }
}
