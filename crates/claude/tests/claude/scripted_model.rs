//! The scripted model: the built-in demo model served by a gateway, with a log of its
//! requests. The prompt contains the script that the model plays.

use std::sync::Arc;

use innkeeper_gateway::{
    DemoUpstream, Gateway, GatewayConfig, GatewayError, GatewayHandle, RequestKind, RequestLog,
};
use secrecy::SecretString;

/// A model whose responses the prompt scripts. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct ScriptedModel {
    gateway: GatewayHandle,
    log: RequestLog,
}

impl ScriptedModel {
    /// Starts a model on a free loopback port.
    pub(crate) async fn start() -> Result<Self, GatewayError> {
        let log = RequestLog::new();
        let upstream = Arc::new(DemoUpstream::with_log(log.clone()));
        let gateway = Gateway::start(GatewayConfig { listen: ([127, 0, 0, 1], 0).into(), upstream }).await?;
        Ok(Self { gateway, log })
    }

    /// The base URL, for `ANTHROPIC_BASE_URL`.
    pub(crate) fn base_url(&self) -> &str {
        self.gateway.base_url()
    }

    /// The bearer token of this session, for `ANTHROPIC_AUTH_TOKEN`.
    pub(crate) fn bearer(&self, session: &str) -> SecretString {
        self.gateway.bearer_for(session)
    }

    /// The request log.
    pub(crate) fn log(&self) -> &RequestLog {
        &self.log
    }

    /// The bodies of all messages requests, oldest first.
    pub(crate) fn conversations(&self) -> Vec<String> {
        let calls = self.log.entries().into_iter().filter(|entry| entry.kind == RequestKind::Messages);
        calls.map(|entry| String::from_utf8_lossy(&entry.body).into_owned()).collect()
    }
}
