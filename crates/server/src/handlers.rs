//! The AHP methods: each reads its parameters, calls the core and sends a response.

mod audit;
mod authenticate;
mod changeset;
mod chat;
mod completions;
mod creation_progress;
mod resource;
mod restart_agent;
mod stop;
mod stored_edit;

use ahp_types::version::{SUPPORTED_PROTOCOL_VERSIONS, negotiate_protocol_version};
use innkeeper_core::ChannelUri;
use innkeeper_core::host::NewSession;
use innkeeper_core::ids::{ClientId, ServerSeq};
use innkeeper_core::state::{
    Action, CloseReason, Delivery, EncodedEnvelope, EncodedSnapshot, Missed, Origin, RowKey, Subscription,
};
use innkeeper_core::storage::Json;
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use std::sync::Arc;

use crate::connection::Connection;
use crate::limits::MAX_NAME;
use crate::params::{
    ChannelParams, CreateSessionParams, DispatchActionParams, FetchTurnsParams, InitializeParams,
    ListSessionsParams, ReconnectParams, ResolveSessionConfigParams, SubscribeParams,
};
use crate::rpc::{self, RpcError};

use creation_progress::CreationProgress;
use resource::MethodMatch;

/// The requests beyond AHP, for clients that can use them.
const METHODS: [&str; 3] = [audit::METHOD, stop::METHOD, restart_agent::METHOD];

impl Connection {
    /// Handles a request. On an error the caller sends the error response.
    pub(crate) async fn request(
        &mut self,
        method: &str,
        id: &RawValue,
        params: Option<&RawValue>,
    ) -> Result<(), RpcError> {
        match method {
            "ping" => return self.reply(id, &()),
            "initialize" => return self.initialize(id, rpc::params(params)?).await,
            "reconnect" => return self.reconnect(id, rpc::params(params)?).await,
            _ if self.client.is_none() => {
                return Err(RpcError::method_not_found(format!(
                    "the first request must be initialize or reconnect, not {method:?}"
                )));
            }
            _ => {}
        }
        if matches!(method, "subscribe" | "fetchTurns" | "listSessions" | audit::METHOD) {
            // Too many large responses at once would make the client count as too slow.
            self.outbox.room().await;
        }
        match method {
            "subscribe" => self.subscribe(id, &rpc::params(params)?).await,
            "fetchTurns" => self.fetch_turns(id, &rpc::params(params)?).await,
            "listSessions" => self.list_sessions(id, &rpc::params(params)?),
            "createSession" => self.create_session(id, rpc::params(params)?).await,
            "disposeSession" => self.dispose_session(id, &rpc::params(params)?).await,
            "resolveSessionConfig" => self.resolve_session_config(id, &rpc::params(params)?),
            "createChat" => self.create_chat(id, rpc::params(params)?).await,
            "disposeChat" => self.dispose_chat(id, &rpc::params(params)?).await,
            "moveChat" => self.move_chat(id, rpc::params(params)?),
            "invokeChangesetOperation" => self.invoke_changeset_operation(id, rpc::params(params)?).await,
            "authenticate" => self.authenticate(id, params).await,
            // Notifications in the protocol, but a client may send them as requests.
            "dispatchAction" | "unsubscribe" => {
                self.notification(method, params).await;
                self.reply(id, &())
            }
            audit::METHOD => self.audit(id, rpc::params(params)?).await,
            stop::METHOD => self.stop(id, rpc::params(params)?).await,
            restart_agent::METHOD => self.restart_agent(id, &rpc::params(params)?).await,
            "completions" => self.completions(id, rpc::params(params)?).await,
            "sessionConfigCompletions" => self.session_config_completions(id, &rpc::params(params)?),
            _ => match self.resource_request(method, id, params).await? {
                MethodMatch::Handled => Ok(()),
                MethodMatch::Unknown => Err(RpcError::method_not_found(format!("unknown method {method:?}"))),
            },
        }
    }

