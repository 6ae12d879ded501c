//! OTLP, the protocol of OpenTelemetry: protobuf over HTTP (opentelemetry.io/docs/specs/otlp).

mod endpoint;
mod message;
mod pusher;

pub use endpoint::{Endpoint, Headers};
pub use pusher::{Event, PushError, Pusher, Target};

#[cfg(test)]
mod tests;
