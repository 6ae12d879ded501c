//! `dwell report`: the contents of a store as a page for a browser.

use std::{
    fs,
    io::{self, IsTerminal, Write, stdout},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::anyhow;
use dwell_engine::layers::Ends;
use dwell_records::{counted, print};
use dwell_store::{
    Address, Reader, Wanted,
    html::{Choice, FlowEnd, Report},
};

use crate::{
    args::port,
    exit::{Exit, Failure},
    log::log,
    moment::Moment,
    source::ServerArgs,
};

/// Write a page about what a store has: where the time goes, by segment, flow and host
///
/// The page is one self-contained HTML file: a waterfall of the segments, each over time, their distributions, and
/// hosts side by side. Its reader can select flows.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell report -r fleet.db --output fleet.html
  dwell report -r fleet.db --output web.html --port 443 --since 1h
  dwell report -r fleet.db --output pair.html --flow 192.0.2.1 --flow 192.0.2.2:5432")]
#[group(skip)]
pub struct Args {
    /// Store to read, which others may be writing: a file, or what a collector has sent to a ClickHouse server,
    /// clickhouse://HOST:PORT/DATABASE, or clickhouses:// over TLS
    #[arg(short, long, value_name = "FILE")]
    read: PathBuf,

    #[command(flatten)]
    server: ServerArgs,

    /// Write to this file instead of standard output, which must not be a terminal
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Only flows with this end, ADDRESS or ADDRESS:PORT; given twice, flows with both
    #[arg(long, value_name = "END", value_parser = flow_end)]
    flow: Vec<FlowEnd>,

    /// Only flows with this port at one end
    #[arg(short, long, value_name = "PORT", value_parser = port)]
    port: Option<u16>,

    /// Only this host; may be given several times
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,

    /// Start: a time such as 2026-11-21T14:00:00Z, or a duration before the end such as 10m
    #[arg(long, value_name = "TIME", value_parser = Moment::parse)]
    since: Option<Moment>,

    /// End, in the same form
    #[arg(long, value_name = "TIME", value_parser = Moment::parse)]
    until: Option<Moment>,

    /// Only the first N flows, those with most bytes, and N backends. A flow takes up to 80 KB
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    top: u32,
}

fn flow_end(text: &str) -> Result<FlowEnd, String> {
    if let Ok(address) = text.parse() {
        return Ok(FlowEnd { address, port: None });
    }
    let end: Result<std::net::SocketAddr, _> = text.parse();
    end.map(|end| FlowEnd { address: end.ip(), port: Some(end.port()) })
        .map_err(|_| "write an address, or an address and a port, as in 192.0.2.1:443 or [2001:db8::1]:443".into())
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    if args.output.as_ref().is_some_and(|output| is_same(output, &args.read)) {
        return Err(Failure::usage(anyhow!("{} is the store: name another file with --output", args.read.display())));
    }
    if args.output.is_none() && stdout().is_terminal() {
        return Err(Failure::usage(anyhow!(
            "the page is for a browser, and not for a terminal: name a file with --output"
        )));
    }
    let (store, choice) = match args.read.to_str().filter(|text| Address::is_meant_by(text)) {
        Some(address) => fetch(args, address)?,
        None => {
            args.server.refuse()?;
            let store = Reader::open(&args.read)?;
            let end_ns = store.span()?.map_or(0, |(_, end)| end);
            (store, choice(args, end_ns))
        }
    };
    let known = store.hosts()?;
    let is_unknown = |wanted: &&String| !known.iter().any(|(_, name)| name == *wanted);
    if let Some(unknown) = args.host.iter().find(is_unknown) {
        let known: Vec<_> = known.iter().map(|(_, name)| name.as_str()).collect();
        return Err(Failure::usage(anyhow!("no host {unknown:?} is in the store; there are: {}", known.join(", "))));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos().cast_signed());
    let report = Report::read(&store, &choice, now)?;
    let report = report.ok_or_else(|| nothing(args))?;
    let page = report.html();
    write(args, page.as_bytes())?;
    let (shown, known) = report.flows();
    if shown < known {
        log(format_args!(
            "only the {shown} of {known} flows with the most bytes are shown separately: select flows, or raise --top"
        ));
    }
    if report.damaged() > 0 {
        log(format_args!("{} of the store are damaged, and left out", counted(report.damaged(), "row", "rows")));
    }
    Ok(Exit::Done)
}

fn nothing(args: &Args) -> Failure {
    Failure::usage(anyhow!(
        "{} has nothing that matches: widen the time, or leave out --flow, --port or --host",
        args.read.display()
    ))
}

/// Returns what was chosen of a store whose last interval ends then.
fn choice(args: &Args, end_ns: i64) -> Choice {
    let at = |moment: Moment| moment.unix_ns(end_ns);
    Choice {
        since_ns: args.since.map(at),
        until_ns: args.until.map(at),
        ends: args.flow.clone(),
        port: args.port,
        hosts: args.host.clone(),
        most_flows: args.top as usize,
        left_out: 0,
    }
}

/// Copies what was chosen from a server.
fn fetch(args: &Args, address: &str) -> Result<(Reader, Choice), Failure> {
    let server = args.server.ask(address)?.ok_or_else(|| nothing(args))?;
    let choice = choice(args, server.end_ns());
    let takes = |ends: &Ends| choice.takes(ends);
    let wanted = Wanted {
        flows: choice.is_of_flows().then_some(&takes as &dyn Fn(&Ends) -> bool),
        hosts: &choice.hosts,
        most_flows: choice.most_flows,
    };
    let (store, left_out) = server.copy(&wanted, args.since, args.until)?;
    Ok((store, Choice { left_out, ..choice }))
}

fn write(args: &Args, page: &[u8]) -> Result<(), Failure> {
    match &args.output {
        Some(path) => {
            let fail = |error: anyhow::Error, exit| {
                Failure::new(exit, error.context(format!("cannot write {}", path.display())))
            };
            let replaced = replace(path, page).map_err(|error| fail(error, Exit::Usage))?;
            replaced.map_err(|error| fail(error.into(), Exit::Incomplete))
        }
        None => Ok(print(page)?),
    }
}

/// Writes the page through a temporary file, so that there is never half of one. A new file is for its owner alone: the page
/// holds names and addresses of hosts. The outer result is an error where no file can be there, the inner one where it has no
/// room.
fn replace(path: &Path, page: &[u8]) -> anyhow::Result<io::Result<()>> {
    if path.exists() && !path.is_file() {
        // A pipe or a device is written to and not replaced.
        return Ok(fs::write(path, page));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let before = fs::metadata(path).map(|before| before.permissions());
    let mut file = tempfile::Builder::new()
        .permissions(before.unwrap_or(fs::Permissions::from_mode(0o600)))
        .tempfile_in(folder.unwrap_or(Path::new(".")))?;
    // The error of the file itself would name the temporary one.
    let written = file.as_file_mut().write_all(page);
    if written.is_ok() {
        file.persist(path)?;
    }
    Ok(written)
}

fn is_same(one: &Path, other: &Path) -> bool {
    let inode = |path: &Path| path.metadata().map(|file| (file.dev(), file.ino())).ok();
    inode(one).is_some_and(|found| Some(found) == inode(other))
}
