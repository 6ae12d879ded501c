//! Attaches programs to interfaces, so that they are detached when the process ends.
#![allow(unsafe_code)]

use std::{
    ffi::CString,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use libbpf_rs::{Link, ProgramMut, TC_EGRESS, TC_INGRESS, TcHook, TcHookBuilder, libbpf_sys};

use crate::{Error, Interface, error::io_error, host::remedy_for_missing};

/// The kind of hook to use at tc.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TcHookKind {
    /// tcx where the kernel has it (6.6), otherwise clsact.
    #[default]
    Auto,
    /// A tcx link: it is detached when the process ends, however that ends.
    Tcx,
    /// A clsact filter: it stays behind if the process is killed with SIGKILL.
    Clsact,
}

/// A hook that packets pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// On receive, before the network stack has touched the packet.
    Xdp,
    /// On receive, after XDP.
    TcIngress,
    /// On send.
    TcEgress,
}

impl Hook {
    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Hook::Xdp => "xdp",
            Hook::TcIngress => "tc ingress",
            Hook::TcEgress => "tc egress",
        }
    }
}

/// An attached program. Dropping it detaches the program.
#[derive(Debug)]
pub(crate) enum Attachment {
    Link(#[expect(dead_code, reason = "held for its drop")] Link),
    Descriptor(#[expect(dead_code, reason = "held for its drop")] OwnedFd),
    Clsact(TcHook),
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if let Attachment::Clsact(hook) = self {
            // An error cannot be reported here. The qdisc stays, as others may use it.
            let _ = hook.detach();
        }
    }
}

/// Attaches a program in addition to those that are attached already. At XDP, which has room for one, it fails if another
/// is there.
pub(crate) fn attach(
    program: &ProgramMut<'_>,
    interface: &Interface,
    hook: Hook,
    kind: TcHookKind,
) -> Result<Attachment, Error> {
    let result = match (hook, kind) {
        (Hook::Xdp, _) => {
            program.attach_xdp(interface.index as i32).map(Attachment::Link).map_err(|error| io_error(&error))
        }
        (_, TcHookKind::Tcx) => tcx(program, interface, hook).map(Attachment::Descriptor),
        (_, TcHookKind::Clsact) => clsact(program, interface, hook),
        (_, TcHookKind::Auto) => match tcx(program, interface, hook).map(Attachment::Descriptor) {
            Err(error) if error.raw_os_error() == Some(nix::libc::EINVAL) => clsact(program, interface, hook),
            other => other,
        },
    };
    result.map_err(|io| refused(interface, hook, io))
}

/// Attaches a program at tcx, which Linux has from 6.6, before all others, until the descriptor is closed.
///
/// # Errors
///
/// The kernel's.
pub fn attach_tcx(program: &ProgramMut<'_>, interface: &Interface, hook: Hook) -> Result<OwnedFd, Error> {
    tcx(program, interface, hook).map_err(|io| refused(interface, hook, io))
}

fn refused(interface: &Interface, hook: Hook, io: io::Error) -> Error {
    Error::Attach { hook: hook.name(), interface: interface.name.clone(), remedy: remedy(hook, &io), io }
}

fn remedy(hook: Hook, io: &io::Error) -> &'static str {
    match (hook, io.raw_os_error(), io.kind()) {
        (_, _, io::ErrorKind::PermissionDenied) => remedy_for_missing(),
        (Hook::Xdp, Some(nix::libc::EINVAL | nix::libc::ERANGE | nix::libc::EOPNOTSUPP), _) => {
            "its driver runs no XDP programs, or none with an MTU this large: measure at tc \
             (`--hook tc`)"
        }
        (Hook::Xdp, ..) => {
            "another XDP program may occupy the device, as a balancer's or that of another `dwell response` (`dwell doctor` \
             shows it): measure at tc (`--hook tc`), which runs next to it"
        }
        _ => "`dwell doctor` shows what this kernel lacks",
    }
}

/// What runs a program at XDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum XdpMode {
    /// The driver, or the network stack where the driver has no XDP, or refuses it with the device's MTU and offloads.
    #[default]
    Any,
    /// The driver.
    Native,
    /// The network stack, for any device. Frames are as the stack has them: with segments that GRO has joined, and with
    /// checksums that are left to a device.
    Generic,
}

/// Attaches a program to XDP of an interface, where it stays as long as the link or a pin of it.
pub(crate) fn xdp(program: BorrowedFd<'_>, index: u32, mode: XdpMode) -> io::Result<OwnedFd> {
    let create = |flags| {
        let options = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
            flags,
            ..Default::default()
        };
        create_link(program, index, libbpf_sys::BPF_XDP, &options)
    };
    match mode {
        XdpMode::Any => create(0).or_else(|error| match error.raw_os_error() {
            Some(nix::libc::EINVAL | nix::libc::ERANGE | nix::libc::EOPNOTSUPP) => {
                create(libbpf_sys::XDP_FLAGS_SKB_MODE)
            }
            _ => Err(error),
        }),
        XdpMode::Native => create(libbpf_sys::XDP_FLAGS_DRV_MODE),
        XdpMode::Generic => create(libbpf_sys::XDP_FLAGS_SKB_MODE),
    }
}

/// Pins a link at a path of bpffs.
pub(crate) fn pin_link(link: &OwnedFd, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the descriptor is open, and the path is terminated and lives through the call.
    match unsafe { libbpf_sys::bpf_obj_pin(link.as_raw_fd(), path.as_ptr()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

fn create_link(
    program: BorrowedFd<'_>,
    index: u32,
    attach_type: libbpf_sys::bpf_attach_type,
    options: &libbpf_sys::bpf_link_create_opts,
) -> io::Result<OwnedFd> {
    // SAFETY: the program's descriptor is open, and the options outlive the call.
    let fd = unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), index as i32, attach_type, options) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel has just created the descriptor, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn tcx(program: &ProgramMut<'_>, interface: &Interface, hook: Hook) -> io::Result<OwnedFd> {
    let attach_type = match hook {
        Hook::TcEgress => libbpf_sys::BPF_TCX_EGRESS,
        _ => libbpf_sys::BPF_TCX_INGRESS,
    };
    // Before all others: a program ahead that drops or redirects a packet would hide it.
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags: libbpf_sys::BPF_F_BEFORE,
        ..Default::default()
    };
    create_link(program.as_fd(), interface.index, attach_type, &options)
}

fn clsact(program: &ProgramMut<'_>, interface: &Interface, hook: Hook) -> io::Result<Attachment> {
    let mut filter = TcHookBuilder::new(program.as_fd())
        .ifindex(interface.index as i32)
        .replace(false)
        // Before others, which may end classification.
        .priority(1)
        .hook(if hook == Hook::TcEgress { TC_EGRESS } else { TC_INGRESS });
    filter.create().map_err(|error| io_error(&error))?;
    let attached = match filter.attach() {
        // A priority belongs to one kind of filter: let the kernel select another.
        Err(error) if io_error(&error).raw_os_error() == Some(nix::libc::EINVAL) => filter.priority(0).attach(),
        other => other,
    };
    attached.map(Attachment::Clsact).map_err(|error| io_error(&error))
}
