//! The `resource*` methods, watches and completions over a real socket: with the official
//! client where it supports the case, otherwise with a raw one.

#![expect(clippy::indexing_slicing, reason = "JSON without a field reads as null")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ahp::{ClientError, SubscriptionEvent};
use ahp_types::actions::StateAction;
use ahp_types::commands::{
    CompletionItemKind, CompletionsParams, ContentEncoding, CreateResourceWatchParams, ResourceCopyParams,
    ResourceDeleteParams, ResourceListParams, ResourceMkdirParams, ResourceMoveParams, ResourceReadParams,
    ResourceReadResult, ResourceRequestParams, ResourceResolveParams, ResourceType, ResourceWriteMode,
    ResourceWriteParams,
};
use ahp_types::common::{JsonObject, ROOT_RESOURCE_URI};
use ahp_types::messages::JsonRpcError;
use ahp_types::state::{MessageAttachment, SessionConfigSchema};
use anyhow::{Context as _, Result};
use innkeeper_core::agent::{
    AgentConnection, AgentOffer, AgentProvider, BoxFuture, CommandInfo, OpenAgent, OpenError, ResolvedConfig,
    plain_info,
};
use innkeeper_core::client_resources::{ClientResourceError, ClientResources as _};
use innkeeper_core::clock::SystemClock;
use innkeeper_core::ids::ClientId;
use innkeeper_core::storage::Nowhere;
use innkeeper_core::{AgentLifetimes, EditConfig, Host, HostConfig, HostServices, PermissionConfig};
use innkeeper_server::{Admission, ClientConnections, Listen, Server, ServerConfig};
use innkeeper_testkit::{Observer, RawClient, eventually};
use innkeeper_workspace::{FilesConfig, LocalFiles, uri_of};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// An agent that is never started.
struct Idle;

impl AgentProvider for Idle {
    fn offer(&self) -> watch::Receiver<AgentOffer> {
        let command = |name: &str| CommandInfo { name: name.to_owned(), description: String::new() };
        let commands = ["compact", "context"].map(command);
        let offer = AgentOffer::new(plain_info("idle", "Idle"));
        watch::channel(AgentOffer { commands: Arc::new(commands), ..offer }).1
    }

    fn resolve_config(&self, chosen: &JsonObject) -> ResolvedConfig {
        let properties = json!({"mode": {"type": "string", "title": "Mode"}});
        let schema = SessionConfigSchema {
            r#type: "object".to_owned(),
            properties: serde_json::from_value(properties).unwrap_or_default(),
            required: None,
        };
        ResolvedConfig { schema, values: chosen.clone() }
    }

    fn open(&self, _: OpenAgent, _: CancellationToken) -> BoxFuture<Result<AgentConnection, OpenError>> {
        Box::pin(async { Err(OpenError::Cancelled) })
    }
}

/// A server with one session, whose working directory contains one file.
struct World {
    dir: TempDir,
    files: LocalFiles,
    clients: Arc<ClientConnections>,
    server: Server,
}

const SESSION: &str = "idle:/1";

