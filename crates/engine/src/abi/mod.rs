//! Types and constants of the C core. `core.rs` is what bindgen makes of its headers: tests/bindings.rs.
#![allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unsafe_code,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::pedantic
)]

include!("core.rs");
