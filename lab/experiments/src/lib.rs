//! The laboratory: experiments that compare each of dwell's figures with the truth. Its binary is `dwell-lab`.
//!
//! Each experiment is a folder: what it runs, what it prints, and the goals that it judges. It starts `dwell` as any
//! user does and reads its JSON Lines.

pub mod cost;
pub mod demo;
mod doctor;
mod failure;
mod figures;
mod fleet;
mod goal;
pub mod lb;
pub mod loads;
mod print;
mod problem;
mod programs;
pub mod quic;
mod response;
mod rtt;
mod run;
mod sim;
pub mod socket;
pub mod stack;
mod star;
mod usage;
mod values;
mod verbs;
mod why;

pub use programs::Programs;
pub use verbs::main;
