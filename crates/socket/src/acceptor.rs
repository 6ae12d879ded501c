//! What those who listen have in common: what to do where that fails, and how to stop a thread that blocks in `accept`.

use std::{
    io::{self, ErrorKind},
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

/// Says what to do about an address that cannot be listened on, as the end of a sentence. Empty where nothing is known to help.
pub fn remedy(address: SocketAddr, error: &io::Error) -> String {
    let port = address.port();
    match error.kind() {
        ErrorKind::AddrInUse => {
            format!(": choose another port; `ss -ltnp sport = :{port}` shows which process has this one")
        }
        ErrorKind::PermissionDenied => ": choose a port from 1024 on, or grant CAP_NET_BIND_SERVICE".into(),
        ErrorKind::AddrNotAvailable => ": no interface has this address; `ip address` lists those there are".into(),
        _ => String::new(),
    }
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
