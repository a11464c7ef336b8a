//! Media types by file extension.

use std::path::Path;

/// File extensions and their media types.
const TYPES: [(&str, &str); 32] = [
    ("bmp", "image/bmp"),
    ("c", "text/x-c"),
    ("css", "text/css"),
    ("csv", "text/csv"),
    ("gif", "image/gif"),
    ("go", "text/x-go"),
    ("h", "text/x-c"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("ico", "image/x-icon"),
    ("java", "text/x-java"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("md", "text/markdown"),
    ("mjs", "text/javascript"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("py", "text/x-python"),
    ("rs", "text/x-rust"),
    ("sh", "text/x-shellscript"),
    ("svg", "image/svg+xml"),
    ("toml", "application/toml"),
    ("ts", "text/typescript"),
    ("tsx", "text/typescript"),
    ("txt", "text/plain"),
    ("wasm", "application/wasm"),
    ("webp", "image/webp"),
    ("xml", "text/xml"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
];

/// Returns the media type of a file name.
pub fn type_of(path: &Path) -> Option<&'static str> {
    let ending = path.extension()?.to_str()?.to_ascii_lowercase();
    TYPES.iter().find(|(known, _)| *known == ending).map(|(_, media)| *media)
}
