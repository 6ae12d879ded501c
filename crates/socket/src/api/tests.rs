//! Sessions over loopback.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    sync::mpsc,
    time::{Duration, Instant},
};

use dwell_engine::socket::{
    Estimator,
    control::{Controller, Setting, State},
};

use super::{Bound, Error, Session};
use crate::table::Config;

const PATIENCE: Duration = Duration::from_secs(30);

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

fn session() -> Session {
    Session::start(&Config { budget: 0.5, ..Config::default() }).unwrap()
}

/// Writes until the buffers are full, and returns the number of bytes.
fn fill(stream: &TcpStream) -> usize {
    let mut stream = stream;
    stream.set_nonblocking(true).unwrap();
    let bytes = vec![0; 1 << 20];
    let mut total = 0;
    while let Ok(wrote) = stream.write(&bytes) {
        total += wrote;
    }
    total
}

#[test]
fn what_a_receiver_does_not_read_waits_in_the_sender() {
    let (client, mut server) = pair();
    let session = session();
    let socket = session.watch(&client).unwrap();
    let delay = Duration::from_millis(200);
    let bound = Bound { sender_delay: Some(delay), jitter: None };
    assert!(!socket.wait(bound, Some(Duration::from_millis(30))).unwrap());
    let began = Instant::now();
    let total = fill(&client);
    assert!(socket.wait(bound, Some(PATIENCE)).unwrap());
    // The bytes may count as written one poll earlier than they were.
    assert!(began.elapsed() >= delay / 2);
    assert!(socket.info().sender_waiting > Some(delay));
    // The newest byte must have waited this long too.
    std::thread::sleep(delay);
    server.read_exact(&mut vec![0; total]).unwrap();
    let deadline = Instant::now() + PATIENCE;
    // The newest byte has waited less than the oldest.
    while socket.info().sender_delay < Some(delay / 2) {
        assert!(Instant::now() < deadline, "{:?}", socket.info());
        std::thread::sleep(Duration::from_millis(10));
    }
    let (sent, info) = socket.send(b"abc").unwrap();
    assert_eq!(sent, 3);
    assert!(info.cwnd > Some(0) && info.rtt.is_some());
}

#[test]
fn with_the_papers_estimator_calls_of_the_interface_are_its_writes_and_reads() {
    let (client, server) = pair();
    let session = Session::start(&Config { budget: 0.5, estimator: Estimator::Paper, ..Config::default() }).unwrap();
    let (sender, receiver) = (session.watch(&client).unwrap(), session.watch(&server).unwrap());
    let deadline = Instant::now() + PATIENCE;
    while sender.info().sender_delay.is_none() || receiver.info().receiver_delay.is_none() {
        assert!(Instant::now() < deadline, "{:?} {:?}", sender.info(), receiver.info());
        sender.send(&[0; 1000]).unwrap();
        std::thread::sleep(Duration::from_millis(25));
        // What is left unread arrived at an earlier poll.
        receiver.recv(&mut [0; 500]).unwrap();
    }
    // The bytes left at once: by the polled curves they would not have waited, by Algorithm 1 until the next poll.
    assert!(sender.info().sender_delay > Some(Duration::ZERO), "{:?}", sender.info());
}

#[test]
fn sockets_other_than_connections_are_refused() {
    let session = session();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(matches!(session.watch(&udp), Err(Error::NotTcp { .. })));
    assert!(matches!(session.watch(&listener), Err(Error::NotTcp { .. })));
    assert!(matches!(session.watch(&file), Err(Error::NotTcp { .. })));
}

#[test]
fn a_controller_of_the_program_decides() {
    struct Own(mpsc::Sender<u32>);
    impl Controller for Own {
        fn update(&mut self, state: &State<'_>) -> Setting {
            let _ = self.0.send(state.reading.info.cwnd);
            Setting { notsent_lowat: Some(54_321), ..Setting::default() }
        }
    }
    let (client, _server) = pair();
    let session = session();
    let socket = session.watch(&client).unwrap();
    let (calls, received) = mpsc::channel();
    session.control(&socket, Box::new(Own(calls))).unwrap();
    assert!(received.recv_timeout(PATIENCE).unwrap() > 0);
    received.recv_timeout(PATIENCE).unwrap();
    use std::os::fd::AsRawFd;
    assert_eq!(crate::sys::notsent_lowat(client.as_raw_fd()), Some(54_321));
}

