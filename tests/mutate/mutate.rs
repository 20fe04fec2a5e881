//! Runs decoders on bytes that are no encoding, or nearly one, and looks at what they cost. Which decoders there are, and what
//! has to hold of what they accept, is said in the `tests/decoders.rs` of each crate.
//!
//! A run takes a third of a second, always with the same cases. `FLAMBEAU_FUZZ_SECONDS=600` has each decoder run for so many
//! seconds of CPU time, so that a loaded machine tries no fewer cases, with other cases every time. `--nocapture` shows the
//! figures. A case that fails is made smaller, and printed.

use peak_alloc::PeakAlloc;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use rustix::time::{ClockId, clock_gettime};
use serde::de::DeserializeOwned;
use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// Set to the seconds of CPU time that each decoder is to be run for.
const SECONDS: &str = "FLAMBEAU_FUZZ_SECONDS";

/// How long a decoder is run without being asked for more.
const SHORT: Duration = Duration::from_millis(300);

/// No input that is made here takes longer, on a slow machine either.
const LONGEST: Duration = Duration::from_secs(5);

/// Inputs of which it is said how much memory they take for each byte.
const LARGE: usize = 16 << 10;

/// Cases between two looks at the clock.
const ROUND: u32 = 8;

/// How often a case that takes too much memory is tried again: another test's thread may have begun meanwhile.
const AGAIN: usize = 3;

/// Memory is counted for the whole process: one decoder at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// The memory that a decoder may take, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Whatever it is given.
    pub fixed: usize,
    /// For each byte of input.
    pub per_byte: usize,
}

impl Memory {
    /// Eight mebibytes, and so much for each byte of input. Lists that are not read to their end have room for what was
    /// announced: serde allows for a mebibyte at each depth.
    pub const fn per_byte(per_byte: usize) -> Memory {
        Memory { fixed: 8 << 20, per_byte }
    }
}

/// Runs `decode` on arbitrary bytes and on mutations of `valid` encodings. It says whether it accepted them; it panics where
/// something does not hold of what it accepted.
pub fn bytes(name: &str, valid: Vec<Vec<u8>>, memory: Memory, decode: impl Fn(&[u8]) -> bool) {
    assert!(valid.iter().all(|bytes| decode(bytes)), "{name}: what is valid is not accepted");
    let count = valid.len();
    cases(name, mutated(valid), memory, Vec::len, |bytes| decode(bytes));
    assert!(count > 0, "{name}: nothing to mutate");
}

/// As [`bytes`], for text.
pub fn text(name: &str, valid: &[&str], memory: Memory, parse: impl Fn(&str) -> bool) {
    let valid = valid.iter().map(|text| text.as_bytes().to_vec()).collect();
    bytes(name, valid, memory, |bytes| parse(&String::from_utf8_lossy(bytes)));
}

/// Runs `check` on cases of any kind; `size` is that of the input, in bytes.
pub fn cases<S: Strategy>(
    name: &str,
    strategy: S,
    memory: Memory,
    size: impl Fn(&S::Value) -> usize,
    check: impl Fn(&S::Value) -> bool,
) where
    S::Value: Debug,
{
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let asked = std::env::var(SECONDS).ok().and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
    let seed = asked.map_or([7; 32], |_| rand_seed());
    let config = Config { cases: ROUND, failure_persistence: None, max_shrink_iters: 4096, ..Config::default() };
    let mut rounds = TestRunner::new_with_rng(config.clone(), TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let (begun, seen) = ((cpu_time(), Instant::now()), RefCell::new(Seen::default()));
    let go_on = || match asked {
        Some(asked) => cpu_time().saturating_sub(begun.0) < asked,
        None => begun.1.elapsed() < SHORT,
    };
    let failing = Cell::new(false);
    while go_on() {
        // A runner counts its cases: each round has one of its own.
        let mut runner = TestRunner::new_with_rng(config.clone(), rounds.new_rng());
        let result = runner.run(&strategy, |case| {
            let may = memory.fixed + size(&case) * memory.per_byte;
            let start = Instant::now();
            let (accepted, mut held) = measured(|| check(&case));
            let took = start.elapsed();
            for _ in 0..AGAIN {
                if held > may {
                    (_, held) = measured(|| check(&case));
                }
            }
            if !failing.get() {
                seen.borrow_mut().note(accepted, took, held, size(&case));
            }
            let fine = took <= LONGEST && held <= may;
            failing.set(!fine);
            if fine {
                return Ok(());
            }
            Err(TestCaseError::fail(format!("{took:?}, {held} bytes of memory, {may} allowed")))
        });
        match result {
            Ok(()) => {}
            Err(TestError::Fail(why, case)) => {
                let said = format!("{case:?}");
                let start: String = said.chars().take(4000).collect();
                panic!("{name}: {why}\n{start}");
            }
            Err(TestError::Abort(why)) => panic!("{name}: {why}"),
        }
    }
    eprintln!("{name}: {}", seen.into_inner());
}

/// What `check` gives, and the memory it held at most.
fn measured(check: impl FnOnce() -> bool) -> (bool, usize) {
    ALLOCATED.reset_peak_usage();
    let before = ALLOCATED.current_usage();
    let accepted = check();
    (accepted, ALLOCATED.peak_usage().saturating_sub(before))
}

/// The CPU time of this process.
fn cpu_time() -> Duration {
    let taken = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(taken.tv_sec.unsigned_abs(), taken.tv_nsec.try_into().unwrap_or(0))
}

fn rand_seed() -> [u8; 32] {
    let mut seed = [0; 32];
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |now| now.as_nanos());
    seed[..16].copy_from_slice(&clock.to_le_bytes());
    seed
}

