use std::{net::UdpSocket, sync::Arc, time::Duration};

use bytes::Bytes;
use dwell_socket::clock::monotonic_ns;
use dwell_testbed::{Error, Nanos, Result};
use h3::server::RequestResolver;
use http::{Request, Response};
use quinn::crypto::rustls::QuicServerConfig;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use super::{PROTOCOL, ServerPart, provider};
use crate::loads::{
    quic::{block_on, endpoint},
    web::Service,
};

/// A piece of body.
static BODY: [u8; 64 << 10] = [b'x'; 64 << 10];

type Connection = h3::server::Connection<h3_quinn::Connection, Bytes>;
type Resolver = RequestResolver<h3_quinn::Connection, Bytes>;
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Serves until the process is killed. The requests of a connection are worked on at the same time.
pub(in super::super) fn serve(part: ServerPart) -> Result<()> {
    part.config.join_group()?;
    let address = part.config.address;
    let service = Arc::new(Service::new(part.config.service, part.config.seed));
    let wrong = |why: &dyn std::fmt::Display| Error::invalid("HTTP/3 server", why.to_string());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|why| wrong(&why))?
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(part.certificate)], PrivatePkcs8KeyDer::from(part.key).into())
        .map_err(|why| wrong(&why))?;
    tls.alpn_protocols = vec![PROTOCOL.to_vec()];
    let tls = QuicServerConfig::try_from(tls).map_err(|why| wrong(&why))?;
    let config = quinn::ServerConfig::with_crypto(Arc::new(tls));
    block_on(async {
        let socket = UdpSocket::bind(address).map_err(Error::io(format!("listen at {address}")))?;
        let endpoint = endpoint(socket, Some(config))?;
        let begun_ns = monotonic_ns();
        while let Some(incoming) = endpoint.accept().await {
            let service = Arc::clone(&service);
            // A client that goes away ends its connection and nothing else; it tells of any failure.
            tokio::spawn(async move {
                let _ = converse(incoming, service, begun_ns).await;
            });
        }
        Ok(())
    })
}

async fn converse(incoming: quinn::Incoming, service: Arc<Service>, begun_ns: u64) -> std::result::Result<(), Failure> {
    let transport = h3_quinn::Connection::new(incoming.await?);
    let mut connection: Connection = h3::server::builder().send_grease(false).build(transport).await?;
    while let Some(resolver) = connection.accept().await? {
        let service = Arc::clone(&service);
        tokio::spawn(async move {
            let _ = answer(resolver, &service, begun_ns).await;
        });
    }
    Ok(())
}

async fn answer(resolver: Resolver, service: &Service, begun_ns: u64) -> std::result::Result<(), Failure> {
    let (request, mut stream) = resolver.resolve_request().await?;
    let read_ns = monotonic_ns();
    let (bytes, id) = parse(&request).ok_or("a path is /CLASS/BYTES/ID")?;
    let time = service.time(id, Nanos(read_ns - begun_ns));
    tokio::time::sleep(Duration::from(time)).await;
    stream.send_response(Response::new(())).await?;
    let mut left = bytes;
    while left > 0 {
        let piece = left.min(BODY.len() as u64);
        stream.send_data(Bytes::from_static(&BODY[..piece as usize])).await?;
        left -= piece;
    }
    stream.finish().await?;
    Ok(())
}

/// Length of the object, and number of the request.
fn parse(request: &Request<()>) -> Option<(u64, u64)> {
    let mut parts = request.uri().path().split('/').skip(2);
    let bytes = parts.next()?.parse().ok()?;
    let id = parts.next()?.parse().ok()?;
    parts.next().is_none().then_some((bytes, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_tells_length_and_number() {
        let request = |path: &str| {
            let uri = format!("https://server.test{path}");
            parse(&Request::get(uri).body(()).unwrap())
        };
        assert_eq!(request("/css/700/31"), Some((700, 31)));
        assert_eq!(request("/css/700"), None);
        assert_eq!(request("/css/700/31/1"), None);
        assert_eq!(request("/css/x/31"), None);
    }
}
