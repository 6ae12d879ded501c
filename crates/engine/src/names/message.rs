//! Messages of DNS (RFC 1035 section 4), of which nothing is trusted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::is_host_name;

const HEADER: usize = 12;
/// QR, the operation and the response code in the flags; the code of an answer without error is 0.
const ANSWER_MASK: u16 = 0xf80f;
const ANSWER: u16 = 0x8000;
const INTERNET: u16 = 1;
const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;
/// Records of an answer that are read.
const MAX_RECORDS: u16 = 256;
/// Parts that a compressed name may be put together from.
const MAX_JUMPS: usize = 32;

/// Passes each address of an answer without error, and the name that was asked for. Aliases are followed; records about
/// other names are left out. What follows a part that is cut off or malformed is not read.
pub(super) fn addresses(message: &[u8], mut each: impl FnMut(&str, IpAddr)) {
    let Some((asked, mut at, records)) = question(message) else {
        return;
    };
    let mut owner = asked.clone();
    for _ in 0..records.min(MAX_RECORDS) {
        let Some(record) = record(message, at) else {
            return;
        };
        at = record.end;
        if record.owner != owner || record.class != INTERNET {
            continue;
        }
        match (record.kind, record.data) {
            (A, data) if data.len() == 4 => {
                let address: [u8; 4] = data.try_into().expect("its length was checked");
                each(&asked, Ipv4Addr::from(address).into());
            }
            (AAAA, data) if data.len() == 16 => {
                let address: [u8; 16] = data.try_into().expect("its length was checked");
                each(&asked, Ipv6Addr::from(address).into());
            }
            (CNAME, data) => match name(message, at - data.len()) {
                Some((alias, _)) => owner = alias,
                None => return,
            },
            _ => {}
        }
    }
}

/// Returns the name that a question or an answer is about.
pub(crate) fn asked_name(message: &[u8]) -> Option<String> {
    const OPERATION: u16 = 0x7800;
    (u16_at(message, 2)? & OPERATION == 0).then(|| only_question(message)).flatten().map(|(asked, _)| asked)
}

/// Returns the name that was asked for, where the answers begin, and their number.
fn question(message: &[u8]) -> Option<(String, usize, u16)> {
    if u16_at(message, 2)? & ANSWER_MASK != ANSWER {
        return None;
    }
    let (asked, end) = only_question(message)?;
    Some((asked, end + 4, u16_at(message, 6)?))
}

/// Returns the name of the only question, and where it ends.
fn only_question(message: &[u8]) -> Option<(String, usize)> {
    let (asked, end) = name(message, HEADER)?;
    (u16_at(message, 4)? == 1 && is_host_name(&asked)).then_some((asked, end))
}

struct Record<'a> {
    owner: String,
    kind: u16,
    class: u16,
    data: &'a [u8],
    end: usize,
}

fn record(message: &[u8], at: usize) -> Option<Record<'_>> {
    let (owner, at) = name(message, at)?;
    let length = usize::from(u16_at(message, at + 8)?);
    let data = at + 10;
    Some(Record {
        owner,
        kind: u16_at(message, at)?,
        class: u16_at(message, at + 2)?,
        data: message.get(data..data + length)?,
        end: data + length,
    })
}

/// Reads a name, in lower case and without the dot at its end. Returns what follows it too.
fn name(message: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut name = Vec::new();
    let mut end = None;
    for _ in 0..MAX_JUMPS {
        loop {
            let length = usize::from(*message.get(at)?);
            match length >> 6 {
                0 if length == 0 => {
                    let end = end.unwrap_or(at + 1);
                    return Some((String::from_utf8(name).ok()?, end));
                }
                0 => {
                    let label = message.get(at + 1..at + 1 + length)?;
                    // The root's name is empty, and no longer name is valid.
                    if name.len() + length > 255 || label.contains(&b'.') {
                        return None;
                    }
                    if !name.is_empty() {
                        name.push(b'.');
                    }
                    name.extend(label.to_ascii_lowercase());
                    at += 1 + length;
                }
                3 => {
                    end = end.or(Some(at + 2));
                    at = usize::from(u16_at(message, at)? & 0x3fff);
                    break;
                }
                _ => return None,
            }
        }
    }
    None
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let field = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_be_bytes(field.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(name: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        for label in name.split('.').filter(|label| !label.is_empty()) {
            bytes.push(label.len() as u8);
            bytes.extend(label.bytes());
        }
        bytes.push(0);
        bytes
    }

    /// An answer about `asked` with these records, each an owner, a type and data.
    fn answer(asked: &str, records: &[(&[u8], u16, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0, 7, 0x81, 0x80, 0, 1, 0, records.len() as u8, 0, 0, 0, 0];
        bytes.extend(labels(asked));
        bytes.extend([0, 1, 0, 1]);
        for (owner, kind, data) in records {
            bytes.extend(*owner);
            bytes.extend(kind.to_be_bytes());
            bytes.extend([0, 1, 0, 0, 0, 60, 0, data.len() as u8]);
            bytes.extend(*data);
        }
        bytes
    }

    fn read(message: &[u8]) -> Vec<(String, String)> {
        let mut found = Vec::new();
        addresses(message, |name, address| found.push((name.to_owned(), address.to_string())));
        found
    }

    /// A pointer to the question's name.
    const ASKED: &[u8] = &[0xc0, 12];

    #[test]
    fn addresses_have_the_name_that_was_asked_for_through_aliases() {
        let alias = labels("edge.example.net");
        let mut v6 = [0; 16];
        v6[..4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
        let message = answer(
            "WWW.Example.org",
            &[(ASKED, CNAME, &alias), (&alias, A, &[192, 0, 2, 1]), (&alias, AAAA, &v6), (ASKED, A, &[192, 0, 2, 2])],
        );
        let name = || "www.example.org".to_owned();
        // The last record is about a name that is an alias: it cannot have an address too.
        assert_eq!(read(&message), [(name(), "192.0.2.1".into()), (name(), "2001:db8::".into())]);
    }

    #[test]
    fn records_about_other_names_are_left_out() {
        let other = labels("bank.example");
        let records: [(&[u8], u16, &[u8]); 2] = [(&other, A, &[192, 0, 2, 9]), (ASKED, A, &[192, 0, 2, 1])];
        assert_eq!(read(&answer("a.example", &records)), [("a.example".into(), "192.0.2.1".into())]);
    }

    #[test]
    fn queries_errors_and_names_that_a_terminal_would_obey_have_no_addresses() {
        let good = answer("a.example", &[(ASKED, A, &[192, 0, 2, 1])]);
        assert_eq!(read(&good).len(), 1);
        for (at, byte) in [(2, 0x01), (3, 0x83), (2, 0x91), (5, 2), (13, 0x1b), (13, b' ')] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert_eq!(read(&bad), [], "byte {at} is {byte}");
        }
    }

    #[test]
    fn a_message_may_be_cut_anywhere_and_point_to_itself() {
        let records: [(&[u8], u16, &[u8]); 2] = [(ASKED, A, &[192, 0, 2, 1]), (ASKED, A, &[192, 0, 2, 2])];
        let whole = answer("a.example", &records);
        for length in 0..whole.len() {
            assert!(read(&whole[..length]).len() < 2);
        }
        let mut endless = whole.clone();
        endless[12..14].copy_from_slice(&[0xc0, 12]);
        assert_eq!(read(&endless), []);
        // Any byte may be anything.
        for at in 0..whole.len() {
            for byte in [0, 0x3f, 0x40, 0xc0, 0xff] {
                let mut bad = whole.clone();
                bad[at] = byte;
                read(&bad);
            }
        }
    }
}
