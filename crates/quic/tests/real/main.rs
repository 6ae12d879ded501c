//! Tests with real clients and servers, and a relay between them.

#![allow(clippy::unwrap_used)] // clippy does not recognise helper functions as test code

mod cids;
mod client;
mod example;
mod guide;
mod relay;
mod replay;
mod resume;
mod server;
mod tokens;

#[path = "../../examples/server.rs"]
#[allow(dead_code)] // only a part of the example is used
mod server_example;
