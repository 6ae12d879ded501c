//! An HTTP/3 client that returns several times, each time on a new connection.
//!
//!     cargo run -p dwell-quic --example client -- ADDRESS:PORT CERTIFICATE-FILE [TIMES]
#![allow(clippy::print_stdout)]

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use bytes::{Buf, Bytes};
use h3::error::StreamError;
use http::Request;
use quinn::{ClientConfig, Connection, Endpoint, ZeroRttAccepted, crypto::rustls::QuicClientConfig};

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (address, certificate, times) = match &arguments[..] {
        [address, certificate] => (address, certificate, 5),
        [address, certificate, times] => (address, certificate, times.parse()?),
        _ => bail!("usage: client ADDRESS:PORT CERTIFICATE-FILE [TIMES]"),
    };
    let address: SocketAddr = address.parse().context("the address")?;
    let config = config(std::fs::read(certificate)?)?;
    for _ in 0..times {
        // A new port each time, as a client that returns later has.
        let mut endpoint = Endpoint::client((Ipv4Addr::UNSPECIFIED, 0).into())?;
        endpoint.set_default_client_config(config.clone());
        let start = Instant::now();
        let (answer, handshake) = fetch(&endpoint, address).await?;
        let elapsed = start.elapsed();
        println!("{handshake}, {elapsed:.1?}: {}", answer.trim_end());
        // New tickets arrive after the handshake.
        tokio::time::sleep(Duration::from_millis(50)).await;
        endpoint.close(0x100_u32.into(), b"");
        endpoint.wait_idle().await;
    }
    Ok(())
}

fn config(certificate: Vec<u8>) -> Result<ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.into())?;
    let mut tls = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    tls.enable_early_data = true;
    Ok(ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?)))
}

async fn fetch(endpoint: &Endpoint, address: SocketAddr) -> Result<(String, &'static str)> {
    let (connection, accepted): (Connection, Option<ZeroRttAccepted>) =
        match endpoint.connect(address, "localhost")?.into_0rtt() {
            Ok((connection, accepted)) => (connection, Some(accepted)),
            Err(connecting) => (connecting.await?, None),
        };
    let first = request(&connection).await;
    let Some(accepted) = accepted else {
        return Ok((first?, "full handshake"));
    };
    if accepted.await {
        return Ok((first?, "0-RTT"));
    }
    // Streams opened before the refusal are lost: the application has to send the request again.
    Ok((request(&connection).await?, "0-RTT refused"))
}

async fn request(connection: &Connection) -> Result<String> {
    let transport = h3_quinn::Connection::new(connection.clone());
    let (mut driver, mut sender) = h3::client::builder().build::<_, _, Bytes>(transport).await?;
    let driver = tokio::spawn(async move { driver.wait_idle().await });
    let exchange = async {
        let request = Request::get("https://localhost/").body(())?;
        let mut stream = sender.send_request(request).await?;
        stream.finish().await?;
        stream.recv_response().await?;
        let mut text = Vec::new();
        while let Some(mut data) = stream.recv_data().await? {
            text.extend_from_slice(&data.copy_to_bytes(data.remaining()));
        }
        Ok::<_, StreamError>(String::from_utf8_lossy(&text).into_owned()).map_err(anyhow::Error::from)
    };
    let answer = exchange.await;
    driver.abort();
    answer
}
