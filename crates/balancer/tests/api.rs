//! The socket: who may ask, and what becomes of garbage.
#![allow(clippy::unwrap_used, reason = "what does not hold fails the test")]

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::Path,
    sync::mpsc::channel,
    thread,
};

use dwell_balancer::api::{
    Asked, Changed, Client, ClientError, Listener, MOST_REQUEST_BYTES, Named, Request, from_hex, to_hex,
};
use serde_json::json;

/// A balancer that answers each request with what it is.
fn echo(path: &Path) -> Listener {
    let listener = Listener::bind(path).unwrap();
    let (sender, asked) = channel::<Asked>();
    listener.serve(sender).unwrap();
    thread::spawn(move || {
        for Asked { request, answer } in asked {
            let said = match &request {
                Request::Remove { .. } => Err("no such backend".to_owned()),
                request => Ok(json!({ "changes": [format!("{request:?}")] })),
            };
            answer.send(said).unwrap();
        }
    });
    listener
}

/// Lines sent, and lines that came.
fn say(path: &Path, bytes: &[u8]) -> Vec<String> {
    let mut stream = UnixStream::connect(path).unwrap();
    // It may hang up before all is written.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    BufReader::new(stream).lines().map_while(Result::ok).collect()
}

#[test]
fn only_its_owner_may_ask_and_it_goes_with_the_balancer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new").join("lb.sock");
    let listener = echo(&path);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(listener);
    assert!(!path.exists());
}

#[test]
fn requests_are_answered_in_their_order_on_one_connection() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lb.sock");
    let _listener = echo(&path);
    let mut client = Client::connect(&path).unwrap();
    let weight = Request::Weight { backend: Named::parse("web/a"), weight: 2.5 };
    for request in [Request::Status {}, weight, Request::Reload {}] {
        let changed: Changed = client.ask(&request).unwrap();
        assert_eq!(changed.changes, [format!("{request:?}")]);
    }
    let refused = client.ask::<Changed>(&Request::Remove { backend: Named::parse("x") });
    assert!(matches!(refused, Err(ClientError::Refused(said)) if said == "no such backend"));
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
        let lines = say(&path, format!("{garbage}\n{{\"do\":\"status\"}}\n").as_bytes());
        assert_eq!(lines.len(), 2, "{garbage}: {lines:?}");
        assert!(lines[0].starts_with("{\"error\":\"this is no request: "), "{lines:?}");
        assert!(lines[1].starts_with("{\"ok\":"), "{lines:?}");
    }
    let lines = say(&path, b"\xff\xfe\n");
    assert!(lines[0].starts_with("{\"error\":\"this is no request: "), "{lines:?}");
}

#[test]
fn a_request_that_never_ends_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lb.sock");
    let _listener = echo(&path);
    let lines = say(&path, &vec![b'['; MOST_REQUEST_BYTES as usize + 10]);
    assert!(lines[0].contains("a request has at most 262144 bytes"), "{lines:?}");
    assert_eq!(lines.len(), 1);
    let nested = [vec![b'['; 100_000], b"\n".to_vec()].concat();
    assert!(say(&path, &nested)[0].contains("this is no request"));
}

#[test]
fn a_socket_that_is_answered_is_not_taken_and_a_stale_one_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lb.sock");
    let first = echo(&path);
    let error = Listener::bind(&path).unwrap_err().to_string();
    assert!(error.contains("a balancer answers at"), "{error}");
    std::mem::forget(first);
    let stale = folder.path().join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    assert!(Listener::bind(&stale).is_ok());
    let file = folder.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    let error = Listener::bind(&file).unwrap_err().to_string();
    assert!(error.contains("no socket"), "{error}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn nobody_there_is_told_with_a_remedy() {
    let error = Client::connect(Path::new("/nowhere/lb.sock")).unwrap_err().to_string();
    assert!(error.contains("is `dwell lb run` running?"), "{error}");
}

#[test]
fn hex_as_people_write_it() {
    assert_eq!(from_hex("00 0a:FF\n"), Some(vec![0, 10, 255]));
    assert_eq!(from_hex("0"), None);
    assert_eq!(from_hex("zz"), None);
    assert_eq!(to_hex(&[0, 10, 255]), "000aff");
}
