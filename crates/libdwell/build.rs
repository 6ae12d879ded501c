//! The name by which programs that are linked with the library find it.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdwell.so");
    println!("cargo::rerun-if-changed=build.rs");
}
