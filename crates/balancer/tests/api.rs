//! The API: permissions of its socket, requests and their answers, and malformed input.
#![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::Path,
    sync::mpsc::channel,
    thread,
};

use dwell_balancer::api::{
    BackendName, Changes, Client, ClientError, Listener, MAX_REQUEST_BYTES, PendingRequest, Request, from_hex, to_hex,
};
use serde_json::json;

/// Answers each request with its debug representation, and refuses removals.
fn echo(path: &Path) -> Listener {
    let listener = Listener::bind(path).unwrap();
    let (sender, requests) = channel::<PendingRequest>();
    listener.serve(sender).unwrap();
    thread::spawn(move || {
        for PendingRequest { request, answer, .. } in requests {
            let reply = match &request {
                Request::Remove { .. } => Err("no such backend".to_owned()),
                request => Ok(json!({ "changes": [format!("{request:?}")] }).to_string()),
            };
            answer.send(reply).unwrap();
        }
    });
    listener
}

/// Sends bytes, and returns the lines of the answer.
fn exchange(path: &Path, bytes: &[u8]) -> Vec<String> {
    let mut stream = UnixStream::connect(path).unwrap();
    // The balancer may close the connection before everything is written.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    BufReader::new(stream).lines().map_while(Result::ok).collect()
}

#[test]
fn only_its_owner_may_connect_and_it_is_removed_with_the_balancer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new").join("lb.sock");
    let listener = echo(&path);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(listener);
    assert!(!path.exists());
}

#[test]
fn requests_are_answered_in_order_on_one_connection() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lb.sock");
    let _listener = echo(&path);
    let mut client = Client::connect(&path).unwrap();
    let weight = Request::Weight { backend: BackendName::parse("web/a"), weight: 2.5 };
    for request in [Request::Status {}, weight, Request::Reload { dry_run: true }] {
        let changes: Changes = client.request(&request).unwrap();
        assert_eq!(changes.changes, [format!("{request:?}")]);
    }
    let refused = client.request::<Changes>(&Request::Remove { backend: BackendName::parse("x") });
    assert!(matches!(refused, Err(ClientError::Refused(reason)) if reason == "no such backend"));
}

#[test]
fn garbage_is_answered_and_the_next_request_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lb.sock");
    let _listener = echo(&path);
    for garbage in [
        "hello",
        "{}",
        "{\"do\":\"dance\"}",
        "{\"do\":\"weight\",\"backend\":\"a\"}",
        "{\"do\":\"weight\",\"backend\":\"a\",\"weight\":\"much\"}",
        "{\"do\":\"status\",\"more\":1}",
        "[[[[",
        "\u{0}\u{1}",
    ] {
        let lines = exchange(&path, format!("{garbage}\n{{\"do\":\"status\"}}\n").as_bytes());
        assert_eq!(lines.len(), 2, "{garbage}: {lines:?}");
        assert!(lines[0].starts_with("{\"error\":\"this is not a request: "), "{lines:?}");
        assert!(lines[1].starts_with("{\"ok\":"), "{lines:?}");
    }
    let lines = exchange(&path, b"\xff\xfe\n");
    assert!(lines[0].starts_with("{\"error\":\"this is not a request: "), "{lines:?}");
}

#[test]
fn a_request_that_never_ends_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lb.sock");
    let _listener = echo(&path);
    let lines = exchange(&path, &vec![b'['; MAX_REQUEST_BYTES as usize + 1_000_000]);
    assert!(lines[0].contains("a request has at most 262144 bytes"), "{lines:?}");
    assert_eq!(lines.len(), 1);
    let nested = [vec![b'['; 100_000], b"\n".to_vec()].concat();
    assert!(exchange(&path, &nested)[0].contains("this is not a request"));
}

#[test]
fn a_socket_in_use_is_refused_and_a_stale_one_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lb.sock");
    let first = echo(&path);
    let error = Listener::bind(&path).unwrap_err().to_string();
    assert!(error.contains("a balancer already answers at"), "{error}");
    std::mem::forget(first);
    let stale = folder.path().join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    assert!(Listener::bind(&stale).is_ok());
    let file = folder.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    // A live socket that cannot be asked is not stale: here it is of another kind, elsewhere of another user.
    let other = folder.path().join("other.sock");
    let _socket = std::os::unix::net::UnixDatagram::bind(&other).unwrap();
    let error = Listener::bind(&other).unwrap_err().to_string();
    assert!(error.contains("cannot accept requests at"), "{error}");
    assert!(other.exists());
    let error = Listener::bind(&file).unwrap_err().to_string();
    assert!(error.contains("not a socket"), "{error}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn hex_digits_may_be_separated() {
    assert_eq!(from_hex("00 0a:FF\n"), Some(vec![0, 10, 255]));
    assert_eq!(from_hex("0"), None);
    assert_eq!(from_hex("zz"), None);
    assert_eq!(to_hex(&[0, 10, 255]), "000aff");
}
