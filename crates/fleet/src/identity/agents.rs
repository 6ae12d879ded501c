//! Keys of single agents, which the collector derives from its own, and the list of agents that it accepts.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{
    files::{Attempt, FileVersion, create, folder, from_hex, hex, lock, read_text, replace, version},
    raw_keys::{Private, derive, public},
    tokens,
};
use crate::{Error, wire::AgentName};

/// The first line of the file with an agent's key.
pub(super) const HEADER: &str = "dwell-agent-key 1";
/// Most agents in a list.
pub(super) const MAX_AGENTS: usize = 1 << 16;

/// The key of one agent: it cannot act as another agent, nor as a collector.
#[derive(Clone)]
pub struct AgentKey {
    pub(super) name: AgentName,
    pub(super) private: Private,
    /// The public key of the collector.
    pub(super) collector: Vec<u8>,
}

impl AgentKey {
    /// Derives the key of an agent from the collector's. Another number gives another key, when one is to be replaced.
    fn derive(secret: &[u8], name: &AgentName, number: u32) -> AgentKey {
        AgentKey {
            name: name.clone(),
            private: derive_agent(secret, name, number),
            collector: public(&derive_collector(secret)),
        }
    }

    /// Parses the content of a file that [`enroll`] has written.
    pub(super) fn parse(text: &str) -> Option<AgentKey> {
        let mut lines = text.lines();
        lines.next().filter(|line| *line == HEADER)?;
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned);
        let name = AgentName::try_from(value("name")?).ok()?;
        let private = from_hex(&value("private")?)?.try_into().ok()?;
        Some(AgentKey { name, private, collector: from_hex(&value("collector")?)? })
    }

    fn text(&self) -> String {
        format!("{HEADER}\nname {}\nprivate {}\ncollector {}\n", self.name, hex(&self.private), hex(&self.collector))
    }
}

/// The agents of a list, by their public keys. The list is read again whenever it has changed.
pub struct AgentKeys {
    secret: Vec<u8>,
    list: PathBuf,
    known: Mutex<Known>,
}

struct Known {
    attempt: Attempt<FileVersion>,
    by_key: HashMap<Vec<u8>, Agent>,
}

/// An agent's name, and the number of its key.
type Agent = (AgentName, u32);

impl AgentKeys {
    /// Reads a list of agents: a name per line, and the number of its key if it is not the first.
    ///
    /// # Errors
    ///
    /// [`Error::File`], [`Error::Agents`] or [`Error::Tokens`], if the list or the tokens beside it cannot be read or are
    /// malformed.
    pub(super) fn open(secret: &[u8], list: &Path) -> Result<AgentKeys, Error> {
        tokens::read(list)?;
        let known = Known { attempt: Attempt::new(version(list).ok()), by_key: HashMap::new() };
        let keys = AgentKeys { secret: secret.to_vec(), list: list.into(), known: Mutex::new(known) };
        keys.refresh(&mut keys.known())?;
        Ok(keys)
    }

    /// Returns the agent with a public key, unless it is not in the list any more.
    pub(super) fn name_of(&self, public: &[u8]) -> Option<AgentName> {
        self.look().by_key.get(public).map(|(name, _)| name.clone())
    }

    /// Returns what is wrong with the list, once, and only after the time in which it may be about to be replaced.
    pub(super) fn take_problem(&self) -> Option<Error> {
        self.look().attempt.take_problem()
    }

    /// Returns whether a key is that of a token that may still be used.
    pub(super) fn has_token(&self, public: &[u8]) -> bool {
        tokens::is_unused(&self.list, public)
    }

    /// Takes the agent of a token into the list, and returns its key as the content of a file. If this fails,
    /// the token is still good.
    ///
    /// # Errors
    ///
    /// [`Error::Token`], if the key is not that of a token that may be used; [`Error::File`], if a file cannot be written.
    pub(super) fn enroll(&self, presented: &[u8]) -> Result<(AgentName, String), Error> {
        let _lock = lock(&self.list)?;
        let name = tokens::agent_of(&self.list, presented)?.ok_or(Error::Token)?;
        // First, so that no token is used up where the list cannot be written.
        let number = add(&name, &self.list)?;
        tokens::take(&self.list, presented)?;
        let text = AgentKey::derive(&self.secret, &name, number).text();
        Ok((name, text))
    }

