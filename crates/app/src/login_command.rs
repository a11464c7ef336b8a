//! `innkeeper login`, `logout` and `whoami`: the GitHub account.
//!
//! Owns the file with the token: mode 0600, replaced atomically, removed by
//! `logout`. A token in the environment takes precedence and is never written.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};
use clap::Args;
use innkeeper_gateway::{DeviceLogin, LoginError};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::cli::DataArguments;
use crate::config::{self, Config, Upstreams};
use crate::directories::DataDirectories;
use crate::failure::CommandFailure;
use crate::permissions;
use crate::secrets::GITHUB_TOKEN;
use crate::shutdown::Signals;

#[derive(Debug, Args)]
pub(crate) struct AccountArguments {
    #[command(flatten)]
    pub(crate) data: DataArguments,
    /// Configuration file [default: config.toml in the data directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `innkeeper login`
pub(crate) async fn login(arguments: AccountArguments) -> Result<(), CommandFailure> {
    let mut signals = Signals::listen().map_err(CommandFailure::work)?;
    let directories = DataDirectories::resolve(&arguments.data).map_err(CommandFailure::usage)?;
    let login = device_login(&arguments, &directories)?;
    directories.create().map_err(CommandFailure::usage)?;
    let cancel = CancellationToken::new();
    let signing_in = sign_in(&login, &directories, &arguments, &cancel);
    tokio::select! {
        done = signing_in => done,
        () = signals.next() => Err(CommandFailure::Interrupted),
    }
}

/// `innkeeper logout`
pub(crate) async fn logout(arguments: AccountArguments) -> Result<(), CommandFailure> {
    let directories = DataDirectories::resolve(&arguments.data).map_err(CommandFailure::usage)?;
    let path = token_file(&directories);
    let was_signed_in = match std::fs::remove_file(&path) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => {
            return Err(CommandFailure::work(
                anyhow!(error).context(format!("cannot remove {}", path.display())),
            ));
        }
    };
    if arguments.json {
        return print(&json!({"signed_out": was_signed_in}).to_string());
    }
    print(if was_signed_in { "Signed out." } else { "Not signed in." })?;
    if config::of_process(GITHUB_TOKEN).is_some() {
        print_to_stderr(&format!("{GITHUB_TOKEN} is still set and will still be used."))?;
    }
    Ok(())
}

/// `innkeeper whoami`
pub(crate) async fn whoami(arguments: AccountArguments) -> Result<(), CommandFailure> {
    let directories = DataDirectories::resolve(&arguments.data).map_err(CommandFailure::usage)?;
    let login = device_login(&arguments, &directories)?;
    let (token, source) =
        match token_with_source(&directories, &config::of_process).map_err(CommandFailure::work)? {
            Some(found) => found,
            None => {
                return Err(CommandFailure::work(anyhow!(
                    "not signed in to GitHub; sign in with `innkeeper login`"
                )));
            }
        };
    let account = login.account(&token).await.map_err(CommandFailure::work)?;
    if arguments.json {
        let line = json!({
            "login": account.login,
            "plan": account.plan,
            "copilot_url": account.api.to_string(),
            "source": source,
        });
        return print(&line.to_string());
    }
    print(&format!("{}, token from {source}", shown(account.login.as_deref(), account.plan.as_deref())))
}

/// Returns the GitHub token from the environment, otherwise the one from `innkeeper login`.
pub(crate) fn token(directories: &DataDirectories) -> Result<Option<SecretString>> {
    Ok(token_with_source(directories, &config::of_process)?.map(|(token, _)| token))
}