    /// Handles a notification. Errors are only logged, because notifications have no response.
    pub(crate) async fn notification(&mut self, method: &str, params: Option<&RawValue>) {
        let Some(client) = self.client.clone() else {
            tracing::debug!(connection = %self.id, method, "ignoring notification before the handshake");
            return;
        };
        let outcome = match method {
            "dispatchAction" => self.dispatch_action(client, params).await,
            "unsubscribe" => self.unsubscribe(&client, params).await,
            _ => {
                tracing::debug!(connection = %self.id, method, "ignoring unknown notification");
                Ok(())
            }
        };
        if let Err(error) = outcome {
            tracing::warn!(connection = %self.id, method, ?error, "ignoring malformed notification");
        }
    }

    async fn dispatch_action(&self, client: ClientId, params: Option<&RawValue>) -> Result<(), RpcError> {
        let params: DispatchActionParams = rpc::params(params)?;
        let action = Action::from_client(params.action)
            .map_err(|error| RpcError::invalid_params(format!("cannot read the action: {error}")))?;
        let origin = Origin { connection: self.id, client, client_seq: params.client_seq };
        let sources = Some(&self.shared.attachments);
        self.shared.host.dispatch_reading(ChannelUri::new(&params.channel), action, origin, sources).await;
        Ok(())
    }

    async fn unsubscribe(&self, client: &ClientId, params: Option<&RawValue>) -> Result<(), RpcError> {
        let params: ChannelParams = rpc::params(params)?;
        let channel = ChannelUri::new(&params.channel);
        self.shared.host.store().unsubscribe(self.id, &channel);
        self.shared.host.left(client, &channel).await;
        Ok(())
    }

    async fn initialize(&mut self, id: &RawValue, params: InitializeParams) -> Result<(), RpcError> {
        self.begin(&params.client_id)?;
        self.may_subscribe(params.initial_subscriptions.len())?;
        let version = match negotiate_protocol_version(&params.protocol_versions) {
            Ok(Some(version)) => version,
            Ok(None) => {
                let error = RpcError::unsupported_version(SUPPORTED_PROTOCOL_VERSIONS);
                self.outbox.push(rpc::error_response(Some(id), &error)?);
                self.outbox.close(CloseReason::NoCommonVersion);
                return Ok(());
            }
            Err(malformed) => return Err(RpcError::invalid_params(malformed)),
        };
        let client = ClientId::new(&params.client_id);
        let name = params.client_info.as_ref().map_or("unnamed", |info| info.name.as_str());
        let release = params.client_info.as_ref().and_then(|info| info.version.as_deref());
        tracing::info!(connection = %self.id, client = client.as_str(), name, release, version, "client connected");
        let channels = channels(&params.initial_subscriptions);
        let shared = Arc::clone(&self.shared);
        let introduced = self.shared.host.introduce(self.id, &client, &channels, |seq, snapshots| {
            rpc::response(
                id,
                &InitializeResult {
                    protocol_version: version,
                    server_seq: seq.0,
                    snapshots,
                    server_info: json!({
                        "name": "innkeeper",
                        "version": shared.version,
                        "title": "Innkeeper",
                    }),
                    default_directory: shared.default_directory.as_deref(),
                    completion_trigger_characters: completions::TRIGGERS,
                    meta: InitializeMeta { methods: METHODS },
                },
            )
        });
        introduced.await?;
        self.client = Some(client);
        Ok(())
    }

