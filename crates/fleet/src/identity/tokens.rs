//! One-time tokens, by which an agent gets its key over the network.
//!
//! A token holds a key of its own, which is good for nothing but asking for the agent's key, once and until it expires. The
//! collector keeps the public half beside its list of agents.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{
    agents::{self, AgentKey, MAX_AGENTS},
    files::{beside, from_hex, hex, lock, read_text, replace},
    raw_keys::public,
};
use crate::{Error, wire::AgentName};

/// What an agent without a key shows to its collector.
#[derive(Clone)]
pub struct Token(pub(super) AgentKey);

impl Token {
    /// Returns the name of the agent.
    pub fn agent(&self) -> &AgentName {
        &self.0.name
    }
}

/// NAME:PRIVATE:COLLECTOR, keys in hexadecimal digits.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AgentKey { name, private, collector } = &self.0;
        write!(f, "{name}:{}:{}", hex(private), hex(collector))
    }
}

impl FromStr for Token {
    type Err = Error;

    fn from_str(text: &str) -> Result<Token, Error> {
        let parse = || {
            let mut parts = text.trim().split(':');
            let name = AgentName::try_from(parts.next()?.to_owned()).ok()?;
            let private = from_hex(parts.next()?)?.try_into().ok()?;
            let collector = from_hex(parts.next()?)?;
            parts.next().is_none().then_some(Token(AgentKey { name, private, collector }))
        };
        parse().ok_or(Error::Token)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// A token that has not been used.
pub(super) struct Unused {
    name: AgentName,
    expires: u64,
    public: Vec<u8>,
}

/// Makes a token, and notes it beside a list of agents. A former one of the same agent is no longer valid.
pub(super) fn issue(secret: &[u8], name: &AgentName, list: &Path, lifetime: Duration) -> Result<Token, Error> {
    let collector = public(&agents::derive_collector(secret));
    let token = Token(AgentKey { name: name.clone(), private: rand::random(), collector });
    let _lock = lock(list)?;
    if !list.exists() {
        // A collector may be started before its first agent comes.
        replace(list, "", 0o644)?;
    }
    let mut unused = read(list)?;
    unused.retain(|other| other.name != *name);
    if unused.len() >= MAX_AGENTS {
        return Err(Error::TooManyTokens { path: path(list), most: MAX_AGENTS });
    }
    let expires = now().saturating_add(lifetime.as_secs());
    unused.push(Unused { name: name.clone(), expires, public: public(&token.0.private) });
    write(list, &unused)?;
    Ok(token)
}

/// Returns whether a key is that of a token that may still be used.
pub(super) fn is_unused(list: &Path, public: &[u8]) -> bool {
    agent_of(list, public).is_ok_and(|agent| agent.is_some())
}

/// Returns the agent of a token, if that may still be used.
pub(super) fn agent_of(list: &Path, public: &[u8]) -> Result<Option<AgentName>, Error> {
    Ok(read(list)?.into_iter().find(|token| token.public == public).map(|token| token.name))
}

/// Uses a token up, while the list is locked.
pub(super) fn take(list: &Path, public: &[u8]) -> Result<(), Error> {
    let mut unused = read(list)?;
    unused.retain(|token| token.public != public);
    write(list, &unused)
}

/// Reads the tokens that have not expired.
pub(super) fn read(list: &Path) -> Result<Vec<Unused>, Error> {
    let path = path(list);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let (text, now) = (read_text(&path)?, now());
    let mut unused = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let parse = || {
            let mut words = line.split(' ');
            let name = AgentName::try_from(words.next()?.to_owned()).ok()?;
            Some(Unused { name, expires: words.next()?.parse().ok()?, public: from_hex(words.next()?)? })
        };
        let token = parse().ok_or_else(|| Error::Tokens { path: path.clone(), line: number })?;
        unused.extend(Some(token).filter(|token| token.expires > now));
    }
    Ok(unused)
}

fn write(list: &Path, unused: &[Unused]) -> Result<(), Error> {
    let lines = unused.iter().map(|token| format!("{} {} {}\n", token.name, token.expires, hex(&token.public)));
    let path = path(list);
    if unused.is_empty() && !path.exists() {
        return Ok(());
    }
    replace(&path, &lines.collect::<String>(), 0o600)
}

/// The file of the tokens for a list of agents.
fn path(list: &Path) -> PathBuf {
    beside(list, ".tokens")
}

/// The time in seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
