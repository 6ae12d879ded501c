//! A tunnel between client and server, so that the vantage point sees encrypted packets of one flow, whatever is in
//! it. Its packets take the ways that all packets take: those of the client pass the vantage point, answers do not.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use dwell_testbed::{
    Error, Guarded, Lab, Namespace, Result, Role,
    error::{find_program, run},
    workload::{PATIENCE, require},
};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

/// What carries the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tunnel {
    /// WireGuard in user space, by wireguard-go.
    Wireguard,
}

/// Where the server is in the tunnel.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
const PORT: u16 = 51820;
/// Where wireguard-go listens for its configuration, a socket an interface. All namespaces share the folder.
const SOCKETS: &str = "/var/run/wireguard";

/// Both ends of a tunnel that is up.
pub(super) struct Wireguard {
    _ends: [End; 2],
}

struct End {
    process: Guarded,
    interface: String,
}

impl Wireguard {
    pub(super) fn start(lab: &Lab) -> Result<Self> {
        for program in ["wireguard-go", "wg"] {
            require(program)?;
        }
        let ends = [End::start(lab.client(), "c")?, End::start(lab.server(), "s")?];
        let keys = [private_key()?, private_key()?];
        let public = keys.each_ref().map(|key| public_key(key));
        let [client_key, server_key] = public;
        let server: IpAddr = Lab::address_v4(Role::Server).into();
        ends[0].join(
            lab.client(),
            &keys[0],
            (CLIENT, SERVER),
            &[&server_key?, "endpoint", &format!("{server}:{PORT}")],
        )?;
        ends[1].join(lab.server(), &keys[1], (SERVER, CLIENT), &[&client_key?])?;
        for namespace in [lab.client(), lab.server()] {
            send_by_route(namespace)?;
        }
        Ok(Self { _ends: ends })
    }
}

impl End {
    /// Starts the process of an end, and waits until it can be told what to do.
    fn start(namespace: &Namespace, side: &str) -> Result<Self> {
        // The name is that of the socket too, so that no other lab may have it.
        let interface = format!("wg{side}{}", std::process::id());
        let program = find_program("wireguard-go").unwrap_or_else(|| "wireguard-go".into());
        let process = namespace.spawn(program, |command| {
            command
                .args(["--foreground", &interface])
                .env("LOG_LEVEL", "silent")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
        })?;
        let mut end = Self { process, interface };
        let begun = Instant::now();
        while !end.socket().exists() {
            let ended = end.process.try_wait();
            if let Some(status) = ended.map_err(Error::io("wait for wireguard-go"))? {
                return Err(Error::Command {
                    command: "wireguard-go".to_owned(),
                    status: status.to_string(),
                    stderr: "it ended before it was up; it needs /dev/net/tun".to_owned(),
                });
            }
            if begun.elapsed() > PATIENCE {
                return Err(Error::Timeout("the start of wireguard-go".to_owned()));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(end)
    }

    /// Gives it its key, its peer and its addresses: its own, and that of the other end.
    fn join(&self, namespace: &Namespace, key: &str, (own, other): (Ipv4Addr, Ipv4Addr), peer: &[&str]) -> Result<()> {
        let port = PORT.to_string();
        let mut command = namespace.command("wg");
        command
            .args(["set", &self.interface, "listen-port", &port])
            .args(["private-key", "/dev/stdin", "peer"])
            .args(peer)
            .args(["allowed-ips", &format!("{other}/32")]);
        run(&mut command, key)?;
        namespace.ip(&format!("address add {own} peer {other} dev {0}\nlink set {0} up\n", self.interface))
    }

    fn socket(&self) -> PathBuf {
        Path::new(SOCKETS).join(format!("{}.sock", self.interface))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // Killed by its guard it could not remove its socket.
        let group = Pid::from_raw(self.process.id().cast_signed());
        if killpg(group, Signal::SIGKILL).is_ok() {
            let _ = self.process.wait();
        }
        let _ = fs::remove_file(self.socket());
    }
}

/// wireguard-go sends to where the packet before came from, by the interface that it came in on: the server past the
/// vantage point, the client around it. A packet that is marked is routed once more, without regard to that.
fn send_by_route(namespace: &Namespace) -> Result<()> {
    let port = PORT.to_string();
    let mut command = namespace.command("iptables-legacy");
    command.args(["--wait", "10", "-t", "mangle", "-A", "OUTPUT", "-p", "udp"]).args([
        "--sport",
        &port,
        "-j",
        "MARK",
        "--set-mark",
        "1",
    ]);
    run(&mut command, "").map(drop)
}

fn private_key() -> Result<String> {
    run(Command::new("wg").arg("genkey"), "")
}

fn public_key(private: &str) -> Result<String> {
    run(Command::new("wg").arg("pubkey"), private).map(|key| key.trim().to_owned())
}
