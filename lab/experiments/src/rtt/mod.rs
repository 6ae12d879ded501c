//! Round trips of the same packets by `dwell rtt` and by the programs that users would take instead, compared with the
//! emulated truth.

mod figures;
mod goals;
mod readers;
mod record;
mod samples;
pub(crate) mod verb;
