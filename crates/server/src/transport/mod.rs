//! How bytes come and go: one file per transport.

pub(crate) mod unix;
pub(crate) mod ws;
