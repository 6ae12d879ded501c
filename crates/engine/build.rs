//! Compiles the C core natively and makes Rust types of its headers.

use std::{env, path::PathBuf};

/// Types that travel between kernel and user space as bytes.
const SHARED: &[&str] = &[
    "dwell_address",
    "dwell_arrival",
    "dwell_balance_config",
    "dwell_balance_counters",
    "dwell_balance_layout",
    "dwell_chunk",
    "dwell_aes128",
    "dwell_cid_config",
    "dwell_cid_plain",
    "dwell_zero_ids",
    "dwell_zero_loads",
    "dwell_zero_name",
    "dwell_zero_server",
    "dwell_zero_state",
    "dwell_zero_vip",
    "dwell_decap_counters",
    "dwell_decap_program",
    "dwell_decision",
    "dwell_epoch",
    "dwell_epoch_mode",
    "dwell_response_config",
    "dwell_response_event",
    "dwell_response_program",
    "dwell_counters",
    "dwell_filter",
    "dwell_filter_rule",
    "dwell_group_key",
    "dwell_heartbeat",
    "dwell_heavy",
    "dwell_heavy_config",
    "dwell_heavy_client",
    "dwell_flow_event",
    "dwell_histogram",
    "dwell_path_counts",
    "dwell_group",
    "dwell_prefix",
    "dwell_prefix_key",
    "dwell_load",
    "dwell_lowat_counters",
    "dwell_lowat_program",
    "dwell_vip_filter",
    "dwell_overload_config",
    "dwell_real",
    "dwell_rtt_config",
    "dwell_rtt_program",
    "dwell_rtt_sample",
    "dwell_flow_segment",
    "dwell_flow_segments",
    "dwell_server_load",
    "dwell_stack_counters",
    "dwell_stack_ends",
    "dwell_stack_hop",
    "dwell_stack_hop_time",
    "dwell_sip_key",
    "dwell_byte_trace",
    "dwell_device_point",
    "dwell_stack_program",
    "dwell_sync",
    "dwell_sync_counters",
    "dwell_sync_exchange",
    "dwell_sync_probe",
    "dwell_sync_program",
    "dwell_sync_session",
    "dwell_table_config",
    "dwell_vip",
    "dwell_pending",
    "dwell_vip_key",
];

/// Beside AddressSanitizer, which cc adds where rustc has it: what the C core
/// reaches guides the fuzzer, and undefined behaviour traps. Loads of unaligned
/// header fields are meant.
const FUZZING: [&str; 4] = [
    "-fsanitize=fuzzer-no-link",
    "-fsanitize=undefined",
    "-fsanitize-undefined-trap-on-error",
    "-fno-sanitize=alignment",
];

/// Has zerocopy derive the conversions from and to bytes: a hole in a C struct
/// becomes a compile error.
#[derive(Debug)]
struct ZeroCopy;

impl bindgen::callbacks::ParseCallbacks for ZeroCopy {
    fn add_derives(&self, info: &bindgen::callbacks::DeriveInfo<'_>) -> Vec<String> {
        if !SHARED.contains(&info.name) {
            return Vec::new();
        }
        ["FromBytes", "IntoBytes", "Immutable", "KnownLayout"].iter().map(|name| format!("zerocopy::{name}")).collect()
    }
}

fn main() {
    let core = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("set by cargo")).join("core");
    let out = PathBuf::from(env::var("OUT_DIR").expect("set by cargo"));
    println!("cargo::rerun-if-changed={}", core.display());
    // For crates that compile the core into BPF programs: DEP_DWELL_CORE_INCLUDE.
    println!("cargo::metadata=include={}", core.display());

    cc::Build::new()
        .compiler(env::var("CC").unwrap_or_else(|_| "clang".into()))
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

    bindgen::Builder::default()
        .clang_arg(format!("-I{}", core.display()))
        .header(core.join("lb/balance_native.h").display().to_string())
        .header(core.join("lb/decap_native.h").display().to_string())
        .header(core.join("rtt/native.h").display().to_string())
        .header(core.join("stack/layers_native.h").display().to_string())
        .header(core.join("socket/lowat_native.h").display().to_string())
        .header(core.join("lb/quic_lb_native.h").display().to_string())
        .header(core.join("response/response_native.h").display().to_string())
        .header(core.join("response/slot_native.h").display().to_string())
        .header(core.join("lb/steer_native.h").display().to_string())
        .header(core.join("clock/sync_native.h").display().to_string())
        .allowlist_function("dwell_(balance|decap|native|slots|layers|lowat|quic_lb|steer|sync)_.*")
        .allowlist_type(
            "dwell_(native|slots|slot_bucket|layers|stack_layer|stack_segment|stack_ends|byte_trace|stack_hop|stack_hop_time|device_point|stack_point|flow_segments|stack_program|stack_counter|stack_counters|response_program|response_event|key_kind|estimator|visible|content|way|rtt_program|group|group_key|prefix|prefix_key|histogram|counters|counter|method|event_type|flow_change|close_reason)",
        )
        .allowlist_type(
            "dwell_(balancer|named_vip|balance_config|balance_counters|balance_layout|chunk|decap|decap_counters|decap_program|decision|forward|heartbeat|load|pending|tunnel_end|vip_filter|real|verdict|vip|vip_key|reason|zero_counter|zero_ids|zero_loads|zero_name|zero_named_server|zero_state|zero_vip)",
        )
        .allowlist_type("dwell_(aes128|cid_cipher|cid_config|cid_plain)")
        .allowlist_type("dwell_(heavy|heavy_config|heavy_client|load_result|overload_config|server_load)")
        .allowlist_type("dwell_lowat_(counter|counters|program)")
        .allowlist_type(
            "dwell_(sip_key|sync|sync_(agent|counter|counters|exchange|kind|probe|program|session|stamper))",
        )
        .allowlist_var("DWELL_.*")
        .opaque_type("dwell_(bucket|flow|hop_row|cold|row|slot|stamp)")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .derive_default(true)
        .parse_callbacks(Box::new(ZeroCopy))
        .generate()
        .expect("the core's headers are valid C (bindgen needs libclang: `make setup`)")
        .write_to_file(out.join("abi.rs"))
        .expect("OUT_DIR is writable");
}
