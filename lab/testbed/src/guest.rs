//! Virtual machines with their own kernels, emulated by QEMU: to load programs on kernels that this host does not run,
//! and to have a guest as a sender. An emulated machine shows what happens, in which order and how often. Its durations
//! say nothing about a real machine.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use tempfile::TempDir;

use crate::{
    Error, Guarded, Namespace, Result,
    console::Console,
    error::{find_program, run},
};

/// QEMU, and the programs that make an initial root filesystem, each with its Debian package.
const PROGRAMS: &[(&str, &str)] = &[
    (EMULATOR, "Install the package qemu-system-x86."),
    ("busybox", "Install the package busybox-static."),
    ("cpio", "Install the package cpio."),
    ("modprobe", "Install the package kmod."),
    ("ldd", "Install the package libc-bin."),
    ("nice", "Install the package coreutils."),
];

const EMULATOR: &str = "qemu-system-x86_64";

const PARAMETERS: &str = "console=ttyS0 quiet panic=-1 nokaslr mitigations=off tsc=reliable \
    rcupdate.rcu_expedited=1";

/// The line that the machine prints when its kernel has started.
const UP: &str = "dwell-guest is up\n";

/// The time that a machine may take to start on a busy host.
const BOOT_PATIENCE: Duration = Duration::from_secs(300);

/// The number of attempts to start. A failure of the emulation before the first process is unrelated to what is tested.
const BOOT_TRIES: u32 = 3;

/// The script that runs before the given one. Modules are listed in the order of their dependencies.
const INIT: &str = r#"#!/bin/sh
/bin/busybox --install -s /bin
export PATH=/sbin:/bin:/usr/sbin:/usr/bin HOME=/
mkdir -p /proc /sys /dev /tmp /run
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tracefs tracefs /sys/kernel/tracing
exec >/dev/console 2>&1 </dev/null
dmesg -n 1
for module in $(cat /modules/order); do insmod /modules/$module; done
ip link set lo up
echo dwell-guest is up
. /script
sync
poweroff -f
"#;

/// Options of a machine.
#[derive(Debug, Clone)]
pub struct GuestOptions {
    /// The folder in which a kernel's package is unpacked: `boot/vmlinuz-*`, `lib/modules/*`.
    pub kernel: PathBuf,
    /// Modules that the kernel needs, without their dependencies.
    pub modules: Vec<String>,
    /// Programs of this host that the machine has on its search path, in addition to busybox. Their libraries are
    /// copied too.
    pub programs: Vec<PathBuf>,
    /// The script that the machine runs in this host's shell before it ends.
    pub script: String,
    /// The name of a tap device in the namespace, with its link up and without an address, which is `eth0` in the
    /// machine. At most 15 characters.
    pub tap: Option<String>,
    /// Its memory.
    pub memory_mib: u32,
}

impl GuestOptions {
    /// Options of a machine with 1 GiB of memory and without a network.
    pub fn new(kernel: impl Into<PathBuf>, script: impl Into<String>) -> Self {
        Self {
            kernel: kernel.into(),
            modules: Vec::new(),
            programs: Vec::new(),
            script: script.into(),
            tap: None,
            memory_mib: 1024,
        }
    }
}

/// A running virtual machine. It ends when the guard is dropped.
#[derive(Debug)]
pub struct Guest {
    emulator: Guarded,
    console: Arc<Console>,
    _files: Arc<TempDir>,
}

impl Guest {
    /// Returns what this host lacks for virtual machines, as a sentence with the remedy, or `None`.
    pub fn missing_requirement() -> Option<String> {
        if !cfg!(target_arch = "x86_64") {
            return Some("virtual machines are only made on x86-64".to_owned());
        }
        let missing = PROGRAMS.iter().find(|(name, _)| find_program(name).is_none());
        missing.map(|(name, remedy)| format!("there is no program {name}. {remedy}"))
    }

    /// Returns the newest kernel's package of those that are unpacked in subfolders of this folder.
    pub fn newest_kernel(folder: &Path) -> Option<PathBuf> {
        let entries = fs::read_dir(folder).ok()?;
        let packages = entries.filter_map(|entry| Some(entry.ok()?.path()));
        packages
            .filter_map(|package| {
                let kernel = newest(&package.join("boot"), "vmlinuz-").ok()?;
                Some((kernel.file_name()?.to_owned(), package))
            })
            .max()
            .map(|(_, package)| package)
    }

