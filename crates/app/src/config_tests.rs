use super::*;

const PUBLIC: &str = "https://evil.example";

fn resolve(
    flag: Option<UpstreamName>,
    variables: &[(&str, &str)],
    text: &str,
    token: Option<&str>,
) -> Upstreams {
    let environment = |name: &str| {
        variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned())
    };
    let config = Config::parse(text).unwrap();
    Upstreams::resolve(flag, &environment, config, token.map(|token| token.to_owned().into())).unwrap()
}

#[test]
fn precedence_is_flag_environment_file_default() {
    assert_eq!(resolve(None, &[], "", None).name, UpstreamName::Demo);
    assert_eq!(resolve(None, &[("ANTHROPIC_API_KEY", "k")], "", None).name, UpstreamName::Anthropic);
    assert_eq!(resolve(None, &[("ANTHROPIC_API_KEY", "k")], "", Some("t")).name, UpstreamName::Copilot);
    assert_eq!(resolve(None, &[], "upstream = 'anthropic'", Some("t")).name, UpstreamName::Anthropic);
    assert_eq!(
        resolve(Some(UpstreamName::Demo), &[], "upstream = 'anthropic'", Some("t")).name,
        UpstreamName::Demo
    );

    let file = "[anthropic]\napi_key = 'file'\nurl = 'https://house.example/a'";
    let from_file = resolve(None, &[], file, None);
    assert_eq!(from_file.anthropic.to_string(), "https://house.example/a");
    let local = resolve(None, &[("INNKEEPER_ANTHROPIC_URL", "http://127.0.0.1:9")], file, None);
    assert_eq!(local.anthropic.to_string(), "http://127.0.0.1:9");
    assert_eq!(resolve(None, &[], "", None).anthropic.to_string(), "https://api.anthropic.com");
}

#[test]
fn remote_url_is_never_read_from_the_environment() {
    let variables = [
        ("INNKEEPER_ANTHROPIC_URL", PUBLIC),
        ("INNKEEPER_COPILOT_API_URL", PUBLIC),
        ("INNKEEPER_GITHUB_API_URL", PUBLIC),
    ];
    let resolved = resolve(None, &variables, "", None);
    assert!(!format!("{resolved:?}").contains("evil"), "{resolved:?}");
    assert_eq!(resolved.github.api.to_string(), "https://api.github.com");
    assert!(resolved.copilot.is_none() && !resolved.copilot_alone);
    let file = "[anthropic]\nurl = 'https://a.example'\n[copilot]\napi_url = 'https://c.example'\n[github]\napi_url = 'https://g.example'";
    let resolved = resolve(None, &variables, file, None);
    assert_eq!(resolved.anthropic.to_string(), "https://a.example");
    assert_eq!(resolved.copilot.unwrap().to_string(), "https://c.example");
    assert_eq!(resolved.github.api.to_string(), "https://g.example");
}

#[test]
fn enterprise_api_is_derived_from_the_sign_in_url() {
    let resolved = resolve(None, &[], "[github]\nurl = 'https://house.ghe.com'\nclient_id = 'abc'", None);
    assert_eq!(resolved.github.api.to_string(), "https://api.house.ghe.com");
    assert_eq!(resolved.client_id, "abc");
}

#[test]
fn github_is_not_contacted_if_only_the_copilot_url_is_overridden() {
    let copilot = ("INNKEEPER_COPILOT_API_URL", "http://127.0.0.1:1");
    assert!(resolve(None, &[copilot], "", None).copilot_alone);
    let github = ("INNKEEPER_GITHUB_API_URL", "http://127.0.0.1:2");
    let both = resolve(None, &[copilot, github], "", None);
    assert!(!both.copilot_alone);
    assert_eq!(both.github.web, both.github.api, "users sign in there too");
}

#[test]
fn unknown_key_is_rejected_with_the_nearest_known_key() {
    for (text, key, known) in [
        ("upstraem = 'demo'", "upstraem", "upstream"),
        ("[anthropic]\napikey = 'secret-value'", "anthropic.apikey", "anthropic.api_key"),
        ("[anthropics]\nurl = 'x'", "anthropics", "anthropic.url"),
        ("[github]\nurl.x = 1", "github.url", "github.url"),
        ("copilot.beta = []", "copilot.beta", "copilot.betas"),
    ] {
        let error = match Config::parse(text) {
            Err(error) => format!("{error:#}"),
            Ok(config) => panic!("{text}: {config:?}"),
        };
        assert!(error.contains(key) && !error.contains("secret-value"), "{error}");
        assert!(error.contains(known), "{text}: {error}");
    }
}

