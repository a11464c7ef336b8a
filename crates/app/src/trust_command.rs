//! `innkeeper trust`: list, add and remove trusted folders.

use std::io::Write as _;

use serde_json::json;

use crate::cli::{TrustArguments, TrustCommand};
use crate::directories::DataDirectories;
use crate::failure::CommandFailure;
use crate::trusted_folders::TrustFile;

pub(crate) fn run(arguments: &TrustArguments) -> Result<(), CommandFailure> {
    let directories = DataDirectories::resolve(&arguments.data).map_err(CommandFailure::usage)?;
    let file = TrustFile::new(directories.trust(), &[]);
    match &arguments.command {
        TrustCommand::List { json } => list(&file, *json),
        TrustCommand::Add { folder } => {
            directories.create().map_err(CommandFailure::work)?;
            let folder = file.add(folder).map_err(CommandFailure::work)?;
            print(&format!("{}", folder.display()))
        }
        TrustCommand::Remove { folder } => match file.remove(folder).map_err(CommandFailure::work)? {
            0 => Err(CommandFailure::work(anyhow::anyhow!(
                "no decision about {} is stored; `innkeeper trust list` shows all",
                folder.display()
            ))),
            _ => Ok(()),
        },
    }
}

fn list(file: &TrustFile, as_json: bool) -> Result<(), CommandFailure> {
    let folders = file.list().map_err(CommandFailure::work)?;
    if as_json {
        let row = |(path, entry): (&std::path::PathBuf, &crate::trusted_folders::FolderEntry)| json!({"path": path.display().to_string(), "trusted": entry.trusted});
        return print(&json!(folders.iter().map(row).collect::<Vec<_>>()).to_string());
    }
    for (path, entry) in folders {
        let decision = if entry.trusted { "trusted   " } else { "restricted" };
        print(&format!("{decision}  {}", path.display()))?;
    }
    Ok(())
}

fn print(line: &str) -> Result<(), CommandFailure> {
    writeln!(std::io::stdout(), "{line}").map_err(CommandFailure::work)
}
