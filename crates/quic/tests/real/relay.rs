//! What lies between clients and a server, and writes down what clients send.

use std::{
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};

use tokio::net::UdpSocket;

/// What a client sent, from one port.
#[derive(Debug, Clone, Default)]
pub struct Sent {
    pub datagrams: Vec<Vec<u8>>,
    /// How many of these before anything came back.
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

    /// From now on, whoever it is from.
    pub fn send_on_to(&self, to: SocketAddr) {
        *self.to.lock().unwrap() = to;
    }

    /// A client a port, in any order.
    pub fn sent(&self) -> Vec<Sent> {
        self.log.lock().unwrap().values().cloned().collect()
    }

    /// Of one that is at that port.
    pub fn sent_by(&self, port: u16) -> Sent {
        let log = self.log.lock().unwrap();
        log.iter().find(|(client, _)| client.port() == port).unwrap().1.clone()
    }
}

async fn forward(front: Arc<UdpSocket>, to: Arc<Mutex<SocketAddr>>, log: Arc<Mutex<HashMap<SocketAddr, Sent>>>) {
    let mut ways: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
    let mut bytes = vec![0; 1 << 16];
    loop {
        let (count, client) = front.recv_from(&mut bytes).await.unwrap();
        let datagram = bytes[..count].to_vec();
        log.lock().unwrap().entry(client).or_default().datagrams.push(datagram);
        let way = match ways.get(&client) {
            Some(way) => Arc::clone(way),
            None => {
                let way = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap());
                ways.insert(client, Arc::clone(&way));
                tokio::spawn(back(Arc::clone(&way), Arc::clone(&front), client, Arc::clone(&log)));
                way
            }
        };
        // What the server's socket refuses is lost.
        let now = *to.lock().unwrap();
        let _ = way.send_to(&bytes[..count], now).await;
    }
}

async fn back(
    way: Arc<UdpSocket>,
    front: Arc<UdpSocket>,
    client: SocketAddr,
    log: Arc<Mutex<HashMap<SocketAddr, Sent>>>,
) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count) = way.recv(&mut bytes).await {
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