#[test]
fn parse_errors_do_not_contain_secrets() {
    for text in [
        "[anthropic]\napi_key = 'secret-value",
        "[anthropic]\napi_key = ['secret-value']",
        "[anthropic]\napi_key = secret-value",
    ] {
        let error = format!("{:?}", Config::parse(text).unwrap_err());
        assert!(!error.contains("secret-value"), "{error}");
    }
    let config = Config::parse("[anthropic]\napi_key = 'secret-value'").unwrap();
    assert!(!format!("{config:?}").contains("secret-value"));
}

#[test]
fn rejects_invalid_values() {
    let environment = |_: &str| None;
    for (text, key) in [
        ("upstream = 'other'", "upstream"),
        ("[anthropic]\nurl = 'house'", "anthropic.url"),
        ("[github]\nurl = 'ftp://x'", "github.url"),
        ("[gateway]\nbody_cap_mib = 0", "gateway.body_cap_mib"),
        ("[gateway]\nidle_timeout_seconds = 0", "gateway.idle_timeout_seconds"),
    ] {
        let error = Upstreams::resolve(None, &environment, Config::parse(text).unwrap(), None).unwrap_err();
        assert!(format!("{error:#}").contains(key), "{error:#}");
    }
    let resolved = resolve(None, &[], "[gateway]\nbody_cap_mib = 2\nidle_timeout_seconds = 7", None);
    assert_eq!(
        (resolved.limits.body_cap, resolved.client.idle_timeout),
        (2 * 1024 * 1024, Duration::from_secs(7))
    );
    let odd = resolve(Some(UpstreamName::Copilot), &[], "[copilot]\nintegration_id = \"a\\nb\"", Some("t"));
    assert!(odd.build().is_err());
}

#[test]
fn file_is_optional_unless_named() {
    let folder = tempfile::tempdir().unwrap();
    let arguments =
        crate::cli::DataArguments { data_dir: Some(folder.path().to_owned()), runtimes_dir: None };
    let directories = DataDirectories::resolve(&arguments).unwrap();
    assert!(Config::load(None, &directories).unwrap().upstream.is_none());
    let named = folder.path().join("other.toml");
    let error = Config::load(Some(&named), &directories).unwrap_err();
    assert!(format!("{error:#}").contains("other.toml"));
    std::fs::write(&named, "upstream = 'demo'").unwrap();
    assert_eq!(Config::load(Some(&named), &directories).unwrap().upstream.as_deref(), Some("demo"));
    std::fs::write(folder.path().join("config.toml"), "upstream = 1").unwrap();
    assert!(Config::load(None, &directories).is_err());
}

#[test]
fn rejects_relative_file_roots() {
    let roots = |text: &str| Config::parse(text)?.file_roots();
    assert_eq!(roots("").unwrap(), Vec::<PathBuf>::new());
    assert_eq!(
        roots("files.roots = [\"/srv/a\", \"/srv/b\"]").unwrap(),
        [PathBuf::from("/srv/a"), PathBuf::from("/srv/b")]
    );
    let error = roots("files.roots = [\"srv\"]").unwrap_err().to_string();
    assert!(error.contains("files.roots") && error.contains("\"srv\""), "{error}");
}

#[test]
fn administrator_rules_are_read_and_invalid_ones_are_named() {
    let rules = |text: &str| Config::parse(text)?.administrator_rules();
    assert_eq!(rules("").unwrap(), AdministratorRules::default());
    let text =
        "[permissions]\nallow = ['Bash(npm test:*)', 'Read']\nask = ['WebFetch']\ndeny = ['mcp__github__*']";
    let expected = AdministratorRules {
        allow: vec!["Bash(npm test:*)".to_owned(), "Read".to_owned()],
        ask: vec!["WebFetch".to_owned()],
        deny: vec!["mcp__github__*".to_owned()],
    };
    assert_eq!(rules(text).unwrap(), expected);
    for (text, key, rule) in [
        ("permissions.allow = ['Read', 'Bash(npm']", "permissions.allow", "\"Bash(npm\""),
        ("permissions.ask = ['']", "permissions.ask", "\"\""),
        ("permissions.deny = ['Bash()']", "permissions.deny", "\"Bash()\""),
        ("permissions.deny = ['rm -rf /']", "permissions.deny", "\"rm -rf /\""),
    ] {
        let error = format!("{:#}", rules(text).unwrap_err());
        assert!(error.contains(key) && error.contains(rule), "{text}: {error}");
    }
    for (wrong, hint) in [
        ("permissions.deny = 'Bash'", "expected a sequence"),
        ("permissions.deny = [1]", "expected a string"),
        ("permissions = [['Bash']]", "permissions: must be a table"),
    ] {
        let error = format!("{:#}", Config::parse(wrong).unwrap_err());
        assert!(error.contains(hint), "{wrong}: {error}");
    }
    let error = format!("{:#}", Config::parse("permissions.denies = []").unwrap_err());
    assert!(error.contains("permissions.deny"), "{error}");
}

