//! Compares line counts with those of git, for a corpus of generated file pairs.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use super::*;

/// Pairs in the corpus.
const PAIRS: usize = 420;

/// A small generator of reproducible numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(limit).unwrap()).unwrap()
    }

    /// Lines of which many are equal.
    fn lines(&mut self, count: usize, distinct: usize) -> Vec<Vec<u8>> {
        (0..count).map(|_| format!("line {}\n", self.below(distinct)).into_bytes()).collect()
    }

    /// Lines like those of a program: unique ones between blank lines and brackets.
    fn program(&mut self, count: usize) -> Vec<Vec<u8>> {
        let line = |at| match self.below(8) {
            0 => "\n".to_owned(),
            1 => "}\n".to_owned(),
            2 => "    }\n".to_owned(),
            3 => "    return Ok(());\n".to_owned(),
            _ => format!("    let value_{at} = {};\n", self.below(50)),
        };
        (0..count).map(line).map(String::into_bytes).collect()
    }

    /// Removes, replaces, inserts and repeats some lines.
    fn edit(&mut self, lines: &[Vec<u8>], one_in: usize) -> Vec<Vec<u8>> {
        let mut result = Vec::new();
        for line in lines {
            match self.below(one_in * 4) {
                0 => {}
                1 => result.push(format!("new {}\n", self.below(9)).into_bytes()),
                2 => result.extend([b"inserted\n".to_vec(), line.clone()]),
                3 => result.extend([line.clone(), line.clone()]),
                _ => result.push(line.clone()),
            }
        }
        result
    }

    /// Moves some blocks of lines.
    fn move_blocks(&mut self, mut lines: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        for _ in 0..3 {
            let start = self.below(lines.len());
            let end = (start + 1 + self.below(20)).min(lines.len());
            let block: Vec<Vec<u8>> = lines.drain(start..end).collect();
            let target = self.below(lines.len() + 1);
            lines.splice(target..target, block);
        }
        lines
    }

    /// One pair of contents. The kind goes around.
    fn pair(&mut self, number: usize) -> (Vec<u8>, Vec<u8>) {
        let length = 1 + self.below(120);
        let (before, after) = match number % 14 {
            0 => (self.lines(length, 6), self.lines(length, 6)),
            1 => self.edited(length, 40),
            2 => self.edited(length, 4),
            3 => {
                let lines = self.program(length);
                (lines.clone(), self.move_blocks(lines))
            }
            4 => self.without_final_newline(length),
            5 => {
                let lines = self.program(length);
                let ends = |line: &Vec<u8>| [line.trim_ascii_end(), b"\r\n"].concat();
                let change = |line: &Vec<u8>| match self.below(3) {
                    0 => ends(line),
                    _ => line.clone(),
                };
                with_header(lines.iter().map(ends).collect(), lines.iter().map(change).collect())
            }
            6 => (Vec::new(), self.lines(length, 5)),
            7 => (self.lines(length, 5), Vec::new()),
            8 => {
                let mut lines = self.lines(length, 9);
                lines
                    .iter_mut()
                    .step_by(3)
                    .for_each(|line| line.splice(0..1, *b"\xff\xfe\x80").for_each(drop));
                (lines.clone(), self.edit(&lines, 3))
            }
            9 => self.with_nul(length),
            10 => self.edited(2_000, 60),
            11 => self.edited(2_000, 3),
            12 => (self.lines(2_000, 40), self.lines(2_000, 40)),
            _ => with_header(self.program(length), self.program(length)),
        };
        (before.concat(), after.concat())
    }

    fn edited(&mut self, length: usize, one_in: usize) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let lines = self.program(length);
        let edited = self.edit(&lines, one_in);
        (lines, edited)
    }

    fn without_final_newline(&mut self, length: usize) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let (mut before, mut after) = match self.below(3) {
            0 => {
                let lines = self.lines(length, 5);
                (lines.clone(), lines)
            }
            1 => (self.lines(1, 3), self.lines(3, 3)),
            _ => self.edited(length, 9),
        };
        let which = self.below(3);
        for (side, lines) in [&mut before, &mut after].into_iter().enumerate() {
            if let Some(last) = lines.last_mut().filter(|_| which != side) {
                last.pop();
            }
        }
        (before, after)
    }

    /// A NUL byte around the place up to which git looks for it.
    fn with_nul(&mut self, length: usize) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let mut lines = vec![b"0123456789abcde\n".to_vec(); 501 + length];
        let position = 7_990 + self.below(20);
        lines[position / 16][position % 16] = 0;
        (self.edit(&lines, 100), lines)
    }
}

/// Adds equal lines to the start of both sides.
///
/// Older versions of git (2.47 is one) ignore a line among unmatched ones if it is frequent in
/// the other file, also with `--minimal`, so that their counts are sometimes larger than
/// necessary. Which number is frequent depends on the number of lines of the file.
fn with_header(before: Vec<Vec<u8>>, after: Vec<Vec<u8>>) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let header = || (0..4_096).map(|line| format!("{line}\n").into_bytes());
    (header().chain(before).collect(), header().chain(after).collect())
}

/// The counts of `git diff --minimal --numstat` for all files of two directories, by name.
/// `None`: binary.
fn git_counts(directory: &Path) -> HashMap<String, Option<LineCounts>> {
    #[expect(clippy::disallowed_methods, reason = "a short command that the test waits for")]
    let output = Command::new("git")
        .args(["diff", "--no-index", "--minimal", "--numstat", "--no-renames", "-z", "before", "after"])
        .current_dir(directory)
        .env("HOME", directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env("GIT_CEILING_DIRECTORIES", directory)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let output = String::from_utf8(output.stdout).unwrap();
    let mut fields = output.split_terminator('\0');
    let mut counts = HashMap::new();
    while let Some(field) = fields.next() {
        let columns: Vec<&str> = field.split('\t').collect();
        let [added, removed, path] = columns[..] else { panic!("unexpected line {field:?}") };
        // Two names follow if they are different.
        let path = if path.is_empty() { fields.nth(1).unwrap() } else { path };
        let (_, name) = path.rsplit_once('/').unwrap();
        let of_pair = (added != "-")
            .then(|| LineCounts { added: added.parse().unwrap(), removed: removed.parse().unwrap() });
        counts.insert(name.to_owned(), of_pair);
    }
    counts
}

#[test]
fn line_counts_equal_those_of_git() {
    let directory = tempfile::tempdir().unwrap();
    for side in ["before", "after"] {
        std::fs::create_dir(directory.path().join(side)).unwrap();
    }
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    let pairs: Vec<(Vec<u8>, Vec<u8>)> = (0..PAIRS).map(|number| numbers.pair(number)).collect();
    for (number, (before, after)) in pairs.iter().enumerate() {
        std::fs::write(directory.path().join(format!("before/{number}")), before).unwrap();
        std::fs::write(directory.path().join(format!("after/{number}")), after).unwrap();
    }
    let of_git = git_counts(directory.path());
    assert!(of_git.len() > 350, "git listed only {} files", of_git.len());
    assert!(of_git.values().any(Option::is_none), "no binary pair in the corpus");
    for (number, (before, after)) in pairs.iter().enumerate() {
        // Git does not list equal files.
        let expected = match of_git.get(&number.to_string()) {
            Some(counts) => *counts,
            None => {
                assert_eq!(before, after, "git did not list pair {number}");
                continue;
            }
        };
        assert_eq!(line_counts(before, after), expected, "pair {number}, kind {}", number % 14);
    }
}
