//! Sets the name by which linked programs find the library, and keeps the library mapped when a program unloads it,
//! because its thread and its fork handler stay.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdwell.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
