//! A name server that answers late, and a program that asks it before each connection.

use std::{
    fs,
    io::{ErrorKind, Read, Result, Write},
    net::{TcpListener, UdpSocket},
    path::Path,
    process::Stdio,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use dwell_testbed::{Error, Guarded, Lab, Role, workload::require};

use super::traffic::{LONGEST_REQUEST, PORT};

/// The port of name servers.
pub const NAMES: u16 = 53;
/// How often a name server that is not asked sees whether it is over.
const PATIENCE: Duration = Duration::from_millis(200);
/// The end of a question: its type, and the class of the Internet.
const OF_V4: [u8; 4] = [0, 1, 0, 1];

/// Starts curl at the client, which asks for as many pages as there are until it is dropped, each of a host with a name of its
/// own. Its resolver is configured in `folder`.
pub fn start_client(lab: &Lab, folder: &Path) -> dwell_testbed::Result<Guarded> {
    require("curl")?;
    let resolver = folder.join("resolv.conf");
    let text = format!("nameserver {}\n", Lab::address_v4(Role::Server));
    fs::write(&resolver, text).map_err(Error::file("write", &resolver))?;
    lab.client().spawn("unshare", |command| {
        let script = r#"mount --bind "$1" /etc/resolv.conf && exec curl -s --noproxy '*' "$2""#;
        let pages = format!("http://[1-1000000].test:{PORT}/");
        command.args(["-m", "sh", "-c", script, "sh"]).arg(&resolver).arg(pages).stdout(Stdio::null());
    })
}

/// Answers each question with the address of the server after this much time.
pub fn answer_late(socket: &UdpSocket, late: Duration, is_over: &AtomicBool) -> Result<()> {
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut question = [0; 512];
    while !is_over.load(Ordering::Relaxed) {
        let (bytes, client) = match socket.recv_from(&mut question) {
            Ok(received) => received,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(error) => return Err(error),
        };
        let Some(answer) = answer(&question[..bytes]) else {
            continue;
        };
        let socket = socket.try_clone()?;
        // A resolver asks for addresses of both families at the same time.
        thread::spawn(move || {
            thread::sleep(late);
            socket.send_to(&answer, client)
        });
    }
    Ok(())
}

/// Returns the answer to a question of DNS: the address of the server if one of IPv4 is wanted, and none otherwise. `None` if
/// it is not a question.
fn answer(question: &[u8]) -> Option<Vec<u8>> {
    let name_bytes = question.get(12..)?.iter().position(|byte| *byte == 0)?;
    let end = 12 + name_bytes + 1 + OF_V4.len();
    let is_v4 = question.get(end - OF_V4.len()..end)? == OF_V4;
    let mut answer = question[..2].to_vec();
    answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_v4), 0, 0, 0, 0]);
    answer.extend(&question[12..end]);
    if is_v4 {
        // The name of the question, for 60 s.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        answer.extend(Lab::address_v4(Role::Server).octets());
    }
    Some(answer)
}

/// Answers each request of HTTP on a connection of its own.
pub fn serve_pages(listener: &TcpListener, is_over: &AtomicBool) {
    while let Ok((mut socket, _)) = listener.accept() {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let _ = socket.set_read_timeout(Some(LONGEST_REQUEST));
        if socket.read(&mut [0; 4096]).is_ok() {
            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_for_the_family_of_the_server_have_its_address() {
        let question = |kind: u8| [&[7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, b'a', 0, 0, kind, 0, 1][..]].concat();
        let v4 = answer(&question(1)).unwrap();
        assert_eq!(v4[..2], [7, 9]);
        assert_eq!(v4[v4.len() - 4..], Lab::address_v4(Role::Server).octets());
        assert_eq!(answer(&question(28)).unwrap()[7], 0, "there is none of IPv6");
        assert_eq!(answer(&[0; 12]), None);
    }
}
