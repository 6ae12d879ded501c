//! The rotation bits of the connection IDs that clients send to, which name the key of the IDs.

use std::{
    io::{self, IoSliceMut},
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll},
};

use dwell_testbed::{Error, Result};
use quinn::{
    AsyncUdpSocket, Endpoint, EndpointConfig, Runtime, TokioRuntime, UdpPoller,
    udp::{RecvMeta, Transmit},
};

/// The open sockets of clients.
#[derive(Debug, Clone, Default)]
pub(super) struct Watch(Arc<Mutex<Vec<Weak<Socket>>>>);

impl Watch {
    /// Opens a client's endpoint whose outgoing packets are inspected.
    pub(super) fn endpoint(&self, socket: std::net::UdpSocket) -> Result<Endpoint> {
        let failed = || Error::io("open a QUIC endpoint");
        let socket = Arc::new(Socket {
            inner: TokioRuntime.wrap_udp_socket(socket).map_err(failed())?,
            rotation: AtomicU8::new(NONE),
        });
        let mut sockets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.retain(|socket| socket.strong_count() > 0);
        sockets.push(Arc::downgrade(&socket));
        let runtime = Arc::new(TokioRuntime);
        Endpoint::new_with_abstract_socket(EndpointConfig::default(), None, socket, runtime).map_err(failed())
    }

    /// The number of sockets that sent their latest packet to a connection ID of another rotation.
    pub(super) fn count_with_other_rotation(&self, rotation: u8) -> usize {
        let sockets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = sockets.iter().filter_map(Weak::upgrade).map(|socket| socket.rotation.load(Ordering::Relaxed));
        last.filter(|last| ![rotation, NONE].contains(last)).count()
    }
}

#[derive(Debug)]
struct Socket {
    inner: Arc<dyn AsyncUdpSocket>,
    /// The rotation of the latest destination connection ID, or [`NONE`].
    rotation: AtomicU8,
}

/// No packet was sent to an ID of a server yet.
const NONE: u8 = 0xff;

/// The rotation of the destination connection ID, if it is an ID of the experiment's servers. Relies only on the
/// version-independent header of QUIC.
fn rotation(datagram: &[u8]) -> Option<u8> {
    let first = match datagram {
        [form, first, ..] if form & 0x80 == 0 => first,
        [_, _, _, _, _, 17, first, ..] => first,
        _ => return None,
    };
    Some(first >> 5)
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.inner.try_send(transmit)?;
        // Several datagrams in one call belong to one connection.
        if let Some(rotation) = rotation(transmit.contents) {
            self.rotation.store(rotation, Ordering::Relaxed);
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.inner.poll_recv(cx, buffers, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_servers_are_distinguished_from_those_that_clients_invent() {
        let long = |length: u8| [&[0xc0, 0, 0, 0, 1, length, 0x30][..], &[0; 20]].concat();
        assert_eq!(rotation(&[0x40, 0x50, 1, 2]), Some(2));
        assert_eq!(rotation(&long(17)), Some(1));
        assert_eq!(rotation(&long(20)), None);
        assert_eq!(rotation(&[0x40]), None);
        assert_eq!(rotation(&long(17)[..6]), None);
    }
}
