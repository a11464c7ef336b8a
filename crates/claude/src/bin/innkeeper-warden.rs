//! The warden as a program of its own, for tests and for users of the library without our main binary.
//!
//! Owns nothing: everything is in [`innkeeper_claude::warden`].

use std::process::ExitCode;

fn main() -> ExitCode {
    innkeeper_claude::warden::run(std::env::args_os().skip(1))
}
