//! Labels of whole connections, and what bounds them. That labels agree with tshark is tested in `tests/labels/`.

use super::*;

fn end(last: u8, port: u16) -> Endpoint {
    Endpoint { address: [192, 0, 2, last].into(), port }
}

fn segment(bytes: &[u8], seq: u32) -> Payload<'_> {
    let wire_bytes = bytes.len() as u32;
    Payload { src: end(1, 40_000), dst: end(2, 80), protocol: Protocol::TCP, seq, bytes, wire_bytes }
}

/// A ClientHello with a name after an extension of so many bytes.
fn hello(name: &str, padding: usize) -> Vec<u8> {
    let number = |length: usize, bytes: usize| length.to_be_bytes()[8 - bytes..].to_vec();
    let with_length = |content: Vec<u8>, bytes: usize| [number(content.len(), bytes), content].concat();
    let padding = [number(21, 2), with_length(vec![0; padding], 2)].concat();
    let entry = [vec![0], with_length(name.into(), 2)].concat();
    let server_name = [number(0, 2), with_length(with_length(entry, 2), 2)].concat();
    let extensions = with_length([padding, server_name].concat(), 2);
    let message = [vec![3, 3], vec![7; 32], vec![0, 0, 2, 0x13, 1, 1, 0], extensions].concat();
    [vec![0x16, 3, 1], with_length([vec![1], with_length(message, 3)].concat(), 2)].concat()
}

#[test]
fn both_directions_of_a_flow_have_the_label_of_its_latest_request() {
    let mut labels = Labels::default();
    for path in ["/a", "/b"] {
        let bytes = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(labels.take(&segment(bytes.as_bytes(), 1)).as_deref(), Some(&*format!("GET {path}")));
    }
    assert_eq!(labels.take(&segment(b"more of a body", 2)), None);
    assert_eq!(labels.label(&end(1, 40_000), &end(2, 80), Protocol::TCP).as_deref(), Some("GET /b"));
    assert_eq!(labels.label(&end(2, 80), &end(1, 40_000), Protocol::TCP).as_deref(), Some("GET /b"));
    assert_eq!(labels.label(&end(2, 80), &end(1, 40_001), Protocol::TCP), None);
    assert_eq!((labels.requests(), labels.forgotten()), (2, 0));
}

#[test]
fn a_server_name_is_found_wherever_the_message_is_divided() {
    for padding in [0, 2000] {
        let bytes = hello("www.example.org", padding);
        for at in 3..bytes.len() {
            let mut labels = Labels::default();
            let (first, second) = bytes.split_at(at);
            let asked = labels.take(&segment(first, 1)).or_else(|| labels.take(&segment(second, 1 + at as u32)));
            assert_eq!(asked.as_deref(), Some("TLS www.example.org"), "{padding} {at}");
            assert!(asked.is_some_and(|label| asks_for_tls(&label)));
        }
    }
}

#[test]
fn a_client_of_tls_that_names_no_server_has_a_label_too() {
    let mut bytes = hello("", 0);
    // Padding in place of the name.
    let at = bytes.len() - 9;
    bytes[at..at + 2].copy_from_slice(&[0, 21]);
    let label = Labels::default().take(&segment(&bytes, 1));
    assert_eq!(label.as_deref(), Some("TLS ?"));
    assert!(label.is_some_and(|label| asks_for_tls(&label)));
}

#[test]
fn a_message_with_a_gap_or_without_an_end_has_no_label() {
    let bytes = hello("www.example.org", 2000);
    let (first, second) = bytes.split_at(1448);
    let mut labels = Labels::default();
    assert_eq!(labels.take(&segment(first, 1)), None);
    assert_eq!(labels.take(&segment(second, 1450)), None);
    // Cut by the capture: what follows does not join it.
    let cut = Payload { wire_bytes: 1448, ..segment(&first[..128], 1) };
    assert_eq!(labels.take(&cut), None);
    assert_eq!(labels.take(&segment(second, 1449)), None);
    // A name with what is no name is not shown.
    assert_eq!(labels.take(&segment(&hello("a\u{1b}[2J", 0), 1)), None);
    // Endless messages of many connections take no more than is set aside.
    for port in 0..2000 {
        for part in 0..10u32 {
            let bytes = if part == 0 { &hello("a", 60_000)[..1448] } else { &[0; 1448] };
            labels.take(&Payload { src: end(1, port), ..segment(bytes, part * 1448) });
        }
    }
    assert!(labels.forgotten() <= 2000);
}

#[test]
fn flows_beyond_the_bound_are_counted() {
    let mut labels = Labels::default();
    let all = 2 * MAX_FLOWS as u32;
    for number in 0..all {
        let src = Endpoint { address: std::net::Ipv4Addr::from(number).into(), port: 1 };
        labels.take(&Payload { src, ..segment(b"GET / HTTP/1.1\r\n", 1) });
    }
    assert_eq!(labels.requests(), u64::from(all));
    assert!(labels.forgotten() >= u64::from(all) - MAX_FLOWS as u64);
}
