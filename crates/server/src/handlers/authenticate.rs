//! Tokens of users for resources that agents cannot reach without.

use std::time::Duration;

use innkeeper_core::agent::ResourceToken;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use serde_json::value::RawValue;

use crate::connection::Connection;
use crate::params::AuthenticateParams;
use crate::rpc::RpcError;

impl Connection {
    /// Takes a token. Waits in the lane for those who want it, so that what the client
    /// asks for next can rely on it.
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

/// Reads the parameters. What is wrong with them is said without repeating them, since
/// any of them may be the secret.
fn resource_token(params: Option<&RawValue>) -> Result<ResourceToken, RpcError> {
    let params: AuthenticateParams = serde_json::from_str(params.map_or("{}", RawValue::get))
        .map_err(|_| RpcError::invalid_params(
            "the parameters do not fit: resource and token are texts, expiresIn is a number of seconds and scopes is a list of texts",
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
