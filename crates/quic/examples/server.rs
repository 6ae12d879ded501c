//! An HTTP/3 server behind `dwell lb` with `policy = "zero-rtt"`.
//!
//!     cargo run -p dwell-quic --example server -- ADDRESS:PORT SERVER-ID KEY-FILE CERTIFICATE-FILE
//!
//! The key file holds the 16 octets that the balancer uses for rotation 0, and reads as hexadecimal digits. The server
//! generates a certificate for the name `localhost` and writes it in DER for the client.

use std::{
    net::{SocketAddr, UdpSocket},
    path::PathBuf,
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use bytes::{Buf, Bytes};
use dwell_quic::{Cids, Config, Limits, Setup, SingleUseSessions, WaitingTimes};
use h3::server::RequestResolver;
use http::Response;
use quinn::{Endpoint, Incoming, TokioRuntime};

type Resolver = RequestResolver<h3_quinn::Connection, Bytes>;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, server, key, certificate] = &arguments[..] else {
        bail!("usage: server ADDRESS:PORT SERVER-ID KEY-FILE CERTIFICATE-FILE");
    };
    let address: SocketAddr = address.parse().context("the address")?;
    let key: [u8; 16] = std::fs::read(key)?.try_into().ok().context("a key has 16 octets")?;

    let waiting = WaitingTimes::new(1);
    let reported = waiting.clone();
    let cids = Cids::new(
        server.parse().context("the server ID")?,
        Config::own(0, key)?,
        Some(dwell_quic::HEARTBEAT),
        move || reported.wait(),
    )?;
    let setup = Setup::new(cids, SingleUseSessions::new(Limits::default()));
    let (server, endpoint) = setup.configs(tls(&PathBuf::from(certificate))?)?;
    let socket = UdpSocket::bind(address)?;
    let endpoint = Endpoint::new(endpoint, Some(server), socket, Arc::new(TokioRuntime))?;
    eprintln!("listening at {}", endpoint.local_addr()?);
    while let Some(incoming) = endpoint.accept().await {
        let waiting = waiting.clone();
        tokio::spawn(async move {
            // A client that closes its connection ends this with an error.
            let _ = serve(incoming, waiting).await;
        });
    }
    Ok(())
}

fn tls(certificate: &PathBuf) -> Result<rustls::ServerConfig> {
    let generated = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    std::fs::write(certificate, generated.cert.der())?;
    let key = generated.signing_key.serialize_der().try_into().map_err(anyhow::Error::msg)?;
    let mut tls = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![generated.cert.der().clone()], key)?;
    tls.alpn_protocols = vec![b"h3".to_vec()];
    Ok(tls)
}

/// Serves a connection to its end.
pub async fn serve(incoming: Incoming, waiting: WaitingTimes) -> Result<()> {
    let (connection, _) = dwell_quic::accept(incoming).await?;
    let mut connection = h3::server::builder().build(h3_quinn::Connection::new(connection)).await?;
    while let Some(resolver) = connection.accept().await? {
        let waiting = waiting.clone();
        tokio::spawn(async move {
            if let Err(error) = answer(resolver, &waiting).await {
                eprintln!("{error:#}");
            }
        });
    }
    Ok(())
}

async fn answer(resolver: Resolver, waiting: &WaitingTimes) -> Result<()> {
    let (request, mut stream) = resolver.resolve_request().await?;
    // Read to the end even if no body is expected: otherwise the client is asked to stop sending.
    let mut length = 0;
    while let Some(data) = stream.recv_data().await? {
        length += data.remaining();
    }
    // Only the server's own work counts as service: reading and sending proceed at the client's pace. Where requests
    // queue for a worker, service begins after the queue.
    let service = waiting.arrived().begin();
    let text = format!("{} {}, {length} bytes\n", request.method(), request.uri().path());
    drop(service);
    stream.send_response(Response::new(())).await?;
    stream.send_data(text.into()).await?;
    Ok(stream.finish().await?)
}
