//! What a user asks about.

use std::net::{IpAddr, ToSocketAddrs};

use anyhow::{Context, Result, bail};
use dwell_socket::outside::Selection;

use crate::cgroups;

/// Interprets a target: a process ID, `:PORT`, `HOST:PORT`, a unit of systemd, the path of a cgroup, the name or ID of a
/// container, a pod of Kubernetes as `NAME`, `NAMESPACE/NAME` or by its UID, or `HOST`.
pub fn parse(text: &str) -> Result<Selection> {
    // An ID of a container may consist of digits alone.
    if let Some(pid) = text.parse::<u32>().ok().filter(|_| text.len() <= u32::MAX.ilog10() as usize + 1) {
        return Ok(Selection::Process(pid));
    }
    // IPv6 addresses may begin with a colon.
    if let Ok(address) = bare(text).parse::<IpAddr>() {
        return Ok(Selection::Ends { addresses: vec![address.to_canonical()], port: None });
    }
    if let Some(port) = text.strip_prefix(':') {
        return Ok(Selection::Ends { addresses: Vec::new(), port: Some(parse_port(port, text)?) });
    }
    if text.starts_with('/') {
        return Ok(Selection::Cgroups(vec![cgroups::at_path(text)?]));
    }
    if cgroups::is_unit(text) {
        return Ok(Selection::Cgroups(vec![cgroups::of_unit(text)?]));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, Some(parse_port(port, text)?)),
        None => {
            let cgroups = match cgroups::of_container(text)? {
                Some(cgroup) => vec![cgroup],
                None => cgroups::of_pod(text)?,
            };
            if !cgroups.is_empty() {
                return Ok(Selection::Cgroups(cgroups));
            }
            (text, None)
        }
    };
    let host = bare(host);
    let found = (host, port.unwrap_or(0)).to_socket_addrs();
    let found = found.with_context(|| {
        let container = if port.is_none() { ", and no container or pod has this name or ID" } else { "" };
        format!(
            "cannot find the host '{host}'{container}; a target is HOST:PORT, :PORT, HOST, a process ID, a unit such as \
             nginx.service, a container, a pod, or the path of a cgroup"
        )
    })?;
    let mut addresses: Vec<IpAddr> = found.map(|address| address.ip().to_canonical()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    Ok(Selection::Ends { addresses, port })
}

/// Returns the host of a target `HOST:PORT` or `HOST`, which may be an address.
pub fn host(text: &str) -> &str {
    let is_address = |text: &str| bare(text).parse::<IpAddr>().is_ok();
    bare(text.rsplit_once(':').filter(|_| !is_address(text)).map_or(text, |(host, _)| host))
}

/// An address of IPv6 without its brackets.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
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

    fn ends(addresses: &[&str], port: Option<u16>) -> Selection {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        Selection::Ends { addresses, port }
    }

    #[test]
    fn a_target_is_a_process_a_port_or_a_host() {
        assert_eq!(parse("4242").unwrap(), Selection::Process(4242));
        assert_eq!(parse(":443").unwrap(), ends(&[], Some(443)));
        assert_eq!(parse("192.0.2.1").unwrap(), ends(&["192.0.2.1"], None));
        assert_eq!(parse("192.0.2.1:80").unwrap(), ends(&["192.0.2.1"], Some(80)));
        assert_eq!(parse("2001:db8::1").unwrap(), ends(&["2001:db8::1"], None));
        assert_eq!(parse("[2001:db8::1]:80").unwrap(), ends(&["2001:db8::1"], Some(80)));
        assert_eq!(parse("::ffff:192.0.2.1").unwrap(), ends(&["192.0.2.1"], None));
    }

    #[test]
    fn a_host_is_without_its_port_and_an_address_without_brackets() {
        for (text, wanted) in [
            ("example.org:443", "example.org"),
            ("example.org", "example.org"),
            ("192.0.2.1:80", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:443", "2001:db8::1"),
        ] {
            assert_eq!(host(text), wanted);
        }
    }

    #[test]
    fn what_is_not_there_is_refused_with_what_to_write_instead() {
        for (text, wanted) in [
            (":0", "65535"),
            (":http", "65535"),
            ("192.0.2.1:99999", "65535"),
            ("no-such-unit-of-dwell.service", "systemctl status"),
            ("/no/such/cgroup", "/proc/PID/cgroup"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(wanted), "{error}");
        }
    }
}
