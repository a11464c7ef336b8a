//! Embeds the built page into the crate as a table of files.
//!
//! Never runs npm: if `web/dist` is missing, a placeholder page with build instructions is embedded, so that
//! `cargo check` works on a fresh clone. The columns of the table are documented in `src/page.rs`.

use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const PLACEHOLDER: &str = "<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<title>Innkeeper</title>
<h1>The page is not built yet</h1>
<p>The host runs, but this binary was compiled without its page. Either start it with
<code>./scripts/run</code>, which builds both, or run <code>npm ci &amp;&amp; npm run build</code> in the folder
<code>web</code> and build the binary again.</p>
<p>Other clients can connect all the same.</p>
</html>
";

fn main() -> Result<(), Box<dyn Error>> {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("CARGO_MANIFEST_DIR is not set")?);
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let dist = manifest.join("../../web/dist");
    println!("cargo:rerun-if-changed=build.rs");
    // Cargo treats a missing path as changed on every build, so the first build of the page is detected.
    println!("cargo:rerun-if-changed={}", dist.display());
    fs::write(out.join("page_files.rs"), page_table(&dist, &out)?)?;
    Ok(())
}

/// Writes the Rust expression for the table of page files, sorted by path.
///
/// If there is no built page, the placeholder is written to `scratch`.
pub(crate) fn page_table(dist: &Path, scratch: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    if dist.join("index.html").is_file() {
        collect(dist, "", &mut files)?;
    } else {
        let placeholder = scratch.join("placeholder.html");
        fs::write(&placeholder, PLACEHOLDER)?;
        files.push(("/index.html".to_owned(), placeholder));
    }
    files.sort();
    let mut table = String::from("&[\n");
    for (path, file) in files {
        let content = fs::read(&file)?;
        let absolute = fs::canonicalize(&file)?;
        writeln!(
            table,
            "    PageFile {{ path: {path:?}, content_type: {:?}, etag: {:?}, body: include_bytes!({:?}) }},",
            content_type(&file),
            etag(&content),
            absolute,
        )
        .map_err(io::Error::other)?;
    }
    table.push_str("]\n");
    Ok(table)
}

fn collect(folder: &Path, prefix: &str, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name
            .to_str()
            .ok_or_else(|| io::Error::other(format!("cannot embed {name:?}: not valid UTF-8")))?;
        let path = format!("{prefix}/{name}");
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &path, files)?;
        } else {
            files.push((path, entry.path()));
        }
    }
    Ok(())
}

fn content_type(file: &Path) -> &'static str {
    match file.extension().and_then(OsStr::to_str).unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// Returns a strong validator: the length and the 64-bit FNV-1a hash of the content.
pub(crate) fn etag(content: &[u8]) -> String {
    let hash = content.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("\"{:x}-{hash:016x}\"", content.len())
}
