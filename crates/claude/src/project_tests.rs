use std::fs;

use serde_json::json;

use super::*;

struct Project {
    dir: tempfile::TempDir,
}

impl Project {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self) -> ProjectSettings {
        ProjectSettings::read(self.dir.path(), &[], &BTreeMap::new())
    }

    fn entries(&self) -> Vec<(String, String)> {
        self.read().entries.into_iter().map(|entry| (entry.what, entry.detail)).collect()
    }
}

fn pair(what: &str, detail: &str) -> (String, String) {
    (what.to_owned(), detail.to_owned())
}

#[test]
fn each_kind_of_executable_setting_is_found() {
    let project = Project::new();
    let hook = |command: &str| json!([{"matcher": "*", "hooks": [{"type": "command", "command": command}]}]);
    let settings = json!({
        "hooks": {"SessionStart": hook("one"), "Stop": hook("two")},
        "apiKeyHelper": "three",
        "enabledPlugins": {"a@b": true},
        "permissions": {"allow": ["Bash(*)"], "deny": ["Read(x)"]},
        "model": "opus",
    });
    project.write(".claude/settings.json", settings.to_string());
    project.write(".claude/settings.local.json", json!({"env": {"PATH": "/x"}}).to_string());
    project.write(
        ".mcp.json",
        json!({"mcpServers": {"s": {"command": "sh", "args": ["-c", "x"]}, "w": {"url": "u"}}}).to_string(),
    );
    project.write(".claude/agents/a.md", "---\nname: a\ndescription: An agent\n---\n");
    project.write(".claude/commands/deep/c.md", "!`x`");
    project.write(".claude/skills/s/SKILL.md", "text");
    assert_eq!(
        project.entries(),
        [
            pair("setting apiKeyHelper", "three"),
            pair("setting enabledPlugins", "{\"a@b\":true}"),
            pair("hook SessionStart", "one"),
            pair("hook Stop", "two"),
            pair("permission setting allow", "[\"Bash(*)\"]"),
            pair("setting env", "{\"PATH\":\"/x\"}"),
            pair("MCP server s", "sh -c x"),
            pair("MCP server w", "u"),
            pair("agent", "An agent"),
            pair("command", ""),
            pair("skill", ""),
        ]
    );
}

#[test]
fn instructions_and_harmless_settings_have_no_entries() {
    let project = Project::new();
    project.write("CLAUDE.md", "Run the tests.");
    project.write(".claude/settings.json", json!({"model": "opus", "hooks": {}}).to_string());
    project.write(".mcp.json", "{}");
    assert_eq!(project.entries(), []);
}

#[test]
fn broken_and_disguised_content_is_reported() {
    let project = Project::new();
    project.write(".claude/settings.json", "{");
    project.write(
        ".mcp.json",
        json!({"mcpServers": {"a\u{202e}b\n": {"command": "x".repeat(500)}}}).to_string(),
    );
    let entries = project.read().entries;
    assert_eq!(entries[0].what, "settings that cannot be parsed");
    assert_eq!(entries[1].what, "MCP server a\u{fffd}b\u{fffd}");
    assert_eq!(entries[1].detail.chars().count(), 201);
}

#[test]
fn digest_changes_with_content_and_only_with_content() {
    let project = Project::new();
    project.write(".claude/agents/a.md", "one");
    let first = project.read();
    assert!(!first.may_have_changed());
    project.write(".claude/agents/a.md", "one");
    assert_eq!(project.read().digest, first.digest);
    project.write("CLAUDE.md", "text");
    assert_eq!(project.read().digest, first.digest);
    project.write(".claude/agents/a.md", "two");
    assert!(first.may_have_changed());
    assert_ne!(project.read().digest, first.digest);
}

#[test]
fn new_file_is_noticed_without_reading() {
    for path in [".claude/settings.json", ".mcp.json", ".claude/agents/x.md", ".claude/settings.local.json"] {
        let project = Project::new();
        let before = project.read();
        project.write(path, "{}");
        assert!(before.may_have_changed(), "{path}");
    }
}

#[test]
fn servers_and_definitions_of_parent_and_additional_folders_are_found() {
    let (project, other) = (Project::new(), Project::new());
    project.write(".mcp.json", json!({"mcpServers": {"s": {"command": "x"}}}).to_string());
    project.write(".claude/settings.json", json!({"apiKeyHelper": "not read from a parent"}).to_string());
    other.write(".claude/agents/a.md", "x");
    let inside = project.dir.path().join("sub/folder");
    fs::create_dir_all(&inside).unwrap();
    let read = ProjectSettings::read(&inside, &[other.dir.path().to_owned()], &BTreeMap::new());
    let what: Vec<_> = read.entries.iter().map(|entry| entry.what.as_str()).collect();
    assert_eq!(what, ["MCP server s", "agent"]);
}

#[test]
fn own_configuration_of_the_user_does_not_belong_to_the_project() {
    let home = Project::new();
    home.write(".claude/settings.json", json!({"apiKeyHelper": "x"}).to_string());
    home.write(".claude/agents/a.md", "x");
    let environment = BTreeMap::from([("HOME".into(), home.dir.path().as_os_str().to_owned())]);
    let inside = home.dir.path().join("project");
    fs::create_dir_all(&inside).unwrap();
    for cwd in [home.dir.path(), &inside] {
        assert_eq!(ProjectSettings::read(cwd, &[], &environment).entries, []);
    }
}

#[test]
fn project_with_too_many_files_never_has_the_same_digest() {
    let project = Project::new();
    for number in 0..=MAX_FILES {
        project.write(&format!(".claude/agents/{number}.md"), "x");
    }
    let read = project.read();
    assert_eq!(read.entries.last().unwrap().what, "more files than can be checked");
    assert_ne!(read.digest, project.read().digest);
}
