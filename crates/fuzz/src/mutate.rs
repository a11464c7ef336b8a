//! Creates new inputs by mutation.
//!
//! Inputs are changed as bytes, as text with the target's words, and as a list of events
//! that are moved or duplicated.

use std::ops::Range;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, RngCore as _};

use crate::engine::pick;

/// Maximum input size: enough for dozens of events, small enough for many runs.
const LONGEST: usize = 16 * 1024;

/// Maximum number of changes to one input.
const MOST_CHANGES: u32 = 6;

/// Bytes with a meaning in text formats.
const SYNTAX_BYTES: &[u8] = b"\n\r:{}[]\",\\ \t\0\x7f\xff\xc3\xef-.0123456789";

/// Creates a new input.
pub(crate) fn mutate(random: &mut StdRng, corpus: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
    let mut input = pick(random, corpus).to_vec();
    for _ in 0..random.random_range(1..=MOST_CHANGES) {
        change(random, &mut input, corpus, words);
    }
    input.truncate(LONGEST);
    input
}

fn change(random: &mut StdRng, input: &mut Vec<u8>, corpus: &[Vec<u8>], words: &[&str]) {
    let place = random.random_range(0..=input.len());
    match random.random_range(0..12) {
        0 => {
            if let Some(byte) = input.get_mut(place) {
                *byte ^= 1 << random.random_range(0..8);
            }
        }
        1 => {
            let new = syntax_byte(random);
            if let Some(byte) = input.get_mut(place) {
                *byte = new;
            }
        }
        2 => input.insert(place, syntax_byte(random)),
        3 => drop(input.drain(range(random, input.len()))),
        4 => {
            let piece = input.get(range(random, input.len())).unwrap_or_default().to_vec();
            insert(input, place, &piece);
        }
        5 => {
            let other = pick(random, corpus);
            let piece = other.get(range(random, other.len())).unwrap_or_default();
            insert(input, place, piece);
        }
        6 | 7 => {
            let word = words.choose(random).copied().unwrap_or_default();
            // Half of the time the word overwrites existing bytes, so that it can replace
            // another word.
            if random.random() {
                let end = input.len().min(place + word.len());
                drop(input.drain(place..end));
            }
            insert(input, place, word.as_bytes());
        }
        8 | 9 => exchange(random, input, words),
        10 => move_event(random, input),
        _ => input.truncate(place),
    }
}

/// Replaces an existing word with another one, or a digit with another digit.
///
/// The input stays well-formed, so this reaches deeper code than changes of bytes do.
fn exchange(random: &mut StdRng, input: &mut Vec<u8>, words: &[&str]) {
    let from = random.random_range(0..=input.len());
    let is_digit = random.random_bool(0.2);
    let old: &[u8] =
        if is_digit { b"0" } else { words.choose(random).copied().unwrap_or_default().as_bytes() };
    let new = words.choose(random).copied().unwrap_or_default().as_bytes().to_vec();
    let found = (from..input.len()).find_map(|at| {
        let end = at + old.len();
        let piece = input.get(at..end)?;
        let fits = if is_digit { piece.iter().all(u8::is_ascii_digit) } else { piece == old };
        fits.then_some(at..end)
    });
    if let Some(place) = found {
        let number = [b'0' + random.random_range(0..10)];
        let new = if is_digit { number.to_vec() } else { new };
        drop(input.splice(place, new));
    }
}

/// A syntax byte, or sometimes any byte.
fn syntax_byte(random: &mut StdRng) -> u8 {
    let known = SYNTAX_BYTES.choose(random).copied().unwrap_or_default();
    if random.random_bool(0.8) { known } else { random.next_u32().to_le_bytes()[0] }
}

/// A random range of an input, usually short.
fn range(random: &mut StdRng, length: usize) -> Range<usize> {
    let from = random.random_range(0..=length);
    let most = if random.random_bool(0.8) { 32 } else { length };
    from..(from + random.random_range(0..=most)).min(length)
}

fn insert(input: &mut Vec<u8>, place: usize, piece: &[u8]) {
    let place = place.min(input.len());
    drop(input.splice(place..place, piece.iter().copied()));
}

/// Moves or duplicates one event or line.
fn move_event(random: &mut StdRng, input: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(input).into_owned();
    let border = if random.random_bool(0.7) { "\n\n" } else { "\n" };
    let mut parts: Vec<&str> = text.split_inclusive(border).collect();
    if parts.is_empty() {
        return;
    }
    let from = random.random_range(0..parts.len());
    let part =
        if random.random() { parts.remove(from) } else { parts.get(from).copied().unwrap_or_default() };
    parts.insert(random.random_range(0..=parts.len()), part);
    *input = parts.concat().into_bytes();
}
