//! A server that counts its requests, and its certificate.

use std::{
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{Arc, Mutex},
};

use quinn::{Connection, Endpoint, EndpointConfig, ServerConfig, TokioRuntime};
use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer},
    server::StoresServerSessions,
};

pub const NAME: &str = "server.test";

/// The certificate and private key of the servers.
pub struct Identity {
    pub certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    pub fn new() -> Identity {
        let generated = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
        Identity {
            certificate: generated.cert.der().clone(),
            key: PrivateKeyDer::try_from(generated.signing_key.serialize_der()).unwrap(),
        }
    }

    pub fn tls(&self) -> rustls::ServerConfig {
        rustls::ServerConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], self.key.clone_key())
            .unwrap()
    }

    /// Builds the configuration of [`dwell_quic::single_use`] with an arbitrary store.
    pub fn quic(&self, sessions: Arc<dyn StoresServerSessions>, tickets: usize) -> ServerConfig {
        let mut tls = self.tls();
        tls.session_storage = sessions;
        tls.send_tls13_tickets = tickets;
        tls.max_early_data_size = u32::MAX;
        let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(tls).unwrap();
        ServerConfig::with_crypto(Arc::new(crypto))
    }
}

/// For each request, how many times it was executed, and how many of these times as 0-RTT data.
pub type Done = Arc<Mutex<HashMap<Vec<u8>, (u32, u32)>>>;

pub struct Server {
    pub address: SocketAddr,
    pub done: Done,
}

impl Server {
    pub fn start(config: ServerConfig, endpoint: EndpointConfig, done: Done) -> Server {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        let runtime = Arc::new(TokioRuntime);
        let endpoint = Endpoint::new(endpoint, Some(config), socket, runtime).unwrap();
        tokio::spawn(serve(endpoint, Arc::clone(&done)));
        Server { address, done }
    }

    pub fn plain(config: ServerConfig) -> Server {
        Server::start(config, EndpointConfig::default(), Done::default())
    }

    pub fn done(&self, request: &[u8]) -> (u32, u32) {
        self.done.lock().unwrap().get(request).copied().unwrap_or_default()
    }
}

async fn serve(endpoint: Endpoint, done: Done) {
    while let Some(incoming) = endpoint.accept().await {
        let done = Arc::clone(&done);
        tokio::spawn(async move {
            // A replayed connection ends before it is established.
            let Ok((connection, _)) = dwell_quic::accept(incoming).await else {
                return;
            };
            answer(connection, done).await;
        });
    }
}

async fn answer(connection: Connection, done: Done) {
    while let Ok((mut response, mut request)) = connection.accept_bi().await {
        let is_early = request.is_0rtt();
        let Ok(body) = request.read_to_end(1 << 16).await else {
            return;
        };
        {
            let mut done = done.lock().unwrap();
            let count = done.entry(body).or_default();
            count.0 += 1;
            count.1 += u32::from(is_early);
        }
        let _ = response.write_all(b"done").await;
        let _ = response.finish();
    }
}