    /// Starts a machine in a namespace. Returns when its kernel runs.
    pub fn start(options: &GuestOptions, namespace: &Namespace) -> Result<Self> {
        let files = tempfile::Builder::new()
            .prefix("dwell-guest-")
            .tempdir()
            .map_err(Error::io("make a folder for a virtual machine"))?;
        let initrd = make_initrd(options, files.path())?;
        let kernel = newest(&options.kernel.join("boot"), "vmlinuz-")?;
        if let Some(tap) = &options.tap {
            namespace.ip(&format!("tuntap add dev {tap} mode tap\nlink set {tap} up\n"))?;
        }
        let files = Arc::new(files);
        let mut tries = 0;
        loop {
            tries += 1;
            let guest = Self::launch(options, namespace, &kernel, &initrd, &files)?;
            match guest.wait_for(&[UP], BOOT_PATIENCE) {
                Ok(()) => return Ok(guest),
                Err(error) if tries == BOOT_TRIES => return Err(error),
                Err(_) => {}
            }
        }
    }

    fn launch(
        options: &GuestOptions,
        namespace: &Namespace,
        kernel: &Path,
        initrd: &Path,
        files: &Arc<TempDir>,
    ) -> Result<Self> {
        let mut emulator = namespace.spawn("nice", |command| {
            command.args(["-n", "15", EMULATOR]);
            // Not KVM, as a host may offer it and be unable to boot these kernels by it. With a thread for each
            // processor, and all that QEMU 7.2 can emulate, kernels panicked as they came up, and programs crashed, now
            // and then. And one died of the flags that cmpxchg16b left behind.
            command.args("-accel tcg,thread=single -cpu Nehalem,-cx16 -smp 2".split(' '));
            command.args("-display none -no-reboot -nodefaults -serial stdio".split(' '));
            command.args(["-m", &options.memory_mib.to_string()]);
            command.arg("-kernel").arg(kernel);
            command.arg("-initrd").arg(initrd);
            command.args(["-append", PARAMETERS]);
            if let Some(tap) = &options.tap {
                command.arg("-netdev");
                command.arg(format!("tap,id=net,ifname={tap},script=no,downscript=no"));
                command.args(["-device", "virtio-net-pci,netdev=net"]);
            }
            command.stdin(Stdio::null()).stdout(Stdio::piped());
        })?;
        let console = emulator.stdout.take().map(Console::read);
        Ok(Self { emulator, console: console.unwrap_or_default(), _files: Arc::clone(files) })
    }

    /// Returns the process of its emulator.
    pub fn process(&self) -> u32 {
        self.emulator.id()
    }

    /// Returns the output of its console so far.
    pub fn output(&self) -> String {
        self.console.text()
    }

    /// Returns whether it has ended, successfully or not.
    pub fn is_over(&self) -> bool {
        self.console.is_over()
    }

    /// Waits until its console has shown one of these texts.
    pub fn wait_for(&self, texts: &[&str], patience: Duration) -> Result<()> {
        let is_there = |shown: &str| texts.iter().any(|text| shown.contains(text)).then_some(());
        if self.console.wait(patience, is_there).is_some() {
            return Ok(());
        }
        Err(Error::Timeout(format!(
            "{texts:?} on the console of a virtual machine, which shows: {}",
            self.console.last_lines()
        )))
    }

    /// Waits until it has ended. Returns the output of its console.
    pub fn wait(mut self, patience: Duration) -> Result<String> {
        if !self.console.wait_for_end(patience) {
            return Err(Error::Timeout(format!(
                "the end of a virtual machine, whose console shows: {}",
                self.console.last_lines()
            )));
        }
        let status = self.emulator.wait().map_err(Error::io(format!("wait for {EMULATOR}")))?;
        if !status.success() {
            return Err(Error::Command {
                command: EMULATOR.to_owned(),
                status: status.to_string(),
                stderr: self.console.last_lines(),
            });
        }
        Ok(self.output())
    }
}

