//! The speed of reading captures, next to other tools on the same file in the same run.
use std::{
    ffi::OsStr,
    fs::File,
    io::BufWriter,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    child::{self, Cost},
    dwell,
    figures::median,
    installed,
    limits::{self, Finding},
    stop::Stop,
    traffic::{self, Plan},
};
use anyhow::Result;

const PACKETS: u32 = 1_000_000;
/// The number of packets for tshark, which takes minutes for a million.
const FEW_PACKETS: u32 = 100_000;
const SNAP: usize = 100;

pub fn run(options: &super::Options, stop: &Stop) -> Result<Vec<Finding>> {
    let rounds = if options.quick { 3 } else { 7 };
    let folder = tempfile::Builder::new().prefix("dwell-bench-").tempdir()?;
    println!(
        "\
Replay of generated captures of TCP with timestamps: requests, answers of ten segments, an ACK for
each two of them; {SNAP} bytes per packet, held in the page cache. Output goes to /dev/null.
CPU: seconds in user space and kernel, median of {rounds} interleaved rounds. Packets per second: of CPU time.
Memory: greatest resident size."
    );
    let mut found = Vec::new();
    for flows in [10, 1000, 100_000] {
        let many = capture(folder.path(), flows, PACKETS)?;
        let few = capture(folder.path(), flows, FEW_PACKETS)?;
        let contenders = contenders(&many, &few)?;
        let mut costs: Vec<Vec<Cost>> = vec![Vec::new(); contenders.len()];
        for round in 0..=rounds {
            for (contender, costs) in contenders.iter().zip(&mut costs) {
                if contender.once && round > 0 {
                    continue;
                }
                stop.check()?;
                let arguments: Vec<&OsStr> = contender.arguments.iter().map(|argument| argument.as_ref()).collect();
                let cost = child::run(&contender.program, &arguments);
                stop.check()?;
                // The first round only fills the page cache.
                if contender.once || round > 0 {
                    costs.push(cost?);
                }
            }
        }
        found.extend(print(flows, &contenders, &costs));
    }
    Ok(found)
}

/// Prints the table of a capture, and returns what concerns limits: the first contender compared with tcptrace, and other formats compared
/// with it.
fn print(flows: u32, contenders: &[Contender], costs: &[Vec<Cost>]) -> Vec<Finding> {
    println!("\n{flows} flows");
    println!(
        "{:<40}{:>10}{:>8}{:>8}{:>20}{:>12}{:>12}",
        "program", "packets", "wall s", "CPU s", "million packets/s", "memory MB", "x tcptrace"
    );
    let speed = |contender: &Contender, costs: &[Cost]| {
        let cpu: Vec<f64> = costs.iter().map(|cost| cost.cpu.as_secs_f64()).collect();
        (median(&cpu), f64::from(contender.packets) / median(&cpu) / 1e6)
    };
    let of_tcptrace = contenders
        .iter()
        .zip(costs)
        .find(|(contender, _)| contender.name == TCPTRACE)
        .map(|(contender, costs)| speed(contender, costs).1);
    for (contender, costs) in contenders.iter().zip(costs) {
        let (cpu, speed) = speed(contender, costs);
        let wall: Vec<f64> = costs.iter().map(|cost| cost.wall.as_secs_f64()).collect();
        let memory: Vec<u64> = costs.iter().map(|cost| cost.memory_bytes).collect();
        println!(
            "{:<40}{:>10}{:>8.2}{cpu:>8.2}{speed:>20.3}{:>12.1}{:>12}",
            contender.name,
            contender.packets,
            median(&wall),
            median(&memory) as f64 / 1e6,
            of_tcptrace.map_or("-".to_owned(), |tcptrace| format!("{:.2}", speed / tcptrace)),
        );
    }
    if let Some(cost) = costs.first().and_then(|costs| costs.first()) {
        println!("{}", cost.last_words);
    }
    let first = contenders.iter().zip(costs).next().map(|(contender, costs)| speed(contender, costs).1);
    let times = first.zip(of_tcptrace).map(|(first, tcptrace)| first / tcptrace);
    let mut findings = vec![limits::REPLAY.judge(format!("{flows} flows"), times.ok_or("tcptrace is not installed"))];
    for (format, _) in FORMATS {
        let found = contenders.iter().zip(costs).find(|(contender, _)| contender.name == format);
        let times = first.zip(found).map(|(first, (contender, costs))| first / speed(contender, costs).1);
        let case = format!("{format}, {flows} flows");
        findings.push(limits::FORMAT.judge(case, times.ok_or("what converts captures is not installed")));
    }
    findings
}