impl World {
    async fn new() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        std::fs::create_dir(dir.path().join("work"))?;
        std::fs::write(dir.path().join("work/hello.txt"), "hello")?;
        std::fs::write(dir.path().join("secret"), "secret")?;
        let host = Host::start(HostConfig {
            providers: vec![Arc::new(Idle)],
            clock: Arc::new(SystemClock),
            storage: Arc::new(Nowhere),
            permissions: PermissionConfig::default(),
            edits: EditConfig::none(),
            lifetimes: AgentLifetimes::default(),
            services: HostServices::default(),
        })
        .await?;
        let files = LocalFiles::new(FilesConfig::sessions_of(&host));
        let clients = Arc::new(ClientConnections::default());
        let config = ServerConfig {
            listen: vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))],
            admission: Admission::open(),
            version: "0".to_owned(),
            default_directory: None,
            files: Arc::new(files.clone()),
            clients: Arc::clone(&clients),
        };
        let server = Server::start(config, host).await?;
        let world = Self { dir, files, clients, server };
        let session = json!({"channel": SESSION, "workingDirectories": [world.uri("")]});
        let created = world.raw("creator").await?.request("createSession", session).await?;
        assert_eq!(created["result"], Value::Null, "{created}");
        Ok(world)
    }

    fn address(&self) -> Result<String> {
        Ok(format!("ws://{}/", self.server.places().first().context("no listen address")?))
    }

    async fn observer(&self, name: &str) -> Result<Observer> {
        Observer::connect(&self.address()?, name).await
    }

    async fn raw(&self, name: &str) -> Result<RawClient> {
        let mut raw = RawClient::connect(&self.address()?).await?;
        raw.initialize(name, &[]).await?;
        Ok(raw)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join("work").join(path)
    }

    fn uri(&self, path: &str) -> String {
        uri_of(&self.path(path)).trim_end_matches('/').to_owned()
    }

    fn outside(&self) -> String {
        uri_of(&self.dir.path().join("secret"))
    }
}

fn root() -> String {
    ROOT_RESOURCE_URI.to_owned()
}

fn write(uri: String, data: &str) -> ResourceWriteParams {
    ResourceWriteParams {
        channel: root(),
        meta: None,
        uri,
        data: data.to_owned(),
        encoding: ContentEncoding::Utf8,
        content_type: None,
        create_only: None,
        mode: None,
        position: None,
        if_match: None,
    }
}

fn resolve(uri: String) -> ResourceResolveParams {
    ResourceResolveParams { channel: root(), meta: None, uri, follow_symlinks: None }
}