#[test]
fn a_controller_may_call_its_session_when_it_is_dropped_with_its_connection() {
    struct Own(&'static Session, mpsc::Sender<bool>);
    impl Controller for Own {
        fn update(&mut self, _: &State<'_>) -> Setting {
            Setting::default()
        }
    }
    impl Drop for Own {
        fn drop(&mut self) {
            let other = UdpSocket::bind("127.0.0.1:0").unwrap();
            let _ = self.1.send(self.0.watch(&other).is_err());
        }
    }
    // If it waits for ever, so would the end of the session.
    let session: &'static Session = Box::leak(Box::new(session()));
    let (client, server) = pair();
    let (dropped, is_refused) = mpsc::channel();
    session.control(&session.watch(&client).unwrap(), Box::new(Own(session, dropped))).unwrap();
    drop((client, server));
    assert!(is_refused.recv_timeout(PATIENCE).expect("it is not stuck"));
    session.end();
}

#[test]
fn a_waiting_caller_is_woken_by_the_end_of_the_session() {
    let (client, _server) = pair();
    let session = session();
    let socket = session.watch(&client).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| socket.wait(Bound::default(), Some(PATIENCE)));
        std::thread::sleep(Duration::from_millis(30));
        drop(session);
        assert!(matches!(waiter.join().unwrap(), Err(Error::Ended)));
    });
}

#[test]
fn a_waiting_caller_is_woken_by_a_reset() {
    let (client, server) = pair();
    let session = session();
    let socket = session.watch(&client).unwrap();
    let bound = Bound { sender_delay: Some(PATIENCE), jitter: None };
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| socket.wait(bound, None));
        std::thread::sleep(Duration::from_millis(30));
        // A close with unread bytes ends the connection by a reset.
        (&client).write_all(b"abc").unwrap();
        std::thread::sleep(Duration::from_millis(30));
        drop(server);
        assert!(matches!(waiter.join().unwrap(), Err(Error::Ended)));
    });
}

#[test]
fn delays_from_before_a_wait_do_not_end_it() {
    let (client, mut server) = pair();
    let session = session();
    let socket = session.watch(&client).unwrap();
    let delay = Duration::from_millis(100);
    let total = fill(&client);
    std::thread::sleep(2 * delay);
    server.read_exact(&mut vec![0; total]).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while socket.info().notsent_bytes != Some(0) || socket.info().sender_delay < Some(delay) {
        assert!(Instant::now() < deadline, "{:?}", socket.info());
        std::thread::sleep(Duration::from_millis(10));
    }
    let bound = Bound { sender_delay: Some(delay / 2), jitter: Some(Duration::ZERO) };
    assert!(!socket.wait(bound, Some(delay)).unwrap());
}

#[test]
fn a_controller_runs_only_on_the_sessions_thread() {
    struct Own(mpsc::Sender<std::thread::ThreadId>);
    impl Controller for Own {
        fn update(&mut self, _: &State<'_>) -> Setting {
            let _ = self.0.send(std::thread::current().id());
            Setting::default()
        }
    }
    let (client, _server) = pair();
    let session = session();
    let socket = session.watch(&client).unwrap();
    let (calls, received) = mpsc::channel();
    session.control(&socket, Box::new(Own(calls))).unwrap();
    received.recv_timeout(PATIENCE).unwrap();
    for pause in 0..30 {
        let (one, _other) = pair();
        session.watch(&one).unwrap();
        std::thread::sleep(Duration::from_millis(3 + pause % 17));
    }
    let me = std::thread::current().id();
    assert!(received.try_iter().all(|thread| thread != me));
}

#[test]
fn many_sessions_come_and_go() {
    let (client, _server) = pair();
    for _ in 0..20 {
        let session = session();
        let socket = session.watch(&client).unwrap();
        assert!(socket.info().cwnd.is_some());
    }
}
