//! Peers of other versions, as they are on the wire. What version 3 says is in files that a dwell of that version has written.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::Path,
    sync::{Arc, Mutex, mpsc},
    thread,
};

use super::*;
use crate::{
    Agent, Busy, Event, Handler, Key, Limits, Outbox, Refusal, Server, Uplink,
    wire::{AgentMessage, AgentName, Batch, CollectorMessage, Content, Hello, MAX_FRAME_BYTES, RunId},
};

const FUTURE: &[u8] = b"dwell-fleet/9";
const RUN: RunId = [7; 16];

fn file(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/v3").join(name)).unwrap()
}

fn identity() -> Identity {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    Key::create(&path).unwrap();
    Identity::from_key(&Key::read(&path).unwrap())
}

/// Connects as an agent that offers these versions.
fn connect(address: SocketAddr, identity: &Identity, protocols: &[&[u8]]) -> Result<Link, FrameError> {
    let mut config = (*identity.client().unwrap()).clone();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let stream = TcpStream::connect(address).unwrap();
    Link::by_client(stream, Arc::new(config), identity.collector_name("").unwrap())
}

/// Accepts one agent as a collector that speaks these versions.
fn accept(listener: &TcpListener, identity: &Identity, protocols: &[&[u8]]) -> Result<Link, FrameError> {
    let mut config = (*identity.server().unwrap()).clone();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Link::by_server(listener.accept().unwrap().0, Arc::new(config))
}

fn send(link: &mut Link, content: &[u8]) {
    wire::write(&mut link.stream, content).unwrap();
}

fn receive(link: &mut Link) -> Vec<u8> {
    wire::read(&mut link.stream, MAX_FRAME_BYTES).unwrap()
}

#[derive(Default)]
struct Stored {
    batches: Mutex<Vec<Batch>>,
    incompatible: Mutex<Vec<String>>,
}

impl Handler for Stored {
    fn hello(&self, _: &Agent) -> Result<u64, String> {
        Ok(0)
    }

    fn welcomed(&self, _: &Agent) {}

    fn ready(&self, _: &Agent) -> Result<(), Busy> {
        Ok(())
    }

    fn store(&self, _: &Agent, batch: Batch, _: usize) -> Result<(), Busy> {
        self.batches.lock().unwrap().push(batch);
        Ok(())
    }

    fn incompatible(&self, _: SocketAddr, reason: &str) {
        self.incompatible.lock().unwrap().push(reason.to_owned());
    }

    fn unusable(&self, _: &crate::Error) {}

    fn enrolled(&self, _: SocketAddr, _: Result<AgentName, String>) {}

    fn disconnected(&self, _: &Agent, _: Option<&str>) {}
}

fn collector(identity: &Identity) -> (Server, Arc<Stored>) {
    let stored = Arc::<Stored>::default();
    let address = "127.0.0.1:0".parse().unwrap();
    (Server::start(address, identity.clone(), Limits::default(), Arc::clone(&stored), &[]).unwrap(), stored)
}

fn content(name: &str) -> Content {
    match wire::decode(Version::V3, &file(name)).unwrap() {
        AgentMessage::Batch(batch) => batch.content,
        other => panic!("{other:?}"),
    }
}

fn agent(address: SocketAddr, identity: &Identity, contents: &[Content]) -> (Uplink, mpsc::Receiver<Event>) {
    let (sender, events) = mpsc::channel();
    let hello = Hello {
        name: "web-1.example".to_owned().try_into().unwrap(),
        run: RUN,
        boot: "a0c6b05b-1f63-4a78-8d55-2f1b52f0a3c1".into(),
        sync_port: Some(4790),
        is_past: false,
        confirmed: 0,
    };
    let outbox = Outbox::new(1 << 20, &hello);
    contents.iter().for_each(|content| outbox.push(content.clone()));
    let on_event = move |event| drop(sender.send(event));
    let uplink = Uplink::start(address.to_string().parse().unwrap(), identity.clone(), hello, outbox, on_event);
    (uplink.unwrap(), events)
}

