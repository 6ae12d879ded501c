//! What `dwell why` says of a row: the verb runs as a program of its own, so that it ends with the page.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Read},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use dwell_engine::{
    layers::Ends,
    names::FlowNames,
    top::{Row, RowKey},
};

use super::{
    label::{server, unit},
    shown::{Origin, Screenful},
};

/// How long it looks.
const DURATION: &str = "5s";
/// The most that is kept of what it says.
const MAX_BYTES: u64 = 64 << 10;

/// A run of `dwell why`.
#[derive(Default)]
pub struct Look {
    child: Option<Child>,
    said: Arc<Mutex<Said>>,
}

#[derive(Default)]
struct Said {
    text: String,
    is_over: bool,
}

impl Look {
    /// Returns what was said so far of a row, or why nothing can be. Asks at the first call: the sockets of this host, or the
    /// file that is shown; for labels too where labels are shown.
    pub fn text(&mut self, row: &Row, names: &FlowNames, shown: &Screenful) -> String {
        if shown.origin == Origin::Capture && shown.path.is_none() {
            return "A pipe cannot be read again: ask dwell why -r FILE of a file with the capture.".into();
        }
        let Some(target) = target(&row.key, names, shown.origin) else {
            let what = if shown.origin == Origin::Live {
                "a flow of TCP, a peer, a process or a unit"
            } else {
                "a flow of TCP or a peer"
            };
            return format!("Choose {what} to ask why it is slow.");
        };
        let asked = match &shown.path {
            None => format!("dwell why {target}"),
            Some(path) => format!("dwell why -r {} {target}", path.display()),
        };
        if self.child.is_none() {
            match start(&target, shown, &self.said) {
                Ok(child) => self.child = Some(child),
                Err(error) => return format!("cannot start {asked}: {error}"),
            }
        }
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        match said.is_over {
            true => format!("{asked}\n\n{}", said.text),
            false if shown.path.is_some() => format!("{asked}: reading ..."),
            false => format!("{asked}: looking for {DURATION} ..."),
        }
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn start(target: &str, shown: &Screenful, said: &Arc<Mutex<Said>>) -> io::Result<Child> {
    let mut why = Command::new("/proc/self/exe");
    match &shown.path {
        // In one argument, as a name may begin with a dash.
        Some(path) => {
            why.args(["why", target]).arg([OsStr::new("--read="), path.as_os_str()].into_iter().collect::<OsString>())
        }
        None => why.args(["why", "--duration", DURATION, target]),
    };
    let mut child = why
        .args((!shown.shows_labels()).then_some("--no-labels"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let said = Arc::clone(said);
    thread::spawn(move || {
        let errors = thread::spawn(move || text(errors));
        let output = text(output);
        let errors = errors.join().unwrap_or_default();
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.text = output + &errors;
        said.is_over = true;
    });
    Ok(child)
}

/// Reads to the end, and keeps the beginning.
fn text(from: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        let _ = from.by_ref().take(MAX_BYTES).read_to_end(&mut bytes);
        let _ = io::copy(&mut from, &mut io::sink());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What to ask `dwell why` about. The client's end of a connection names this connection alone.
/// Files have no processes.
pub(super) fn target(key: &RowKey, names: &FlowNames, origin: Origin) -> Option<String> {
    match key {
        RowKey::Flow(flow) if flow.protocol.0 == 6 => {
            let Ends { src, dst } = &flow.ends;
            Some(if server(flow, names) == src { dst } else { src }.to_string())
        }
        RowKey::Peer(address) => Some(address.to_string()),
        RowKey::Process(Some(pid)) if origin == Origin::Live => Some(pid.to_string()),
        RowKey::Unit(_) if origin == Origin::Live => unit(&names.src),
        RowKey::Flow(_) | RowKey::Prefix(_) | RowKey::Process(_) | RowKey::Unit(_) => None,
    }
}
