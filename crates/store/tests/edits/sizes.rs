//! Disk use of many versions of a source file.

use std::fs;

use super::*;

/// The size of the edited file.
const SIZE: usize = 200_000;

/// The number of edits. The limit is 80 MB for 1,000.
const EDITS: usize = 50;

/// Source code of this crate.
fn source_code() -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut code = String::new();
    for part in ["src", "src/edits", "tests"] {
        let entries = fs::read_dir(directory.join(part)).expect("the directory exists");
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.sort();
        for path in paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs")) {
            code.push_str(&fs::read_to_string(path).expect("the file is read"));
        }
    }
    assert!(code.len() > SIZE, "{}", code.len());
    code.chars().filter(char::is_ascii).take(SIZE).collect()
}

#[test]
fn small_edits_of_a_large_file_stay_within_disk_limit() {
    let fixture = EditFixture::new();
    let mut lines: Vec<String> = source_code().lines().map(str::to_owned).collect();
    let mut before = blob(lines.join("\n"));
    for edit in 0..EDITS {
        let place = edit * 7919 % lines.len();
        lines[place] = format!("    let edited_{edit} = compute({place});");
        let after = blob(lines.join("\n"));
        let change = record(1, &format!("turn-{edit}"), version(&before), version(&after));
        fixture.database.append(vec![change], vec![before, after.clone()]).expect("appended");
        before = after;
    }
    fixture.database.close();
    let size = fs::metadata(fixture.path()).expect("the file exists").len();
    println!("{EDITS} edits: {size} bytes");
    assert!(size < 80_000_000 * EDITS as u64 / 1000, "{size}");
}
