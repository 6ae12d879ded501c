//! `dwell stack --all-namespaces` on connections of several network namespaces, which have the same ends.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
};

use dwell_testbed::Namespace;
use serde_json::Value;

use crate::{
    records::{number, text},
    stack::{SERVER, objects},
    support::{DWELL, Pair, Process, Run, eventually, links, skipped, spawn},
};

/// Ports of the tests here, one each and no other's: the connections of all namespaces are followed, also those of tests that run
/// meanwhile.
const PORTS: [u16; 4] = [5212, 5214, 5215, 5216];
/// The port of each client, so that connections of several namespaces have the same ends.
const CLIENT: &str = "40000 40000";
/// Bytes of a message, of which ten are stamped.
const MESSAGE: usize = 640;

/// A connection whose ends are the same in each namespace.
pub struct Chat {
    client: TcpStream,
    server: TcpStream,
}

impl Chat {
    pub fn new(left: &Namespace, right: &Namespace, address: &str, port: u16) -> Chat {
        left.set(&[("ipv4/ip_local_port_range", CLIENT)]).unwrap();
        let listener = right.enter(|| TcpListener::bind((address, port)).unwrap()).unwrap();
        let client = left.enter(|| TcpStream::connect((address, port)).unwrap()).unwrap();
        client.set_nodelay(true).unwrap();
        Chat { client, server: listener.accept().unwrap().0 }
    }

    fn over(pair: &Pair, port: u16) -> Chat {
        Chat::new(&pair.left, &pair.right, &SERVER.to_string(), port)
    }

    pub fn send(&mut self, messages: usize) {
        for _ in 0..messages {
            self.client.write_all(&[1; MESSAGE]).unwrap();
            self.server.read_exact(&mut [0; MESSAGE]).unwrap();
        }
    }
}

fn start(namespace: &Namespace, port: u16, more: &[&str]) -> Process {
    let always = ["stack", "--all-namespaces", "--format", "jsonl", "--flows", "--port"];
    let mut process = spawn(namespace, DWELL, &[&always[..], &[&port.to_string()], more].concat());
    // Ten tracepoints, and one hook of IP or more.
    let mut before = 0;
    eventually("all layers are stamped", || {
        let now = links(process.id());
        process.has_ended() || now >= 11 && std::mem::replace(&mut before, now) == now
    });
    assert!(!process.has_ended(), "{}", process.end());
    process
}

/// The total of the flow of a namespace in a direction, of the intervals together; `None` is that which dwell runs in.
fn bytes(run: &Run, namespace: Option<&str>, direction: &str) -> u64 {
    let is_wanted = |object: &Value| {
        !object["flow"].is_null()
            && object["segment"] == "total"
            && text(object, "direction") == direction
            && object["namespace"].as_str() == namespace
    };
    objects(run).iter().filter(|object| is_wanted(object)).map(|object| number(object, "count")).sum()
}

fn check(run: &Run, namespace: Option<&str>, direction: &str, messages: u64) {
    let bytes = bytes(run, namespace, direction);
    // A kernel may miss an event now and then.
    assert!((messages * 5..=messages * 10).contains(&bytes), "{bytes} {direction} in {namespace:?}:\n{run}");
}

#[test]
fn root_flows_of_all_namespaces_are_told_apart_also_if_their_ends_are_the_same() {
    if skipped() {
        return;
    }
    let own = Namespace::create("stack-own").unwrap();
    let pairs = ["stack-a", "stack-b"].map(Pair::start);
    let dwell = start(&own, PORTS[0], &["--interval", "1h", "--sample-bytes", "64"]);
    // Their sequence numbers are near each other, as the kernel makes them of the ends and the time.
    let [mut a, mut b] = [Chat::over(&pairs[0], PORTS[0]), Chat::over(&pairs[1], PORTS[0])];
    // Of a namespace that did not exist when dwell began.
    let new = Pair::start("stack-new");
    let mut later = Chat::over(&new, PORTS[0]);
    let [mut own_loopback, mut other_loopback] =
        [&own, &pairs[0].left].map(|namespace| Chat::new(namespace, namespace, "127.0.0.1", PORTS[0]));
    for _ in 0..4 {
        a.send(4);
        b.send(20);
        later.send(10);
        own_loopback.send(5);
        other_loopback.send(15);
    }
    let run = dwell.interrupt();
    assert_eq!(run.status, Some(0), "{run}");
    let of_pair = |pair: &Pair, messages| {
        check(&run, Some(pair.left.name()), "tx", messages);
        check(&run, Some(pair.right.name()), "rx", messages);
        assert_eq!(bytes(&run, Some(pair.right.name()), "tx"), 0, "{run}");
    };
    check(&run, None, "tx", 20);
    check(&run, None, "rx", 20);
    check(&run, Some(pairs[0].left.name()), "tx", 16 + 60);
    check(&run, Some(pairs[0].left.name()), "rx", 60);
    check(&run, Some(pairs[0].right.name()), "rx", 16);
    of_pair(&pairs[1], 80);
    of_pair(&new, 40);
    let sums = objects(&run);
    let sums = sums.iter().filter(|object| object["flow"].is_null() && object["direction"] == "tx");
    for object in sums {
        assert!(object["missing"].is_null() && object["namespace"].is_null(), "{object}");
        let least = if object["segment"] == "unexplained" { 0 } else { 236 * 5 };
        assert!(number(object, "count") >= least, "{object}");
    }
}

