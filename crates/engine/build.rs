//! Compiles the C core natively.

use std::{
    env,
    path::PathBuf,
    process::{Command, Stdio},
};

/// Beside AddressSanitizer, which cc adds where rustc has it: what the C core
/// reaches guides the fuzzer, and undefined behaviour traps. Loads of unaligned
/// header fields are meant.
const FUZZING: [&str; 4] = [
    "-fsanitize=fuzzer-no-link",
    "-fsanitize=undefined",
    "-fsanitize-undefined-trap-on-error",
    "-fno-sanitize=alignment",
];

fn main() {
    let core = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("set by cargo")).join("core");
    println!("cargo::rerun-if-changed={}", core.display());
    // For crates that compile the core into BPF programs: DEP_DWELL_CORE_INCLUDE.
    println!("cargo::metadata=include={}", core.display());

    let mut build = cc::Build::new();
    // The compiler of the BPF programs, where it is there.
    if env::var_os("CC").is_none() && is_there("clang") {
        build.compiler("clang");
    }
    build
        .file(core.join("lb/balance_native.c"))
        .file(core.join("lb/decap_native.c"))
        .file(core.join("stack/layers_native.c"))
        .file(core.join("socket/lowat_native.c"))
        .file(core.join("rtt/native.c"))
        .file(core.join("lb/quic_lb_native.c"))
        .file(core.join("response/response_native.c"))
        .file(core.join("response/slot_native.c"))
        .file(core.join("lb/steer_native.c"))
        .file(core.join("clock/sync_native.c"))
        .include(&core)
        .opt_level(3)
        .warnings(true)
        .extra_warnings(true)
        .flags(env::var_os("CARGO_CFG_FUZZING").iter().flat_map(|_| FUZZING))
        .compile("dwell_core");
}

fn is_there(compiler: &str) -> bool {
    let version = Command::new(compiler).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}
