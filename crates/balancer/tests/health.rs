//! Health checks of real servers on the loopback interface, and what follows from their results.
#![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::channel,
    },
    thread,
    time::Duration,
};

use dwell_balancer::{
    config::{Check, CheckKind, CheckTls},
    health::{Health, RiseFall, Target, probe},
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion,
    crypto::ring,
    pki_types::PrivateKeyDer,
    version::{TLS12, TLS13},
};

#[path = "../../../lab/testbed/src/skip.rs"]
mod skip;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn check(kind: CheckKind, port: u16) -> Check {
    Check {
        kind,
        port,
        interval: Duration::from_millis(10),
        timeout: Duration::from_secs(5),
        rise: 2,
        fall: 2,
        tunnel: false,
    }
}

fn http(path: &str, tls: Option<CheckTls>) -> CheckKind {
    CheckKind::Http { path: path.into(), host: None, status: 200, tls }
}

fn run(check: Check) -> Result<(), String> {
    let target = Target::new(1, HERE, Arc::new(check)).unwrap();
    probe(&target).map_err(|failure| failure.to_string())
}

/// Starts a server that handles each connection with `answer`. Returns its port.
fn serve(answer: impl Fn(&mut dyn ReadWrite) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            answer(&mut stream.unwrap());
        }
    });
    port
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

/// Reads the head of a request. Returns its first line.
fn request(stream: &mut dyn ReadWrite) -> String {
    let mut text = String::new();
    let mut byte = [0];
    while !text.ends_with("\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
        text.push(byte[0].into());
    }
    text.lines().next().unwrap_or_default().to_owned()
}

fn by_path(stream: &mut dyn ReadWrite) {
    let line = request(stream);
    let status = match line.as_str() {
        "GET /health HTTP/1.1" => "200 OK",
        _ => "503 Service Unavailable",
    };
    let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
}

/// A port without a server, which nobody else gets while the sockets are open: it is a client's.
fn unused_port() -> (u16, impl Sized) {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client.local_addr().unwrap().port(), (listener, client))
}

#[test]
fn a_tcp_server_is_up_while_it_listens() {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    assert_eq!(run(check(CheckKind::Tcp, port)), Ok(()));
    drop(listener);
    let (port, _sockets) = unused_port();
    let said = run(check(CheckKind::Tcp, port)).unwrap_err();
    assert!(said.starts_with("Connection refused"), "{said}");
}

#[test]
fn an_http_server_must_give_the_status() {
    let port = serve(by_path);
    assert_eq!(run(check(http("/health", None), port)), Ok(()));
    assert_eq!(run(check(http("/", None), port)), Err("status 503, not 200".into()));
    let port = serve(|stream| {
        request(stream);
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.6\r\n");
    });
    assert_eq!(run(check(http("/", None), port)), Err("the answer is not HTTP".into()));
}

#[test]
fn a_server_that_answers_byte_by_byte_times_out() {
    let port = serve(|stream| {
        request(stream);
        for byte in b"HTTP/1.".iter().cycle() {
            if stream.write_all(&[*byte]).is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(40));
        }
    });
    let quick = Check { timeout: Duration::from_millis(200), ..check(http("/", None), port) };
    assert_eq!(run(quick), Err("no answer within 200ms".into()));
}

#[test]
fn a_udp_server_must_answer() {
    let socket = UdpSocket::bind((HERE, 0)).unwrap();
    let port = socket.local_addr().unwrap().port();
    let answers = Arc::new(AtomicBool::new(true));
    let for_thread = Arc::clone(&answers);
    thread::spawn(move || {
        let mut bytes = [0; 64];
        while let Ok((count, from)) = socket.recv_from(&mut bytes) {
            assert_eq!(&bytes[..count], b"hello");
            if for_thread.load(Ordering::SeqCst) {
                socket.send_to(b"x", from).unwrap();
            }
        }
    });
    let hello = |timeout| Check { timeout, ..check(CheckKind::Udp { send: "hello".into() }, port) };
    assert_eq!(run(hello(Duration::from_secs(5))), Ok(()));
    answers.store(false, Ordering::SeqCst);
    let said = run(hello(Duration::from_millis(100)));
    assert_eq!(said, Err("no answer within 100ms".into()));
    // The socket that has this port is there for one sender alone.
    let other = UdpSocket::bind((HERE, 0)).unwrap();
    other.connect((HERE, port)).unwrap();
    let unheard = other.local_addr().unwrap().port();
    let refused = run(check(CheckKind::Udp { send: "x".into() }, unheard)).unwrap_err();
    assert!(refused.starts_with("Connection refused"), "{refused}");
}

#[test]
fn root_ping_is_answered_by_this_host() {
    if skip::lacks_root() {
        return;
    }
    assert_eq!(run(check(CheckKind::Icmp, 0)), Ok(()));
    let v6 = Target::new(1, "::1".parse().unwrap(), Arc::new(check(CheckKind::Icmp, 0))).unwrap();
    assert!(probe(&v6).is_ok());
}

/// Starts a server that speaks one version of TLS. Returns its port, and the certificate of its authority.
fn tls_server(version: &'static SupportedProtocolVersion) -> (u16, Vec<u8>) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let names = vec!["127.0.0.1".to_owned(), "web.test".to_owned()];
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            by_path(&mut StreamOwned::new(connection, stream.unwrap()));
        }
    });
    (port, authority.der().to_vec())
}

