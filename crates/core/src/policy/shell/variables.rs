//! Variables that a line may set without changing how its commands run.
//!
//! Every other variable can make an allowed command run another program: `PATH`, `LD_PRELOAD`,
//! `GIT_SSH_COMMAND`, `npm_config_script_shell`, and variables that this host does not know.

/// Environment variables that only change output, language or verbosity.
const HARMLESS: [&str; 22] = [
    "CI",
    "CARGO_TERM_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLUMNS",
    "DEBUG",
    "FORCE_COLOR",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LINES",
    "LOG_LEVEL",
    "NODE_ENV",
    "NO_COLOR",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONUNBUFFERED",
    "RUST_BACKTRACE",
    "RUST_LOG",
    "RUST_TEST_THREADS",
    "TERM",
    "TZ",
    "VERBOSE",
];

/// Whether a command may get this environment variable.
pub(super) fn is_harmless_for_command(name: &str) -> bool {
    HARMLESS.contains(&name)
}

/// Whether the shell may set this variable for the following commands. Short names in lower case are
/// usual in scripts; environment variables with a meaning have longer names or capital letters.
pub(super) fn is_harmless_in_shell(name: &str) -> bool {
    let is_local = name.len() <= 16 && name.starts_with(|letter: char| letter.is_ascii_lowercase());
    let is_local =
        is_local && name.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit());
    is_local || is_harmless_for_command(name)
}
