//! Projects and states of real repositories, read with the real git.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use innkeeper_core::projects::GitState;
use tempfile::TempDir;

use super::*;
use crate::tracking::testing::git;

/// Timeout for readings on slow test machines.
const PATIENCE: Duration = Duration::from_secs(20);

/// Reads at once.
const EAGER: ProjectLimits = ProjectLimits {
    gather: Duration::from_millis(1),
    pause: Duration::from_millis(1),
    tree_directories: 1_000,
    all_directories: 1_000,
};

struct Fixture {
    folder: TempDir,
    projects: LocalProjects,
}

impl Fixture {
    fn new(limits: ProjectLimits) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            projects: LocalProjects::with_limits(Vec::new(), limits),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn git(&self, directory: &str, arguments: &[&str]) {
        git(&self.path(directory), arguments).unwrap();
    }

    /// Creates a repository with one committed file, `a`.
    fn repository(&self, name: &str) {
        self.write(&format!("{name}/a"), "a\n");
        self.git(name, &["init", "-q", "-b", "main"]);
        self.commit(name);
    }

    fn commit(&self, name: &str) {
        self.git(name, &["add", "-A"]);
        // Equal commits of two repositories in the same second would be one.
        self.git(name, &["commit", "-qm", &format!("a change of {name}"), "--allow-empty"]);
    }

    fn follow(&self, name: &str) -> RepositoryFollower {
        self.projects.follow(self.path(name))
    }

    fn readings(&self, name: &str) -> u64 {
        self.projects.shared.lock()[&self.path(name)].count
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.projects.stop();
    }
}

/// Waits until a reading satisfies a condition.
async fn until(
    follower: &mut RepositoryFollower,
    what: &str,
    holds: impl Fn(&GitReading) -> bool,
) -> GitReading {
    let last = || follower.readings.borrow().clone();
    let waiting = follower.readings.clone();
    let found = async move {
        let mut waiting = waiting;
        waiting.wait_for(holds).await.unwrap().clone()
    };
    match tokio::time::timeout(PATIENCE, found).await {
        Ok(reading) => reading,
        Err(_) => panic!("not within {PATIENCE:?}: {what}; {:?}", last()),
    }
}

/// Waits for a state.
async fn until_state(follower: &mut RepositoryFollower, state: GitState) {
    let what = format!("{state:?}");
    until(follower, &what, |reading| *reading == GitReading::Known(state.clone())).await;
}

fn on(branch: &str, uncommitted: u64) -> GitState {
    GitState { branch: Some(branch.to_owned()), uncommitted, ..GitState::default() }
}

#[tokio::test]
async fn project_is_the_main_working_tree_with_its_name() {
    let fixture = Fixture::new(EAGER);
    fixture.repository("my app");
    fixture.write("my app/deep/er/b", "b\n");
    fixture.git("my app", &["worktree", "add", "-q", "../linked", "-b", "side"]);
    fixture.write("plain/x", "x");
    fixture.git("", &["clone", "-q", "--bare", "my app", "bare.git"]);
    fixture.git("bare.git", &["worktree", "add", "-q", "../of-bare", "main"]);
    let project = |uri: &str, name: &str| {
        Some(ProjectInfo { uri: uri_of(&fixture.path(uri)), display_name: name.to_owned() })
    };
    for (directory, expected) in [
        ("my app", project("my app", "my app")),
        ("my app/deep/er", project("my app", "my app")),
        ("linked", project("my app", "my app")),
        ("of-bare", project("bare.git", "bare")),
        ("plain", None),
        ("missing", None),
    ] {
        assert_eq!(fixture.projects.find(fixture.path(directory)).await, expected, "{directory}");
    }
}

