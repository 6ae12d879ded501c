//! The functions that the poller's code can reach, from the disassembly of the library.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    harness::{library, tool},
    skip::skip,
};

/// The functions that a thread may call which libc does not know about. The last one divides.
const ALLOWED: [&str; 6] = ["memcpy", "memmove", "memset", "memcmp", "clock_gettime", "__udivti3"];

#[test]
fn the_poller_can_neither_panic_nor_allocate() {
    check("dwell_socket");
    check("dwell_engine");
}

/// The poller's functions in this crate call only functions that they may call.
fn check(part: &str) {
    if cfg!(debug_assertions) || cfg!(not(target_arch = "x86_64")) {
        skip("it holds for builds with --release, and reads the code of x86-64");
        return;
    }
    for name in ["libdwell_preload.so", "libdwell_calls.so"] {
        let library = library(name).display().to_string();
        let calls = calls(&library);
        let poller = calls.keys().find(|name| name.contains("preload4poll"));
        let reached = reach(&calls, poller.expect("the library has a poller"));
        assert!(reached.len() > 8, "{reached:?}");
        let foreign: Vec<_> = reached
            .iter()
            .filter(|name| name.contains(part))
            .flat_map(|from| calls[from].iter().map(move |to| (from, to)))
            .filter(|(_, to)| !is_own(to) && !ALLOWED.contains(&to.as_str()))
            .collect();
        assert!(foreign.is_empty(), "{name}: {foreign:#?}");
    }
}

/// Returns whether a function is dwell's own, or one of `core` that cannot fail.
fn is_own(name: &str) -> bool {
    let is_harmless = !["panic", "unwrap", "expect", "fail", "alloc", "3std"].iter().any(|word| name.contains(word));
    ["dwell_socket", "dwell_engine"].iter().any(|part| name.contains(part))
        || is_harmless && (name.contains("4core") || name.starts_with("dwell_"))
}

fn reach(calls: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::from([from.to_owned()]);
    let mut open = vec![from.to_owned()];
    while let Some(name) = open.pop() {
        for callee in calls.get(&name).into_iter().flatten() {
            if reached.insert(callee.clone()) {
                open.push(callee.clone());
            }
        }
    }
    reached
}

/// Returns which function refers to which, directly or through the table of the dynamic linker.
fn calls(library: &str) -> BTreeMap<String, BTreeSet<String>> {
    let names = names(library);
    let slots = slots(library, &names);
    let mut calls: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut function = String::new();
    for line in tool("objdump", &["-d", "--no-show-raw-insn", library]).lines() {
        if let Some(name) = line.strip_suffix(">:").and_then(|line| line.split_once(" <")) {
            function = name.1.to_owned();
            calls.entry(function.clone()).or_default();
        } else if let Some(callee) = callee(line, &slots).filter(|callee| *callee != function) {
            calls.entry(function.clone()).or_default().insert(callee);
        }
    }
    calls
}

/// Returns the target of `call 1234 <name>`, `jmp 1234 <name+0x10>` or `call *0x5678(%rip)  # abcd <...>`.
fn callee(line: &str, slots: &BTreeMap<u64, String>) -> Option<String> {
    let instruction = line.split('\t').nth(1)?.trim();
    let is_jump = instruction.starts_with("call") || instruction.starts_with('j');
    if let Some((_, slot)) = instruction.split_once("(%rip)").filter(|_| is_jump) {
        let address = slot.trim().trim_start_matches('#').split_whitespace().next()?;
        let address = u64::from_str_radix(address, 16).ok()?;
        return Some(slots.get(&address).cloned().unwrap_or_else(|| format!("slot {address:x}")));
    }
    let (_, name) = instruction.split_once('<').filter(|_| is_jump)?;
    Some(name.trim_end_matches('>').split('+').next()?.to_owned())
}

fn names(library: &str) -> BTreeMap<u64, String> {
    let symbols = tool("nm", &[library]);
    let lines = symbols.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        Some((address, words.nth(1)?.to_owned()))
    });
    lines.collect()
}

/// Returns the addresses that the dynamic linker fills in, with the symbols.
fn slots(library: &str, names: &BTreeMap<u64, String>) -> BTreeMap<u64, String> {
    let relocations = tool("readelf", &["-rW", library]);
    let lines = relocations.lines().filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let address = u64::from_str_radix(words.first()?, 16).ok()?;
        let name = match *words.get(2)? {
            "R_X86_64_RELATIVE" => {
                let target = u64::from_str_radix(words.get(3)?, 16).ok()?;
                names.get(&target)?.clone()
            }
            "R_X86_64_GLOB_DAT" | "R_X86_64_JUMP_SLOT" => words.get(4)?.split('@').next()?.to_owned(),
            _ => return None,
        };
        Some((address, name))
    });
    lines.collect()
}
