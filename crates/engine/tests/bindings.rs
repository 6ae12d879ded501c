//! The types of the C core that are checked in are those that bindgen makes of its headers.
//!
//! Whoever changes a header makes them anew: `UPDATE_BINDINGS=1 cargo test -p dwell-engine --test bindings`. So neither
//! libclang nor bindgen is needed to build the crate. That sizes and offsets are the same on each architecture is checked where
//! the crate is compiled, by assertions among the types.
#![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

use std::{env, fs, path::Path};

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
    "dwell_owner",
    "dwell_owner_counters",
    "dwell_owner_key",
    "dwell_owner_program",
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
    "dwell_isns",
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
    "dwell_transmit",
    "dwell_vip",
    "dwell_pending",
    "dwell_vip_key",
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

fn generate(core: &Path) -> String {
    bindgen::Builder::default()
        .clang_arg(format!("-I{}", core.display()))
        .header(core.join("lb/balance_native.h").display().to_string())
        .header(core.join("lb/decap_native.h").display().to_string())
        .header(core.join("rtt/native.h").display().to_string())
        .header(core.join("stack/layers_native.h").display().to_string())
        .header(core.join("socket/lowat_native.h").display().to_string())
        .header(core.join("socket/owner_types.h").display().to_string())
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
            "dwell_(balancer|named_vip|balance_config|balance_counters|balance_layout|chunk|decap|decap_counters|decap_program|decision|forward|heartbeat|load|pending|tunnel_end|vip_filter|real|transmit|verdict|vip|vip_key|reason|zero_counter|zero_ids|zero_loads|zero_name|zero_named_server|zero_state|zero_vip)",
        )
        .allowlist_type("dwell_(aes128|cid_cipher|cid_config|cid_plain)")
        .allowlist_type("dwell_(heavy|heavy_config|heavy_client|load_result|overload_config|server_load)")
        .allowlist_type("dwell_lowat_(counter|counters|program)")
        .allowlist_type("dwell_owner|dwell_owner_(counters|key|program)")
        .allowlist_type(
            "dwell_(sip_key|sync|sync_(agent|counter|counters|exchange|kind|probe|program|session|stamper))",
        )
        .allowlist_var("DWELL_.*")
        .opaque_type("dwell_(bucket|flow|hop_row|cold|row|slot|stamp)")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .derive_default(true)
        .parse_callbacks(Box::new(ZeroCopy))
        .raw_line("// Made by bindgen: see tests/bindings.rs. Not to be edited.")
        .disable_header_comment()
        .generate()
        .expect("the core's headers are valid C (bindgen needs libclang: `make setup`)")
        .to_string()
}

#[test]
fn bindings_are_what_bindgen_makes_of_the_headers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (made, file) = (generate(&root.join("core")), root.join("src/abi/core.rs"));
    if env::var_os("UPDATE_BINDINGS").is_some() {
        fs::write(&file, &made).unwrap();
    }
    let checked_in = fs::read_to_string(&file).unwrap();
    let differ = made.lines().zip(checked_in.lines()).find(|(made, checked_in)| made != checked_in);
    assert!(
        made == checked_in,
        "src/abi/core.rs is not what bindgen makes of the headers, first at {differ:?}: \
         UPDATE_BINDINGS=1 cargo test -p dwell-engine --test bindings"
    );
}
