//! Compiles the drivers of the kernel benchmarks.

use std::{env, path::PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let out = PathBuf::from(env::var("OUT_DIR").expect("set by cargo"));
    let core = env::var("DEP_DWELL_CORE_INCLUDE").expect("dwell-engine tells where its core is");
    // The BPF target has no multiarch include path of its own.
    let multiarch = format!("-I/usr/include/{}-linux-gnu", env::consts::ARCH);
    println!("cargo::rerun-if-changed={core}");
    for name in ["driver", "forward"] {
        let source = format!("src/cost/{name}.bpf.c");
        println!("cargo::rerun-if-changed={source}");
        SkeletonBuilder::new()
            .source(&source)
            .obj(out.join(format!("{name}.bpf.o")))
            .clang_args(["-mcpu=v3", "-Wall", "-Werror", &multiarch, "-I", &core])
            .build()
            .unwrap_or_else(|error| panic!("cannot compile {source}: {error:#}"));
    }
}
