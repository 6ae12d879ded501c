//! What a user asks about.

use std::net::{IpAddr, ToSocketAddrs};

use anyhow::{Context, Result, bail};
use dwell_socket::outside::Selected;

/// Interprets a target: a process ID, `:PORT`, `HOST:PORT` or `HOST`.
pub fn parse(text: &str) -> Result<Selected> {
    if let Ok(pid) = text.parse::<u32>() {
        return Ok(Selected::Process(pid));
    }
    // IPv6 addresses may begin with a colon.
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(Selected::Ends { addresses: vec![address.to_canonical()], port: None });
    }
    if let Some(port) = text.strip_prefix(':') {
        return Ok(Selected::Ends { addresses: Vec::new(), port: Some(parse_port(port, text)?) });
    }
    if let Some(path) = text.strip_prefix('/') {
        bail!("'/{path}' is a path: name a process of the cgroup instead, as in `dwell why $(pidof -s nginx)`");
    }
    if text.ends_with(".service") || text.ends_with(".scope") {
        bail!(
            "'{text}' is a unit of systemd: name its process, as in \
             `dwell why $(systemctl show -p MainPID --value {text})`"
        );
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, Some(parse_port(port, text)?)),
        None => (text, None),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let found = (host, port.unwrap_or(0)).to_socket_addrs();
    let found = found.with_context(|| {
        format!("cannot find the host '{host}'; a target is HOST:PORT, :PORT, HOST or a process ID")
    })?;
    let mut addresses: Vec<IpAddr> = found.map(|address| address.ip().to_canonical()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    Ok(Selected::Ends { addresses, port })
}

fn parse_port(port: &str, text: &str) -> Result<u16> {
    match port.parse() {
        Ok(port) if port > 0 => Ok(port),
        _ => bail!("'{port}' in '{text}' is not a port: write a number from 1 to 65535"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(addresses: &[&str], port: Option<u16>) -> Selected {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        Selected::Ends { addresses, port }
    }

    #[test]
    fn a_target_is_a_process_a_port_or_a_host() {
        assert_eq!(parse("4242").unwrap(), Selected::Process(4242));
        assert_eq!(parse(":443").unwrap(), ends(&[], Some(443)));
        assert_eq!(parse("192.0.2.1").unwrap(), ends(&["192.0.2.1"], None));
        assert_eq!(parse("192.0.2.1:80").unwrap(), ends(&["192.0.2.1"], Some(80)));
        assert_eq!(parse("2001:db8::1").unwrap(), ends(&["2001:db8::1"], None));
        assert_eq!(parse("[2001:db8::1]:80").unwrap(), ends(&["2001:db8::1"], Some(80)));
        assert_eq!(parse("::ffff:192.0.2.1").unwrap(), ends(&["192.0.2.1"], None));
    }

    #[test]
    fn what_is_not_supported_is_refused_with_what_to_write_instead() {
        for (text, wanted) in [
            (":0", "65535"),
            (":http", "65535"),
            ("192.0.2.1:99999", "65535"),
            ("nginx.service", "MainPID"),
            ("/sys/fs/cgroup/x", "pidof"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(wanted), "{error}");
        }
    }
}