#[tokio::test]
async fn folder_that_names_the_repository_of_another_is_its_own_project() {
    let fixture = Fixture::new(EAGER);
    fixture.repository("app");
    fixture.git("app", &["worktree", "add", "-q", "../linked", "-b", "side"]);
    fixture.write("other/.git", &fs::read_to_string(fixture.path("linked/.git")).unwrap());
    let found = fixture.projects.find(fixture.path("other")).await.unwrap();
    assert_eq!(found.display_name, "other");
    // A pipe must not block the search.
    fs::create_dir(fixture.path("pipe")).unwrap();
    nix::unistd::mkfifo(&fixture.path("pipe/.git"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(fixture.projects.find(fixture.path("pipe")).await, None);
}

#[tokio::test]
async fn state_follows_files_commits_and_branches() {
    let fixture = Fixture::new(EAGER);
    fixture.repository("app");
    fs::create_dir(fixture.path("app/sub")).unwrap();
    let mut follower = fixture.follow("app/sub");
    until_state(&mut follower, on("main", 0)).await;
    fixture.write("app/a", "changed\n");
    until_state(&mut follower, on("main", 1)).await;
    fixture.write("app/sub/new", "new\n");
    fixture.write("app/sub/new 2", "new\n");
    until_state(&mut follower, on("main", 2)).await;
    fixture.commit("app");
    until_state(&mut follower, on("main", 0)).await;
    fixture.git("app", &["checkout", "-q", "-b", "feature/x"]);
    until_state(&mut follower, on("feature/x", 0)).await;
    fixture.git("app", &["checkout", "-q", "--detach"]);
    until_state(&mut follower, GitState::default()).await;
}

#[tokio::test]
async fn commits_of_branch_and_upstream_are_counted() {
    let fixture = Fixture::new(EAGER);
    fixture.repository("origin");
    fixture.git("", &["clone", "-q", "origin", "app"]);
    let mut follower = fixture.follow("app");
    let counted = |incoming, outgoing| GitState {
        upstream: Some("origin/main".to_owned()),
        incoming: Some(incoming),
        outgoing: Some(outgoing),
        ..on("main", 0)
    };
    until_state(&mut follower, counted(0, 0)).await;
    fixture.commit("app");
    until_state(&mut follower, counted(0, 1)).await;
    fixture.commit("origin");
    fixture.commit("origin");
    fixture.git("app", &["fetch", "-q"]);
    until_state(&mut follower, counted(2, 1)).await;
}

#[tokio::test]
async fn linked_working_tree_has_its_own_state() {
    let fixture = Fixture::new(EAGER);
    fixture.repository("app");
    fixture.git("app", &["worktree", "add", "-q", "../linked", "-b", "side"]);
    let worktree = Some(uri_of(&fixture.path("linked")));
    let linked = |branch, uncommitted| GitState { worktree: worktree.clone(), ..on(branch, uncommitted) };
    let (mut main, mut side) = (fixture.follow("app"), fixture.follow("linked"));
    until_state(&mut main, on("main", 0)).await;
    until_state(&mut side, linked("side", 0)).await;
    fixture.write("linked/a", "changed\n");
    until_state(&mut side, linked("side", 1)).await;
    // The branch changes in the directory that both share.
    fixture.git("linked", &["checkout", "-q", "-b", "next"]);
    until_state(&mut side, linked("next", 1)).await;
    assert_eq!(*main.readings.borrow(), GitReading::Known(on("main", 0)));
}

#[tokio::test]
async fn repository_is_noticed_when_it_is_created_and_removed() {
    let fixture = Fixture::new(EAGER);
    fixture.write("app/a", "a\n");
    let mut follower = fixture.follow("app");
    until(&mut follower, "no repository", |reading| *reading == GitReading::NoRepository).await;
    fixture.git("app", &["init", "-q", "-b", "main"]);
    until_state(&mut follower, on("main", 1)).await;
    fixture.commit("app");
    until_state(&mut follower, on("main", 0)).await;
    fs::remove_dir_all(fixture.path("app/.git")).unwrap();
    until(&mut follower, "no repository", |reading| *reading == GitReading::NoRepository).await;
}

#[tokio::test]
async fn many_changes_cause_one_reading_after_the_pause() {
    let limits = ProjectLimits { pause: Duration::from_secs(3600), ..EAGER };
    let fixture = Fixture::new(limits);
    fixture.repository("app");
    let mut follower = fixture.follow("app");
    until_state(&mut follower, on("main", 0)).await;
    for number in 0..200 {
        fixture.write(&format!("app/{number}"), "new");
    }
    follower.observation.refresh();
    fixture.projects.watcher().wait_for_events();
    let followed = fixture.projects.shared.lock();
    let entry = &followed[&fixture.path("app")];
    assert_eq!(entry.count, 1);
    assert_eq!(entry.due, Some(entry.not_before), "one more reading waits for the end of the pause");
}

#[tokio::test]
async fn large_working_tree_is_not_watched_but_git_and_turns_are() {
    let fixture = Fixture::new(ProjectLimits { tree_directories: 3, ..EAGER });
    fixture.repository("app");
    fixture.write("app/sub/b", "b\n");
    fixture.commit("app");
    let mut follower = fixture.follow("app");
    until_state(&mut follower, on("main", 0)).await;
    let readings = fixture.readings("app");
    fixture.write("app/sub/b", "changed\n");
    fixture.projects.watcher().wait_for_events();
    assert_eq!(
        (fixture.readings("app"), fixture.projects.shared.lock()[&fixture.path("app")].due),
        (readings, None)
    );
    follower.observation.refresh();
    until_state(&mut follower, on("main", 1)).await;
    fixture.commit("app");
    until_state(&mut follower, on("main", 0)).await;
    fixture.git("app", &["branch", "-m", "renamed"]);
    until_state(&mut follower, on("renamed", 0)).await;
}

#[tokio::test]
async fn programs_of_the_repository_are_not_run() {
    let fixture = Fixture::new(EAGER);
    fixture.repository("app");
    let (marker, script) = (fixture.path("ran"), fixture.path("script"));
    fs::write(&script, format!("#!/bin/sh\ntouch {}\ncat\n", marker.display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    fixture.write("app/.gitattributes", "*.dat filter=evil.x\n");
    fixture.write("app/b.dat", "1\n");
    fixture.commit("app");
    let program = script.display().to_string();
    for key in
        ["filter.evil.x.clean", "filter.evil.x.process", "core.fsmonitor", "diff.external", "core.pager"]
    {
        fixture.git("app", &["config", key, &program]);
    }
    fs::create_dir_all(fixture.path("app/.git/hooks")).unwrap();
    for hook in ["post-index-change", "fsmonitor-watchman"] {
        fs::copy(&script, fixture.path("app/.git/hooks").join(hook)).unwrap();
    }
    // Git compares the contents of a file of the same size.
    fixture.write("app/b.dat", "2\n");
    let mut follower = fixture.follow("app");
    until_state(&mut follower, on("main", 1)).await;
    assert!(!marker.exists());
    // Proves that the programs would run.
    git(&fixture.path("app"), &["status"]).ok();
    assert!(marker.exists());
}

#[tokio::test]
async fn watches_end_with_the_last_follower() {
    let fixture = Fixture::new(EAGER);
    fixture.repository("app");
    let mut first = fixture.follow("app");
    until_state(&mut first, on("main", 0)).await;
    let second = fixture.follow("app");
    assert_eq!(*second.readings.borrow(), GitReading::Known(on("main", 0)), "the readings are shared");
    drop(first);
    assert_eq!(fixture.projects.shared.lock()[&fixture.path("app")].observers, 1);
    drop(second);
    assert!(fixture.projects.shared.lock().is_empty());
    fixture.projects.stop();
    assert!(format!("{:?}", fixture.projects.watcher()).contains("watches: 0"));
}