/// The kernel begins to number bytes by the ends and the time: of two connections that are opened one after the other, the
/// numbers are near.
#[test]
fn root_bytes_of_the_same_numbers_in_two_namespaces_are_different_bytes() {
    if skipped() {
        return;
    }
    const BYTES: usize = 2 << 20;
    let own = Namespace::create("stack-own").unwrap();
    let pairs = ["stack-same-a", "stack-same-b"].map(Pair::start);
    for Pair { left, right } in &pairs {
        left.set(&[("ipv4/ip_local_port_range", CLIENT)]).unwrap();
        left.set(&[("ipv4/tcp_wmem", "4096 16777216 16777216")]).unwrap();
        right.set(&[("ipv4/tcp_rmem", "4096 16777216 16777216")]).unwrap();
    }
    let dwell = start(&own, PORTS[1], &["--interval", "1h", "--sample-bytes", "1024"]);
    let listeners =
        pairs.each_ref().map(|pair| pair.right.enter(|| TcpListener::bind((SERVER, PORTS[1])).unwrap()).unwrap());
    let clients =
        pairs.each_ref().map(|pair| pair.left.enter(|| TcpStream::connect((SERVER, PORTS[1])).unwrap()).unwrap());
    let [mut first, mut second] = listeners.map(|listener| listener.accept().unwrap().0);
    // Those of the first wait until the second has read its own.
    for mut client in &clients {
        client.write_all(&[1; BYTES]).unwrap();
    }
    second.read_exact(&mut vec![0; BYTES]).unwrap();
    first.read_exact(&mut vec![0; BYTES]).unwrap();
    let run = dwell.interrupt();
    assert_eq!(run.status, Some(0), "{run}");
    for Pair { right, .. } in &pairs {
        let count = bytes(&run, Some(right.name()), "rx");
        assert!((BYTES as u64 / 2048..=BYTES as u64 / 1024).contains(&count), "{count} in {}:\n{run}", right.name());
    }
}

#[test]
fn root_a_namespace_that_is_removed_while_it_is_measured_is_freed_and_others_go_on() {
    if skipped() {
        return;
    }
    let own = Namespace::create("stack-own").unwrap();
    let [gone, stays] = ["stack-gone", "stack-stays"].map(Pair::start);
    let dwell = start(&own, PORTS[2], &["--interval", "1h", "--sample-bytes", "64"]);
    let mut chats = [&gone, &stays].map(|pair| Chat::over(pair, PORTS[2]));
    chats.iter_mut().for_each(|chat| chat.send(8));
    let [of_gone, mut of_stays] = chats;
    let Pair { left, right } = gone;
    // Its device goes with it, once nobody holds it any more, and its peer with that.
    let devices = || left.enter(|| fs::read_to_string("/proc/thread-self/net/dev").unwrap()).unwrap();
    let has_device = || devices().contains("left0");
    assert!(has_device());
    drop((of_gone, right));
    eventually("the namespace is gone", || !has_device());
    of_stays.send(8);
    let run = dwell.interrupt();
    assert_eq!(run.status, Some(0), "{run}");
    check(&run, Some(left.name()), "tx", 8);
    check(&run, Some(stays.left.name()), "tx", 16);
    check(&run, Some(stays.right.name()), "rx", 16);
    let of_gone = objects(&run).into_iter().find(|object| {
        let name = object["namespace"].as_str().unwrap_or_default();
        name.starts_with("netns:") && object["segment"] == "total" && object["direction"] == "rx"
    });
    assert!((40..=80).contains(&number(&of_gone.unwrap(), "count")), "{run}");
}

#[test]
fn root_each_byte_says_which_namespace_it_was_in() {
    if skipped() {
        return;
    }
    let own = Namespace::create("stack-own").unwrap();
    let pair = Pair::start("stack-raw");
    let dwell = start(&own, PORTS[3], &["--interval", "1h", "--sample-bytes", "64", "--raw"]);
    let mut chat = Chat::over(&pair, PORTS[3]);
    chat.send(4);
    let run = dwell.interrupt();
    let of = |direction: &str| -> Vec<String> {
        let traces = crate::stack::objects_of(&run, "stack.byte");
        let traces = traces.iter().filter(|trace| text(trace, "direction") == direction);
        traces.map(|trace| text(trace, "namespace").to_owned()).collect()
    };
    for (direction, namespace) in [("tx", &pair.left), ("rx", &pair.right)] {
        let traces = of(direction);
        assert!((20..=40).contains(&traces.len()), "{run}");
        assert!(traces.iter().all(|name| name == namespace.name()), "{traces:?}");
    }
}
