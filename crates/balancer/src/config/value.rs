//! Readers of TOML values: each checks type and range.

use std::{
    fmt::Display,
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    str::FromStr,
    time::Duration,
};

use dwell_app::args;
use toml::de::DeValue;

use super::table::Problem;

/// What a reader makes of a value.
type Read<T> = Result<T, Problem>;

pub(super) fn text(value: &DeValue<'_>) -> Read<String> {
    match value.as_str() {
        Some("") => Err(Problem::new("it is empty", "write at least one character")),
        Some(text) => Ok(text.to_owned()),
        None => Err(kind_problem(value, "a string", "\"…\"")),
    }
}

pub(super) fn flag(value: &DeValue<'_>) -> Read<bool> {
    value.as_bool().ok_or_else(|| kind_problem(value, "a boolean", "true or false"))
}

/// Reads an integer within a range.
pub(super) fn whole<T>(range: RangeInclusive<T>) -> impl FnOnce(&DeValue<'_>) -> Read<T>
where
    T: TryFrom<i64> + PartialOrd + Display,
{
    move |value| {
        let (least, most) = (range.start(), range.end());
        let wanted = || format!("write a whole number from {least} to {most}");
        let DeValue::Integer(digits) = value else {
            return Err(Problem::new(format!("it is {}, not a whole number", kind_name(value)), wanted()));
        };
        i64::from_str_radix(digits.as_str(), digits.radix())
            .ok()
            .and_then(|number| T::try_from(number).ok())
            .filter(|number| range.contains(number))
            .ok_or_else(|| Problem::new(format!("{digits} is out of range"), wanted()))
    }
}

/// Reads a number within a range.
pub(super) fn number(range: RangeInclusive<f64>) -> impl FnOnce(&DeValue<'_>) -> Read<f64> {
    move |value| {
        let digits = match value {
            DeValue::Integer(digits) if digits.radix() == 10 => digits.as_str().to_owned(),
            DeValue::Integer(digits) => i64::from_str_radix(digits.as_str(), digits.radix())
                .map(|number| number.to_string())
                .unwrap_or_default(),
            DeValue::Float(digits) => digits.as_str().to_owned(),
            other => return Err(kind_problem(other, "a number", "1.5")),
        };
        let (least, most) = (range.start(), range.end());
        let number = digits.parse().ok();
        number.filter(|number| range.contains(number)).ok_or_else(|| {
            Problem::new(format!("{digits} is out of range"), format!("write a number from {least} to {most}"))
        })
    }
}

/// Reads a duration within a range, as in "1s".
pub(super) fn time(range: RangeInclusive<Duration>) -> impl FnOnce(&DeValue<'_>) -> Read<Duration> {
    move |value| {
        let text = string(value, "a duration", "\"100ms\", \"1s\" or \"2m\"")?;
        let time = args::duration(text).map_err(|_| {
            let remedy = "write a number and a unit, as in \"100ms\", \"1s\" or \"2m\"";
            Problem::new(format!("\"{text}\" is not a duration"), remedy)
        })?;
        if range.contains(&time) {
            return Ok(time);
        }
        Err(Problem::new(
            format!("{text} is out of range"),
            format!("write a duration from {:?} to {:?}", range.start(), range.end()),
        ))
    }
}

/// Reads one of several words.
pub(super) fn choice<T: Copy>(words: &'static [(&'static str, T)]) -> impl FnOnce(&DeValue<'_>) -> Read<T> {
    move |value| {
        let list = || {
            let words: Vec<_> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            words.join(", ")
        };
        let Some(text) = value.as_str() else {
            return Err(kind_problem(value, "a word", &list()));
        };
        let found = words.iter().find(|(word, _)| *word == text);
        found
            .map(|(_, meaning)| *meaning)
            .ok_or_else(|| Problem::new(format!("unknown value \"{text}\""), format!("write one of {}", list())))
    }
}

/// Reads a name of at most 64 letters, digits and punctuation marks.
pub(super) fn plain_name(value: &DeValue<'_>) -> Read<String> {
    text(value).and_then(plain)
}

/// Returns a name if it has 1 to 64 letters, digits and punctuation marks.
pub(super) fn plain(name: String) -> Read<String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.:".contains(letter);
    if (1..=64).contains(&name.len()) && name.chars().all(is_plain) {
        return Ok(name);
    }
    let shown: String = name.chars().take(64).collect();
    Err(Problem::new(format!("{shown:?} is not a valid name"), "write up to 64 letters, digits and any of -_.:"))
}

const HOST_EXAMPLE: &str = "\"192.0.2.10\" or \"2001:db8::10\"";

/// Reads an IP address that a single host can have.
pub(super) fn host(value: &DeValue<'_>) -> Read<IpAddr> {
    let text = string(value, "an address", HOST_EXAMPLE)?;
    let address = text.parse().map_err(|_| {
        Problem::new(
            format!("\"{text}\" is not an IP address"),
            format!("write one, as in {HOST_EXAMPLE}; names are not looked up"),
        )
    })?;
    single(address)
}

/// Returns an IP address if a single host can have it.
pub(super) fn single(address: IpAddr) -> Read<IpAddr> {
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    let is_mapped = matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    let what = match address {
        _ if address.is_unspecified() => "the unspecified address",
        _ if address.is_multicast() || is_broadcast => "a multicast or broadcast address",
        _ if address.is_loopback() => "a loopback address",
        _ if is_mapped => "an IPv4-mapped IPv6 address",
        _ => return Ok(address),
    };
    let remedy = match address {
        IpAddr::V6(v6) if is_mapped => {
            let plain = v6.to_ipv4_mapped().map(IpAddr::V4).unwrap_or(address);
            format!("write {plain}")
        }
        _ => format!("write the address of a host, as in {HOST_EXAMPLE}"),
    };
    Err(Problem::new(format!("{address} is {what}"), remedy))
}

/// Reads the address and port to listen on.
pub(super) fn socket(value: &DeValue<'_>) -> Read<SocketAddr> {
    parsed("an address and a port", "\"127.0.0.1:9475\"")(value)
}

/// Reads a string that parses as `T`. `what` describes it in faults.
pub(super) fn parsed<T: FromStr>(what: &'static str, example: &'static str) -> impl FnOnce(&DeValue<'_>) -> Read<T> {
    move |value| {
        let text = string(value, what, example)?;
        text.parse()
            .map_err(|_| Problem::new(format!("\"{text}\" is not {what}"), format!("write one, as in {example}")))
    }
}

fn string<'v>(value: &'v DeValue<'_>, what: &str, example: &str) -> Read<&'v str> {
    value.as_str().ok_or_else(|| kind_problem(value, what, example))
}

pub(super) fn kind_problem(value: &DeValue<'_>, what: &str, example: &str) -> Problem {
    Problem::new(format!("it is {}, not {what}", kind_name(value)), format!("write {example}"))
}

fn kind_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
