//! The code of the guide, which stands here as it does there.

use std::{collections::VecDeque, io, net::UdpSocket, sync::Arc};

use dwell_quic::{Cids, Config, HEARTBEAT, HandOver, Limits, Setup, SingleUseSessions, WaitingTimes};
use quinn::{Endpoint, TokioRuntime};
use rustls::server::StoresServerSessions;

use crate::{client::Client, server::Identity};

#[rustfmt::skip] // the page has its comments in a column
#[expect(unused_variables, reason = "where the page has a comment, a reader has code")]
async fn serve(server_id: u16, key: [u8; 16], tls: rustls::ServerConfig, socket: UdpSocket) -> anyhow::Result<()> {
    let waiting = WaitingTimes::new(1);                     // one request at a time
    let reported = waiting.clone();
    let config = Config::own(0, key)?;                      // rotation and key ([u8; 16]) as configured at the balancer
    let cids = Cids::new(server_id, config, Some(HEARTBEAT), move || reported.wait())?;
    let sessions = SingleUseSessions::new(Limits::default());
    let setup = Setup::new(cids.clone(), sessions.clone()); // cids: to rotate the key; sessions: to hand them over
    let (server, endpoint) = setup.configs(tls)?;           // tls: a rustls::ServerConfig with certificate and ALPN
    let endpoint = Endpoint::new(endpoint, Some(server), socket, Arc::new(TokioRuntime))?; // socket: a std::net::UdpSocket
    while let Some(incoming) = endpoint.accept().await {
        let waiting = waiting.clone();
        tokio::spawn(async move {
            let (connection, complete) = dwell_quic::accept(incoming).await?;
            // streams: let request = waiting.arrived(); ... let service = request.begin(); ... drop(service)
            Ok::<(), quinn::ConnectionError>(())
        });
    }
    Ok(())
}

fn hand_over(sessions: &SingleUseSessions, mut stream: impl io::Read + io::Write) -> io::Result<()> {
    // the server that leaves, after `dwell lb drain`: from here on it has these sessions no longer
    sessions.hand_over().write_to(&mut stream)?;
    // its successor
    sessions.take_over(HandOver::read_from(&mut stream)?);
    Ok(())
}

/// The blocks of Rust in a page, without their indentation.
fn blocks(page: &str) -> impl Iterator<Item = &str> {
    page.split("```rust\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0))
}

#[test]
fn the_guide_has_the_code_that_is_compiled_here() {
    let page = include_str!("../../../../docs/guide/quic.md");
    let here = include_str!("guide.rs").replace("\n    ", "\n");
    let blocks: Vec<&str> = blocks(page).collect();
    assert_eq!(blocks.len(), 2);
    for block in blocks {
        assert!(here.contains(block), "the page has code that is not here:\n{block}");
    }
}

#[tokio::test]
async fn the_server_of_the_guide_accepts_clients() {
    let identity = Identity::new();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(serve(1, [7; 16], identity.tls(), socket));
    Client::new(&identity.certificate).connect(address).await;
}

#[test]
fn sessions_are_handed_over_as_in_the_guide() {
    let sessions = SingleUseSessions::new(Limits::default());
    assert!(sessions.put(vec![1], vec![2]));
    hand_over(&sessions, VecDeque::new()).unwrap();
    assert_eq!(sessions.take(&[1]), Some(vec![2]));
}
