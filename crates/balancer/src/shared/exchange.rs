//! A value of each balancer that the others read: its own, which goes to the store once it has changed, and theirs.

use std::{collections::BTreeMap, sync::Arc};

use super::store::{Entry, Lease, Operation};

/// What balancers publish for each other.
pub trait Shareable: Sized {
    /// Reads a value. `None` if it is not one, or has what no balancer writes.
    fn parse(bytes: &[u8]) -> Option<Self>;
    /// Returns the value as it is stored.
    fn to_bytes(&self) -> Vec<u8>;
    /// Returns the value without what others can do without.
    fn shorter(&self) -> Self;
}

/// The values of all balancers.
pub(super) struct Exchange<T> {
    /// What the keys of all begin with; the name of a balancer follows.
    prefix: String,
    /// The greatest size of a value.
    most_bytes: usize,
    /// The revision up to which those of the others are known.
    until: i64,
    others: BTreeMap<String, Arc<T>>,
    /// Whether those of the others have been read since they are wanted.
    has_read: bool,
    /// The value of this balancer as it is stored, and whether it has still to be.
    own: Option<(Vec<u8>, bool)>,
}

impl<T: Shareable> Exchange<T> {
    pub(super) fn new(prefix: String, most_bytes: usize) -> Exchange<T> {
        Exchange { prefix, most_bytes, until: 0, others: BTreeMap::new(), has_read: false, own: None }
    }

    /// Sets the value that this balancer publishes. Returns false if it is too large; then the previous value stays.
    pub(super) fn set(&mut self, value: &T) -> bool {
        let mut bytes = value.to_bytes();
        if bytes.len() > self.most_bytes {
            bytes = value.shorter().to_bytes();
        }
        let fits = bytes.len() <= self.most_bytes;
        if fits && self.own.as_ref().is_none_or(|(known, _)| *known != bytes) {
            self.own = Some((bytes, true));
        }
        fits
    }

    /// Reads those of the others from the beginning.
    pub(super) fn read_again(&mut self) {
        (self.until, self.has_read) = (0, false);
    }

    /// Puts the value of this balancer once more: the store has lost it.
    pub(super) fn put_again(&mut self) {
        if let Some((_, is_due)) = &mut self.own {
            *is_due = true;
        }
    }

    /// Returns the operation that reads at most this many values of the others that have changed; none of them where they are
    /// not wanted.
    pub(super) fn list(&self, is_wanted: bool, most: usize) -> Operation {
        let after = if is_wanted { self.until } else { i64::MAX - 1 };
        Operation::List { prefix: self.prefix.clone(), after, most }
    }

    /// Returns the operation that puts the value of this balancer, if it is due.
    pub(super) fn put(&self, name: &str, lease: Lease) -> Option<Operation> {
        let (bytes, _) = self.own.as_ref().filter(|(_, is_due)| *is_due)?;
        Some(Operation::Put { key: format!("{}{name}", self.prefix), value: bytes.clone(), lease: Some(lease) })
    }

    /// Notes that the value of this balancer is stored.
    pub(super) fn note_put(&mut self) {
        if let Some((_, is_due)) = &mut self.own {
            *is_due = false;
        }
    }

    /// Takes what was read of the others, who are those of `members` but for `own`. Returns the values of all if one has
    /// changed or this is the first time, and how many could not be used.
    pub(super) fn take(
        &mut self,
        entries: &[Entry],
        members: &[String],
        own: &str,
    ) -> (Option<BTreeMap<String, Arc<T>>>, u64) {
        let known = self.others.len();
        self.others.retain(|name, _| members.contains(name));
        let is_first = !std::mem::replace(&mut self.has_read, true);
        let (mut is_new, mut refused) = (is_first || self.others.len() != known, 0);
        for entry in entries {
            self.until = self.until.max(entry.modified);
            let name = entry.key.strip_prefix(&self.prefix).unwrap_or_default();
            if name == own || !members.iter().any(|member| member == name) {
                continue;
            }
            let value = Some(&entry.value).filter(|value| value.len() <= self.most_bytes);
            match value.and_then(|value| T::parse(value)) {
                Some(value) => drop(self.others.insert(name.to_owned(), Arc::new(value))),
                None => {
                    refused += 1;
                    self.others.remove(name);
                }
            }
            is_new = true;
        }
        (is_new.then(|| self.others.clone()), refused)
    }
}