    async fn reconnect(&mut self, id: &RawValue, params: ReconnectParams) -> Result<(), RpcError> {
        self.begin(&params.client_id)?;
        self.may_subscribe(params.subscriptions.len())?;
        let client = ClientId::new(&params.client_id);
        if !self.shared.host.store().knows(&client) {
            return Err(RpcError::not_found("unknown client; send initialize instead of reconnect"));
        }
        tracing::info!(connection = %self.id, client = client.as_str(), "client reconnected");
        let channels = channels(&params.subscriptions);
        let seen = ServerSeq(params.last_seen_server_seq);
        let resumed = self.shared.host.resume(self.id, &client, seen, &channels, |missed| match missed {
            Missed::Replay { actions, missing } => {
                let missing: Vec<&str> = missing.iter().map(ChannelUri::as_str).collect();
                rpc::response(id, &ReplayResult { r#type: "replay", actions: &actions, missing: &missing })
            }
            Missed::Snapshots(snapshots) => {
                rpc::response(id, &SnapshotsResult { r#type: "snapshot", snapshots: &snapshots })
            }
        });
        resumed.await??;
        self.shared.host.came_back(&client, &channels).await;
        self.client = Some(client);
        Ok(())
    }

    /// Checks that a handshake is allowed now.
    fn begin(&self, client_id: &str) -> Result<(), RpcError> {
        if self.client.is_some() {
            return Err(RpcError::invalid_request("the connection is already initialized"));
        }
        if client_id.is_empty() {
            return Err(RpcError::invalid_params("clientId must not be empty"));
        }
        if client_id.len() > MAX_NAME {
            return Err(RpcError::invalid_params(format!("clientId is longer than {MAX_NAME} bytes")));
        }
        Ok(())
    }

    /// Checks that the connection may add `more` subscriptions.
    fn may_subscribe(&self, more: usize) -> Result<(), RpcError> {
        let limit = self.shared.limits.subscriptions;
        if self.shared.host.store().subscription_count(self.id).saturating_add(more) > limit {
            return Err(RpcError::invalid_request(format!(
                "too many subscriptions (limit {limit}); unsubscribe from some first"
            )));
        }
        Ok(())
    }

    async fn subscribe(&self, id: &RawValue, params: &SubscribeParams) -> Result<(), RpcError> {
        self.may_subscribe(1)?;
        let channel = ChannelUri::new(&params.channel);
        let latency = params.delivery.as_ref().and_then(|delivery| delivery.max_latency_ms);
        let delivery = latency.map_or_else(Delivery::default, Delivery::within_millis);
        let mut found = false;
        let how = Subscription { newest_turns: params.view.as_ref().and_then(|view| view.turns), delivery };
        let subscribed = self.shared.host.subscribe(self.id, &channel, how, |snapshot| match snapshot {
            Some(snapshot) => {
                found = true;
                rpc::response(id, &SubscribeResult { snapshot })
            }
            None => rpc::error_response(
                Some(id),
                &RpcError::not_found(format!("unknown channel {}", params.channel)),
            ),
        });
        subscribed.await??;
        tracing::debug!(connection = %self.id, %channel, found, "subscribe");
        Ok(())
    }

    fn list_sessions(&self, id: &RawValue, params: &ListSessionsParams) -> Result<(), RpcError> {
        let after = params.cursor.as_deref().map(str::parse::<RowKey>).transpose();
        let after = after.map_err(|bad| RpcError::invalid_params(bad.to_string()))?;
        if params.limit == Some(0) {
            return Err(RpcError::invalid_params("limit must be at least 1"));
        }
        let limit = params.limit.and_then(|limit| usize::try_from(limit).ok());
        let page = self.shared.host.list_sessions(after.as_ref(), limit);
        let next_cursor = page.next.map(|key| key.to_string());
        self.reply(id, &ListSessionsResult { items: &page.rows, next_cursor })
    }

    async fn fetch_turns(&self, id: &RawValue, params: &FetchTurnsParams) -> Result<(), RpcError> {
        let chat = ChannelUri::new(&params.channel);
        self.shared.host.fetch_turns(self.id, &chat, params.cursor.as_deref()).await?;
        self.reply(id, &json!({}))
    }

    /// Checks that the host may create one more session.
    fn may_create_session(&self) -> Result<(), RpcError> {
        let limit = self.shared.limits.sessions;
        if self.shared.host.session_count() >= limit {
            return Err(RpcError::invalid_request(format!(
                "too many sessions (limit {limit}); dispose some, or raise limits.sessions in the host's configuration"
            )));
        }
        Ok(())
    }

    async fn create_session(&self, id: &RawValue, mut params: CreateSessionParams) -> Result<(), RpcError> {
        let token = params.progress_token.take();
        if token.as_ref().is_some_and(|token| token.len() > MAX_NAME) {
            return Err(RpcError::invalid_params(format!("progressToken is longer than {MAX_NAME} bytes")));
        }
        let progress = token.map(|token| CreationProgress::begin(self, token));
        let created = self.create(params).await;
        drop(progress);
        created?;
        self.reply(id, &())
    }

    async fn create(&self, params: CreateSessionParams) -> Result<(), RpcError> {
        let own = self.client.as_ref().map(ClientId::as_str);
        if params.active_client.as_ref().is_some_and(|active| Some(active.client_id.as_str()) != own) {
            return Err(RpcError::invalid_params("activeClient must be the client that sends the request"));
        }
        self.may_create_session()?;
        let created = self.shared.host.create_session(NewSession {
            uri: ChannelUri::new(&params.channel),
            provider: params.provider,
            working_directories: params.working_directories.unwrap_or_default(),
            config: params.config.unwrap_or_default(),
            active_client: params.active_client,
            creator: self.client.clone(),
        });
        Ok(created.await?)
    }

    /// Disposes a session. The disposal starts in order, before any later message is
    /// handled; a separate task waits for its end, because stopping an agent can take
    /// seconds.
    async fn dispose_session(&self, id: &RawValue, params: &ChannelParams) -> Result<(), RpcError> {
        let end = self.shared.host.dispose_session(&ChannelUri::new(&params.channel)).await?;
        self.reply_later(id, async move { end.wait().await.map_err(|error| RpcError::internal(&error)) });
        Ok(())
    }

    /// Sends the response when `result` is ready, without blocking the connection.
    fn reply_later<T: Serialize + Send>(
        &self,
        id: &RawValue,
        result: impl Future<Output = Result<T, RpcError>> + Send + 'static,
    ) {
        let (id, outbox) = (id.to_owned(), Arc::clone(&self.outbox));
        self.shared.tasks.spawn(async move {
            let answer = match result.await {
                Ok(result) => rpc::response(&id, &result),
                Err(error) => rpc::error_response(Some(&id), &error),
            };
            match answer {
                Ok(answer) => outbox.push(answer),
                Err(error) => tracing::error!(%error, "cannot encode response"),
            }
        });
    }

    fn resolve_session_config(
        &self,
        id: &RawValue,
        params: &ResolveSessionConfigParams,
    ) -> Result<(), RpcError> {
        let chosen = params.config.clone().unwrap_or_default();
        let config = self.shared.host.resolve_config(params.provider.as_deref(), &chosen)?;
        self.reply(
            id,
            &ahp_types::commands::ResolveSessionConfigResult { schema: config.schema, values: config.values },
        )
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InitializeResult<'a> {
    protocol_version: &'a str,
    server_seq: u64,
    snapshots: Vec<EncodedSnapshot>,
    server_info: serde_json::Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_directory: Option<&'a str>,
    completion_trigger_characters: [&'static str; 3],
    #[serde(rename = "_meta")]
    meta: InitializeMeta,
}

#[derive(Serialize)]
struct InitializeMeta {
    #[serde(rename = "innkeeper.methods")]
    methods: [&'static str; METHODS.len()],
}

#[derive(Serialize)]
struct ReplayResult<'a> {
    r#type: &'static str,
    actions: &'a [EncodedEnvelope],
    missing: &'a [&'a str],
}

#[derive(Serialize)]
struct SnapshotsResult<'a> {
    r#type: &'static str,
    snapshots: &'a [EncodedSnapshot],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListSessionsResult<'a> {
    items: &'a [Json],
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Serialize)]
struct SubscribeResult {
    snapshot: EncodedSnapshot,
}

fn channels(uris: &[String]) -> Vec<ChannelUri> {
    uris.iter().map(|uri| ChannelUri::new(uri)).collect()
}
