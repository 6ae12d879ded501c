//! The answer of `dwell why`.

use dwell_engine::{
    measure::Protocol,
    why::{Certainty, Common, Fact, Part, Shared, Source, Unseen, Value, Worst},
};

use super::{Colour, Ends, Lines, UNKNOWN, put, trimmed};
use crate::Why;

/// The width of the bar where there is room, in characters.
const BAR: usize = 60;
/// Where lines of the certainty go on.
const MARGIN: usize = 4;
/// Labels of requests that are shown, the slowest first.
const SLOWEST_REQUESTS: usize = 3;
/// The characters of the named parts in the bar, one after the other.
const MARKS: [char; 6] = ['█', '▒', '▓', '░', '▚', '▞'];

/// Writes the verdict, the bar, the evidence, how sure it is, and what to do.
pub(super) fn verdict(why: &Why<'_>, colour: Colour, lines: Lines, out: &mut Vec<u8>) {
    let (evidence, verdict) = (why.evidence, why.verdict);
    put(out, format_args!("{}\n", colour.verdict(lines.fit(&verdict.sentence, 0, 0))));
    bar(&verdict.parts, lines, out);
    if !verdict.facts.is_empty() {
        put(out, format_args!("\nEvidence\n"));
        verdict.facts.iter().for_each(|fact| line(fact, lines, out));
    }
    if let Some(Common { what, share }) = verdict.common {
        let on = match what {
            Shared::Peer(_) | Shared::Prefix(..) => "with",
            Shared::Port(_) => "at port",
            Shared::Process(_) => "of process",
        };
        let share = format!("{:.0} %", share * 100.0);
        let name = in_brackets(evidence.known.of(&what));
        entry(&share, &format!("of that, on connections {on} {what}{name}"), lines, out);
    }
    if let Some(Worst { ends, part, share }) = verdict.worst {
        let share = format!("{:.0} %", share * 100.0);
        let ends = Ends { src: &ends.src, dst: &ends.dst, protocol: Protocol::TCP };
        entry(&share, &format!("of that, on the worst connection {ends} ({})", part.name()), lines, out);
    }
    about(why, lines, out);
    for (label, waits) in evidence.requests.slowest(SLOWEST_REQUESTS) {
        let mean = trimmed(waits.mean_ns().unwrap_or(0.0) as u64);
        let (of, longest) = (crate::counted(waits.count, "request", "requests"), trimmed(waits.longest_ns));
        entry(&mean, &format!("mean wait of {of} {label} (longest {longest})"), lines, out);
    }
    let looked = trimmed(evidence.observed_ns);
    let connections = crate::counted(evidence.connections, "connection", "connections");
    let idle = evidence.sums.idle_ns / (evidence.sums.idle_ns + evidence.sums.times.total()).max(1.0) * 100.0;
    put(out, format_args!("\nCertainty\n"));
    let certainty = verdict.certainty.map_or("none", Certainty::name);
    let seen = match &evidence.path {
        Some(path) => {
            let bytes = crate::counted(path.bytes, "stamped byte", "stamped bytes");
            format!("{certainty}: {bytes} of {connections} in {looked}")
        }
        None => format!("{certainty}: {connections} for {looked}, {idle:.0} % of whose time was idle"),
    };
    put(out, format_args!("  {}\n", lines.fit(&seen, 2, MARGIN)));
    if evidence.poll_interval_ns() > 0.0 {
        put(out, format_args!("  each was polled every {}\n", trimmed(evidence.poll_interval_ns() as u64)));
    }
    if let Some(cpu_ns) = why.cost.cpu_ns.filter(|_| evidence.source == Source::Sockets && evidence.observed_ns > 0) {
        let share = cpu_ns as f64 / evidence.observed_ns as f64 * 100.0;
        put(out, format_args!("  dwell used {share:.1} % of a processor\n"));
    }
    for other in verdict.ranked.iter().skip(1) {
        let also = format!("also: {} ({:.0} % of the time)", other.cause.name(), other.share * 100.0);
        put(out, format_args!("  {}\n", lines.fit(&also, 2, MARGIN)));
    }
    for Unseen { what, remedy } in &verdict.unseen {
        let unseen = lines.fit(&format!("{what}: {remedy}"), 2 + "not seen: ".len(), MARGIN);
        put(out, format_args!("  {} {unseen}\n", colour.worst("not seen:")));
    }
    if !verdict.remedies.is_empty() {
        put(out, format_args!("\nWhat to do\n"));
        for remedy in &verdict.remedies {
            // A command is copied as it is.
            put(out, format_args!("  {}\n      {}\n", remedy.command, lines.fit(remedy.effect, 6, 6)));
        }
    }
}

