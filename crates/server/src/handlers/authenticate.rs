//! `authenticate`: users' tokens for resources that agents need.

use std::time::Duration;

use innkeeper_core::agent::ResourceToken;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use serde_json::value::RawValue;

use crate::connection::Connection;
use crate::params::AuthenticateParams;
use crate::rpc::RpcError;

impl Connection {
    /// Passes a token to the agents that need it. Waits for them in order, so that the
    /// client's next request can rely on the token.
    pub(super) async fn authenticate(
        &self,
        id: &RawValue,
        params: Option<&RawValue>,
    ) -> Result<(), RpcError> {
        let token = resource_token(params)?;
        let (resource, revoked) = (token.resource.clone(), token.token.is_none());
        self.shared.host.authenticate(token).await?;
        tracing::info!(connection = %self.id, resource, revoked, "authenticate");
        self.reply(id, &json!({}))
    }
}

/// Reads the parameters. Errors do not repeat the parameters, because any of them may
/// contain the secret.
fn resource_token(params: Option<&RawValue>) -> Result<ResourceToken, RpcError> {
    let params: AuthenticateParams = serde_json::from_str(params.map_or("{}", RawValue::get))
        .map_err(|_| RpcError::invalid_params(
            "invalid parameters: resource and token must be strings, expiresIn a number of seconds, scopes a list of strings",
        ))?;
    let revoked = params.token.expose_secret().is_empty();
    let expires_in = match params.expires_in.filter(|_| !revoked) {
        None => None,
        Some(seconds) if seconds > 0 => Some(Duration::from_secs(seconds.unsigned_abs())),
        Some(_) => return Err(RpcError::invalid_params("expiresIn must be at least 1")),
    };
    let token: Option<SecretString> = (!revoked).then_some(params.token);
    Ok(ResourceToken { resource: params.resource, token, expires_in, scopes: params.scopes })
}
