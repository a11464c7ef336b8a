//! Opens the web page in the user's browser.
//!
//! The URL contains the token, and every user of the machine can read command lines.
//! So the browser is started with a private file that redirects to the page.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::secrets;

/// Opens a URL through a redirect file at `link`.
pub(crate) fn open(address: &str, link: &Path) -> Result<()> {
    write_link(address, link).with_context(|| format!("cannot write {}", link.display()))?;
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    #[expect(
        clippy::disallowed_methods,
        reason = "the browser belongs to the user and must outlive the host"
    )]
    let mut command = Command::new(opener);
    let mut child = command
        .arg(link)
        .env_clear()
        .envs(secrets::public_environment())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {opener}"))?;
    // Only reaps the process; the user sees whether the browser opened.
    std::thread::spawn(move || child.wait());
    Ok(())
}

/// Writes the redirect file. The URL needs no HTML escaping: a token consists of letters,
/// digits, `-` and `_`.
fn write_link(address: &str, link: &Path) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(link)?;
    writeln!(
        file,
        "<!doctype html><meta charset=utf-8><title>Innkeeper</title>\
         <meta http-equiv=refresh content=\"0;url={address}\"><a href=\"{address}\">Innkeeper</a>"
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn link_redirects_to_the_page_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("page.html");
        write_link("http://127.0.0.1:1/?tkn=a-b_c", &link).unwrap();
        assert!(std::fs::read_to_string(&link).unwrap().contains("url=http://127.0.0.1:1/?tkn=a-b_c\""));
        assert_eq!(std::fs::metadata(&link).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
