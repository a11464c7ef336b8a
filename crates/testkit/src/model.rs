//! The scripted model: the built-in demo model behind the gateway, with a log of
//! the requests that it got. A prompt that is a script plays itself.

use std::sync::Arc;

use anyhow::Result;
use innkeeper_gateway::{DemoUpstream, Gateway, GatewayConfig, GatewayHandle};
use secrecy::SecretString;

pub use innkeeper_gateway::{LoggedRequest, RequestKind, RequestLog};

/// A model that answers as the prompt says. Dropping it ends it.
#[derive(Debug)]
pub struct ScriptedModel {
    gateway: GatewayHandle,
    log: RequestLog,
}

impl ScriptedModel {
    /// Starts a model on a free port of the loopback interface.
    pub async fn start() -> Result<Self> {
        let log = RequestLog::new();
        let upstream = Arc::new(DemoUpstream::with_log(log.clone()));
        let gateway = Gateway::start(GatewayConfig { listen: ([127, 0, 0, 1], 0).into(), upstream }).await?;
        Ok(Self { gateway, log })
    }

    /// Its address, for `ANTHROPIC_BASE_URL`.
    pub fn base_url(&self) -> &str {
        self.gateway.base_url()
    }

    /// What it wants to be shown by this session, for `ANTHROPIC_AUTH_TOKEN`.
    pub fn bearer(&self, session: &str) -> SecretString {
        self.gateway.bearer_for(session)
    }

    /// The requests that it got.
    pub fn log(&self) -> &RequestLog {
        &self.log
    }

    /// The conversations that it was asked to continue, oldest first, as they were sent.
    pub fn conversations(&self) -> Vec<String> {
        let calls = self.log.entries().into_iter().filter(|entry| entry.kind == RequestKind::Messages);
        calls.map(|entry| String::from_utf8_lossy(&entry.body).into_owned()).collect()
    }
}
