//! See `dwell_fuzz::targets::icmp`.
#![cfg_attr(fuzzing, no_main)]

dwell_fuzz::entry!(icmp);
