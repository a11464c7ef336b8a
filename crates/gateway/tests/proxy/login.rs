//! The GitHub device flow.

use std::time::Duration;

use innkeeper_gateway::{ClientOptions, DEFAULT_CLIENT_ID, DeviceLogin, GithubEndpoints, LoginError};
use innkeeper_testkit::fakes::{FakeCopilot, Gate, Reply};
use secrecy::ExposeSecret;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::endpoint;

const CODE: &str = "/login/device/code";
const TOKEN: &str = "/login/oauth/access_token";

async fn login() -> (FakeCopilot, DeviceLogin) {
    let fake = FakeCopilot::start().await.unwrap();
    let web = endpoint(&fake.github.url());
    let github = GithubEndpoints { api: web.clone(), web };
    let login = DeviceLogin::new(github, DEFAULT_CLIENT_ID, ClientOptions::default());
    (fake, login)
}

fn error(name: &str) -> Reply {
    Reply::json(200, &json!({"error": name, "error_description": format!("words about {name}")}))
}

#[tokio::test]
async fn entered_code_returns_token() {
    let (fake, login) = login().await;
    let code = login.begin().await.unwrap();
    assert_eq!((code.user_code(), code.verification_uri()), ("ABCD-1234", "https://github.com/login/device"));
    assert!(!format!("{code:?}").contains("fake-device-code"));
    fake.github.script(TOKEN, error("authorization_pending"));
    let begin = Instant::now();
    let token = login.wait(code, &CancellationToken::new()).await.unwrap();
    assert_eq!(token.expose_secret(), "ghu_fake");
    assert!(begin.elapsed() >= Duration::from_secs(2), "polled faster than the interval");
    let asked = fake.github.requests_for(TOKEN);
    assert_eq!(asked.len(), 2);
    let form = String::from_utf8(asked[0].body.clone()).unwrap();
    for part in [
        "client_id=Iv1",
        "device_code=fake-device-code",
        "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Adevice_code",
    ] {
        assert!(form.contains(part), "{form}");
    }
    assert_eq!(asked[0].header("accept"), Some("application/json"));

    let account = login.account(&token).await.unwrap();
    assert_eq!((account.login.as_deref(), account.plan.as_deref()), (Some("octocat"), Some("individual")));
}

#[tokio::test]
async fn github_error_ends_login() {
    type Check = fn(&LoginError) -> bool;
    let cases: [(&str, Check); 4] = [
        ("access_denied", |error| matches!(error, LoginError::Denied)),
        ("expired_token", |error| matches!(error, LoginError::Expired)),
        ("incorrect_client_credentials", |error| matches!(error, LoginError::Refused(_))),
        ("unheard_of", |error| error.to_string().contains("words about unheard_of")),
    ];
    let one = async |(name, check): (&str, Check)| {
        let (fake, login) = login().await;
        fake.github.script(TOKEN, error(name));
        let code = login.begin().await.unwrap();
        let error = login.wait(code, &CancellationToken::new()).await.unwrap_err();
        assert!(check(&error), "{name}: {error}");
    };
    futures_util::future::join_all(cases.map(one)).await;
}

#[tokio::test]
async fn network_failure_does_not_end_wait() {
    let (fake, login) = login().await;
    fake.github.script(TOKEN, Reply::text(502, "text/html", "<html>"));
    let code = login.begin().await.unwrap();
    assert!(login.wait(code, &CancellationToken::new()).await.is_ok());
}

#[tokio::test]
async fn code_expires_if_it_is_not_entered() {
    let (fake, login) = login().await;
    for (expires_in, questions) in [(0, 0), (2, 1)] {
        let code = json!({"device_code": "d", "user_code": "A", "verification_uri": "https://x", "expires_in": expires_in, "interval": 1});
        fake.github.script(CODE, Reply::json(200, &code));
        fake.github.script(TOKEN, error("authorization_pending"));
        let code = login.begin().await.unwrap();
        assert!(matches!(login.wait(code, &CancellationToken::new()).await, Err(LoginError::Expired)));
        assert_eq!(fake.github.requests_for(TOKEN).len(), questions);
    }
}

#[tokio::test]
async fn wait_can_be_cancelled_at_any_point() {
    let (fake, login) = login().await;
    let cancel = CancellationToken::new();
    cancel.cancel();
    let code = login.begin().await.unwrap();
    assert!(matches!(login.wait(code, &cancel).await, Err(LoginError::Cancelled)));

    fake.github.script(TOKEN, error("authorization_pending").gated(&Gate::new()));
    let code = login.begin().await.unwrap();
    let cancel = CancellationToken::new();
    let leave = async {
        fake.github
            .wait_for("a question", |requests| requests.iter().any(|request| request.path() == TOKEN))
            .await
            .unwrap();
        cancel.cancel();
    };
    let (waited, ()) = tokio::join!(login.wait(code, &cancel), leave);
    assert!(matches!(waited, Err(LoginError::Cancelled)));
}

#[tokio::test]
async fn control_characters_of_github_do_not_reach_terminal() {
    let (fake, login) = login().await;
    for odd in [
        json!({"device_code": "d", "user_code": "\u{1b}[2J", "verification_uri": "https://x"}),
        json!({"device_code": "d", "user_code": "A", "verification_uri": "javascript:alert(1)"}),
        json!({"device_code": "d"}),
        json!([]),
    ] {
        fake.github.script(CODE, Reply::json(200, &odd));
        assert!(matches!(login.begin().await, Err(LoginError::InvalidResponse(_))), "{odd}");
    }
    fake.github.script(
        CODE,
        Reply::json(200, &json!({"error": "device_flow_disabled", "error_description": "\u{1b}[31moff"})),
    );
    let Err(LoginError::Refused(words)) = login.begin().await else { panic!("not refused") };
    assert_eq!(words, "[31moff");
}