/// Returns the initial root filesystem, which is the machine's only one.
fn make_initrd(options: &GuestOptions, files: &Path) -> Result<PathBuf> {
    let root = files.join("root");
    for folder in ["bin", "sbin", "modules"] {
        let folder = root.join(folder);
        fs::create_dir_all(&folder).map_err(Error::file("make", &folder))?;
    }
    // Busybox puts its own programs only where there is none, but its shell takes them before others.
    let own = ["sh", "busybox"].map(|name| find_program(name).unwrap_or_default());
    for program in options.programs.iter().chain(&own) {
        add_program(&root, program)?;
    }
    add_modules(&root, options)?;
    for (name, text) in [("init", INIT), ("script", &options.script)] {
        let file = root.join(name);
        fs::write(&file, text).map_err(Error::file("write", &file))?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).map_err(Error::file("make executable", &file))?;
    }
    let initrd = files.join("initrd");
    let mut pack = Command::new("sh");
    pack.args(["-c", "find . | cpio --quiet -o -H newc -R 0:0 > ../initrd && rm -r ../root"]);
    run(pack.current_dir(&root), "")?;
    Ok(initrd)
}

fn add_program(root: &Path, program: &Path) -> Result<()> {
    let inside = root.join("bin").join(program.file_name().unwrap_or_default());
    // Most of a program under test are notes for debuggers, and all of it lies in the machine's memory.
    let mut strip = Command::new("strip");
    strip.args(["--strip-debug", "-o"]).args([inside.as_path(), program]);
    if run(&mut strip, "").is_err() {
        copy(program, &inside)?;
    }
    // It fails for programs without libraries.
    let libraries = run(Command::new("ldd").arg(program), "").unwrap_or_default();
    let libraries = libraries.split_ascii_whitespace().filter(|word| word.starts_with('/'));
    for library in libraries.map(Path::new) {
        let inside = root.join(library.strip_prefix("/").unwrap_or(library));
        if !inside.exists() {
            copy(library, &inside)?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(Error::file("make", folder))?;
    }
    fs::copy(from, to).map(drop).map_err(Error::file("copy", from))
}

/// Unpacks modules with their dependencies, and returns them in the order in which they must be loaded.
fn add_modules(root: &Path, options: &GuestOptions) -> Result<()> {
    let version = newest(&options.kernel.join("lib/modules"), "")?;
    let version = version.file_name().unwrap_or_default().to_owned();
    let drivers: &[_] = match options.tap {
        Some(_) => &["virtio_pci", "virtio_net"],
        None => &[],
    };
    let mut order = Vec::new();
    let mut seen = BTreeSet::new();
    let modules = options.modules.iter().map(|module| (module.as_str(), true));
    let drivers = drivers.iter().map(|driver| (*driver, false));
    for (module, must_be_there) in modules.chain(drivers) {
        let mut command = Command::new("modprobe");
        command.arg("--dirname").arg(&options.kernel);
        command.arg("--set-version").arg(&version);
        command.args(["--ignore-install", "--show-depends", module]);
        let list = match run(&mut command, "") {
            Err(error) if must_be_there => return Err(error),
            // Some packages do not list what is a part of the kernel.
            list => list.unwrap_or_default(),
        };
        for line in list.lines() {
            let Some(file) = line.strip_prefix("insmod ").map(str::trim) else {
                continue; // it is a part of the kernel
            };
            if seen.insert(file.to_owned()) {
                order.push(add_module(root, Path::new(file))?);
            }
        }
    }
    let list = root.join("modules/order");
    fs::write(&list, order.join("\n")).map_err(Error::file("write", &list))
}

fn add_module(root: &Path, file: &Path) -> Result<String> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let (name, unpack) = match name.rsplit_once(".ko").unwrap_or((&name, "")) {
        (name, ".xz") => (name, "xz"),
        (name, ".zst") => (name, "zstd"),
        (name, ".gz") => (name, "gzip"),
        (name, _) => (name, "cat"),
    };
    let name = format!("{name}.ko");
    let inside = root.join("modules").join(&name);
    if unpack == "cat" {
        copy(file, &inside)?;
    } else {
        let script = format!("{unpack} -dc \"$1\" > \"$2\"");
        run(Command::new("sh").args(["-c", &script, "sh"]).args([file, &inside]), "")?;
    }
    Ok(name)
}

/// Returns the last entry of a folder that begins with a prefix.
fn newest(folder: &Path, prefix: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).map_err(Error::file("list", folder))?;
    let mut found: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)))
        .collect();
    found.sort();
    found.pop().ok_or_else(|| {
        Error::invalid(folder.display().to_string(), format!("there is no {prefix}* of an unpacked kernel package"))
    })
}