/// Whose the connections are on which most of the time was spent, where they have names that were not told yet.
fn about(why: &Why<'_>, lines: Lines, out: &mut Vec<u8>) {
    let (names, about) = (&why.evidence.known, &why.verdict.about);
    let is_told = |shared| why.verdict.common.is_some_and(|common| common.what == shared);
    let process = about.pid.filter(|pid| !is_told(Shared::Process(*pid)));
    let process = process.and_then(|pid| Some(format!(" of process {pid} ({})", names.process(pid)?)));
    let peer = about.peer.filter(|peer| !is_told(Shared::Peer(*peer)));
    let peer = peer.and_then(|peer| Some(format!(" with {peer} ({})", names.peer(peer)?)));
    if process.is_some() || peer.is_some() {
        let (process, peer) = (process.unwrap_or_default(), peer.unwrap_or_default());
        entry("", &format!("most of it on connections{process}{peer}"), lines, out);
    }
}

fn in_brackets(name: Option<String>) -> String {
    name.map_or_else(String::new, |name| format!(" ({name})"))
}

/// One bar of all parts, and what its marks stand for.
fn bar(parts: &[(Part, f64)], lines: Lines, out: &mut Vec<u8>) {
    let total: f64 = parts.iter().map(|(_, ns)| ns).sum();
    if total <= 0.0 {
        return;
    }
    let width = lines.room(BAR, 2);
    let (mut spent, mut drawn) = (0.0, 0);
    let mut legend = Vec::new();
    put(out, format_args!("\n  "));
    for (part, ns) in parts {
        spent += ns;
        let upto = (spent / total * width as f64).round() as usize;
        let mark = MARKS[legend.len() % MARKS.len()];
        put(out, format_args!("{}", String::from(mark).repeat(upto.saturating_sub(drawn))));
        drawn = drawn.max(upto);
        if ns / total >= 0.005 || *part == Part::Unexplained {
            legend.push(format!("{mark} {} {:.0} %", part.name(), ns / total * 100.0));
        }
    }
    put(out, format_args!("\n  {}\n", lines.fit_all(&legend, 2, 2)));
}

fn line(fact: &Fact, lines: Lines, out: &mut Vec<u8>) {
    let value = match fact.value {
        Some(Value::Time(ns)) => trimmed(ns as u64),
        Some(Value::Share(share)) if share > 0.0 && share < 0.01 => format!("{:.2} %", share * 100.0),
        Some(Value::Share(share)) => format!("{:.0} %", share * 100.0),
        Some(Value::Count(count)) => count.to_string(),
        Some(Value::Bytes(bytes)) => format!("{bytes} B"),
        None => UNKNOWN.to_owned(),
    };
    let against = if fact.speaks_for { "" } else { ", speaks against it" };
    entry(&value, &format!("{} ({}{against})", fact.what, fact.method), lines, out);
}

/// A figure, and what it is of.
fn entry(figure: &str, text: &str, lines: Lines, out: &mut Vec<u8>) {
    const COLUMN: usize = 16;
    put(out, format_args!("  {figure:>12}  {}\n", lines.fit(text, COLUMN, COLUMN)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_named_parts_of_a_bar_have_the_same_mark() {
        let parts = [Part::Service, Part::Reader, Part::Answer, Part::Distance, Part::Transfer, Part::RemoteQueue];
        // As small as that, the second and the third are not named.
        let parts: Vec<_> = parts.into_iter().zip([70.0, 0.1, 0.1, 12.0, 11.0, 6.0]).collect();
        let mut out = Vec::new();
        bar(&parts, Lines::of(None), &mut out);
        let text = String::from_utf8(out).unwrap();
        let legend = text.lines().last().unwrap();
        let marks: Vec<&str> =
            legend.split_whitespace().filter(|word| word.chars().all(|mark| ('▀'..='▟').contains(&mark))).collect();
        assert_eq!(marks, ["█", "▒", "▓", "░"], "{text}");
    }
}
