//! What the balancers need of a store: keys with revisions, transactions and leases, as etcd has them.

use std::time::Duration;

/// Why the store did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No server answered, or what answered is not a store.
    #[error("{0}")]
    Away(String),
    /// The store refused.
    #[error("{0}")]
    Refused(String),
    /// A lease has ended.
    #[error("the lease has ended")]
    LeaseGone,
}

/// A lease: the keys that are put with it are removed when nobody has kept it for its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease(pub i64);

/// A store of keys. Every answer is that of a majority of its servers.
pub trait Store: Send {
    /// Carries out a transaction.
    ///
    /// # Errors
    ///
    /// If the store cannot be reached, refuses, or a lease that keys are put with has ended.
    fn transact(&mut self, transaction: &Transaction) -> Result<Outcome, StoreError>;

    /// Grants a lease.
    ///
    /// # Errors
    ///
    /// If the store cannot be reached, or refuses.
    fn grant(&mut self, time: Duration) -> Result<Lease, StoreError>;

    /// Keeps a lease for its time from now on.
    ///
    /// # Errors
    ///
    /// If the store cannot be reached or refuses, or the lease has ended.
    fn keep(&mut self, lease: Lease) -> Result<(), StoreError>;

    /// Ends a lease.
    ///
    /// # Errors
    ///
    /// If the store cannot be reached, or refuses.
    fn revoke(&mut self, lease: Lease) -> Result<(), StoreError>;
}

/// Operations that are carried out together, if the store is as expected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    /// What must hold.
    pub expected: Vec<Expected>,
    /// What is done if it holds.
    pub then: Vec<Operation>,
    /// What is done if it does not.
    pub otherwise: Vec<Operation>,
}

/// The revision that must have created a key; 0 if it must not be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// The key.
    pub key: String,
    /// The revision.
    pub created: i64,
}

/// An operation of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Puts a value.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: Vec<u8>,
        /// The lease that it ends with.
        lease: Option<Lease>,
    },
    /// Reads a key.
    Get {
        /// The key.
        key: String,
    },
    /// Reads the keys that begin with a prefix, those that have changed last first.
    List {
        /// The prefix.
        prefix: String,
        /// Only those that have changed after this revision.
        after: i64,
        /// The greatest number.
        most: usize,
    },
    /// Removes the keys between two, the first with them.
    Delete {
        /// The first key.
        from: String,
        /// The key before which it ends.
        until: String,
    },
}

/// The outcome of a transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the store was as expected.
    pub holds: bool,
    /// The store's revision.
    pub revision: i64,
    /// What each operation has read; nothing for those that read nothing.
    pub read: Vec<Vec<Entry>>,
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// The revision that created the key.
    pub created: i64,
    /// The revision that has changed it last.
    pub modified: i64,
}
