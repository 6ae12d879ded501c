//! See `dwell_fuzz::targets::balancer`.
#![cfg_attr(fuzzing, no_main)]

dwell_fuzz::entry!(balancer);
