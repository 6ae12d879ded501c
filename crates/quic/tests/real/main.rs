//! Real clients and servers, and what lies on the way between them.

#![allow(clippy::unwrap_used)] // also in the helpers of tests, which clippy does not see as tests

mod cids;
mod client;
mod example;
mod relay;
mod replay;
mod resume;
mod server;

#[path = "../../examples/server.rs"]
#[allow(dead_code)] // the rest of the program
mod server_example;
