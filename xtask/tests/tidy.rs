//! Runs `tidy` on a workspace with and without a forbidden dependency.

use std::path::Path;
use std::process::{Command, Output};

/// Writes a workspace of two crates and runs `tidy` in it.
#[expect(clippy::disallowed_methods, reason = "the command under test; the call waits for it")]
fn tidy(root: &Path, gateway_dependencies: &str) -> std::io::Result<Output> {
    let locked =
        if gateway_dependencies.is_empty() { "" } else { "dependencies = [\n \"innkeeper-core\",\n]\n" };
    let package = |name: &str| {
        format!(
            "[package]\nname = \"innkeeper-{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\nlicense = \"MIT\"\n"
        )
    };
    let files = [
        ("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n".to_owned()),
        (
            "Cargo.lock",
            format!(
                "version = 4\n\n[[package]]\nname = \"innkeeper-core\"\nversion = \"0.1.0\"\n\n\
                 [[package]]\nname = \"innkeeper-gateway\"\nversion = \"0.1.0\"\n{locked}"
            ),
        ),
        ("crates/core/Cargo.toml", package("core")),
        ("crates/core/src/lib.rs", "//! Nothing.\n".to_owned()),
        (
            "crates/gateway/Cargo.toml",
            format!("{}\n[dependencies]\n{gateway_dependencies}\n", package("gateway")),
        ),
        ("crates/gateway/src/lib.rs", "//! Nothing.\n".to_owned()),
    ];
    for (name, text) in files {
        let path = root.join(name);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, text)?;
    }
    Command::new(env!("CARGO_BIN_EXE_xtask")).arg("tidy").current_dir(root).output()
}

#[test]
fn fails_and_names_forbidden_edge() -> std::io::Result<()> {
    let root = tempfile::tempdir()?;
    let output = tidy(root.path(), "innkeeper-core = { path = \"../core\" }")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("gateway") && stderr.contains("core"), "{stderr}");
    Ok(())
}

#[test]
fn passes_without_forbidden_edge() -> std::io::Result<()> {
    let root = tempfile::tempdir()?;
    let output = tidy(root.path(), "")?;
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
