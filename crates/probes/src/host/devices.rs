//! The programs at the hooks of network interfaces.
#![allow(unsafe_code)]

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use libbpf_rs::libbpf_sys;
use nix::libc;
use serde::Serialize;

use super::clsact::{self, Filter};
use crate::{Interface, XdpMode};

/// A network interface and the programs at its hooks; null where the kernel does not show them to this process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[schemars(rename = "doctor-device")]
pub struct Device {
    /// The name.
    pub name: String,
    /// The index.
    pub index: u32,
    /// XDP programs, at most one per mode.
    pub xdp: Option<Vec<Attached>>,
    /// Whether the driver runs XDP programs. Otherwise the network stack does, later and at the cost of tc.
    pub native_xdp: Option<bool>,
    /// Programs at tcx ingress, in the order in which they run.
    pub tcx_ingress: Option<Vec<Attached>>,
    /// Programs at tcx egress, in the order in which they run.
    pub tcx_egress: Option<Vec<Attached>>,
    /// BPF filters of clsact ingress.
    pub clsact_ingress: Option<Vec<Filter>>,
    /// BPF filters of clsact egress.
    pub clsact_egress: Option<Vec<Filter>>,
}

/// A program that is attached to a hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[schemars(rename = "doctor-attached")]
pub struct Attached {
    /// The kernel's ID of the program.
    pub id: u32,
    /// The name of the program, if this process may read it (CAP_SYS_ADMIN).
    pub name: Option<String>,
    /// The mode of an XDP program: `native`, `generic` or `offloaded`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<&'static str>,
}

impl Device {
    pub(super) fn inspect(interface: &Interface) -> Device {
        let (xdp, native_xdp) = xdp(interface.index);
        Device {
            name: interface.name.clone(),
            index: interface.index,
            xdp,
            native_xdp,
            tcx_ingress: tcx(interface.index, libbpf_sys::BPF_TCX_INGRESS),
            tcx_egress: tcx(interface.index, libbpf_sys::BPF_TCX_EGRESS),
            clsact_ingress: clsact::filters(&interface.name, "ingress"),
            clsact_egress: clsact::filters(&interface.name, "egress"),
        }
    }
}

/// Whether the driver of an interface runs XDP programs; `None` if this is unknown.
pub(crate) fn native_xdp(index: u32) -> Option<bool> {
    xdp(index).1
}

/// Returns what runs the XDP program of an interface; `None` if there is none, or this is unknown.
pub(crate) fn xdp_mode(index: u32) -> Option<XdpMode> {
    match xdp(index).0?.first()?.mode? {
        "generic" => Some(XdpMode::Generic),
        _ => Some(XdpMode::Native),
    }
}

fn xdp(index: u32) -> (Option<Vec<Attached>>, Option<bool>) {
    /// linux/netdev.h
    const NETDEV_XDP_ACT_BASIC: u64 = 1;

    let mut options =
        libbpf_sys::bpf_xdp_query_opts { sz: size_of::<libbpf_sys::bpf_xdp_query_opts>() as u64, ..Default::default() };
    // SAFETY: the options live through the call and know their size.
    let result = unsafe { libbpf_sys::bpf_xdp_query(index as i32, 0, &mut options) };
    if result < 0 {
        return (None, None);
    }
    let mut by_mode =
        [("native", options.drv_prog_id), ("generic", options.skb_prog_id), ("offloaded", options.hw_prog_id)];
    // If there is a single program, kernels report its ID and its mode in separate fields.
    match u32::from(options.attach_mode) {
        libbpf_sys::XDP_ATTACHED_DRV => by_mode[0].1 = options.prog_id,
        libbpf_sys::XDP_ATTACHED_SKB => by_mode[1].1 = options.prog_id,
        libbpf_sys::XDP_ATTACHED_HW => by_mode[2].1 = options.prog_id,
        _ => {}
    }
    let attached = by_mode
        .into_iter()
        .filter(|(_, id)| *id != 0)
        .map(|(mode, id)| Attached { id, name: program_name(id), mode: Some(mode) })
        .collect();
    // No features at all: the kernel does not report them, or the driver has no XDP.
    let native = (options.feature_flags != 0).then_some(options.feature_flags & NETDEV_XDP_ACT_BASIC != 0);
    (Some(attached), native)
}

fn tcx(index: u32, attach_type: libbpf_sys::bpf_attach_type) -> Option<Vec<Attached>> {
    // The kernel allows no more.
    let mut ids = [0u32; 64];
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as u64,
        prog_ids: ids.as_mut_ptr(),
        ..Default::default()
    };
    options.__bindgen_anon_1.count = ids.len() as u32;
    // SAFETY: `ids` has `count` elements and, like the options, lives through the call.
    let result = unsafe { libbpf_sys::bpf_prog_query_opts(index as i32, attach_type, &mut options) };
    // SAFETY: both members of the union are the same u32.
    let count = unsafe { options.__bindgen_anon_1.count } as usize;
    match -result {
        0 => {}
        // No program is attached, or the kernel has no tcx.
        libc::ENOENT | libc::EINVAL => return Some(Vec::new()),
        _ => return None,
    }
    let attached = ids.iter().take(count).map(|id| Attached { id: *id, name: program_name(*id), mode: None });
    Some(attached.collect())
}

fn program_name(id: u32) -> Option<String> {
    let info = program_info(&program_by_id(id).ok()?).ok()?;
    let name = info.name.map(|byte| byte as u8);
    let name = CStr::from_bytes_until_nul(&name).ok()?;
    Some(name.to_string_lossy().into_owned())
}

/// Opens a loaded program, which then stays loaded as long as the descriptor is open.
pub(crate) fn program_by_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes a number and returns a descriptor or an error.
    let fd = unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel has just created the descriptor, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Reads the kernel's information on a loaded program.
pub(super) fn program_info(program: &impl AsRawFd) -> io::Result<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut size = size_of_val(&info) as u32;
    // SAFETY: `info` has the given size and lives through the call. All its pointers are null with lengths of 0, so that
    // the kernel follows none.
    let result = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut size) };
    match result {
        0 => Ok(info),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}