/// Figures of a run.
#[derive(Default)]
struct Seen {
    cases: u64,
    accepted: u64,
    longest: Duration,
    /// Most memory, and the size of the input it was for.
    memory: (usize, usize),
    /// Most memory for a byte of large inputs.
    ratio: usize,
}

impl Seen {
    fn note(&mut self, accepted: bool, took: Duration, held: usize, size: usize) {
        self.cases += 1;
        self.accepted += u64::from(accepted);
        self.longest = self.longest.max(took);
        self.memory = self.memory.max((held, size));
        if size >= LARGE {
            self.ratio = self.ratio.max(held / size);
        }
    }
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Seen { cases, accepted, longest, memory: (held, size), ratio } = self;
        write!(f, "{cases} cases, {accepted} accepted, longest {longest:?}, ")?;
        write!(f, "most memory {held} bytes for {size} of input, {ratio} per byte of large ones")
    }
}

/// Encodings of values of this type, of all its variants: what postcard reads from noise in which small numbers are common.
/// Where it stops reading, other noise is tried from there on.
pub fn encodings<T: DeserializeOwned>(count: usize) -> Vec<Vec<u8>> {
    /// Reads of one value; most take a few.
    const TRIES: usize = 500;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut found = Vec::new();
    // Of twice as many, the longer half: they hold more.
    for _ in 0..count * 40 {
        if found.len() == count * 2 {
            break;
        }
        let mut noise: Vec<u8> = (0..512).map(|_| random.byte()).collect();
        for _ in 0..TRIES {
            let mut from = postcard::Deserializer::from_bytes(&noise);
            let read = T::deserialize(&mut from).is_ok();
            let rest = from.finalize().map_or(0, <[u8]>::len);
            let end = noise.len() - rest;
            if read {
                noise.truncate(end);
                found.push(noise);
                break;
            }
            // What it stopped at began a few bytes before; too long a value began anywhere.
            let back = if rest == 0 { noise.len() } else { 12 };
            let start = end.saturating_sub(1 + usize::from(random.byte()) % back.max(1));
            noise[start..].iter_mut().for_each(|byte| *byte = random.byte());
        }
    }
    assert!(found.len() >= count, "only {} values were found", found.len());
    found.sort_by_key(|bytes| std::cmp::Reverse(bytes.len()));
    found.truncate(count);
    found
}

/// xorshift64
struct Random(u64);

impl Random {
    fn byte(&mut self) -> u8 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let byte = (self.0 >> 8) as u8;
        match self.0 % 16 {
            0..6 => byte % 2,
            6..12 => byte % 5,
            12..15 => byte % 32,
            _ => byte % 128,
        }
    }
}

/// Arbitrary bytes, and these with a few things wrong each.
pub fn mutated(valid: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let seeds = valid.clone();
    let mutations = vec(mutation(), 1..6);
    let near = (any::<Index>(), mutations).prop_map(move |(which, mutations)| {
        let mut bytes = which.get(&valid).clone();
        mutations.iter().for_each(|mutation| mutation.apply(&mut bytes, &seeds));
        bytes
    });
    prop_oneof![1 => vec(any::<u8>(), 0..200), 1 => vec(0..12_u8, 0..200), 8 => near]
}

