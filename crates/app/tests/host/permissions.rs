//! Files and directories that other users can access are rejected at startup, with the
//! command that fixes it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use anyhow::{Context as _, Result};
use innkeeper_testkit::TestHost;

use crate::command_line::innkeeper;
use crate::{certificate, without_runtime};

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    Ok(fs::set_permissions(path, Permissions::from_mode(mode))?)
}

/// Starts a host, which must reject its configuration. Returns its message.
fn rejection(data: &Path, arguments: &[&str]) -> Result<String> {
    let data = data.to_str().context("path is not UTF-8")?;
    let serve = ["serve", "--no-open", "--listen", "127.0.0.1:0", "--data-dir", data];
    let output = innkeeper(Path::new(data), &[&serve[..], arguments].concat())?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(1 | 2)), "{:?}: {said}", output.status);
    Ok(said)
}

#[test]
fn data_directory_that_others_can_write_to_is_rejected() -> Result<()> {
    let home = tempfile::tempdir()?;
    let data = home.path().join("my data");
    fs::create_dir(&data)?;
    for mode in [0o777, 0o770, 0o702] {
        set_mode(&data, mode)?;
        let said = rejection(&data, &["--upstream", "demo"])?;
        assert!(said.contains(&format!("chmod 700 '{}'", data.display())), "{mode:o}: {said}");
        assert_eq!(fs::read_dir(&data)?.count(), 0, "no file is created");
    }
    Ok(())
}

#[tokio::test]
async fn host_starts_with_private_files_and_creates_private_directory() -> Result<()> {
    let home = tempfile::tempdir()?;
    let data = home.path().join("new");
    let mut options = without_runtime();
    options.data_dir = Some(data.clone());
    let host = TestHost::start(options).await?;
    assert_eq!(fs::metadata(&data)?.permissions().mode() & 0o777, 0o700);
    for name in ["token", "innkeeper.db", "host.lock"] {
        assert_eq!(fs::metadata(data.join(name))?.permissions().mode() & 0o777, 0o600, "{name}");
    }
    drop(host);
    Ok(())
}

#[test]
fn secrets_that_others_can_read_are_rejected() -> Result<()> {
    let home = tempfile::tempdir()?;
    let made = certificate::self_signed("inn.example")?;
    let [cert, key, token] = ["cert.pem", "key.pem", "given"].map(|name| home.path().join(name));
    fs::write(&cert, made.certificate)?;
    fs::write(&key, made.key)?;
    fs::write(&token, "abc")?;
    let text = |path: &Path| path.to_str().map(str::to_owned).context("path is not UTF-8");
    let (cert_text, key_text, token_text) = (text(&cert)?, text(&key)?, text(&token)?);
    let own = home.path().join("token");
    fs::write(&own, "abc")?;
    let github = home.path().join("github-token");
    fs::write(&github, "ghu_x")?;
    let cases: [(&Path, Vec<&str>); 4] = [
        (&key, vec!["--upstream", "demo", "--token", "x", "--tls-cert", &cert_text, "--tls-key", &key_text]),
        (&token, vec!["--token-file", &token_text, "--upstream", "demo"]),
        (&own, vec!["--upstream", "demo"]),
        (&github, vec!["--token", "x", "--upstream", "copilot"]),
    ];
    for (path, arguments) in cases {
        set_mode(path, 0o644)?;
        let said = rejection(home.path(), &arguments)?;
        assert!(said.contains(&format!("chmod 600 {}", path.display())), "{said}");
        set_mode(path, 0o640)?;
        let said = rejection(home.path(), &arguments)?;
        assert!(said.contains("chmod 600"), "{said}");
    }
    Ok(())
}

#[test]
fn lock_file_that_is_a_link_is_rejected_and_its_target_kept() -> Result<()> {
    let home = tempfile::tempdir()?;
    let target = home.path().join("precious");
    fs::write(&target, "content")?;
    let data = home.path().join("data");
    fs::create_dir(&data)?;
    set_mode(&data, 0o700)?;
    symlink(&target, data.join("host.lock"))?;
    let said = rejection(&data, &["--upstream", "demo", "--token", "x"])?;
    assert!(said.contains("host.lock is a symbolic link; remove it"), "{said}");
    assert_eq!(fs::read_to_string(&target)?, "content");
    Ok(())
}
