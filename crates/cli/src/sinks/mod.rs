//! Where results go besides standard output: `--write` and `--store`.

pub mod statuses;
pub mod stored;
pub mod written;
