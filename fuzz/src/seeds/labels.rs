//! Requests of each protocol that has labels.

/// A payload, with the flags that say how it comes.
fn part(flags: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (payload.len() as u16).to_be_bytes();
    [&[flags | high, low], payload].concat()
}

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, 1], payload].concat()
}

fn hello() -> Vec<u8> {
    let name = b"\0\0\0\x0e\0\x0c\0\0\x09a.example";
    let message = [&[3, 3][..], &[7; 32], b"\0\0\x02\x13\x01\x01\0\0\x12", name].concat();
    let length = message.len() as u8;
    [&[0x16, 3, 1, 0, length + 4, 1, 0, 0, length], &message[..]].concat()
}

pub(super) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let http = part(0, b"GET /a/b?c=d HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let query = b"SELECT 1\0";
    let postgresql = [&b"Q\0\0\0\x0d"[..], query].concat();
    let prepare = [&b"P\0\0\0\x14name\0"[..], query, b"\0\0"].concat();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    // POST, a path with Huffman's code that is put into the table, and a type; then both from the table.
    let literal =
        [&b"\x83\x44\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff\x5f\x10"[..], b"application/grpc"].concat();
    let first = [&preface[..], &frame(4, 0, &[0; 6]), &frame(1, 4, &literal)].concat();
    let second = [frame(0, 1, &[0; 5]), frame(1, 4, b"\x83\xbf\xbe")].concat();
    let (start, end) = (hello(), hello().split_off(40));
    vec![
        ("http1", [http, part(0x80, b"POST http://u:p@a.example/abcdefghijkl")].concat()),
        ("http2", [part(0, &first), part(0, &second), part(0x80, &frame(0, 0, &[0; 200]))].concat()),
        ("http2-gap", [part(0, &first), part(0x40, &second)].concat()),
        ("tls", part(0, &hello())),
        ("tls-parts", [part(0, &start[..40]), part(0, &end)].concat()),
        ("redis", [part(0, b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n"), part(0x10, b"*1\r\n$4\r\nPING\r\n")].concat()),
        ("postgresql", [part(0, &postgresql), part(0, &prepare)].concat()),
        ("mysql", part(0, b"\x0b\0\0\0\x03\0\x01/* */ DO 1")),
        ("dns", part(0x20, b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x01a\x07example\0\0\x01\0\x01")),
    ]
}
