//! See `dwell_fuzz::targets::dns`.
#![cfg_attr(fuzzing, no_main)]

dwell_fuzz::entry!(dns);
