//! Repository tasks, run as `cargo run -p xtask -- TASK`.
//!
//! The only task is `tidy`, which checks rules that the compiler cannot check.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a developer command that prints its results")]

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
                println!("tidy: no problems found");
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

/// Formats a number of problems.
fn count(problems: usize) -> String {
    if problems == 1 { "1 problem".to_owned() } else { format!("{problems} problems") }
}
