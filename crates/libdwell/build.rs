//! Sets the name by which linked programs find the library, which holds the version of its interface, and keeps the
//! library mapped when a program unloads it, because its thread stays.

use std::env;

fn main() {
    let version = env::var("CARGO_PKG_VERSION_MAJOR").expect("set by cargo");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdwell.so.{version}");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
