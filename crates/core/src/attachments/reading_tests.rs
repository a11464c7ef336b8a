use std::collections::HashMap;
use std::path::PathBuf;

use ahp_types::common::Uri;
use serde_json::Value;
use serde_json::value::RawValue;

use super::*;
use crate::agent::BoxFuture;
use crate::client_resources::ClientQuestion;
use crate::files::{
    Access, Extent, FileContent, FileEntry, FileStatus, FileWatch, FileWrite, FoundFile, Transfer,
    WatchRequest,
};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Files by URI. All others do not exist.
#[derive(Clone, Debug, Default)]
struct FakeFiles(HashMap<&'static str, FakeFile>);

#[derive(Clone, Debug)]
enum FakeFile {
    Content(&'static [u8]),
    /// Only its size may be read.
    Large(u64),
    Directory,
    Pipe,
    Outside,
}

impl Files for FakeFiles {
    fn resolve(&self, uri: Uri, _: Links) -> BoxFuture<Result<FileStatus, FileError>> {
        let reason = "it is not in a session's directory or a granted directory";
        let (kind, size) = match self.0.get(uri.as_str()) {
            None => return Box::pin(std::future::ready(Err(FileError::NotFound(uri)))),
            Some(FakeFile::Outside) => {
                let denied = FileError::Denied { uri, access: Access::Read, reason };
                return Box::pin(std::future::ready(Err(denied)));
            }
            Some(FakeFile::Content(content)) => (FileKind::File, content.len() as u64),
            Some(FakeFile::Large(size)) => (FileKind::File, *size),
            Some(FakeFile::Directory) => (FileKind::Directory, 0),
            Some(FakeFile::Pipe) => (FileKind::Other, 0),
        };
        let status = FileStatus {
            content_type: crate::media::type_of(uri.as_ref()),
            uri,
            kind,
            size: Some(size),
            modified: None,
            created: None,
            etag: None,
        };
        Box::pin(std::future::ready(Ok(status)))
    }

    fn read(&self, uri: Uri) -> BoxFuture<Result<FileContent, FileError>> {
        let Some(FakeFile::Content(content)) = self.0.get(uri.as_str()) else { panic!("{uri} is read") };
        let content_type = crate::media::type_of(uri.as_ref());
        Box::pin(std::future::ready(Ok(FileContent { bytes: Bytes::from_static(content), content_type })))
    }

    fn write(&self, _: FileWrite) -> BoxFuture<Result<(), FileError>> {
        panic!("never called")
    }

    fn list(&self, _: Uri) -> BoxFuture<Result<Vec<FileEntry>, FileError>> {
        panic!("never called")
    }

    fn copy(&self, _: Transfer) -> BoxFuture<Result<(), FileError>> {
        panic!("never called")
    }

    fn relocate(&self, _: Transfer) -> BoxFuture<Result<(), FileError>> {
        panic!("never called")
    }

    fn delete(&self, _: Uri, _: Extent) -> BoxFuture<Result<(), FileError>> {
        panic!("never called")
    }

    fn make_directory(&self, _: Uri) -> BoxFuture<Result<(), FileError>> {
        panic!("never called")
    }

    fn check(&self, _: Uri) -> BoxFuture<Result<(), FileError>> {
        panic!("never called")
    }

    fn watch(&self, _: WatchRequest) -> BoxFuture<Result<Box<dyn FileWatch>, FileError>> {
        panic!("never called")
    }

    fn search(&self, _: PathBuf, _: String) -> BoxFuture<Vec<FoundFile>> {
        panic!("never called")
    }
}

/// Answers reads by URI; never answers the others.
#[derive(Clone, Default)]
struct FakeClients(HashMap<&'static str, Result<Value, ClientResourceError>>);

impl ClientResources for FakeClients {
    fn ask(
        &self,
        client: ClientId,
        question: ClientQuestion,
    ) -> BoxFuture<Result<Box<RawValue>, ClientResourceError>> {
        assert_eq!(client.as_str(), "sender");
        let ClientQuestion::Read(params) = question else { panic!("not a read: {question:?}") };
        match self.0.get(params.uri.as_str()).cloned() {
            None => Box::pin(std::future::pending()),
            Some(answer) => {
                let answer = answer.map(|value| serde_json::value::to_raw_value(&value).unwrap());
                Box::pin(std::future::ready(answer))
            }
        }
    }
}

struct World {
    files: FakeFiles,
    clients: FakeClients,
}

impl World {
    fn new<const F: usize, const C: usize>(
        files: [(&'static str, FakeFile); F],
        clients: [(&'static str, Result<Value, ClientResourceError>); C],
    ) -> Self {
        Self { files: FakeFiles(HashMap::from(files)), clients: FakeClients(HashMap::from(clients)) }
    }

    async fn read(&self, message: &Message) -> Result<ReadAttachments, ClientGone> {
        let (files, clients) = (Arc::new(self.files.clone()), Arc::new(self.clients.clone()));
        AttachmentSources { files, clients }.read(&ClientId::new("sender"), message).await
    }

    /// The attachment after it was read, with the type and content of its snapshot.
    async fn one(&self, attachment: Value) -> (Value, Option<(String, Bytes)>) {
        let mut message = message(vec![attachment]);
        let mut read = self.read(&message).await.unwrap();
        read.apply(&mut message);
        let stored = read.snapshots.pop().map(|(id, stored)| {
            assert_eq!(json!(message.attachments)[0]["uri"], id.uri());
            (stored.content_type, stored.body)
        });
        (json!(message.attachments)[0].clone(), stored)
    }

    async fn problem(&self, uri: &str) -> Value {
        let (attachment, stored) = self.one(resource(uri)).await;
        assert_eq!(stored, None, "{uri}");
        assert_eq!(attachment["uri"], uri);
        attachment["_meta"]["innkeeper.attachment"]["problem"].clone()
    }
}

fn resource(uri: &str) -> Value {
    json!({"type": "resource", "label": "it", "uri": uri})
}

fn message(attachments: Vec<Value>) -> Message {
    let message = json!({"text": "look", "origin": {"kind": "user"}, "attachments": attachments});
    serde_json::from_value(message).unwrap()
}

fn answer(data: &str, encoding: &str) -> Result<Value, ClientResourceError> {
    Ok(json!({"data": data, "encoding": encoding}))
}

#[tokio::test]
async fn only_images_of_the_hosts_files_are_stored() {
    let world = World::new(
        [
            ("file:///w/a.png", FakeFile::Content(PNG)),
            ("file:///w/a.rs", FakeFile::Content(b"fn main() {}")),
            ("file:///w/src", FakeFile::Directory),
            ("file:///w/src.png", FakeFile::Directory),
            ("file:///outside.rs", FakeFile::Outside),
        ],
        [],
    );
    let (attachment, stored) = world.one(resource("file:///w/a.png")).await;
    assert_eq!(stored, Some(("image/png".to_owned(), Bytes::from_static(PNG))));
    assert_eq!(attachment["_meta"]["innkeeper.attachment"], json!({"source": "file:///w/a.png"}));
    assert_eq!((&attachment["contentType"], &attachment["sizeHint"]), (&json!("image/png"), &json!(8)));
    for uri in ["file:///w/a.rs", "file:///w/src", "file:///outside.rs"] {
        assert_eq!(world.one(resource(uri)).await, (resource(uri), None), "passed by path");
    }
}

#[tokio::test]
async fn file_that_cannot_be_read_is_marked_with_the_cause() {
    let world = World::new(
        [
            ("file:///w/large.png", FakeFile::Large(50 * 1024 * 1024)),
            ("file:///w/link.png", FakeFile::Outside),
            ("file:///w/pipe", FakeFile::Pipe),
        ],
        [],
    );
    for (uri, problem) in [
        ("file:///w/large.png", "it has 50.0 MB, and the limit is 5.0 MB"),
        ("file:///w/link.png", "it is not in a session's directory or a granted directory"),
        ("file:///w/pipe", "it is not a regular file"),
        ("file:///w/none.rs", "it does not exist"),
        ("file:///w/none.png", "it does not exist"),
    ] {
        assert_eq!(world.problem(uri).await, problem, "{uri}");
    }
}

#[tokio::test]
async fn other_resources_are_read_from_the_client_that_sent_the_message() {
    let uri = "vscode-remote://host/w/a.py";
    let world = World::new(
        [],
        [(uri, answer("print()", "utf-8")), ("memory:/shot", answer("iVBORw0KGgo", "base64"))],
    );
    let selection =
        json!({"range": {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 5}}});
    let mut sent = resource(uri);
    sent["_meta"] = json!({"kept": {"a": 1}, "innkeeper.attachment": {"problem": "an earlier one"}});
    sent["selection"] = selection.clone();
    let (attachment, stored) = world.one(sent).await;
    assert_eq!(stored, Some(("text/x-python".to_owned(), Bytes::from_static(b"print()"))));
    assert_eq!(attachment["_meta"], json!({"kept": {"a": 1}, "innkeeper.attachment": {"source": uri}}));
    assert_eq!((&attachment["selection"], &attachment["label"]), (&selection, &json!("it")));
    let (_, stored) = world.one(resource("memory:/shot")).await;
    assert_eq!(stored, Some(("image/png".to_owned(), Bytes::from_static(PNG))));
    for uri in ["https://example.com/a", "innkeeper-output:/1", "ahp-chat:/1", "no URI"] {
        assert_eq!(world.one(resource(uri)).await, (resource(uri), None), "only named");
    }
}

#[tokio::test(start_paused = true)]
async fn resource_that_the_client_does_not_deliver_is_marked_with_the_cause() {
    let refused =
        |message: &str| Err(ClientResourceError::Refused { code: -32008, message: message.to_owned() });
    let long = "x".repeat(10_000);
    let world = World::new(
        [],
        [
            ("x:/refused", refused("no such file")),
            ("x:/long", refused(&long)),
            ("x:/huge", Err(ClientResourceError::TooLarge)),
            ("x:/junk", Ok(json!(["?"]))),
            ("x:/base64", answer("!!!", "base64")),
            ("x:/binary", answer("AAAA", "base64")),
        ],
    );
    for (uri, problem) in [
        ("x:/refused", "the client returned an error: no such file (-32008)"),
        ("x:/huge", "the client's response is too large"),
        ("x:/base64", "the client's response is not valid base64"),
        ("x:/binary", "it is neither text nor an image nor a PDF document"),
    ] {
        assert_eq!(world.problem(uri).await, problem, "{uri}");
    }
    assert_eq!(world.problem("x:/long").await.as_str().unwrap().chars().count(), MAX_REASON);
    assert!(world.problem("x:/junk").await.as_str().unwrap().starts_with("cannot decode"));
    // One client that never answers, twice: the limit is for the whole message.
    let start = Instant::now();
    let mut asked = message(vec![resource("x:/silent"), resource("x:/refused"), resource("x:/silent")]);
    world.read(&asked).await.unwrap().apply(&mut asked);
    assert_eq!(start.elapsed(), TIME_LIMIT);
    let problems = json!(asked.attachments);
    let problem = |index: usize| problems[index]["_meta"]["innkeeper.attachment"]["problem"].clone();
    assert_eq!(problem(0), "the client did not respond in time");
    assert_eq!(problem(2), "the client did not respond in time");
}

#[tokio::test]
async fn message_of_a_client_that_disconnects_is_not_handled() {
    let world = World::new([], [("x:/a", Err(ClientResourceError::Gone))]);
    assert_eq!(world.read(&message(vec![resource("x:/a")])).await.err(), Some(ClientGone));
}

#[tokio::test]
async fn number_and_total_size_of_snapshots_are_limited() {
    let megabyte = "x".repeat(200 * 1024);
    let world = World::new([], [("x:/a", answer(&megabyte, "utf-8"))]);
    let mut many = message(vec![resource("x:/a"); MAX_READS + 1]);
    let read = world.read(&many).await.unwrap();
    assert_eq!(read.snapshots.len(), MAX_READS);
    read.apply(&mut many);
    let last = &json!(many.attachments)[MAX_READS];
    assert_eq!(last["_meta"]["innkeeper.attachment"]["problem"], "the message has too many attachments");

    let image = [PNG, &vec![0; 4 * 1024 * 1024]].concat();
    let image = base64::engine::general_purpose::STANDARD.encode(image);
    let world = World::new([], [("x:/a", answer(&image, "base64"))]);
    let mut large = message(vec![resource("x:/a"); 6]);
    let read = world.read(&large).await.unwrap();
    assert_eq!(read.snapshots.len(), 4);
    read.apply(&mut large);
    let problem = &json!(large.attachments)[5]["_meta"]["innkeeper.attachment"]["problem"];
    assert_eq!(problem, "the attachments of the message are too large together");
}

#[test]
fn action_is_rewritten_like_the_message() {
    let action = json!({
        "type": "chat/turnStarted", "turnId": "t1", "startedAt": "2025-11-15T09:00:05.000Z", "x-unknown": 1,
        "message": {"text": "look", "origin": {"kind": "user"}, "attachments": [
            {"type": "simple", "label": "note"},
            {"type": "resource", "label": "it", "uri": "x:/a", "x-unknown": 2},
        ]},
    });
    let action = Action::from_client(serde_json::value::to_raw_value(&action).unwrap()).unwrap();
    let mut read = ReadAttachments::default();
    assert_eq!(json!(read.rewritten(action.clone())), json!(action));
    let resource: MessageResourceAttachment = serde_json::from_value(resource("x:/a")).unwrap();
    let stored = StoredOutput { content_type: "text/plain".to_owned(), body: Bytes::from_static(b"hello") };
    read.add(1, &resource, stored);
    let rewritten = json!(read.rewritten(action));
    let expected = json!({
        "type": "resource", "label": "it", "uri": read.snapshots[0].0.uri(), "contentType": "text/plain",
        "sizeHint": 5, "_meta": {"innkeeper.attachment": {"source": "x:/a"}}, "x-unknown": 2,
    });
    assert_eq!(rewritten["message"]["attachments"][1], expected);
    assert_eq!((&rewritten["x-unknown"], &rewritten["turnId"]), (&json!(1), &json!("t1")));
}
