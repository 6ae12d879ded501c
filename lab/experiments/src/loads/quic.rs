use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use dwell_testbed::{Bytes, Error, Namespace, Result};
use quinn::{ClientConfig, Connection, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, VarInt};
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use tokio::{sync::oneshot, task::JoinSet, time::timeout};

use dwell_testbed::workload::{Ends, PATIENCE, RoundTrips};

pub(super) const SERVER_NAME: &str = "server.test";

/// Requests and responses over QUIC, a stream each, one after the other on every connection, connections side by
/// side, each from a port of its own. The library disables the spin bit on a random share of connections, as RFC 9000 demands; with several, some
/// spin.
#[derive(Debug, Clone, Copy)]
pub struct Quic {
    /// How many connections.
    pub connections: u32,
    /// For how long.
    pub duration: Duration,
    /// Longest message; lengths are uniform from 1. Requests and responses are of one length.
    pub longest: Bytes,
    /// Seed of the lengths.
    pub seed: u64,
}

/// What the QUIC clients found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QuicReport {
    /// From before a request is written until its response is read, connection by connection.
    pub round_trips: RoundTrips,
    /// From the first packet of each connection until it is established: one round trip and the cryptography.
    pub handshakes: RoundTrips,
}

impl Quic {
    /// Talks to the server from the client.
    pub fn run(&self, ends: Ends<'_>, stop: &AtomicBool) -> Result<QuicReport> {
        let identity = Identity::new()?;
        let certificate = identity.certificate.clone();
        let server_socket = bind(ends.server, ends.address)?;
        let client_sockets =
            (0..self.connections).map(|_| bind(ends.client, unspecified(ends.address))).collect::<Result<Vec<_>>>()?;
        let address = server_socket.local_addr().map_err(Error::io("listen"))?;
        let (finish, finished) = oneshot::channel();
        std::thread::scope(|scope| {
            let server = scope.spawn(|| block_on(serve(server_socket, identity, finished)));
            let client = block_on(self.ask(client_sockets, address, certificate, stop));
            // A server that has failed waits for nothing.
            let _ = finish.send(());
            let server = server.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            client.and_then(|report| server.map(|()| report))
        })
    }

    async fn ask(
        self,
        sockets: Vec<std::net::UdpSocket>,
        address: SocketAddr,
        certificate: CertificateDer<'static>,
        stop: &AtomicBool,
    ) -> Result<QuicReport> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate).map_err(|why| Error::invalid("certificate", why))?;
        let config =
            ClientConfig::with_root_certificates(Arc::new(roots)).map_err(|why| Error::invalid("QUIC client", why))?;
        let mut report = QuicReport::default();
        let mut conversations = JoinSet::new();
        let mut endpoints = Vec::new();
        for (number, socket) in (0..).zip(sockets) {
            let mut endpoint = endpoint(socket, None)?;
            endpoint.set_default_client_config(config.clone());
            let begun = Instant::now();
            let connecting =
                endpoint.connect(address, SERVER_NAME).map_err(|why| Error::invalid("QUIC client", why))?;
            let connection = in_time(connecting, "a QUIC connection").await?;
            report.handshakes.0.push(begun.elapsed().into());
            conversations.spawn(self.converse(connection, self.seed.wrapping_add(number)));
            endpoints.push(endpoint);
        }
        let mut look = tokio::time::interval(Duration::from_millis(20));
        while !conversations.is_empty() {
            tokio::select! {
                Some(done) = conversations.join_next() => {
                    let trips = done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
                    report.round_trips.0.extend(trips.0);
                }
                _ = look.tick() => {
                    if stop.load(Ordering::Relaxed) {
                        return Err(Error::Interrupted);
                    }
                }
            }
        }
        // The last words reach the server if they can.
        let idle = async {
            for endpoint in &endpoints {
                endpoint.wait_idle().await;
            }
        };
        let _ = timeout(Duration::from_millis(500), idle).await;
        Ok(report)
    }

    async fn converse(self, connection: Connection, seed: u64) -> Result<RoundTrips> {
        let longest = usize::try_from(self.longest.0.max(1)).unwrap_or(usize::MAX);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let begun = Instant::now();
        let mut trips = Vec::new();
        while begun.elapsed() < self.duration {
            let message = vec![0x5a; random.random_range(1..=longest)];
            let sent = Instant::now();
            let (mut request, mut response) = in_time(connection.open_bi(), "a QUIC stream").await?;
            in_time(request.write_all(&message), "a QUIC request").await?;
            request.finish().map_err(|why| Error::invalid("QUIC request", why))?;
            in_time(response.read_to_end(longest), "a QUIC response").await?;
            trips.push(sent.elapsed().into());
        }
        connection.close(VarInt::from_u32(0), b"done");
        Ok(RoundTrips(trips))
    }
}

pub(super) async fn in_time<T, E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    work: impl Future<Output = std::result::Result<T, E>>,
    what: &str,
) -> Result<T> {
    match timeout(PATIENCE, work).await {
        Ok(done) => done.map_err(|why| Error::invalid(what, why)),
        Err(_) => Err(Error::Timeout(what.to_owned())),
    }
}

pub(super) struct Identity {
    pub(super) certificate: CertificateDer<'static>,
    pub(super) key: PrivateKeyDer<'static>,
}

impl Identity {
    pub(super) fn new() -> Result<Self> {
        let made = rcgen::generate_simple_self_signed([SERVER_NAME.to_owned()])
            .map_err(|why| Error::invalid("certificate", why))?;
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())
            .map_err(|why| Error::invalid("certificate", why))?;
        Ok(Self { certificate: made.cert.der().clone(), key })
    }
}

/// Sends every request back on its stream, until told to finish.
async fn serve(socket: std::net::UdpSocket, identity: Identity, mut finished: oneshot::Receiver<()>) -> Result<()> {
    let config = ServerConfig::with_single_cert(vec![identity.certificate], identity.key)
        .map_err(|why| Error::invalid("QUIC server", why))?;
    let endpoint = endpoint(socket, Some(config))?;
    loop {
        tokio::select! {
            Some(incoming) = endpoint.accept() => {
                tokio::spawn(async move {
                    // The client tells of any failure; here a connection just ends.
                    let Ok(connection) = incoming.await else { return };
                    while let Ok((mut response, mut request)) = connection.accept_bi().await {
                        let Ok(message) = request.read_to_end(1 << 20).await else { return };
                        if response.write_all(&message).await.is_err() || response.finish().is_err() {
                            return;
                        }
                    }
                });
            }
            _ = &mut finished => return Ok(()),
        }
    }
}

pub(crate) fn endpoint(socket: std::net::UdpSocket, server: Option<ServerConfig>) -> Result<Endpoint> {
    Endpoint::new(EndpointConfig::default(), server, socket, Arc::new(TokioRuntime))
        .map_err(Error::io("open a QUIC endpoint"))
}

/// The socket keeps its namespace wherever it is used.
fn bind(namespace: &Namespace, address: IpAddr) -> Result<std::net::UdpSocket> {
    namespace.enter(|| std::net::UdpSocket::bind((address, 0)))?.map_err(Error::io(format!("bind to {address}")))
}

fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Runs to the end on the calling thread. Tasks left over are dropped.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::io("start an event loop"))?
        .block_on(work)
}
