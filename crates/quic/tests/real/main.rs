//! Real clients and servers, and what lies on the way between them.

mod cids;
mod client;
mod relay;
mod replay;
mod resume;
mod server;
