//! Attaching programs to interfaces, so that they go when the process goes.
#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
};

use libbpf_rs::{Link, ProgramMut, TC_EGRESS, TC_INGRESS, TcHook, TcHookBuilder, libbpf_sys};

use crate::{Error, Interface, error::io_error};

/// Which of the two ways into tc to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TcHookKind {
    /// tcx where the kernel has it (6.6), else clsact.
    #[default]
    Auto,
    /// A tcx link: goes with the process, however that ends.
    Tcx,
    /// A clsact filter: stays behind if the process is killed with SIGKILL.
    Clsact,
}

/// A place where a packet passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// On the way in, before the stack has touched the packet.
    Xdp,
    /// On the way in, after XDP.
    TcIngress,
    /// On the way out.
    TcEgress,
}

impl Hook {
    /// Its name in messages.
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
    Tcx(#[expect(dead_code, reason = "held for its drop")] OwnedFd),
    Clsact(TcHook),
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if let Attachment::Clsact(hook) = self {
            // Nobody is left to tell; the qdisc stays, as others may use it.
            let _ = hook.detach();
        }
    }
}

/// Attaches beside whatever else is attached; for XDP, of which there is only
/// one, fails if the place is taken.
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
        (_, TcHookKind::Tcx) => tcx(program, interface, hook),
        (_, TcHookKind::Clsact) => clsact(program, interface, hook),
        (_, TcHookKind::Auto) => match tcx(program, interface, hook) {
            Err(error) if error.raw_os_error() == Some(nix::libc::EINVAL) => clsact(program, interface, hook),
            other => other,
        },
    };
    result.map_err(|io| Error::Attach {
        hook: hook.name(),
        interface: interface.name.clone(),
        remedy: remedy(hook, &io),
        io,
    })
}

fn remedy(hook: Hook, io: &io::Error) -> &'static str {
    match (hook, io.raw_os_error(), io.kind()) {
        (_, _, io::ErrorKind::PermissionDenied) => {
            "it needs CAP_BPF and CAP_NET_ADMIN: run as root, or grant them with setcap"
        }
        (Hook::Xdp, Some(nix::libc::EINVAL | nix::libc::ERANGE | nix::libc::EOPNOTSUPP), _) => {
            "its driver takes no XDP program, or none with an MTU this large: measure at tc \
             (`--ingress-hook tc` of rtt, `--hook tc` of response)"
        }
        (Hook::Xdp, ..) => {
            "another XDP program may hold the device (`dwell doctor` shows it): measure at tc \
             (`--ingress-hook tc` of rtt, `--hook tc` of response), which runs beside it"
        }
        _ => "`dwell doctor` tells what this kernel lacks",
    }
}

fn tcx(program: &ProgramMut<'_>, interface: &Interface, hook: Hook) -> io::Result<Attachment> {
    let place = match hook {
        Hook::TcEgress => libbpf_sys::BPF_TCX_EGRESS,
        _ => libbpf_sys::BPF_TCX_INGRESS,
    };
    // First in the row: a program before us that drops or redirects a packet
    // would hide it.
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags: libbpf_sys::BPF_F_BEFORE,
        ..Default::default()
    };
    // SAFETY: the program's descriptor is open, and the options outlive the call.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(program.as_fd().as_raw_fd(), interface.index as i32, place, &raw const options)
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(Attachment::Tcx(unsafe { OwnedFd::from_raw_fd(fd) }))
}

fn clsact(program: &ProgramMut<'_>, interface: &Interface, hook: Hook) -> io::Result<Attachment> {
    let mut place = TcHookBuilder::new(program.as_fd())
        .ifindex(interface.index as i32)
        .replace(false)
        // before others, which may end classification
        .priority(1)
        .hook(if hook == Hook::TcEgress { TC_EGRESS } else { TC_INGRESS });
    place.create().map_err(|error| io_error(&error))?;
    let attached = match place.attach() {
        // A priority belongs to one kind of filter: let the kernel choose another.
        Err(error) if io_error(&error).raw_os_error() == Some(nix::libc::EINVAL) => place.priority(0).attach(),
        other => other,
    };
    attached.map(Attachment::Clsact).map_err(|error| io_error(&error))
}
