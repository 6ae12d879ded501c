//! The name by which programs that are linked with the library find it; and that it stays, as its thread and what it
//! has libc call in forked children do, when a program unloads it.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdwell.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