    /// Reads the list if it has changed. One that cannot be read leaves the agents that were in it.
    fn look(&self) -> MutexGuard<'_, Known> {
        let mut known = self.known();
        if known.attempt.begin(version(&self.list).ok()) {
            known.attempt.problem = self.refresh(&mut known).err();
        }
        known
    }

    /// Reads the list. Lines that are malformed are left out, and the first one is the error. Of several lines with a name the last one
    /// counts, as it may be meant to replace the others.
    fn refresh(&self, known: &mut Known) -> Result<(), Error> {
        let (agents, malformed) = parse(&read_text(&self.list)?);
        let mut before: HashMap<Agent, Vec<u8>> = known.by_key.drain().map(|(key, agent)| (agent, key)).collect();
        let agents: HashMap<AgentName, u32> = agents.into_iter().collect();
        let keys = agents.into_iter().map(|agent| {
            let key = before.remove(&agent);
            let (name, number) = &agent;
            (key.unwrap_or_else(|| public(&derive_agent(&self.secret, name, *number))), agent)
        });
        known.by_key = keys.collect();
        malformed.map_or(Ok(()), |line| Err(Error::Agents { path: self.list.clone(), line }))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the key of an agent beside a list, as NAME.key, and its name into the list, which is created if it does not
/// exist. If it was in the list before, its former key is no longer valid. Returns the file of the key.
///
/// # Errors
///
/// [`Error::File`], [`Error::KeyExists`] or [`Error::Agents`].
pub(super) fn enroll(secret: &[u8], name: &AgentName, list: &Path) -> Result<PathBuf, Error> {
    let _lock = lock(list)?;
    let path = folder(list).join(format!("{name}.key"));
    // Before the list is changed: a key that exists is not replaced.
    create(&path, "", 0o600)?;
    let written =
        add(name, list).and_then(|number| replace(&path, &AgentKey::derive(secret, name, number).text(), 0o600));
    written.inspect_err(|_| drop(fs::remove_file(&path)))?;
    Ok(path)
}

/// Adds an agent to a list, or makes its key another one; all else in the list stays as it is. Returns the number of its key,
/// which is random: an agent that was taken off the list and comes back must not get the key that it had.
fn add(name: &AgentName, list: &Path) -> Result<u32, Error> {
    let before = if list.exists() { read_text(list)? } else { String::new() };
    let (agents, malformed) = parse(&before);
    let others = agents.iter().filter(|(known, _)| known != name).count();
    if others >= MAX_AGENTS {
        return Err(Error::TooManyAgents { path: list.into(), most: MAX_AGENTS });
    }
    if let Some(line) = malformed {
        return Err(Error::Agents { path: list.into(), line });
    }
    let number = rand::random_range(2..=u32::MAX);
    let entry = format!("{name} {number}");
    let mut lines: Vec<String> = before.lines().map(str::to_owned).collect();
    for line in lines.iter_mut().filter(|line| entry_of(line).split(' ').next() == Some(name.as_str())) {
        let rest = line.split_off(line.find(entry_of(line)).unwrap_or_default() + entry_of(line).len());
        *line = entry.clone() + &rest;
    }
    if others == agents.len() {
        lines.push(entry);
    }
    replace(list, &(lines.join("\n") + "\n"), 0o644)?;
    Ok(number)
}

/// The collector's private key. Nobody who has only an agent's key can find it.
pub(super) fn derive_collector(secret: &[u8]) -> Private {
    derive(secret, &[b"collector"])
}

fn derive_agent(secret: &[u8], name: &AgentName, number: u32) -> Private {
    derive(secret, &[b"agent", &number.to_be_bytes(), name.as_str().as_bytes()])
}

/// Returns the agents of a list, and the number of the first line that names none.
fn parse(text: &str) -> (Vec<Agent>, Option<usize>) {
    let (mut agents, mut malformed) = (Vec::new(), None);
    for (line, number) in text.lines().zip(1..) {
        let line = entry_of(line);
        if line.is_empty() {
            continue;
        }
        let (name, key) = line.split_once(' ').unwrap_or((line, "1"));
        match (AgentName::try_from(name.to_owned()), key.trim().parse()) {
            (Ok(name), Ok(key)) if agents.len() < MAX_AGENTS => agents.push((name, key)),
            _ => malformed = malformed.or(Some(number)),
        }
    }
    (agents, malformed)
}

/// Returns a line of a list without its comment.
fn entry_of(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

impl std::fmt::Debug for AgentKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentKeys").field("list", &self.list).finish_non_exhaustive()
    }
}
