//! Types and constants of the C core, made from its headers.
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

include!(concat!(env!("OUT_DIR"), "/abi.rs"));