#[test]
fn an_https_server_must_have_a_trusted_certificate_unless_any_is_accepted() {
    let (port, authority) = tls_server(&TLS13);
    let (_, stranger) = tls_server(&TLS13);
    let by = |authorities, name: Option<&str>| {
        let tls = CheckTls { authorities, name: name.map(str::to_owned) };
        run(check(http("/health", Some(tls)), port))
    };
    assert_eq!(by(Some(vec![authority.clone()]), None), Ok(()));
    assert_eq!(by(Some(vec![authority.clone()]), Some("web.test")), Ok(()));
    let said = by(Some(vec![authority]), Some("other.test")).unwrap_err();
    assert!(said.contains("certificate"), "{said}");
    let said = by(Some(vec![stranger]), None).unwrap_err();
    assert!(said.contains("certificate"), "{said}");
    assert_eq!(by(None, None), Ok(()));
    assert_eq!(by(None, Some("other.test")), Ok(()));
}

/// The newest version of many servers that are up, as of nginx 1.22 as Debian 12 configures it.
#[test]
fn an_https_server_of_tls_1_2_is_up() {
    let (port, authority) = tls_server(&TLS12);
    let tls = CheckTls { authorities: Some(vec![authority]), name: None };
    assert_eq!(run(check(http("/health", Some(tls)), port)), Ok(()));
}

#[test]
fn results_in_a_row_bring_up_and_down_and_the_first_decides() {
    let add = |count: &mut RiseFall, results: &[bool]| -> Vec<Option<bool>> {
        results.iter().map(|is_success| count.add(*is_success)).collect()
    };
    let mut count = RiseFall::new(3, 2);
    assert!(count.is_up(), "before the first result");
    assert_eq!(add(&mut count, &[false]), [Some(false)]);
    assert!(!count.is_up());
    assert_eq!(add(&mut count, &[true, true, false, true, true]), [None; 5]);
    assert_eq!(add(&mut count, &[true]), [Some(true)]);
    assert_eq!(add(&mut count, &[false, true, false]), [None; 3]);
    assert!(count.is_up());
    assert_eq!(add(&mut count, &[false]), [Some(false)]);
}

#[test]
fn a_known_state_changes_by_the_same_rules_and_is_reported_once() {
    let reports = |was_up: bool, results: &[bool]| -> Vec<Option<bool>> {
        let mut count = RiseFall::resume(3, 2, was_up);
        assert_eq!(count.is_up(), was_up);
        results.iter().map(|is_success| count.add(*is_success)).collect()
    };
    assert_eq!(reports(true, &[true, true]), [Some(true), None]);
    assert_eq!(reports(true, &[false, true, true]), [None, Some(true), None]);
    assert_eq!(reports(true, &[false, false, false]), [None, Some(false), None]);
    assert_eq!(reports(false, &[false, false]), [Some(false), None]);
    assert_eq!(reports(false, &[true, true, true]), [None, None, Some(true)]);
}

#[test]
fn a_backend_whose_check_changes_stays_up_until_it_fails_often_enough() {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || for _ in listener.incoming() {});
    let (sender, results) = channel();
    let health = Health::start(1, sender);
    let next = || results.recv_timeout(Duration::from_secs(30)).unwrap();
    let target = |port| Target::new(1, HERE, Arc::new(check(CheckKind::Tcp, port))).unwrap();
    health.set(vec![target(port)]);
    assert!(next().is_up);
    let (unused, _sockets) = unused_port();
    let mut other = check(CheckKind::Tcp, unused);
    other.fall = 3;
    health.set(vec![Target::new(1, HERE, Arc::new(other)).unwrap()]);
    let failures = std::iter::repeat_with(next).filter(|result| result.outcome.is_err());
    let news: Vec<_> = failures.take(3).map(|result| (result.is_up, result.is_news)).collect();
    assert_eq!(news, [(true, false), (true, false), (false, true)]);
}

#[test]
fn many_are_checked_by_few_threads_and_changes_are_reported() {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let up = Arc::new(check(CheckKind::Tcp, listener.local_addr().unwrap().port()));
    let (unused, _sockets) = unused_port();
    let down = Arc::new(check(CheckKind::Tcp, unused));
    thread::spawn(move || for _ in listener.incoming() {});
    let (sender, results) = channel();
    let health = Health::start(4, sender);
    let target = |real: u32| {
        let check = if real.is_multiple_of(2) { &up } else { &down };
        Target::new(real, HERE, Arc::clone(check)).unwrap()
    };
    health.set((1..=200).map(target).collect());
    let mut news = std::collections::BTreeMap::new();
    while news.len() < 200 {
        let result = results.recv_timeout(Duration::from_secs(30)).unwrap();
        assert_eq!(result.is_up, result.outcome.is_ok());
        if result.is_news {
            assert_eq!(news.insert(result.real, result.is_up), None, "reported twice");
        }
    }
    assert!(news.iter().all(|(real, is_up)| *is_up == real.is_multiple_of(2)));
    // Targets that stay are not reported again, and those that are removed are no longer checked.
    health.set((1..=2).map(target).collect());
    while results.try_recv().is_ok() {}
    // Each thread may still finish one check of a removed target.
    let (mut stayed, mut late) = (0, 0);
    while stayed < 50 {
        let result = results.recv_timeout(Duration::from_secs(30)).unwrap();
        assert!(!result.is_news, "{result:?}");
        match result.real <= 2 {
            true => stayed += 1,
            false => late += 1,
        }
    }
    assert!(late <= 4, "{late}");
}
