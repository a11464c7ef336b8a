//! Reads the state of a working tree from git.
//!
//! Runs no program that the repository's configuration names: hooks, monitors and filters are
//! disabled. A file that a filter converts counts as changed if git cannot tell from its size and
//! times that it is the same.

use innkeeper_core::projects::GitState;

use super::repository::Repository;
use crate::stop_flag::StopFlag;
use crate::tracking::{GitRunner, MAX_LIST, records};
use crate::uri_of;

/// Longest published name of a branch, in bytes. Longer ones are left out.
const MAX_NAME: usize = 255;

/// Reads the state; `None` if git fails.
pub(super) fn read(repository: &Repository, stop: &StopFlag) -> Option<GitState> {
    let git = GitRunner { directory: &repository.root, stop };
    let options = git.without_filters()?;
    let command = ["status", "--porcelain=v2", "--branch", "-z", "--ignore-submodules=all", "--no-renames"];
    let arguments: Vec<&str> =
        options.iter().map(String::as_str).chain(command).chain(["--untracked-files=normal"]).collect();
    let mut state = parsed(&git.run(&arguments, &[], MAX_LIST)?);
    state.worktree = repository.is_linked().then(|| uri_of(&repository.root));
    Some(state)
}

/// Parses the output of `git status --porcelain=v2 --branch -z`.
fn parsed(output: &[u8]) -> GitState {
    let mut state = GitState::default();
    for record in records(output) {
        let Some(header) = record.strip_prefix(b"# ") else {
            state.uncommitted += 1;
            continue;
        };
        let Some((key, value)) = std::str::from_utf8(header).ok().and_then(|text| text.split_once(' '))
        else {
            continue;
        };
        let name = || Some(value.to_owned()).filter(|name| name.len() <= MAX_NAME);
        match key {
            "branch.head" => state.branch = name().filter(|name| name != "(detached)"),
            "branch.upstream" => state.upstream = name(),
            "branch.ab" => {
                let mut counts = value.split(' ').map(|count| count.get(1..)?.parse().ok());
                (state.outgoing, state.incoming) = (counts.next().flatten(), counts.next().flatten());
            }
            _ => {}
        }
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_output_is_parsed() {
        let output = b"# branch.oid 8b7c\0# branch.head feature/x y\0# branch.upstream origin/main\0\
            # branch.ab +2 -13\x001 .M N... 100644 100644 100644 1 1 # branch.head\0u UU N... x y\0";
        let expected = GitState {
            branch: Some("feature/x y".to_owned()),
            upstream: Some("origin/main".to_owned()),
            outgoing: Some(2),
            incoming: Some(13),
            uncommitted: 2,
            worktree: None,
        };
        assert_eq!(parsed(output), expected);
        let detached = parsed(b"# branch.oid 8b7c\0# branch.head (detached)\0");
        assert_eq!(detached, GitState::default());
        assert_eq!(
            parsed(b"# branch.ab x\0# branch.head\0# \0\xff\0"),
            GitState { uncommitted: 1, ..detached }
        );
        let long = [b"# branch.head ", &[b'x'; MAX_NAME + 1][..], b"\0"].concat();
        assert_eq!(parsed(&long).branch, None);
    }
}