#[test]
fn an_agent_of_version_3_is_served_by_this_collector() {
    let identity = identity();
    let (server, stored) = collector(&identity);
    let mut link = connect(server.address(), &identity, &[]).unwrap();
    for (message, answer) in [("hello", "welcome"), ("batch", "stored"), ("keep-alive", "stored")] {
        send(&mut link, &file(message));
        assert_eq!(receive(&mut link), file(answer), "{message}");
    }
    for message in ["lost", "last"] {
        send(&mut link, &file(message));
        receive(&mut link);
    }
    let contents: Vec<_> = stored.batches.lock().unwrap().iter().map(|batch| batch.content.clone()).collect();
    assert_eq!(contents, ["batch", "lost", "last"].map(content));
    send(&mut link, &file("leave"));
    receive(&mut link);
}

#[test]
fn a_collector_of_version_3_is_served_by_this_agent() {
    let identity = identity();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (uplink, _events) = agent(address, &identity, &[content("batch")]);
    let mut link = accept(&listener, &identity, &[]).unwrap();
    for (message, answer) in [("hello", "welcome"), ("batch", "stored"), ("keep-alive", "stored")] {
        assert_eq!(receive(&mut link), file(message));
        send(&mut link, &file(answer));
    }
    let ended = thread::spawn(move || uplink.finish(Duration::from_secs(60)));
    // It may have nothing to say for another while.
    for _ in 0..100 {
        if receive(&mut link) == file("leave") {
            break;
        }
        send(&mut link, &file("stored"));
    }
    send(&mut link, &file("stored"));
    assert_eq!(ended.join().unwrap().batches, 0);
}

#[test]
fn two_of_today_speak_the_newest_version_and_so_does_an_agent_that_knows_a_newer_one_too() {
    let identity = identity();
    let (server, stored) = collector(&identity);
    let link = connect(server.address(), &identity, &[FUTURE, Version::NEWEST.protocol()]).unwrap();
    assert_eq!(link.version, Version::NEWEST);
    drop(link);
    let (uplink, _events) = agent(server.address(), &identity, &[content("batch")]);
    uplink.finish(Duration::from_secs(60));
    assert_eq!(stored.batches.lock().unwrap().len(), 1);
}

#[test]
fn an_agent_of_an_unknown_version_is_refused_in_words_that_both_sides_have() {
    let identity = identity();
    let (server, stored) = collector(&identity);
    let refused = connect(server.address(), &identity, &[FUTURE]).map(|_| ()).unwrap_err();
    assert!(matches!(refused, FrameError::NoVersion), "{refused}");
    // Before versions were offered.
    let mut link = connect(server.address(), &identity, &[]).unwrap();
    send(&mut link, &[&[2], &file("hello")[1..]].concat());
    let answer = wire::decode(Version::V3, &receive(&mut link)).unwrap();
    assert!(matches!(answer, CollectorMessage::Refused(reason) if reason.contains("speaks version 2 of the protocol")));
    let counted = || (server.refusals().get(Refusal::Version), stored.incompatible.lock().unwrap().len());
    let begun = Instant::now();
    while counted() != (2, 2) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", counted());
        thread::sleep(Duration::from_millis(10));
    }
    assert!(stored.incompatible.lock().unwrap()[0].contains("which are 4 and 3"));
    assert_eq!(server.refusals().get(Refusal::Garbage), 0);
}

#[test]
fn an_agent_says_that_its_collector_is_of_an_unknown_version_and_keeps_what_it_has() {
    let identity = identity();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (uplink, events) = agent(address, &identity, &[content("batch")]);
    let failure = || match events.recv_timeout(Duration::from_secs(60)).unwrap() {
        Event::Disconnected { reason, .. } => reason,
        other => panic!("{other:?}"),
    };
    let refused = accept(&listener, &identity, &[FUTURE]).map(|_| ()).unwrap_err();
    assert!(matches!(refused, FrameError::NoVersion), "{refused}");
    let reason = failure();
    assert!(reason.contains("no version") && reason.contains("update the older of the two"), "{reason}");
    // One that refuses a key may close the connection before its alert arrives.
    drop(listener.accept().unwrap());
    let reason = failure();
    assert!(reason.contains("it may not accept our key"), "{reason}");
    assert_eq!(uplink.backlog().batches, 1);
}
