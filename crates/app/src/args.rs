//! Values that several verbs take.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

/// A length of time as people write it: "100ms", "1s", "2m", "0".
pub fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    text.parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|duration| Duration::try_from(duration).ok())
        .ok_or_else(|| "write a number and a unit, as in 100ms, 1s or 2m".to_owned())
}

/// The same, but not nothing.
pub fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("it must be longer than 0".into()),
        duration => Ok(duration),
    }
}

/// A number of bytes, with k, M or G for a power of a thousand: "500k", "100M".
pub fn bytes(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.strip_suffix(['k', 'M', 'G']) {
        Some(digits) => (digits, 1000_u64.pow(1 + "kMG".find(&text[digits.len()..]).unwrap_or_default() as u32)),
        None => (text, 1),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    number.filter(|number| *number > 0).ok_or_else(|| "write a size in bytes, as in 500k, 100M or 2G".to_owned())
}

/// A size as of [`bytes`], from a megabyte on.
pub fn megabytes(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        0..1_000_000 => Err("write a size of a megabyte at least, as in 64M or 2G".to_owned()),
        bytes => Ok(bytes),
    }
}

/// A port, which no flow has as 0.
pub fn port(text: &str) -> Result<u16, String> {
    let port = text.parse().ok().filter(|port| *port > 0);
    port.ok_or_else(|| "write a number from 1 to 65535, as in 443; /etc/services has those of names".to_owned())
}

/// Where to listen.
pub fn socket(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write an IP address and a port, as in 127.0.0.1:9469 or [::1]:9469".to_owned())
}

/// An address to serve at; a port alone is one of this host, which no other host can reach.
pub fn served_at(text: &str) -> Result<SocketAddr, String> {
    match text.parse() {
        Ok(port) => Ok((Ipv4Addr::LOCALHOST, port).into()),
        Err(_) => socket(text).map_err(|error| format!("{error}, or a port alone for 127.0.0.1")),
    }
}

/// A share of a whole, from 0 to 1: "1%" or "0.01".
pub fn share(text: &str) -> Result<f64, String> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse(),
    };
    share
        .ok()
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "write a share from 0% to 100%, as in 1%, or from 0 to 1, as in 0.01".to_owned())
}

/// The same, but not nothing.
pub fn positive_share(text: &str) -> Result<f64, String> {
    match share(text)? {
        0.0 => Err("it must be more than 0".into()),
        share => Ok(share),
    }
}

/// What verbs write: lines for people, or JSON Lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object per line.
    Jsonl,
}

impl Format {
    /// Returns the name in options.
    pub fn name(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::Jsonl => "jsonl",
        }
    }
}

/// What verbs write that can also run for their metrics or their exit status alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum FormatOrNone {
    /// For people.
    Text,
    /// One JSON object per line.
    Jsonl,
    /// Nothing on standard output; in a file one JSON object per line.
    None,
}

impl FormatOrNone {
    /// Returns the name in options.
    pub fn name(self) -> &'static str {
        match self {
            FormatOrNone::Text => "text",
            FormatOrNone::Jsonl => "jsonl",
            FormatOrNone::None => "none",
        }
    }
}

/// One sampled byte in this many: a power of two from 64 to 16,777,216.
pub fn sample_bytes(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(bytes) if bytes.is_power_of_two() && (1 << 6..=1 << 24).contains(&bytes) => Ok(bytes),
        _ => Err("write a power of two from 64 to 16777216, as in 4096".into()),
    }
}

/// The length of an epoch: from 10 ms to 60 s.
pub fn epoch(text: &str) -> Result<Duration, String> {
    match positive_duration(text)? {
        short if short < Duration::from_millis(10) => Err("it must be at least 10ms".into()),
        long if long > Duration::from_secs(60) => Err("it must be at most 60s".into()),
        epoch => Ok(epoch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_percentage_or_a_fraction() {
        for text in ["1%", "1 %", "0.01"] {
            assert_eq!(share(text), Ok(0.01), "{text}");
        }
        assert_eq!((share("100%"), share("1"), share("0")), (Ok(1.0), Ok(1.0), Ok(0.0)));
        for wrong in ["101%", "1.01", "-1%", "-0.5", "nan", "%", ""] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
        assert!(positive_share("0%").is_err() && positive_share("0.5%") == Ok(0.005));
    }
}
