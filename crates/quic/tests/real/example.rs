//! The server of the examples, as its clients find it.

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

/// A client that sends slowly, or whose network does, makes nobody else wait.
#[tokio::test]
async fn a_request_that_is_not_whole_is_no_work_of_the_server() {
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
    // Far more than work takes: requests that follow closely are a queue.
    tokio::time::sleep(Duration::from_millis(200)).await;
    // Streams are taken in their order: when this one is answered, the slow one is known.
    ask(&mut sender).await;
    assert_eq!(waiting.wait(), Some(Duration::ZERO));
    slow.finish().await.unwrap();
    slow.recv_response().await.unwrap();
}
