//! Compiles the BPF programs, and compresses them: they are a quarter of their size in the executable then.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use flate2::{Compression, write::ZlibEncoder};
use libbpf_cargo::SkeletonBuilder;

const PROGRAMS: &[(&str, &str)] = &[
    ("src/rtt/tc.bpf.c", "rtt_tc.bpf.o"),
    ("src/rtt/xdp.bpf.c", "rtt_xdp.bpf.o"),
    ("src/response/tc.bpf.c", "response_tc.bpf.o"),
    ("src/response/xdp.bpf.c", "response_xdp.bpf.o"),
    ("src/balancer/decap.bpf.c", "balancer_decap.bpf.o"),
    ("src/balancer/transmit.bpf.c", "balancer_transmit.bpf.o"),
    ("src/balancer/xdp.bpf.c", "balancer_xdp.bpf.o"),
    ("src/stack/devices.bpf.c", "devices_typed.bpf.o"),
    ("src/stack/devices.bpf.c", "devices_probed.bpf.o"),
    ("src/stack/tracepoint.bpf.c", "stack_typed.bpf.o"),
    ("src/stack/tracepoint.bpf.c", "stack_probed.bpf.o"),
    ("src/clock/clock.bpf.c", "clock.bpf.o"),
    ("src/cgroup/lowat.bpf.c", "lowat.bpf.o"),
    ("src/owners/owners.bpf.c", "owners_probed.bpf.o"),
    ("src/host/trials.bpf.c", "trials.bpf.o"),
];

fn main() {
    let out = PathBuf::from(env::var("OUT_DIR").expect("set by cargo"));
    let core = env::var("DEP_DWELL_CORE_INCLUDE").expect("dwell-engine tells where its core is");
    // The BPF target has no multiarch include path of its own. SYSROOT has the headers of another system.
    println!("cargo::rerun-if-env-changed=SYSROOT");
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").expect("set by cargo");
    let multiarch = format!("-I{}/usr/include/{architecture}-linux-gnu", env::var("SYSROOT").unwrap_or_default());
    println!("cargo::rerun-if-changed={core}");
    rerun_if_changed(Path::new("src"));
    for (source, object) in PROGRAMS {
        // How the kernel's memory is read: see kernel.bpf.h.
        let reads = if object.ends_with("_probed.bpf.o") { "-DDWELL_PROBED" } else { "-UDWELL_PROBED" };
        let object = out.join(object);
        SkeletonBuilder::new()
            .source(source)
            .obj(&object)
            .clang_args([
                "-mcpu=v3",
                "-Wall",
                "-Werror",
                "-Wno-unused-function",
                reads,
                &multiarch,
                "-I",
                &core,
                "-I",
                "src/bpf",
            ])
            .build()
            .unwrap_or_else(|error| panic!("cannot compile {source}: {error:#}"));
        compress(&object).unwrap_or_else(|error| panic!("cannot compress {}: {error}", object.display()));
    }
}

fn compress(object: &Path) -> io::Result<()> {
    let compressed = fs::File::create(object.with_extension("o.z"))?;
    let mut encoder = ZlibEncoder::new(compressed, Compression::best());
    io::Write::write_all(&mut encoder, &fs::read(object)?)?;
    encoder.finish().map(drop)
}

/// Watches the C files below a folder, and no Rust: compiling the programs takes long.
fn rerun_if_changed(folder: &Path) {
    for entry in fs::read_dir(folder).expect("src can be read").map_while(Result::ok) {
        let path = entry.path();
        match path.extension().and_then(|extension| extension.to_str()) {
            None if path.is_dir() => rerun_if_changed(&path),
            Some("c" | "h") => println!("cargo::rerun-if-changed={}", path.display()),
            _ => {}
        }
    }
}
