//! The fuzz targets.
//!
//! Each target is a function of bytes that panics if a property does not hold, with seed
//! inputs and words for new inputs. A new target is a file in this directory and a row in
//! the table.

mod line_decoder;
mod model_id;
mod rpc;
mod shell_policy;
mod sse_scanner;
mod stream_validator;

use std::io;

/// A fuzz target.
#[derive(Debug)]
pub(crate) struct FuzzTarget {
    pub(crate) name: &'static str,
    /// Runs one input; panics if a property does not hold.
    pub(crate) run: fn(&[u8]),
    /// Returns the seed inputs.
    pub(crate) seeds: fn() -> io::Result<Vec<Vec<u8>>>,
    /// Words with a meaning to the target.
    pub(crate) words: &'static [&'static str],
}

/// All targets.
pub(crate) const TARGETS: &[FuzzTarget] = &[
    sse_scanner::TARGET,
    stream_validator::TARGET,
    model_id::TARGET,
    line_decoder::TARGET,
    rpc::TARGET,
    shell_policy::TARGET,
];
