//! The application of a setting: a client and a server on one connection, until they are stopped.

use std::{
    io::{Read, Result, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    thread::{self, JoinHandle},
    time::Duration,
};

use dwell_testbed::{Error, Lab, Role};
use nix::sys::socket::{setsockopt, sockopt};

use super::fault::{Pattern, Setting, WRITE};

/// The port of the server.
pub const PORT: u16 = 5201;
/// The length of a request and of its answer.
const MESSAGE: usize = 100;
/// Bytes per read of a server that reads slowly.
const READ: usize = 4096;

/// A running application. It ends when it is dropped.
pub struct Application {
    ends: [TcpStream; 2],
    threads: Vec<JoinHandle<()>>,
    /// The server's port has a listener, as that of any server.
    _listener: TcpListener,
}

impl Application {
    /// Connects the ends, and starts to exchange data.
    pub fn start(lab: &Lab, setting: &Setting) -> dwell_testbed::Result<Application> {
        let address = SocketAddr::from((Lab::address_v4(Role::Server), PORT));
        let io = |what: &str| Error::io(format!("{what} {address}"));
        let os = |what: &str| Error::os(format!("set the {what} of a socket"));
        let listener = lab.server().enter(|| TcpListener::bind(address))?.map_err(io("listen at"))?;
        if let Some(bytes) = setting.receive_buffer {
            // Accepted connections inherit it before their window is announced.
            setsockopt(&listener.as_fd(), sockopt::RcvBuf, &bytes).map_err(os("receive buffer"))?;
        }
        let client = lab.client().enter(|| TcpStream::connect(address))?.map_err(io("connect to"))?;
        let (server, _) = listener.accept().map_err(io("accept at"))?;
        for end in [&client, &server] {
            setsockopt(&end.as_fd(), sockopt::TcpCongestion, &"cubic".into()).map_err(os("congestion control"))?;
            end.set_nodelay(true).map_err(io("set TCP_NODELAY at"))?;
        }
        if let Some(bytes) = setting.send_buffer {
            setsockopt(&client.as_fd(), sockopt::SndBuf, &bytes).map_err(os("send buffer"))?;
        }
        let ends = [client.try_clone(), server.try_clone()];
        let [Ok(own_client), Ok(own_server)] = ends else {
            return Err(Error::invalid("the ends of a connection", "they cannot be duplicated"));
        };
        let (pattern, read_pause) = (setting.pattern, setting.read_pause);
        let threads = match pattern {
            Pattern::Send { bytes, pause } => vec![
                thread::spawn(move || drop(send(own_client, bytes, pause))),
                thread::spawn(move || drop(receive(own_server, read_pause))),
            ],
            Pattern::Ask { work, pause } => vec![
                thread::spawn(move || drop(ask(own_client, pause))),
                thread::spawn(move || drop(answer(own_server, work))),
            ],
        };
        Ok(Application { ends: [client, server], threads, _listener: listener })
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        for end in &self.ends {
            // It may be closed already.
            let _ = end.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn send(mut socket: TcpStream, bytes: usize, pause: Duration) -> Result<()> {
    let data = vec![1; WRITE];
    loop {
        let mut left = bytes;
        while left > 0 {
            left -= socket.write(&data[..left.min(WRITE)])?;
        }
        thread::sleep(pause);
    }
}

fn receive(mut socket: TcpStream, pause: Duration) -> Result<()> {
    let mut buffer = vec![0; if pause.is_zero() { 1 << 20 } else { READ }];
    while socket.read(&mut buffer)? > 0 {
        thread::sleep(pause);
    }
    Ok(())
}

fn ask(mut socket: TcpStream, pause: Duration) -> Result<()> {
    let mut message = [0; MESSAGE];
    loop {
        socket.write_all(&message)?;
        socket.read_exact(&mut message)?;
        thread::sleep(pause);
    }
}

fn answer(mut socket: TcpStream, work: Duration) -> Result<()> {
    let mut message = [0; MESSAGE];
    loop {
        socket.read_exact(&mut message)?;
        thread::sleep(work);
        socket.write_all(&message)?;
    }
}
