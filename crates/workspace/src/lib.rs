//! The user's directories: files that clients read, change, search and watch.
//!
//! Owns which places are allowed and how a path is opened, so that neither `..` nor
//! a link nor a swap in the middle of a call leads out of them. Knows nothing of
//! the protocol's messages; it implements a port of `core`.

mod address;
mod asked;
mod beneath;
mod files;
mod glob;
mod locks;
mod look;
mod media;
mod pins;
mod roots;
mod search;
mod stop;
mod transfer;
mod tree;
mod watch;
mod write;

pub use address::{path_of, uri_of};
pub use files::{FilesConfig, LocalFiles};
pub use roots::SessionDirectories;
