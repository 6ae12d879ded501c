//! `[vip.health]`: how the backends of a VIP are checked.

use std::{fmt, path::Path, time::Duration};

use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use toml::de::DeValue;

use super::{
    DAY, MILLISECOND, MINUTE,
    table::{Problem, Table},
    value::{choice, flag, text, time, whole},
};

/// A health check, the same for all backends of a VIP.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Check {
    /// What a healthy backend must do.
    pub kind: CheckKind,
    /// The port to check; 0 for ICMP.
    pub port: u16,
    /// The time from one check to the next.
    pub interval: Duration,
    /// The time within which the answer must arrive.
    pub timeout: Duration,
    /// The number of successful checks in a row that bring a backend back.
    pub rise: u32,
    /// The number of failed checks in a row that take a backend out.
    pub fall: u32,
    /// Whether a SYN to the VIP through the tunnel must be answered too.
    pub tunnel: bool,
}

/// What a healthy backend must do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CheckKind {
    /// Accept a TCP connection.
    Tcp,
    /// Answer an HTTP GET with the expected status.
    Http {
        /// The path to request.
        path: String,
        /// The Host header; by default the backend's address.
        host: Option<String>,
        /// The expected status.
        status: u16,
        /// How to verify the server if the request goes over TLS.
        tls: Option<CheckTls>,
    },
    /// Answer a UDP datagram.
    Udp {
        /// The payload to send.
        send: String,
    },
    /// Answer a ping.
    Icmp,
}

impl fmt::Display for CheckKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CheckKind::Tcp => "tcp",
            CheckKind::Http { tls: None, .. } => "http",
            CheckKind::Http { .. } => "https",
            CheckKind::Udp { .. } => "udp",
            CheckKind::Icmp => "icmp",
        })
    }
}

/// How an HTTPS check verifies the server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CheckTls {
    /// DER certificates of the trusted authorities; none to accept any certificate.
    pub authorities: Option<Vec<Vec<u8>>>,
    /// The name that the certificate must be valid for; by default the backend's address.
    pub name: Option<String>,
}

#[derive(Debug, Clone, Copy)]
enum KindName {
    Tcp,
    Http,
    Https,
    Udp,
    Icmp,
}

impl Check {
    /// Reads the table. Files are looked up next to the configuration at `path`; without a port of its own, the check
    /// goes to the port of the VIP. `may_tunnel`: the VIP's packets go through tunnels, and open connections.
    pub(super) fn read(mut table: Table<'_>, path: &Path, vip_port: Option<u16>, may_tunnel: bool) -> Option<Check> {
        let kind = table.require(
            "kind",
            "\"tcp\", \"http\", \"https\", \"udp\" or \"icmp\"",
            choice(&[
                ("tcp", KindName::Tcp),
                ("http", KindName::Http),
                ("https", KindName::Https),
                ("udp", KindName::Udp),
                ("icmp", KindName::Icmp),
            ]),
        );
        let is_ping = matches!(kind, Some(KindName::Icmp));
        let port = table.get("port", whole(1..=65_535)).or(vip_port).filter(|_| !is_ping);
        if is_ping {
            table.warn_of_no_effect("port", "a ping has no port");
        } else if port.is_none() && kind.is_some() {
            let problem =
                Problem::new("the VIP is for any port, so it gives no port to check", "write port = and the port");
            table.fault(problem, "port");
        }
        let interval = table.get("interval", time(100 * MILLISECOND..=DAY));
        let interval = interval.unwrap_or(Duration::from_secs(2));
        let timeout = table.get("timeout", time(10 * MILLISECOND..=MINUTE));
        let timeout = timeout.unwrap_or(interval.min(Duration::from_secs(1)));
        if timeout > interval {
            let problem = Problem::new(
                format!("{timeout:?} is longer than the interval, {interval:?}"),
                "write a shorter timeout or a longer interval",
            );
            table.fault(problem, "timeout");
        }
        let kind = match kind {
            Some(KindName::Http) => Some(read_http(&mut table, None)),
            Some(KindName::Https) => {
                let tls = CheckTls::read(&mut table, path);
                Some(read_http(&mut table, Some(tls)))
            }
            Some(KindName::Udp) => {
                Some(CheckKind::Udp { send: table.get("send", text).unwrap_or_else(|| "dwell".into()) })
            }
            Some(KindName::Tcp) => Some(CheckKind::Tcp),
            Some(KindName::Icmp) => Some(CheckKind::Icmp),
            None => None,
        };
        let check = Check {
            kind: kind?,
            port: port.unwrap_or(0),
            interval,
            timeout,
            rise: table.get("rise", whole(1..=1000)).unwrap_or(2),
            fall: table.get("fall", whole(1..=1000)).unwrap_or(2),
            tunnel: table.get("tunnel", flag).unwrap_or(false),
        };
        if check.tunnel && !may_tunnel {
            let problem = Problem::new(
                "only TCP through a tunnel to a port of the VIP is checked like that",
                "write protocol = \"tcp\", a port, and forward = \"ipip\" or \"gue\", or remove it",
            );
            table.fault(problem, "tunnel");
        }
        table.finish();
        Some(check)
    }
}

