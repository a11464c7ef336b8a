use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::*;

#[expect(dead_code, reason = "tests do not use the build script's main")]
#[path = "../build.rs"]
mod build_script;

static SAMPLE: &[PageFile] = &[
    PageFile {
        path: "/assets/index-a1b2.js",
        content_type: "text/javascript; charset=utf-8",
        etag: "\"5-01\"",
        body: b"run()",
    },
    PageFile {
        path: "/index.html",
        content_type: "text/html; charset=utf-8",
        etag: "\"4-02\"",
        body: b"page",
    },
];

/// Status, headers and body of a response, as one value to compare.
async fn answer(path: &str, if_none_match: Option<&str>) -> (u16, BTreeMap<String, String>, String) {
    let (parts, body) = respond(SAMPLE, path, if_none_match).into_parts();
    let headers = parts
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    let body = axum::body::to_bytes(body, 1024).await.unwrap();
    (parts.status.as_u16(), headers, String::from_utf8(body.to_vec()).unwrap())
}

/// A directory that is removed after the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("innkeeper-page-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn write(&self, path: &str, content: &str) {
        let file = self.0.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

#[tokio::test]
async fn root_serves_index_with_revalidation() {
    let (status, headers, body) = answer("/", None).await;
    assert_eq!((status, body.as_str()), (200, "page"));
    assert_eq!(headers["content-type"], "text/html; charset=utf-8");
    assert_eq!(headers["cache-control"], "no-cache");
    assert_eq!(headers["etag"], "\"4-02\"");
}

#[tokio::test]
async fn file_with_hashed_name_is_cached_permanently() {
    let (status, headers, body) = answer("/assets/index-a1b2.js", None).await;
    assert_eq!((status, body.as_str()), (200, "run()"));
    assert_eq!(headers["content-type"], "text/javascript; charset=utf-8");
    assert_eq!(headers["cache-control"], "public, max-age=31536000, immutable");
}

#[tokio::test]
async fn matching_validator_returns_not_modified() {
    for header in ["\"4-02\"", "W/\"4-02\"", "\"other\", \"4-02\"", "*"] {
        let (status, headers, body) = answer("/", Some(header)).await;
        assert_eq!((status, body.as_str()), (304, ""), "{header}");
        assert_eq!(headers["etag"], "\"4-02\"", "{header}");
        assert_eq!(headers["cache-control"], "no-cache", "{header}");
    }
    for header in ["", "\"5-01\"", "4-02", "\"4-02"] {
        assert_eq!(answer("/", Some(header)).await.0, 200, "{header}");
    }
}

#[tokio::test]
async fn unknown_path_returns_not_found() {
    for path in
        ["", "/assets", "/assets/", "/../Cargo.toml", "/assets/../index.html", "//", "/index.html/", "/x"]
    {
        let (status, headers, body) = answer(path, Some("*")).await;
        assert_eq!(status, 404, "{path}");
        assert!(body.contains("Not found"), "{path}");
        assert_eq!(headers["cache-control"], "no-store", "{path}");
    }
}

#[tokio::test]
async fn every_response_forbids_inline_code_sniffing_framing_and_referrers() {
    for (path, if_none_match) in
        [("/", None), ("/", Some("*")), ("/assets/index-a1b2.js", None), ("/x", None)]
    {
        let (_, headers, _) = answer(path, if_none_match).await;
        let policy = &headers["content-security-policy"];
        for rule in [
            "default-src 'self'",
            "style-src 'self'",
            "img-src 'self' data:",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.split("; ").any(|each| each == rule), "{rule} in {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["referrer-policy"], "no-referrer");
    }
}

#[test]
fn embedded_page_contains_every_file_that_index_references() {
    let index = FILES.iter().find(|file| file.path == INDEX).expect("an index is always embedded");
    assert_eq!(index.content_type, "text/html; charset=utf-8");
    let text = std::str::from_utf8(index.body).unwrap();
    let named: Vec<&str> = text.split("=\"./").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    for name in &named {
        let path = format!("/{name}");
        assert!(FILES.iter().any(|file| file.path == path), "{path} is not embedded");
    }
    assert_eq!(
        FILES.len() > 1,
        !named.is_empty(),
        "expected the built page with its files, or the placeholder alone"
    );
    assert!(!text.contains("<script>"), "the policy forbids inline scripts");
}

#[test]
fn build_embeds_every_file_with_type_and_validator() {
    let dist = Scratch::new("built");
    dist.write("index.html", "page");
    dist.write("assets/app-1.js", "run()");
    dist.write("assets/deep/look-2.css", "");
    let scratch = Scratch::new("built-out");
    let table = build_script::page_table(&dist.0, &scratch.0).unwrap();
    let folder = fs::canonicalize(&dist.0).unwrap();
    let row = |path: &str, kind: &str, etag: &str| {
        let file = folder.join(path);
        let path = format!("/{path}");
        format!(
            "    PageFile {{ path: {path:?}, content_type: {kind:?}, etag: {etag:?}, body: include_bytes!({file:?}) }},\n"
        )
    };
    let expected = [
        "&[\n".to_owned(),
        row("assets/app-1.js", "text/javascript; charset=utf-8", "\"5-7a07636a3384a55d\""),
        row("assets/deep/look-2.css", "text/css; charset=utf-8", "\"0-cbf29ce484222325\""),
        row("index.html", "text/html; charset=utf-8", "\"4-038b2a0deba58916\""),
        "]\n".to_owned(),
    ];
    assert_eq!(table, expected.concat());
}

#[test]
fn build_embeds_placeholder_with_instructions_if_page_is_missing() {
    let scratch = Scratch::new("missing");
    let table = build_script::page_table(&scratch.0.join("no-dist"), &scratch.0).unwrap();
    assert_eq!(table.matches("PageFile").count(), 1);
    assert!(table.contains("path: \"/index.html\""));
    let page = fs::read_to_string(scratch.0.join("placeholder.html")).unwrap();
    assert!(page.contains("./scripts/run"));
    assert!(page.contains("npm ci &amp;&amp; npm run build"));
}

#[test]
fn different_content_has_different_etags() {
    assert_ne!(build_script::etag(b"one"), build_script::etag(b"two"));
    assert_ne!(build_script::etag(b"\0"), build_script::etag(b"\0\0"));
}
