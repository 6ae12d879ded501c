//! The kernel side of dwell: BPF programs, the code that loads, attaches and reads them, and facts about what a host
//! can do. The only crate that links libbpf.

mod attach;
pub mod balancer;
pub mod cgroup;
mod chain;
pub mod clock;
mod error;
mod events;
pub mod host;
mod interface;
mod load;
mod next_hop;
pub mod owners;
pub mod response;
pub mod rtt;
pub mod stack;
mod vantage;

pub use attach::{Hook, TcHookKind, XdpMode, attach_tcx};
pub use chain::Chain;
pub use error::Error;
pub use interface::Interface;
pub use load::count_run_times;
pub use vantage::Vantage;
