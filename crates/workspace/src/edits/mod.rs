//! The edit log: records what agents change, and takes changes back.

#[allow(dead_code, unused_imports, reason = "the edit log calls the operations")]
mod operations;
