//! Opens the page in the user's browser.
//!
//! The address holds the token, and a command line can be read by every user of the
//! machine. So the browser is given a small private file that leads to the page.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

/// Opens an address by way of a file at `link`.
pub(crate) fn open(address: &str, link: &Path) -> Result<()> {
    write_link(address, link).with_context(|| format!("cannot write {}", link.display()))?;
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    #[expect(
        clippy::disallowed_methods,
        reason = "the browser belongs to the user and outlives the host on purpose"
    )]
    let mut child = Command::new(opener)
        .arg(link)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {opener}"))?;
    // Only so that no dead process is left; how it went is the user's to see.
    std::thread::spawn(move || child.wait());
    Ok(())
}

/// The address has no character that means something in HTML: a token is letters,
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
    fn the_link_leads_to_the_page_and_is_its_users_alone() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("page.html");
        write_link("http://127.0.0.1:1/?tkn=a-b_c", &link).unwrap();
        assert!(std::fs::read_to_string(&link).unwrap().contains("url=http://127.0.0.1:1/?tkn=a-b_c\""));
        assert_eq!(std::fs::metadata(&link).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