struct Contender {
    name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    packets: u32,
    once: bool,
}

/// Other formats of the same packets: the name of the row, and the command that converts a capture to its output.
const FORMATS: [(&str, &[&str]); 2] = [
    ("dwell rtt --format none, pcapng", &["editcap", "-F", "pcapng"]),
    ("dwell rtt --format none, gzip", &["gzip", "-c"]),
];

/// Converts a capture. `None` if the program is not installed.
fn convert(capture: &Path, command: &[&str]) -> Result<Option<PathBuf>> {
    let converted = PathBuf::from(format!("{}.{}", capture.display(), command[0]));
    let Some(program) = installed(command[0]) else {
        println!("{} is not installed: left out", command[0]);
        return Ok(None);
    };
    let mut conversion = Command::new(program);
    conversion.args(&command[1..]).arg(capture);
    let status = match command[0] {
        "editcap" => conversion.arg(&converted).status()?,
        _ => conversion.stdout(File::create(&converted)?).status()?,
    };
    anyhow::ensure!(status.success(), "'{}' of {} failed: {status}", command[0], capture.display());
    Ok(Some(converted))
}

const TCPTRACE: &str = "tcptrace -n -r -l";

fn contenders(many: &Path, few: &Path) -> Result<Vec<Contender>> {
    let mut contenders = Vec::new();
    let mut formats = Vec::new();
    for (name, command) in FORMATS {
        formats.extend(convert(many, command)?.map(|path| (name, path.display().to_string())));
    }
    let (many, few) = (many.display().to_string(), few.display().to_string());
    for (name, options) in [
        ("dwell rtt --format none", "--format none"),
        ("dwell rtt --format jsonl, every sample", "--format jsonl"),
        ("dwell rtt --summary", "--summary"),
        ("dwell rtt --aggregate", "--aggregate"),
    ] {
        contenders.push(Contender {
            name,
            program: dwell()?,
            arguments: ["rtt", "-r", &many].into_iter().chain(options.split(' ')).map(str::to_owned).collect(),
            packets: PACKETS,
            once: false,
        });
    }
    for (name, path) in formats {
        contenders.push(Contender {
            name,
            program: dwell()?,
            arguments: ["rtt", "-r", &path, "--format", "none"].map(str::to_owned).to_vec(),
            packets: PACKETS,
            once: false,
        });
    }
    for (name, program, arguments, once) in [
        (TCPTRACE, "tcptrace", "-n -r -l", false),
        ("tcpdump -n -r, a line a packet", "tcpdump", "-n -r", false),
        ("tshark, tcp.analysis.ack_rtt, once", "tshark", "-T fields -e tcp.analysis.ack_rtt -r", true),
    ] {
        let Some(path) = installed(program) else {
            println!("{program} is not installed (the Debian package has its name): left out");
            continue;
        };
        contenders.push(Contender {
            name,
            program: path,
            arguments: arguments
                .split(' ')
                .chain([if once { few.as_str() } else { many.as_str() }])
                .map(str::to_owned)
                .collect(),
            packets: if once { FEW_PACKETS } else { PACKETS },
            once,
        });
    }
    Ok(contenders)
}

fn capture(folder: &Path, flows: u32, packets: u32) -> Result<PathBuf> {
    let path = folder.join(format!("{flows}-{packets}.pcap"));
    // 100,000 packets a second: ten seconds.
    let plan = Plan { flows, packets, snap: SNAP, gap_ns: 10_000 };
    traffic::write(&plan, BufWriter::with_capacity(1 << 20, File::create(&path)?))?;
    Ok(path)
}
