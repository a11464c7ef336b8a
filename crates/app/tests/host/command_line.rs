//! Exit codes and messages of the command line.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;

use anyhow::Result;

#[expect(clippy::disallowed_methods, reason = "the command under test, waited for immediately")]
pub(crate) fn innkeeper(home: &Path, arguments: &[&str]) -> Result<Output> {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_innkeeper"))
        .args(arguments)
        .env("HOME", home)
        .env("PATH", "")
        .env_remove("INNKEEPER_DATA_DIR")
        .env_remove("INNKEEPER_RUNTIMES_DIR")
        .env_remove("npm_config_registry")
        .output()?;
    Ok(output)
}

#[test]
fn usage_errors_exit_with_2_and_say_what_to_do() -> Result<()> {
    let home = tempfile::tempdir()?;
    let cases: &[(&[&str], &str)] = &[
        (&["serve", "--bogus"], "--help"),
        (&["nonsense"], "--help"),
        (&["serve", "--listen", "everywhere"], "127.0.0.1:PORT"),
        (&["serve", "--listen", "0.0.0.0:7433"], "127.0.0.1:PORT"),
        (&["serve", "--listen", "unix:"], "unix:/run"),
        (&["serve", "--listen", "localhost"], "127.0.0.1:PORT"),
        (&["serve", "--listen", "localhost:x"], "127.0.0.1:PORT"),
        (&["serve", "--token", ""], "--no-token"),
        (&["serve", "--token", "--no-open"], "--token has no value"),
        (&["serve", "--token-file", "/dev/null"], "omit --token-file"),
        (&["serve", "--token", "x", "--no-token"], "cannot be used with"),
        (&["serve", "--token-file", "/nonexistent/token"], "token file"),
        (&["serve", "--upstream", "carrier-pigeon"], "demo"),
        (&["runtime", "install", "latest"], "2.1.325"),
        (&["runtime", "install", "--registry", "not a url"], "registry"),
    ];
    for (arguments, expected) in cases {
        let output = innkeeper(home.path(), arguments)?;
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty());
    }
    Ok(())
}

#[test]
fn empty_token_file_of_the_host_is_not_reported_as_an_option_error() -> Result<()> {
    let home = tempfile::tempdir()?;
    let token = home.path().join("token");
    std::fs::write(&token, "\n")?;
    std::fs::set_permissions(&token, Permissions::from_mode(0o600))?;
    let data = home.path().to_string_lossy();
    let output = innkeeper(home.path(), &["serve", "--listen", "127.0.0.1:0", "--data-dir", &data])?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("remove it") && !said.contains("option"), "{said}");
    Ok(())
}

#[test]
fn address_that_cannot_be_bound_is_reported_with_what_to_do() -> Result<()> {
    let home = tempfile::tempdir()?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let taken = format!("localhost:{}", listener.local_addr()?.port());
    let long = format!("unix:{}/{}", home.path().display(), "x".repeat(120));
    for (place, expected) in [(&taken, "127.0.0.1:0"), (&long, "longer than a unix socket can have")] {
        let output = innkeeper(home.path(), &["serve", "--upstream", "demo", "--listen", place])?;
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{place}: {said}");
        assert!(said.contains(expected), "{place}: {said}");
    }
    Ok(())
}

#[test]
fn damaged_database_is_reported_once() -> Result<()> {
    let home = tempfile::tempdir()?;
    std::fs::write(home.path().join("innkeeper.db"), "this is not a database\n".repeat(1000))?;
    // The port is taken, so the host exits after it has opened its data.
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let (place, data) = (listener.local_addr()?.to_string(), home.path().to_string_lossy());
    let output =
        innkeeper(home.path(), &["serve", "--upstream", "demo", "--listen", &place, "--data-dir", &data])?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches("was damaged").count(), 1, "{said}");
    Ok(())
}

#[test]
fn other_errors_exit_with_1_and_say_what_to_do() -> Result<()> {
    let home = tempfile::tempdir()?;
    let output = innkeeper(home.path(), &["runtime", "path"])?;
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("innkeeper runtime install 2.1.325"));
    let output = innkeeper(home.path(), &["runtime", "remove", "2.1.325"])?;
    assert_eq!(output.status.code(), Some(1));
    Ok(())
}

#[test]
fn empty_runtime_list_is_a_success() -> Result<()> {
    let home = tempfile::tempdir()?;
    let output = innkeeper(home.path(), &["runtime", "list", "--json"])?;
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"[]\n".as_slice()));
    let output = innkeeper(home.path(), &["runtime", "list"])?;
    assert!(String::from_utf8_lossy(&output.stdout).contains("innkeeper runtime install"));
    Ok(())
}
