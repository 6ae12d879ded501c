//! The real binary, from outside: what it says of a wrong call, of good and bad captures, and of
//! real traffic between network namespaces. Tests whose names begin with `root_` need root, and
//! say so and pass without it.
#![allow(clippy::unwrap_used, reason = "what does not hold fails the test")]

mod annotate;
mod bad_input;
mod baseline;
mod clickhouse;
mod doctor;
mod enrolment;
mod errors;
mod fail_if;
mod fleet;
mod fleet_rights;
mod formats;
mod help;
mod kubernetes;
mod labels;
mod live_auto;
mod live_devices;
mod live_end;
mod live_groups;
mod live_options;
mod live_path;
mod live_traffic;
mod metrics;
mod names;
mod otlp;
mod output;
mod pipe;
mod problems;
mod prometheus;
mod records;
mod report;
mod response;
mod response_live;
mod run;
mod run_cgroup;
mod run_live;
mod schema;
mod sim;
mod stack;
mod stack_baseline;
mod stack_choice;
mod stack_devices;
mod stack_faults;
mod stack_namespaces;
mod stored;
mod summary;
mod support;
mod top;
mod why;
mod why_programs;
mod why_set_up;
mod why_store;
mod wire;
mod written;
