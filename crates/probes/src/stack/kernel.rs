//! Features of the running kernel that the stack programs need: found in its types, or else by trial.

use std::cell::OnceCell;

use libbpf_rs::{
    ProgramType,
    btf::{
        Btf,
        types::{Func, Typedef},
    },
};
use serde::Serialize;

use super::hooks::Attach;
use crate::host::{self, Capability};

/// Why a hook cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[schemars(rename = "doctor-lack")]
#[serde(rename_all = "kebab-case")]
pub enum Lack {
    /// The kernel does not have it.
    Hook,
    /// The kernel has the hook, but does not allow programs of this kind.
    Permission,
}

/// The running kernel's types, and the outcomes of trials.
pub(super) struct Kernel {
    btf: Option<Btf<'static>>,
    netfilter: OnceCell<bool>,
    fentry: OnceCell<bool>,
    kprobe: OnceCell<bool>,
}

impl Kernel {
    pub(super) fn of_this_host() -> Kernel {
        Kernel {
            btf: Btf::from_vmlinux().ok(),
            netfilter: OnceCell::new(),
            fentry: OnceCell::new(),
            kprobe: OnceCell::new(),
        }
    }

    /// Why a hook cannot be used; `None` if it can, or if this is unknown for want of types or privilege: then loading
    /// reports what is wrong.
    pub(super) fn lack(&self, attach: Attach) -> Option<Lack> {
        let has = |is_there: bool| (!is_there).then_some(Lack::Hook);
        match attach {
            Attach::Carried | Attach::AtQueue => None,
            Attach::Tracepoint(name) => has(self.has_type::<Typedef<'_>>(&format!("btf_trace_{name}"))),
            Attach::Netfilter(_) => {
                has(tried(&self.netfilter, || ProgramType::Netfilter.is_supported().unwrap_or(false)))
            }
            Attach::Fentry(function) => self.at_entry(function, &self.fentry, "try_fentry"),
            Attach::Kprobe(function) => self.at_entry(function, &self.kprobe, "try_kprobe"),
        }
    }

    fn at_entry(&self, function: &str, cell: &OnceCell<bool>, trial: &str) -> Option<Lack> {
        if !self.has_type::<Func<'_>>(function) {
            return Some(Lack::Hook);
        }
        let is_let_in = tried(cell, || host::attaches(trial));
        (!is_let_in).then_some(Lack::Permission)
    }

    /// Whether programs may read memory behind untyped pointers by its type.
    pub(super) fn has_typed_reads(&self) -> bool {
        self.has_type::<Func<'_>>("bpf_rdonly_cast")
    }

    fn has_type<'a, T: TryFrom<libbpf_rs::btf::BtfType<'a>>>(&'a self, name: &str) -> bool {
        let Some(btf) = &self.btf else { return true };
        btf.type_by_name::<T>(name).is_some()
    }
}

fn tried(cell: &OnceCell<bool>, trial: impl FnOnce() -> bool) -> bool {
    *cell.get_or_init(|| !Capability::missing(&Capability::TO_LOAD).is_empty() || trial())
}
