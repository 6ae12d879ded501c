//! Connections of TLS to a server that takes long to find its certificate, as one that fetches it or has its key elsewhere.

use std::{
    io::{Read, Result, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use dwell_testbed::Error;
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    client::Resumption,
    crypto::ring::sign::any_supported_type,
    pki_types::{PrivateKeyDer, ServerName},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use super::traffic::{LONGEST_REQUEST, MESSAGE};

const NAME: &str = "server.test";

/// A certificate that is found late.
#[derive(Debug)]
struct Late {
    key: Arc<CertifiedKey>,
    late: Duration,
}

impl ResolvesServerCert for Late {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        thread::sleep(self.late);
        Some(Arc::clone(&self.key))
    }
}

/// What server and client need: a certificate of the server alone, that is found late, and no resumed sessions.
pub fn configure(late: Duration) -> dwell_testbed::Result<(Arc<ServerConfig>, Arc<ClientConfig>)> {
    let wrong = |why: String| Error::invalid("certificate", why);
    let pair = KeyPair::generate().map_err(|why| wrong(why.to_string()))?;
    let params = CertificateParams::new([NAME.to_owned()]).map_err(|why| wrong(why.to_string()))?;
    let certificate = params.self_signed(&pair).map_err(|why| wrong(why.to_string()))?.der().clone();
    let key = any_supported_type(&PrivateKeyDer::Pkcs8(pair.serialize_der().into()));
    let key = key.map_err(|why| wrong(why.to_string()))?;
    let key = Arc::new(CertifiedKey::new(vec![certificate.clone()], key));
    let server = ServerConfig::builder().with_no_client_auth().with_cert_resolver(Arc::new(Late { key, late }));
    let mut roots = RootCertStore::empty();
    roots.add(certificate).map_err(|why| wrong(why.to_string()))?;
    let mut client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    client.resumption = Resumption::disabled();
    Ok((Arc::new(server), Arc::new(client)))
}

/// Answers one request on each connection.
pub fn serve(listener: &TcpListener, config: &Arc<ServerConfig>, is_over: &AtomicBool) {
    while let Ok((socket, _)) = listener.accept() {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        // One that fails is followed by another.
        let _ = answer(socket, config);
    }
}

fn answer(socket: TcpStream, config: &Arc<ServerConfig>) -> Result<()> {
    socket.set_read_timeout(Some(LONGEST_REQUEST))?;
    socket.set_nodelay(true)?;
    let secure = ServerConnection::new(Arc::clone(config)).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(secure, socket);
    let mut message = [0; MESSAGE];
    stream.read_exact(&mut message)?;
    stream.write_all(&message)?;
    stream.flush()
}

/// Connects for each request.
pub fn ask_each(address: SocketAddr, config: &Arc<ClientConfig>, pause: Duration, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let _ = ask(address, config);
        thread::sleep(pause);
    }
}

fn ask(address: SocketAddr, config: &Arc<ClientConfig>) -> Result<()> {
    let socket = TcpStream::connect_timeout(&address, LONGEST_REQUEST)?;
    socket.set_read_timeout(Some(LONGEST_REQUEST))?;
    socket.set_nodelay(true)?;
    let name = ServerName::try_from(NAME).map_err(std::io::Error::other)?;
    let secure = ClientConnection::new(Arc::clone(config), name).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(secure, socket);
    stream.write_all(&[1; MESSAGE])?;
    stream.read_exact(&mut [0; MESSAGE])
}