#[tokio::test]
async fn official_client_reads_and_changes_files() -> Result<()> {
    let world = World::new().await?;
    let client = world.observer("c").await?.client;
    let read =
        |path: &str| ResourceReadParams { channel: root(), meta: None, uri: world.uri(path), encoding: None };
    let found = client.resource_read(read("hello.txt")).await?;
    assert_eq!(
        found,
        ResourceReadResult {
            data: "hello".to_owned(),
            encoding: ContentEncoding::Utf8,
            content_type: Some("text/plain".to_owned()),
        }
    );
    let append = ResourceWriteParams {
        mode: Some(ResourceWriteMode::Append),
        ..write(world.uri("hello.txt"), " world")
    };
    client.resource_write(append).await?;
    client.resource_mkdir(ResourceMkdirParams { channel: root(), meta: None, uri: world.uri("a/b") }).await?;
    client
        .resource_copy(ResourceCopyParams {
            channel: root(),
            meta: None,
            source: world.uri("hello.txt"),
            destination: world.uri("a/b/copy.txt"),
            fail_if_exists: Some(true),
        })
        .await?;
    client
        .resource_move(ResourceMoveParams {
            channel: root(),
            meta: None,
            source: world.uri("a/b/copy.txt"),
            destination: world.uri("a/moved.txt"),
            fail_if_exists: None,
        })
        .await?;
    assert_eq!(std::fs::read_to_string(world.path("a/moved.txt"))?, "hello world");
    let list = ResourceListParams { channel: root(), meta: None, uri: world.uri("a") };
    let entries = client.resource_list(list).await?.entries;
    let entries: Vec<_> = entries.iter().map(|entry| (entry.name.as_str(), entry.r#type.as_str())).collect();
    assert_eq!(entries, [("b", "directory"), ("moved.txt", "file")]);
    let status = client.resource_resolve(resolve(world.uri("a/moved.txt"))).await?;
    assert_eq!((status.r#type, status.size), (ResourceType::File, Some(11)));
    assert!(status.mtime.context("no mtime")?.ends_with('Z'));
    let delete =
        ResourceDeleteParams { channel: root(), meta: None, uri: world.uri("a"), recursive: Some(true) };
    client.resource_delete(delete).await?;
    assert!(!world.path("a").exists());
    let request = |uri, write| ResourceRequestParams { channel: root(), meta: None, uri, read: None, write };
    client.resource_request(request(world.uri("new"), Some(true))).await?;
    let denied = client.resource_request(request(world.outside(), Some(true))).await;
    assert!(matches!(denied, Err(ClientError::Rpc(JsonRpcError { code: -32009, .. }))), "{denied:?}");
    Ok(())
}

#[tokio::test]
async fn file_errors_map_to_protocol_error_codes() -> Result<()> {
    let world = World::new().await?;
    let mut raw = world.raw("c").await?;
    let (hello, none, outside) = (world.uri("hello.txt"), world.uri("none"), world.outside());
    let data = |uri: &str, more: Value| {
        let mut params = json!({"uri": uri, "data": "x", "encoding": "utf-8"});
        params.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        params
    };
    let pair = |source: &str, destination: &str| json!({"source": source, "destination": destination});
    let keep = |source: &str, destination: &str| json!({"source": source, "destination": destination, "failIfExists": true});
    let cases = [
        ("resourceRead", json!({"uri": none}), -32008),
        ("resourceRead", json!({"uri": outside}), -32009),
        ("resourceRead", json!({"uri": "virtual:/x"}), -32602),
        ("resourceRead", json!({"uri": world.uri("")}), -32602),
        ("resourceRead", json!({}), -32602),
        ("resourceWrite", data(&world.uri("no/where"), json!({})), -32008),
        ("resourceWrite", data(&outside, json!({})), -32009),
        ("resourceWrite", data(&hello, json!({"createOnly": true})), -32010),
        ("resourceWrite", data(&hello, json!({"ifMatch": "stale"})), -32011),
        ("resourceWrite", data(&hello, json!({"ifMatch": "x", "createOnly": true})), -32602),
        ("resourceWrite", data(&hello, json!({"mode": "insert", "position": 99})), -32602),
        ("resourceWrite", data(&hello, json!({"mode": "sideways"})), -32602),
        ("resourceWrite", data(&hello, json!({"position": -1})), -32602),
        ("resourceWrite", json!({"uri": hello, "data": "!", "encoding": "base64"}), -32602),
        ("resourceList", json!({"uri": none}), -32008),
        ("resourceList", json!({"uri": hello}), -32602),
        ("resourceList", json!({"uri": "file:///"}), -32009),
        ("resourceResolve", json!({"uri": none}), -32008),
        ("resourceResolve", json!({"uri": outside}), -32009),
        ("resourceCopy", pair(&none, &world.uri("x")), -32008),
        ("resourceCopy", pair(&outside, &world.uri("x")), -32009),
        ("resourceCopy", keep(&hello, &hello), -32010),
        ("resourceMove", pair(&none, &world.uri("x")), -32008),
        ("resourceMove", pair(&hello, &outside), -32009),
        ("resourceMove", keep(&hello, &hello), -32010),
        ("resourceDelete", json!({"uri": none}), -32008),
        ("resourceDelete", json!({"uri": world.uri("")}), -32009),
        ("resourceMkdir", json!({"uri": hello}), -32010),
        ("resourceMkdir", json!({"uri": format!("{outside}/x")}), -32009),
        ("resourceRequest", json!({"uri": outside, "read": true}), -32009),
        ("resourceRequest", json!({"uri": "virtual:/x"}), -32602),
        ("createResourceWatch", json!({"uri": none}), -32008),
        ("createResourceWatch", json!({"uri": outside}), -32009),
        ("createResourceWatch", json!({"uri": hello, "excludes": "x"}), -32602),
    ];
    let methods: Vec<&str> = cases.iter().map(|(method, ..)| *method).collect();
    for method in methods {
        let empty = raw.request(method, json!({})).await?;
        assert_eq!(empty["error"]["code"], -32602, "{method} without parameters");
    }
    for (method, params, code) in cases {
        let answer = raw.request(method, params.clone()).await?;
        assert_eq!(answer["error"]["code"], code, "{method} {params} {answer}");
        assert!(answer["error"]["message"].as_str().is_some_and(|text| text.len() > 10), "{answer}");
    }
    assert_eq!(std::fs::read_to_string(world.path("hello.txt"))?, "hello");
    assert_eq!(std::fs::read_to_string(world.dir.path().join("secret"))?, "secret");
    Ok(())
}

#[tokio::test]
async fn denied_access_error_names_the_request_to_send() -> Result<()> {
    let world = World::new().await?;
    let mut raw = world.raw("c").await?;
    let uri = world.outside();
    let read = raw.request("resourceRead", json!({"uri": uri})).await?;
    assert_eq!(
        read["error"]["data"],
        json!({"request": {"channel": "ahp-root://", "uri": uri, "read": true}})
    );
    let ask = raw.request("resourceRequest", json!({"uri": uri, "write": true})).await?;
    assert_eq!(
        ask["error"]["data"],
        json!({"request": {"channel": "ahp-root://", "uri": uri, "write": true}})
    );
    Ok(())
}

#[tokio::test]
async fn binary_content_is_transferred_as_base64() -> Result<()> {
    let world = World::new().await?;
    let mut raw = world.raw("c").await?;
    let uri = world.uri("data.png");
    for data in ["/wD+", "/w"] {
        let written =
            raw.request("resourceWrite", json!({"uri": uri, "data": data, "encoding": "base64"})).await?;
        assert_eq!(written["result"], json!({}));
    }
    assert_eq!(std::fs::read(world.path("data.png"))?, [0xff]);
    let read = raw.request("resourceRead", json!({"uri": uri, "encoding": "utf-8"})).await?;
    assert_eq!(read["result"], json!({"data": "/w==", "encoding": "base64", "contentType": "image/png"}));
    let wanted =
        raw.request("resourceRead", json!({"uri": world.uri("hello.txt"), "encoding": "base64"})).await?;
    assert_eq!(wanted["result"]["data"], "aGVsbG8=");
    // As a JSON string, control characters would take six times the space.
    std::fs::write(world.path("control"), vec![1; 100_000])?;
    let control = raw.request("resourceRead", json!({"uri": world.uri("control")})).await?;
    assert_eq!(control["result"]["encoding"], "base64");
    Ok(())
}

#[tokio::test]
async fn stale_etag_rejects_the_second_write() -> Result<()> {
    let world = World::new().await?;
    let (one, two) = (world.observer("one").await?.client, world.observer("two").await?.client);
    let etag = one.resource_resolve(resolve(world.uri("hello.txt"))).await?.etag;
    let change =
        |text: &str| ResourceWriteParams { if_match: etag.clone(), ..write(world.uri("hello.txt"), text) };
    let (first, second) = tokio::join!(one.resource_write(change("1")), two.resource_write(change("2")));
    assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
    let lost = first.err().or(second.err());
    assert!(matches!(lost, Some(ClientError::Rpc(JsonRpcError { code: -32011, .. }))), "{lost:?}");
    Ok(())
}

#[tokio::test]
async fn watch_channel_rejects_client_actions() -> Result<()> {
    let world = World::new().await?;
    let mut raw = world.raw("c").await?;
    let watch = raw.request("createResourceWatch", json!({"uri": world.uri("")})).await?;
    let channel = watch["result"]["channel"].clone();
    let changed = json!({"type": "resourceWatch/changed", "changes": {"items": []}});
    for (seq, action) in [(1, changed), (2, json!({"type": "chat/draftChanged"}))] {
        let dispatch = json!({"channel": channel, "clientSeq": seq, "action": action});
        raw.notify("dispatchAction", dispatch).await?;
        let answer = raw.next_action().await?;
        assert_eq!((&answer["channel"], &answer["origin"]["clientSeq"]), (&channel, &json!(seq)));
        assert!(answer["rejectionReason"].as_str().is_some_and(|reason| reason.contains("read-only")));
    }
    Ok(())
}

#[tokio::test]
async fn watch_reports_changes_until_last_subscriber_leaves() -> Result<()> {
    let world = World::new().await?;
    let client = world.observer("c").await?.client;
    let params = CreateResourceWatchParams {
        channel: root(),
        meta: None,
        uri: world.uri(""),
        recursive: Some(true),
        excludes: Some(json!({"items": ["**/*.log"]})),
        includes: None,
    };
    let channel = client.create_resource_watch(params).await?.channel;
    assert!(channel.starts_with("ahp-resource-watch:/"), "{channel}");
    let (subscribed, mut events) = client.subscribe(channel.clone()).await?;
    let state = serde_json::to_value(subscribed.snapshot.context("no snapshot")?.state)?;
    assert_eq!(state, json!({"root": world.uri(""), "recursive": true, "excludes": {"items": ["**/*.log"]}}));
    std::fs::write(world.path("noise.log"), "")?;
    client.resource_write(write(world.uri("hello.txt"), "changed")).await?;
    let event = tokio::time::timeout(Duration::from_secs(20), events.recv()).await?;
    let Some(SubscriptionEvent::Action(envelope)) = event else { anyhow::bail!("{event:?}") };
    let StateAction::ResourceWatchChanged(action) = &envelope.action else { anyhow::bail!("{envelope:?}") };
    assert_eq!(action.changes, json!({"items": [{"uri": world.uri("hello.txt"), "type": "updated"}]}));
    // Another client stays subscribed; the watch ends when it disconnects.
    let mut raw = world.raw("other").await?;
    let subscribed = raw.request("subscribe", json!({"channel": channel})).await?;
    assert_eq!(subscribed["result"]["snapshot"]["resource"], channel);
    client.unsubscribe(channel.clone()).await?;
    client.ping().await?;
    std::fs::write(world.path("second"), "")?;
    let action = raw.next_action().await?;
    assert_eq!(action["action"]["changes"]["items"][0]["uri"], world.uri("second"));
    assert_eq!(world.files.watches(), 1);
    drop(raw);
    eventually(Duration::from_secs(20), "the watch is released", || world.files.watches() == 0).await?;
    let gone = client.subscribe(channel).await.err();
    assert!(matches!(gone, Some(ClientError::Rpc(JsonRpcError { code: -32008, .. }))), "{gone:?}");
    Ok(())
}

#[tokio::test]
async fn watch_ends_with_the_session_that_granted_access() -> Result<()> {
    let world = World::new().await?;
    let mut raw = world.raw("c").await?;
    let watch = json!({"uri": world.uri(""), "recursive": true});
    let channel = raw.request("createResourceWatch", watch).await?["result"]["channel"].clone();
    raw.request("subscribe", json!({"channel": channel})).await?;
    std::fs::write(world.path("before"), "")?;
    let action = raw.next_action().await?;
    assert_eq!(action["action"]["changes"]["items"][0]["uri"], world.uri("before"));
    let disposed = raw.request("disposeSession", json!({"channel": SESSION})).await?;
    assert_eq!(disposed["result"], Value::Null, "{disposed}");
    std::fs::write(world.path("after"), "")?;
    eventually(Duration::from_secs(20), "the watch is released", || world.files.watches() == 0).await?;
    let gone = raw.request("subscribe", json!({"channel": channel})).await?;
    assert_eq!(gone["error"]["code"], -32008, "{gone}");
    Ok(())
}

#[tokio::test]
async fn completions_list_files_and_commands() -> Result<()> {
    let world = World::new().await?;
    std::fs::create_dir(world.path("src"))?;
    std::fs::write(world.path("src/help.rs"), "")?;
    let mut observer = world.observer("c").await?;
    let chat = observer.open_session(SESSION).await?;
    let complete = |channel: &str, text: &str| CompletionsParams {
        channel: channel.to_owned(),
        meta: None,
        kind: CompletionItemKind::UserMessage,
        text: text.to_owned(),
        offset: i64::try_from(text.encode_utf16().count()).unwrap_or_default(),
    };
    for channel in [SESSION, chat.as_str()] {
        let items = observer.client.completions(complete(channel, "see 😀 @hel")).await?.items;
        let texts: Vec<&str> = items.iter().map(|item| item.insert_text.as_str()).collect();
        assert_eq!(texts, ["@hello.txt", "@src/help.rs"]);
        assert_eq!((items[0].range_start, items[0].range_end), (Some(7), Some(11)));
        let MessageAttachment::Resource(file) = &items[1].attachment else { anyhow::bail!("{items:?}") };
        assert_eq!((file.label.as_str(), file.uri.as_str()), ("help.rs", world.uri("src/help.rs").as_str()));
    }
    let items = observer.client.completions(complete(SESSION, "/comp")).await?.items;
    assert_eq!(items.len(), 1);
    assert_eq!(items[0].insert_text, "/compact ");
    assert_eq!(observer.client.completions(complete(SESSION, "hello")).await?.items, []);
    let mut raw = world.raw("raw").await?;
    let ask = |channel: &str, offset: u32| json!({"channel": channel, "kind": "userMessage", "text": "@", "offset": offset});
    assert_eq!(raw.request("completions", ask("idle:/none", 1)).await?["error"]["code"], -32008);
    assert_eq!(raw.request("completions", ask(SESSION, 2)).await?["error"]["code"], -32602);
    let property = |property: &str| json!({"property": property, "provider": "idle"});
    let known = raw.request("sessionConfigCompletions", property("mode")).await?;
    assert_eq!(known["result"], json!({"items": []}));
    let unknown = raw.request("sessionConfigCompletions", property("none")).await?;
    assert_eq!(unknown["error"]["code"], -32602);
    let unknown_provider = json!({"property": "mode", "provider": "unknown"});
    assert_eq!(raw.request("sessionConfigCompletions", unknown_provider).await?["error"]["code"], -32002);
    assert_eq!(raw.request("sessionConfigCompletions", json!({})).await?["error"]["code"], -32602);
    assert_eq!(raw.request("completions", json!({"channel": SESSION})).await?["error"]["code"], -32602);
    let mut fresh = RawClient::connect(&world.address()?).await?;
    let welcome = fresh.initialize("fresh", &[]).await?;
    assert_eq!(welcome["result"]["completionTriggerCharacters"], json!(["@", "#", "/"]));
    Ok(())
}

#[tokio::test]
async fn host_reads_client_files() -> Result<()> {
    let world = World::new().await?;
    let client = world.observer("owner").await?.client;
    let handlers = ahp::ResourceRequestHandlers::new().on_resource_read(|params| async move {
        Ok(ResourceReadResult {
            data: format!("content of {}", params.uri),
            encoding: ContentEncoding::Utf8,
            content_type: None,
        })
    });
    client.set_resource_request_handlers(handlers);
    let owner = ClientId::new("owner");
    let read = world.clients.read(owner.clone(), "virtual:/note".to_owned()).await?;
    assert_eq!(read.data, "content of virtual:/note");
    let listed = world.clients.list(owner.clone(), "virtual:/".to_owned()).await;
    assert!(matches!(listed, Err(ClientResourceError::Refused { code: -32601, .. })), "{listed:?}");
    // A client that disconnects during a request is not waited for.
    let mut raw = world.raw("silent").await?;
    let asking = world.clients.read(ClientId::new("silent"), "virtual:/x".to_owned());
    let leave = async {
        let question = raw.receive().await?;
        assert_eq!((&question["method"], &question["id"]), (&json!("resourceRead"), &json!(1)));
        drop(raw);
        anyhow::Ok(())
    };
    let (answer, left) = tokio::join!(asking, leave);
    left?;
    assert_eq!(answer, Err(ClientResourceError::Gone));
    let unknown = world.clients.read(ClientId::new("unknown"), "virtual:/x".to_owned()).await;
    assert_eq!(unknown, Err(ClientResourceError::Gone));
    Ok(())
}
