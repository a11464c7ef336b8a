//! The user's directories: files that clients read, write, search and watch.
//!
//! Decides which directories are allowed and opens paths so that neither `..`, a symbolic
//! link nor a concurrent replacement leads outside of them. Does not know the protocol's
//! messages; implements an interface of `core`.

mod access_request;
mod address;
mod beneath;
mod edits;
mod files;
mod glob;
mod locks;
mod look;
mod new_directories;
mod path_resolver;
mod pending_changes;
mod pins;
mod projects;
mod resolution;
mod roots;
mod search;
mod shared_watcher;
mod stop_flag;
mod text;
mod tracking;
mod transfer;
mod tree;
mod watch;
mod write;

pub use address::{path_of, uri_of};
pub use edits::{EditLogConfig, LocalEditLog};
pub use files::{FilesConfig, LocalFiles};
pub use path_resolver::LocalPathResolver;
pub use projects::LocalProjects;
pub use roots::SessionDirectories;
pub use tracking::TrackingLimits;

#[cfg(test)]
mod link_tests;
