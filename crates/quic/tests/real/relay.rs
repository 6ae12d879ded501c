//! A relay between clients and a server, which records what clients send.

use std::{
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};

use tokio::net::UdpSocket;

/// The datagrams that a client sent from one port.
#[derive(Debug, Clone, Default)]
pub struct Sent {
    pub datagrams: Vec<Vec<u8>>,
    /// Number of datagrams before the first answer.
    pub first_flight: usize,
}

pub struct Relay {
    pub address: SocketAddr,
    to: Arc<Mutex<SocketAddr>>,
    log: Arc<Mutex<HashMap<SocketAddr, Sent>>>,
}

impl Relay {
    pub async fn start(to: SocketAddr) -> Relay {
        let front = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = front.local_addr().unwrap();
        let log = Arc::default();
        let to = Arc::new(Mutex::new(to));
        tokio::spawn(forward(Arc::new(front), Arc::clone(&to), Arc::clone(&log)));
        Relay { address, to, log }
    }

    /// Forwards all further datagrams to this server.
    pub fn forward_to(&self, to: SocketAddr) {
        *self.to.lock().unwrap() = to;
    }

    /// Returns the datagrams of all clients, in no particular order.
    pub fn sent(&self) -> Vec<Sent> {
        self.log.lock().unwrap().values().cloned().collect()
    }

    /// Returns the datagrams of the client at this port.
    pub fn sent_by(&self, port: u16) -> Sent {
        let log = self.log.lock().unwrap();
        log.iter().find(|(client, _)| client.port() == port).unwrap().1.clone()
    }
}

async fn forward(front: Arc<UdpSocket>, to: Arc<Mutex<SocketAddr>>, log: Arc<Mutex<HashMap<SocketAddr, Sent>>>) {
    let mut sockets: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
    let mut bytes = vec![0; 1 << 16];
    loop {
        let (count, client) = front.recv_from(&mut bytes).await.unwrap();
        let datagram = bytes[..count].to_vec();
        log.lock().unwrap().entry(client).or_default().datagrams.push(datagram);
        let socket = match sockets.get(&client) {
            Some(socket) => Arc::clone(socket),
            None => {
                let socket = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap());
                sockets.insert(client, Arc::clone(&socket));
                tokio::spawn(back(Arc::clone(&socket), Arc::clone(&front), client, Arc::clone(&log)));
                socket
            }
        };
        // Datagrams that the server's socket refuses are lost.
        let server = *to.lock().unwrap();
        let _ = socket.send_to(&bytes[..count], server).await;
    }
}

async fn back(
    socket: Arc<UdpSocket>,
    front: Arc<UdpSocket>,
    client: SocketAddr,
    log: Arc<Mutex<HashMap<SocketAddr, Sent>>>,
) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count) = socket.recv(&mut bytes).await {
        {
            let mut log = log.lock().unwrap();
            let sent = log.entry(client).or_default();
            if sent.first_flight == 0 {
                sent.first_flight = sent.datagrams.len();
            }
        }
        let _ = front.send_to(&bytes[..count], client).await;
    }
}
