//! See `dwell_fuzz::targets::response_replay`.
#![cfg_attr(fuzzing, no_main)]

dwell_fuzz::entry!(response_replay);
