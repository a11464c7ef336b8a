use super::*;

/// A machine on which every source names a different registry; the test removes sources one by one.
struct Machine {
    root: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        Self { root }
    }

    fn npmrc(&self, name: &str, text: &str) -> PathBuf {
        let path = self.root.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// An `npm` command that runs this shell code.
fn npm(words: &str) -> Vec<OsString> {
    ["sh", "-c", words].map(OsString::from).to_vec()
}

#[tokio::test]
async fn sources_are_searched_in_documented_order() {
    let machine = Machine::new();
    let here = machine.npmrc("here", "registry=https://here.test/npm");
    let home = machine.npmrc("home", "registry=https://home.test/");
    let silent = machine.npmrc("silent", "fund=false\n");
    let absent = machine.root.path().join("absent");

    let everything = RegistrySearch {
        option: Some("https://option.test/".to_owned()),
        variable: Some("https://variable.test/".to_owned()),
        npmrc: vec![here, home.clone()],
        npm: npm("echo https://npm.test/"),
        withheld: Vec::new(),
    };
    let without_option = RegistrySearch { option: None, ..everything.clone() };
    let without_variable = RegistrySearch { variable: None, ..without_option.clone() };
    let only_home =
        RegistrySearch { npmrc: vec![absent.clone(), silent.clone(), home], ..without_variable.clone() };
    let only_npm = RegistrySearch { npmrc: vec![absent, silent], ..without_variable.clone() };
    for (search, expected) in [
        (everything, "https://option.test/"),
        (without_option, "https://variable.test/"),
        (without_variable, "https://here.test/npm/"),
        (only_home, "https://home.test/"),
        (only_npm, "https://npm.test/"),
    ] {
        assert_eq!(search.find().await.unwrap().to_string(), expected);
    }
}

#[tokio::test]
async fn missing_registry_error_says_what_to_set() {
    for npm in [
        vec![],
        vec!["there-is-no-such-program".into()],
        npm("exit 1"),
        npm("echo undefined"),
        npm("echo https://x.test/; exit 3"),
    ] {
        let search = RegistrySearch { npm, ..RegistrySearch::default() };
        let error = search.find().await.unwrap_err();
        assert_eq!(error, RegistryError::Missing, "{search:?}");
        assert!(error.to_string().contains("--registry URL"), "{error}");
    }
}

#[tokio::test]
async fn invalid_url_error_names_its_source() {
    for address in ["", "nonsense", "file:///etc", "ftp://registry.test/"] {
        let search = RegistrySearch { option: Some(address.to_owned()), ..RegistrySearch::default() };
        let error = search.find().await.unwrap_err().to_string();
        assert!(error.contains("`--registry`"), "{address}: {error}");
    }
}

#[test]
fn npmrc_is_parsed_like_npm() {
    for (text, expected) in [
        ("registry=https://a.test/", Some("https://a.test/")),
        (" registry = \"https://a.test/\" ", Some("https://a.test/")),
        ("; registry=https://a.test/\n# registry=https://b.test/", None),
        ("registry=https://a.test/\nregistry=https://b.test/", Some("https://b.test/")),
        (
            "@anthropic-ai:registry=https://scoped.test/\nregistry=https://a.test/",
            Some("https://scoped.test/"),
        ),
        ("@other:registry=https://other.test/", None),
        ("registry=${MY_REGISTRY}", None),
        ("registry=", None),
        ("[section]\nregistry=https://a.test/", None),
        ("", None),
    ] {
        assert_eq!(registry_in_npmrc(text), expected, "{text}");
    }
}

#[test]
fn registry_url_keeps_its_path() {
    for address in ["https://host.test/npm/all", "https://host.test/npm/all/"] {
        let registry = NpmRegistry::parse(address).unwrap();
        assert_eq!(
            registry.join("@scope/name/1.2.3").as_str(),
            "https://host.test/npm/all/@scope/name/1.2.3"
        );
    }
}

#[test]
fn url_credentials_are_never_shown() {
    let registry = NpmRegistry::parse("https://me:secret@host.test:8443/npm").unwrap();
    assert_eq!(registry.to_string(), "https://***@host.test:8443/npm/");
    assert!(!format!("{registry:?}").contains("secret"));
    assert_eq!(registry.join("x").password(), Some("secret"));
    let search = RegistrySearch {
        option: Some("https://me:secret@host.test/".to_owned()),
        ..RegistrySearch::default()
    };
    assert!(!format!("{search:?}").contains("secret"));
}

#[test]
fn only_local_addresses_are_loopback() {
    for (address, expected) in [
        ("http://127.0.0.1:80/", true),
        ("http://localhost/", true),
        ("http://[::1]/", true),
        ("http://10.0.0.1/", false),
        ("http://localhost.test/", false),
    ] {
        assert_eq!(NpmRegistry::parse(address).unwrap().is_loopback(), expected);
    }
}
