//! From TOML's values to ours.

use std::{
    fmt::Display,
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    str::FromStr,
    time::Duration,
};

use toml::de::DeValue;

use super::table::Wrong;

type Read<T> = Result<T, Wrong>;

pub(super) fn text(value: &DeValue<'_>) -> Read<String> {
    match value.as_str() {
        Some("") => Err(Wrong::new("it is empty", "write something")),
        Some(text) => Ok(text.to_owned()),
        None => Err(kind(value, "a text", "\"…\"")),
    }
}

pub(super) fn flag(value: &DeValue<'_>) -> Read<bool> {
    value.as_bool().ok_or_else(|| kind(value, "a yes or no", "true or false"))
}

/// A whole number in a range.
pub(super) fn whole<T>(range: RangeInclusive<T>) -> impl FnOnce(&DeValue<'_>) -> Read<T>
where
    T: TryFrom<i64> + PartialOrd + Display,
{
    move |value| {
        let (least, most) = (range.start(), range.end());
        let wanted = || format!("write a whole number from {least} to {most}");
        let DeValue::Integer(digits) = value else {
            return Err(Wrong::new(format!("it is {}, not a whole number", name(value)), wanted()));
        };
        i64::from_str_radix(digits.as_str(), digits.radix())
            .ok()
            .and_then(|number| T::try_from(number).ok())
            .filter(|number| range.contains(number))
            .ok_or_else(|| Wrong::new(format!("{digits} is out of range"), wanted()))
    }
}

/// A number in a range.
pub(super) fn number(range: RangeInclusive<f64>) -> impl FnOnce(&DeValue<'_>) -> Read<f64> {
    move |value| {
        let digits = match value {
            DeValue::Integer(digits) => digits.as_str().to_owned(),
            DeValue::Float(digits) => digits.as_str().to_owned(),
            other => return Err(kind(other, "a number", "1.5")),
        };
        let (least, most) = (range.start(), range.end());
        let number = digits.parse().ok();
        number.filter(|number| range.contains(number)).ok_or_else(|| {
            Wrong::new(format!("{digits} is out of range"), format!("write a number from {least} to {most}"))
        })
    }
}

/// A length of time in a range, as in "1s".
pub(super) fn time(range: RangeInclusive<Duration>) -> impl FnOnce(&DeValue<'_>) -> Read<Duration> {
    move |value| {
        let text = text_like(value, "a length of time", "\"100ms\", \"1s\" or \"2m\"")?;
        let time = match text {
            "0" => Some(Duration::ZERO),
            _ => text.parse::<jiff::SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok()),
        };
        let Some(time) = time else {
            return Err(Wrong::new(
                format!("\"{text}\" is no length of time"),
                "write a number and a unit, as in \"100ms\", \"1s\" or \"2m\"",
            ));
        };
        if range.contains(&time) {
            return Ok(time);
        }
        Err(Wrong::new(
            format!("{text} is out of range"),
            format!("write a time from {:?} to {:?}", range.start(), range.end()),
        ))
    }
}

/// One of several words.
pub(super) fn choice<T: Copy>(words: &'static [(&'static str, T)]) -> impl FnOnce(&DeValue<'_>) -> Read<T> {
    move |value| {
        let list = || {
            let words: Vec<_> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            words.join(", ")
        };
        let Some(text) = value.as_str() else {
            return Err(kind(value, "a word", &list()));
        };
        let found = words.iter().find(|(word, _)| *word == text);
        found
            .map(|(_, meaning)| *meaning)
            .ok_or_else(|| Wrong::new(format!("there is no \"{text}\""), format!("write one of {}", list())))
    }
}

/// An address that one host has.
pub(super) fn host(value: &DeValue<'_>) -> Read<IpAddr> {
    let example = "\"192.0.2.10\" or \"2001:db8::10\"";
    let text = text_like(value, "an address", example)?;
    let Ok(address) = text.parse::<IpAddr>() else {
        return Err(Wrong::new(
            format!("\"{text}\" is no IP address"),
            format!("write one, as in {example}; names are not looked up"),
        ));
    };
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    let is_mapped = matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    let what = match address {
        _ if address.is_unspecified() => "the address of no host",
        _ if address.is_multicast() || is_broadcast => "an address of many hosts",
        _ if address.is_loopback() => "an address that never leaves its host",
        _ if is_mapped => "an IPv4 address in the form of an IPv6 one",
        _ => return Ok(address),
    };
    let remedy = match address {
        IpAddr::V6(v6) if is_mapped => {
            let plain = v6.to_ipv4_mapped().map(IpAddr::V4).unwrap_or(address);
            format!("write {plain}")
        }
        _ => format!("write one that a host has, as in {example}"),
    };
    Err(Wrong::new(format!("{address} is {what}"), remedy))
}

/// Where to listen.
pub(super) fn socket(value: &DeValue<'_>) -> Read<SocketAddr> {
    parsed("an address and a port", "\"127.0.0.1:9469\"")(value)
}

/// Whatever can be parsed.
pub(super) fn parsed<T: FromStr>(what: &'static str, example: &'static str) -> impl FnOnce(&DeValue<'_>) -> Read<T> {
    move |value| {
        let text = text_like(value, what, example)?;
        text.parse().map_err(|_| Wrong::new(format!("\"{text}\" is not {what}"), format!("write one, as in {example}")))
    }
}

fn text_like<'v>(value: &'v DeValue<'_>, what: &str, example: &str) -> Read<&'v str> {
    value.as_str().ok_or_else(|| kind(value, what, example))
}

pub(super) fn kind(value: &DeValue<'_>, what: &str, example: &str) -> Wrong {
    Wrong::new(format!("it is {}, not {what}", name(value)), format!("write {example}"))
}

fn name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
