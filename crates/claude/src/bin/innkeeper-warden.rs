//! The warden as a standalone program, for tests and for library users without the main binary.
//!
//! The implementation is in [`innkeeper_claude::warden`].

use std::process::ExitCode;

fn main() -> ExitCode {
    innkeeper_claude::warden::run(std::env::args_os().skip(1))
}
