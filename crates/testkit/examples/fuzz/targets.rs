//! What is fuzzed.
//!
//! Each target is a function of bytes that panics if a property does not
//! hold, with inputs to start from and words to build new ones of. A new one
//! is a file beside the others and a row in the table.

mod line_decoder;
mod model_id;
mod rpc;
mod sse_scanner;
mod stream_validator;

use std::io;

/// One thing to fuzz.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// Runs one input and panics if the target does not hold.
    pub(crate) run: fn(&[u8]),
    /// Gives inputs to start from.
    pub(crate) seeds: fn() -> io::Result<Vec<Vec<u8>>>,
    /// Words that the target knows.
    pub(crate) words: &'static [&'static str],
}

/// Every target.
pub(crate) const TARGETS: &[Target] =
    &[sse_scanner::TARGET, stream_validator::TARGET, model_id::TARGET, line_decoder::TARGET, rpc::TARGET];
