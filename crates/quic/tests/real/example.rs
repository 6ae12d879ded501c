//! The example server, as clients experience it.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use dwell_quic::WaitingTimes;
use h3::client::SendRequest;
use http::Request;
use quinn::{Endpoint, ServerConfig};

use crate::{client::Client, server::Identity, server_example};

type Sender = SendRequest<h3_quinn::OpenStreams, Bytes>;

fn start(identity: &Identity, waiting: &WaitingTimes) -> SocketAddr {
    let tls = quinn::crypto::rustls::QuicServerConfig::try_from(identity.tls()).unwrap();
    let config = ServerConfig::with_crypto(Arc::new(tls));
    let endpoint = Endpoint::server(config, (Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = endpoint.local_addr().unwrap();
    let waiting = waiting.clone();
    tokio::spawn(async move {
        while let Some(incoming) = endpoint.accept().await {
            tokio::spawn(server_example::serve(incoming, waiting.clone()));
        }
    });
    address
}

fn post() -> Request<()> {
    Request::post("https://server.test/").body(()).unwrap()
}

async fn ask(sender: &mut Sender) {
    let mut stream = sender.send_request(post()).await.unwrap();
    stream.finish().await.unwrap();
    assert!(stream.recv_response().await.unwrap().status().is_success());
}

/// A slow client or network does not delay other requests.
#[tokio::test]
async fn an_incomplete_request_does_not_count_as_work() {
    let identity = Identity::new();
    let waiting = WaitingTimes::new(1);
    let address = start(&identity, &waiting);
    let client = Client::new(&identity.certificate);
    let (_endpoint, connection) = client.connect(address).await;
    let connection = h3_quinn::Connection::new(connection);
    let (mut driver, mut sender) = h3::client::new(connection).await.unwrap();
    tokio::spawn(async move { driver.wait_idle().await });
    ask(&mut sender).await;
    let mut slow = sender.send_request(post()).await.unwrap();
    slow.send_data(Bytes::from_static(b"the rest comes")).await.unwrap();
    // Far longer than a service time: requests in close succession would form a queue.
    tokio::time::sleep(Duration::from_millis(200)).await;
    // Streams are accepted in order: when this one is answered, the slow one has been accepted.
    ask(&mut sender).await;
    assert_eq!(waiting.wait(), Some(Duration::ZERO));
    slow.finish().await.unwrap();
    slow.recv_response().await.unwrap();
}
