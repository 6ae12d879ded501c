//! The structs of `include/dwell.h`.

use std::{
    mem::{MaybeUninit, size_of},
    time::Duration,
};

use dwell_engine::socket::{
    Estimator,
    control::{self, Setting, State},
};
use dwell_socket::table::{self, ControllerKind};
use libc::{c_char, c_void, size_t};

/// `struct dwell_config`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Config {
    size: size_t,
    poll_ns: u64,
    target_ns: u64,
    congestion: *const c_char,
    estimator: u32,
    controller: u32,
    budget_permille: u32,
    wireless: u32,
}

/// `struct dwell_info`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Info {
    size: size_t,
    valid: u64,
    time_ns: u64,
    sender_delay_ns: u64,
    sender_waiting_ns: u64,
    receiver_delay_ns: u64,
    jitter_ns: u64,
    throughput_bps: u64,
    receive_throughput_bps: u64,
    rtt_ns: u64,
    min_rtt_ns: u64,
    cwnd: u32,
    ssthresh: u32,
    notsent_bytes: u32,
    retransmissions: u32,
}

/// `struct dwell_setting`.
#[repr(C)]
#[derive(Default)]
pub struct WantedSetting {
    notsent_lowat: u32,
    send_buffer: u32,
}

/// `dwell_controller`.
pub type Callback = unsafe extern "C" fn(*const Info, *mut WantedSetting, *mut c_void);

/// Converts a `struct dwell_config`. Returns `None` if it is invalid.
///
/// # Safety
/// `config` is NULL or points to a `struct dwell_config`.
pub unsafe fn config(config: *const Config) -> Option<table::Config> {
    let defaults = table::Config::default();
    if config.is_null() {
        return Some(defaults);
    }
    // SAFETY: the first field of the caller's struct.
    let size = unsafe { (*config).size };
    if size < size_of::<size_t>() {
        return None;
    }
    // Fields beyond the size of the caller's struct, which may be of an older header, have their defaults.
    let mut wanted = MaybeUninit::<Config>::zeroed();
    // SAFETY: both have at least this many bytes, and do not overlap.
    unsafe {
        std::ptr::copy_nonoverlapping(
            config.cast::<u8>(),
            wanted.as_mut_ptr().cast::<u8>(),
            size.min(size_of::<Config>()),
        );
    }
    // SAFETY: numbers, and a pointer that may be null.
    let config = unsafe { wanted.assume_init() };
    let or = |ns: u64, default: Duration| match ns {
        0 => default,
        ns => Duration::from_nanos(ns),
    };
    Some(table::Config {
        poll: or(config.poll_ns, defaults.poll),
        budget: match config.budget_permille {
            0 => defaults.budget,
            permille @ 1..=1000 => f64::from(permille) / 1000.0,
            _ => return None,
        },
        estimator: match config.estimator {
            0 => Estimator::Exact,
            1 => Estimator::Paper,
            _ => return None,
        },
        controller: match config.controller {
            0 => None,
            1 => Some(ControllerKind::Lowat),
            2 => Some(ControllerKind::Element),
            _ => return None,
        },
        target: or(config.target_ns, defaults.target),
        wireless: config.wireless != 0,
        // SAFETY: the caller's promise.
        congestion: unsafe { super::text(config.congestion) }?,
    })
}

impl Info {
    /// Writes the figures, or that none are known, up to the size of the caller's struct.
    ///
    /// # Safety
    /// `to` is NULL or points to a `struct dwell_info` whose size is set.
    pub unsafe fn copy_to(info: Option<&dwell_socket::Info>, to: *mut Info) {
        if to.is_null() {
            return;
        }
        // SAFETY: the first field of the caller's struct.
        let size = unsafe { (*to).size };
        let mut known = Info::of(info.copied().unwrap_or_default());
        known.size = size;
        let length = size.min(size_of::<Info>());
        // SAFETY: both have at least this many bytes, and do not overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(std::ptr::from_ref(&known).cast::<u8>(), to.cast::<u8>(), length);
        }
    }

    fn of(info: dwell_socket::Info) -> Info {
        let mut valid = 0;
        let mut bit = 1;
        // In the order of the flags.
        let mut put = |known: Option<u64>| {
            if known.is_some() {
                valid |= bit;
            }
            bit <<= 1;
            known.unwrap_or(0)
        };
        let ns = |time: Option<Duration>| time.map(|time| time.as_nanos() as u64);
        let known = Info {
            time_ns: put(ns(info.time)),
            sender_delay_ns: put(ns(info.sender_delay)),
            sender_waiting_ns: put(ns(info.sender_waiting)),
            receiver_delay_ns: put(ns(info.receiver_delay)),
            jitter_ns: put(ns(info.jitter)),
            throughput_bps: put(info.throughput_bps),
            receive_throughput_bps: put(info.receive_throughput_bps),
            rtt_ns: put(ns(info.rtt)),
            min_rtt_ns: put(ns(info.min_rtt)),
            cwnd: put(info.cwnd.map(u64::from)) as u32,
            ssthresh: put(info.ssthresh.map(u64::from)) as u32,
            notsent_bytes: put(info.notsent_bytes.map(u64::from)) as u32,
            retransmissions: put(info.retransmissions.map(u64::from)) as u32,
            ..Info::default()
        };
        Info { valid, ..known }
    }
}

/// Calls a callback of the program.
pub struct Controller {
    callback: Callback,
    user: *mut c_void,
}

// SAFETY: the caller of dwell_control() has promised that another thread may use the pointer.
unsafe impl Send for Controller {}

impl Controller {
    /// Creates a controller that calls `callback` with `user`.
    pub fn new(callback: Callback, user: *mut c_void) -> Controller {
        Controller { callback, user }
    }
}

impl control::Controller for Controller {
    fn update(&mut self, state: &State<'_>) -> Setting {
        let mut info = Info::of(dwell_socket::Info::of_state(state));
        info.size = size_of::<Info>();
        let mut wanted = WantedSetting::default();
        // SAFETY: both live until the callback returns, and `user` is the program's pointer.
        unsafe { (self.callback)(&raw const info, &raw mut wanted, self.user) };
        Setting {
            notsent_lowat: Some(wanted.notsent_lowat).filter(|&bytes| bytes > 0),
            send_buffer: Some(wanted.send_buffer).filter(|&bytes| bytes > 0),
            ..Setting::default()
        }
    }
}