/// One thing that is wrong.
#[derive(Clone, Debug)]
enum Mutation {
    Bit(Index, u8),
    Byte(Index, u8),
    /// Another number, in postcard's form.
    Number(Index, u64),
    /// Another number of four bytes, as lengths in headers are.
    Word(Index, u32),
    Cut(Index),
    Longer(Vec<u8>),
    Removed(Index, usize),
    /// A part many times over: what holds values of its own kind is nested so deep.
    Repeated(Index, usize, usize),
    Swapped(Index, Index, usize),
    /// A part of another one.
    Spliced(Index, Index, Index, usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    use Mutation::{Bit, Byte, Cut, Longer, Number, Removed, Repeated, Spliced, Swapped, Word};
    let at = any::<Index>;
    let number = prop_oneof![
        0..300_u64,
        Just(u64::MAX),
        Just(u64::from(u32::MAX)),
        Just(1 << 62),
        (0..64_u32).prop_map(|bits| 1 << bits),
        any::<u64>()
    ];
    let times = prop_oneof![10 => 2..5_usize, 2 => 2..300_usize, 1 => Just(50_000_usize)];
    prop_oneof![
        3 => (at(), 0..8_u8).prop_map(|(at, bit)| Bit(at, bit)),
        4 => (at(), prop_oneof![0..8_u8, any::<u8>()]).prop_map(|(at, byte)| Byte(at, byte)),
        2 => (at(), number.clone()).prop_map(|(at, number)| Number(at, number)),
        1 => (at(), number).prop_map(|(at, number)| Word(at, number as u32)),
        1 => at().prop_map(Cut),
        1 => vec(any::<u8>(), 1..64).prop_map(Longer),
        2 => (at(), 1..40_usize).prop_map(|(at, size)| Removed(at, size)),
        2 => (at(), 1..24_usize, times).prop_map(|(at, size, times)| Repeated(at, size, times)),
        2 => (at(), at(), 1..40_usize).prop_map(|(a, b, size)| Swapped(a, b, size)),
        2 => (at(), at(), at(), 1..80_usize).prop_map(|(a, which, b, size)| Spliced(a, which, b, size)),
    ]
}

impl Mutation {
    fn apply(&self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        if bytes.is_empty() {
            return;
        }
        let room = bytes.len();
        let part = |at: &Index, size: usize| {
            let start = at.index(room);
            start..(start + size).min(room)
        };
        match self {
            Mutation::Bit(at, bit) => bytes[at.index(room)] ^= 1 << bit,
            Mutation::Byte(at, byte) => bytes[at.index(room)] = *byte,
            Mutation::Number(at, number) => {
                let number = postcard::to_stdvec(number).unwrap_or_default();
                bytes.splice(part(at, 1), number);
            }
            Mutation::Word(at, number) => {
                let part = part(at, 4);
                let size = part.len();
                bytes[part].copy_from_slice(&number.to_le_bytes()[..size]);
            }
            Mutation::Cut(at) => bytes.truncate(at.index(room)),
            Mutation::Longer(more) => bytes.extend(more),
            Mutation::Removed(at, size) => drop(bytes.drain(part(at, *size))),
            Mutation::Repeated(at, size, times) => {
                let part = part(at, *size);
                let repeated = bytes[part.clone()].repeat(*times);
                bytes.splice(part, repeated);
            }
            Mutation::Swapped(a, b, size) => {
                let (a, b) = (part(a, *size), part(b, *size));
                let (first, second) = if a.start <= b.start { (a, b) } else { (b, a) };
                if first.end <= second.start {
                    let swapped = [&bytes[second.clone()], &bytes[first.end..second.start], &bytes[first.clone()]];
                    let swapped = swapped.concat();
                    bytes.splice(first.start..second.end, swapped);
                }
            }
            Mutation::Spliced(at, which, from, size) => {
                let other = which.get(seeds);
                if !other.is_empty() {
                    let start = from.index(other.len());
                    let taken = other[start..(start + size).min(other.len())].to_vec();
                    bytes.splice(part(at, *size), taken);
                }
            }
        }
    }
}