fn token_with_source(
    directories: &DataDirectories,
    environment: config::Environment<'_>,
) -> Result<Option<(SecretString, &'static str)>> {
    if let Some(token) = environment(GITHUB_TOKEN) {
        return Ok(Some((token.trim().to_owned().into(), GITHUB_TOKEN)));
    }
    let path = token_file(directories);
    permissions::check_secret(&path)?;
    match std::fs::read_to_string(&path) {
        Ok(text) if text.trim().is_empty() => Ok(None),
        Ok(text) => Ok(Some((text.trim().to_owned().into(), "innkeeper login"))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn device_login(
    arguments: &AccountArguments,
    directories: &DataDirectories,
) -> Result<DeviceLogin, CommandFailure> {
    let config = Config::load(arguments.config.as_deref(), directories).map_err(CommandFailure::usage)?;
    let upstreams =
        Upstreams::resolve(None, &config::of_process, config, None).map_err(CommandFailure::usage)?;
    Ok(DeviceLogin::new(upstreams.github, upstreams.client_id, upstreams.client))
}

async fn sign_in(
    login: &DeviceLogin,
    directories: &DataDirectories,
    arguments: &AccountArguments,
    cancel: &CancellationToken,
) -> Result<(), CommandFailure> {
    let code = login.begin().await.map_err(CommandFailure::work)?;
    if arguments.json {
        let line = json!({"event": "code", "url": code.verification_uri(), "code": code.user_code()});
        print(&line.to_string())?;
    } else {
        print_to_stderr(&format!(
            "Open {} and enter the code {}",
            code.verification_uri(),
            code.user_code()
        ))?;
    }
    let token = match login.wait(code, cancel).await {
        Ok(token) => token,
        Err(LoginError::Cancelled) => return Err(CommandFailure::Interrupted),
        Err(error) => return Err(CommandFailure::work(error)),
    };
    store_token(&token_file(directories), &token).map_err(CommandFailure::work)?;
    // The token is valid even if the account request fails, so the error is only reported.
    let account = match login.account(&token).await {
        Ok(account) => Some(account),
        Err(error) => {
            let error = anyhow!(error);
            print_to_stderr(&format!(
                "Signed in, but the account could not be read from Copilot: {error:#}"
            ))?;
            None
        }
    };
    let (name, plan) = account.map(|account| (account.login, account.plan)).unwrap_or_default();
    if arguments.json {
        return print(&json!({"event": "signed_in", "login": name, "plan": plan}).to_string());
    }
    print(&format!("Signed in as {}.", shown(name.as_deref(), plan.as_deref())))
}

fn shown(login: Option<&str>, plan: Option<&str>) -> String {
    // The text comes from GitHub and must not contain terminal control sequences.
    let plain = |text: &str| text.chars().filter(|character| !character.is_control()).collect::<String>();
    let login = login.map_or_else(|| "an unknown account".to_owned(), plain);
    match plan {
        Some(plan) => format!("{login} (Copilot {})", plain(plan)),
        None => login,
    }
}

fn token_file(directories: &DataDirectories) -> PathBuf {
    config::path_in_data_directory(directories, "github-token")
}

/// Stores the token with mode 0600. Writes a temporary file first, so that a reader sees
/// either the old or the new token.
fn store_token(path: &Path, token: &SecretString) -> Result<()> {
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    let written = write_private(&draft, token.expose_secret())
        .and_then(|()| std::fs::rename(&draft, path))
        .with_context(|| format!("cannot write {}", path.display()));
    if written.is_err() {
        // The temporary file may not exist; the error above is the one to report.
        std::fs::remove_file(&draft).ok();
    }
    written
}

fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    // A temporary file left by a killed process may have another mode.
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn print(line: &str) -> Result<(), CommandFailure> {
    writeln!(std::io::stdout(), "{line}").map_err(CommandFailure::work)
}

fn print_to_stderr(line: &str) -> Result<(), CommandFailure> {
    writeln!(std::io::stderr(), "{line}").map_err(CommandFailure::work)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn directories() -> (tempfile::TempDir, DataDirectories) {
        let folder = tempfile::tempdir().unwrap();
        let arguments = DataArguments { data_dir: Some(folder.path().to_owned()), runtimes_dir: None };
        let directories = DataDirectories::resolve(&arguments).unwrap();
        (folder, directories)
    }

    #[test]
    fn token_file_is_private_and_replaced_atomically() {
        let (folder, directories) = directories();
        let path = token_file(&directories);
        for token in ["ghu_one", "ghu_two"] {
            store_token(&path, &token.to_owned().into()).unwrap();
            let (found, source) = token_with_source(&directories, &|_| None).unwrap().unwrap();
            assert_eq!((found.expose_secret(), source), (token, "innkeeper login"));
        }
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "temporary file was not removed");
    }

    #[test]
    fn environment_takes_precedence_over_file_and_neither_means_signed_out() {
        let (_folder, directories) = directories();
        assert!(token_with_source(&directories, &|_| None).unwrap().is_none());
        store_token(&token_file(&directories), &"ghu_file".to_owned().into()).unwrap();
        let environment = |name: &str| (name == GITHUB_TOKEN).then(|| " ghu_env\n".to_owned());
        let (found, source) = token_with_source(&directories, &environment).unwrap().unwrap();
        assert_eq!((found.expose_secret(), source), ("ghu_env", GITHUB_TOKEN));
    }

    #[test]
    fn write_error_does_not_contain_the_token() {
        let (folder, _) = directories();
        let error = store_token(&folder.path().join("missing/github-token"), &"ghu_secret".to_owned().into())
            .unwrap_err();
        assert!(!format!("{error:?}").contains("ghu_secret"));
    }

    #[test]
    fn account_is_shown_without_control_characters() {
        assert_eq!(shown(Some("octo\u{1b}[2Jcat"), Some("pro")), "octo[2Jcat (Copilot pro)");
        assert_eq!(shown(None, None), "an unknown account");
    }
}