fn read_http(table: &mut Table<'_>, tls: Option<CheckTls>) -> CheckKind {
    CheckKind::Http {
        path: table.get("path", http_path).unwrap_or_else(|| "/".into()),
        host: table.get("host", header),
        status: table.get("status", whole(100..=599)).unwrap_or(200),
        tls,
    }
}

impl CheckTls {
    fn read(table: &mut Table<'_>, path: &Path) -> CheckTls {
        let any = table.get("any_certificate", flag).unwrap_or(false);
        let name = table.get("tls_name", tls_name);
        let file = table.get("ca", text);
        if any == file.is_some() {
            let problem = match any {
                true => Problem::new("any_certificate = true makes ca pointless", "remove one of the two"),
                false => Problem::new(
                    "no certificate authority is named",
                    "write ca = \"ca.pem\", or any_certificate = true",
                ),
            };
            table.fault(problem, "ca");
        }
        let authorities = file.map(|file| {
            let file = path.parent().unwrap_or(Path::new("")).join(file);
            certificates(&file).unwrap_or_else(|problem| {
                table.fault(problem, "ca");
                Vec::new()
            })
        });
        CheckTls { authorities, name }
    }
}

/// Reads a file of certificates in PEM.
pub(super) fn certificates(file: &Path) -> Result<Vec<Vec<u8>>, Problem> {
    let remedy = "name a file of certificates in PEM";
    let read = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| Problem::new(format!("'{}': {error}", file.display()), remedy))?;
    match read.is_empty() {
        true => Err(Problem::new(format!("'{}' contains no certificate", file.display()), remedy)),
        false => Ok(read.iter().map(|der| der.to_vec()).collect()),
    }
}

fn http_path(value: &DeValue<'_>) -> Result<String, Problem> {
    let path = text(value)?;
    if path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(path);
    }
    Err(Problem::new(
        format!("{path:?} is not an HTTP path"),
        "write one that starts with / and has no spaces, as in \"/health\"",
    ))
}

fn header(value: &DeValue<'_>) -> Result<String, Problem> {
    let host = text(value)?;
    if host.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(host);
    }
    Err(Problem::new(format!("{host:?} is not a valid Host header"), "write a name, as in \"www.example.com\""))
}

fn tls_name(value: &DeValue<'_>) -> Result<String, Problem> {
    let name = text(value)?;
    match ServerName::try_from(name.as_str()) {
        Ok(_) => Ok(name),
        Err(_) => {
            Err(Problem::new(format!("{name:?} is not a host name"), "write the name that the certificates are for"))
        }
    }
}
