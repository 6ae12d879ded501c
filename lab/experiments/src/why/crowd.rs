//! Several connections at the same time: clients of a server that serves one request at a time, and transfers of others that
//! use the same path.

use std::{
    io::{Read, Result, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};

use dwell_testbed::{Error, Lab};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{setting::WRITE, traffic::MESSAGE};

/// Connections, each with the client's end and the server's.
pub type Connections = Vec<[TcpStream; 2]>;

/// Connects so many clients to a server.
pub fn connect(
    lab: &Lab,
    listener: &TcpListener,
    address: SocketAddr,
    count: usize,
) -> dwell_testbed::Result<Connections> {
    let io = |what: &str| Error::io(format!("{what} {address}"));
    let mut connections = Vec::new();
    for _ in 0..count {
        let client = lab.client().enter(|| TcpStream::connect(address))?.map_err(io("connect to"))?;
        let (server, _) = listener.accept().map_err(io("accept at"))?;
        for end in [&client, &server] {
            end.set_nodelay(true).map_err(io("set TCP_NODELAY at"))?;
        }
        connections.push([client, server]);
    }
    Ok(connections)
}

/// Answers the requests of all connections, one after the other.
pub fn serve_one_at_a_time(mut connections: Vec<TcpStream>, work: Duration) -> Result<()> {
    let mut message = [0; MESSAGE];
    loop {
        let readable = {
            let mut waiting: Vec<PollFd<'_>> =
                connections.iter().map(|it| PollFd::new(it.as_fd(), PollFlags::POLLIN)).collect();
            poll(&mut waiting, PollTimeout::NONE)?;
            waiting.iter().map(|it| it.any().unwrap_or(false)).collect::<Vec<bool>>()
        };
        for (connection, _) in connections.iter_mut().zip(readable).filter(|(_, is_readable)| *is_readable) {
            connection.read_exact(&mut message)?;
            thread::sleep(work);
            connection.write_all(&message)?;
        }
    }
}

/// Writes as fast as it can, and rests, in turn.
pub fn send_in_bursts(mut socket: TcpStream, burst: Duration, rest: Duration) -> Result<()> {
    let data = vec![1; WRITE];
    loop {
        let begun = Instant::now();
        while begun.elapsed() < burst {
            socket.write_all(&data)?;
        }
        thread::sleep(rest);
    }
}