#[test]
fn limits_of_the_edit_log_are_read_and_checked() {
    let edits = |text: &str| Config::parse(text)?.edits();
    let defaults = EditSettings::default();
    assert_eq!(edits("").unwrap(), defaults);
    assert_eq!(defaults.quota_bytes, 2 << 30);
    let text = "[edits]\nmax_files = 7\nmax_file_size_kib = 3\nmax_root_size_mib = 2\nquota_mib = 1";
    let limits = TrackingLimits { max_files: 7, max_file_size: 3 << 10, max_root_size: 2 << 20 };
    assert_eq!(edits(text).unwrap(), EditSettings { limits, quota_bytes: 1 << 20 });
    for key in ["max_files", "max_file_size_kib", "max_root_size_mib", "quota_mib"] {
        for (value, problem) in [("0", "must be at least 1"), ("-1", key), ("'1'", key)] {
            let error = format!("{:#}", edits(&format!("edits.{key} = {value}")).unwrap_err());
            assert!(error.contains(problem) && error.contains(key), "{key} = {value}: {error}");
        }
    }
    let error = format!("{:#}", edits("edits.max_file = 1").unwrap_err());
    assert!(error.contains("edits.max_files"), "{error}");
}

#[test]
fn refresh_time_of_models_is_read_and_checked() {
    let refresh = |text: &str| Config::parse(text)?.model_refresh();
    assert_eq!(refresh("").unwrap(), MODEL_REFRESH);
    assert_eq!(refresh("[models]\nrefresh_minutes = 0.5").unwrap(), Duration::from_secs(30));
    for (text, wanted) in [
        ("models.refresh_minutes = 0", "models.refresh_minutes: must be more than 0"),
        ("models.refresh_minutes = -1", "models.refresh_minutes: must be a number of minutes"),
        ("models.refresh_minute = 1", "did you mean models.refresh_minutes"),
    ] {
        let error = format!("{:#}", refresh(text).unwrap_err());
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn lifetimes_of_agents_are_read_and_checked() {
    let lifetimes = |text: &str| Config::parse(text)?.lifetimes();
    let defaults = AgentLifetimes::default();
    assert_eq!(lifetimes("").unwrap(), defaults);
    assert_eq!((defaults.idle, defaults.prewarm), (Some(Duration::from_secs(600)), true));
    let text = "[agents]\nidle_minutes = 30\nprewarm = false\nprewarm_minutes = 0.5";
    let expected = AgentLifetimes {
        idle: Some(Duration::from_secs(1800)),
        prewarm: false,
        unused: Duration::from_secs(30),
    };
    assert_eq!(lifetimes(text).unwrap(), expected);
    assert_eq!(lifetimes("agents.idle_minutes = 0").unwrap(), AgentLifetimes { idle: None, ..defaults });
    for (text, problem) in [
        ("agents.idle_minutes = -1", "agents.idle_minutes: must be a number of minutes"),
        ("agents.idle_minutes = nan", "agents.idle_minutes: must be a number of minutes"),
        ("agents.idle_minutes = inf", "agents.idle_minutes: must be a number of minutes"),
        ("agents.idle_minutes = 1e300", "agents.idle_minutes: must be a number of minutes"),
        ("agents.idle_minutes = '10'", "idle_minutes"),
        ("agents.prewarm = 'yes'", "prewarm"),
        ("agents.prewarm_minutes = 0", "use agents.prewarm = false"),
        ("agents.prewarm_minutes = -0.5", "agents.prewarm_minutes: must be a number of minutes"),
        ("agents.idle_minute = 1", "did you mean agents.idle_minutes"),
        ("agents = 1", "agents: must be a table"),
    ] {
        let error = format!("{:#}", lifetimes(text).unwrap_err());
        assert!(error.contains(problem), "{text}: {error}");
    }
}
