//! Chores of this repository, run as `cargo run -p xtask -- CHORE`.
//!
//! Owns no logic of the product. The one chore so far is `tidy`, which checks what the compiler cannot.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command for developers, whose product is its output"
)]

mod metadata;
mod tidy;

use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => {
            let problems = tidy::run()?;
            for problem in &problems {
                eprintln!("tidy: {problem}");
            }
            if problems.is_empty() {
                println!("tidy: nothing to complain about");
                Ok(ExitCode::SUCCESS)
            } else {
                eprintln!("tidy: {} to fix", count(problems.len()));
                Ok(ExitCode::FAILURE)
            }
        }
        _ => {
            eprintln!("usage: cargo run -p xtask -- tidy");
            Ok(ExitCode::from(2))
        }
    }
}

/// A number of problems in words.
fn count(problems: usize) -> String {
    if problems == 1 { "1 problem".to_owned() } else { format!("{problems} problems") }
}
