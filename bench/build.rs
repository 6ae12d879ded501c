//! Compiles the driver of the kernel benchmark.

use std::{env, path::PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let out = PathBuf::from(env::var("OUT_DIR").expect("set by cargo"));
    let core = env::var("DEP_DWELL_CORE_INCLUDE").expect("dwell-engine tells where its core is");
    // The BPF target has no multiarch include path of its own.
    let multiarch = format!("-I/usr/include/{}-linux-gnu", env::consts::ARCH);
    println!("cargo::rerun-if-changed={core}");
    println!("cargo::rerun-if-changed=src/driver.bpf.c");
    SkeletonBuilder::new()
        .source("src/driver.bpf.c")
        .obj(out.join("driver.bpf.o"))
        .clang_args(["-mcpu=v3", "-Wall", "-Werror", &multiarch, "-I", &core])
        .build()
        .unwrap_or_else(|error| panic!("cannot compile src/driver.bpf.c: {error:#}"));
}
