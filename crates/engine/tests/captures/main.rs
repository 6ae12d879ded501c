//! Captures from elsewhere against what other programs measured in them.

mod nasty;
mod quic;
mod requests;
mod support;
mod tcp;
mod wraps;
mod scratch;
