//! Where results go besides standard output: `--write` and `--store`; and outputs that are not waited for.

pub mod queue;
pub mod statuses;
pub mod stored;
pub mod written;
