//! Runs all targets on their corpora and on mutations of these, with any compiler.

use std::{
    collections::BTreeSet,
    fs,
    panic::{self, AssertUnwindSafe},
};

use dwell_engine::measure::Method;
use dwell_fuzz::{TARGETS, Target, corpus, seeds};

/// Number of mutated inputs per target.
const MUTATIONS: usize = 3_000;

#[test]
fn every_input_of_the_corpora_passes() {
    let mut reached = BTreeSet::new();
    for (name, target) in TARGETS {
        for (file, bytes) in kept(name) {
            reached.extend(run(name, target, &file, &bytes));
        }
    }
    let all: BTreeSet<_> = Method::ALL.into();
    assert_eq!(reached, all, "the corpora give samples of every method");
}

#[test]
fn mutated_inputs_pass() {
    for (name, target) in TARGETS {
        let inputs: Vec<_> = kept(name).into_iter().map(|(_, bytes)| bytes).collect();
        let mut random = Random(0x5eed);
        for number in 0..MUTATIONS {
            let mut bytes = random.choose(&inputs).clone();
            let other = random.choose(&inputs);
            for _ in 0..=random.below(4) {
                mutate(&mut bytes, other, &mut random);
            }
            run(name, target, &format!("mutation {number}"), &bytes);
        }
    }
}

#[test]
fn seeds_agree_with_the_generator() {
    for (name, _) in TARGETS {
        for (seed, bytes) in seeds::of(name) {
            let path = corpus(name).join(format!("seed-{seed}"));
            let kept = fs::read(&path).unwrap_or_default();
            assert!(kept == bytes, "{}: cargo run --example seeds", path.display());
        }
    }
}

fn run(name: &str, target: Target, input: &str, bytes: &[u8]) -> BTreeSet<Method> {
    panic::catch_unwind(AssertUnwindSafe(|| target(bytes))).unwrap_or_else(|_| {
        let path = std::env::temp_dir().join(format!("dwell-fuzz-{name}"));
        match fs::write(&path, bytes) {
            Ok(()) => panic!("{name} fails on {input}, kept as {}", path.display()),
            Err(error) => panic!("{name} fails on {input}, which cannot be kept as {}: {error}", path.display()),
        }
    })
}

fn kept(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = corpus(target);
    let mut inputs: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| {
            let entry = entry.expect("a folder can be listed");
            (entry.file_name().display().to_string(), fs::read(entry.path()).expect("a kept input can be read"))
        })
        .collect();
    inputs.sort();
    inputs
}

fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    match random.below(6) {
        0 => bytes.truncate(at),
        1 => bytes.insert(at, random.below(256) as u8),
        2 => {
            let from = random.below(other.len() + 1);
            bytes.splice(at.., other[from..].iter().copied());
        }
        3 => {
            let end = at + random.below(bytes.len() - at + 1).min(64);
            let again = bytes[at..end].to_vec();
            bytes.splice(at..at, again);
        }
        choice => {
            if let Some(byte) = bytes.get_mut(at) {
                match choice {
                    4 => *byte ^= 1 << random.below(8),
                    _ => *byte = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
                }
            }
        }
    }
    bytes.truncate(8192);
}

/// The generator xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as usize) % n.max(1)
    }

    fn choose<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}
