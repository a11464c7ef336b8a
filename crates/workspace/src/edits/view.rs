//! Builds the protocol's file edits from versions.
//!
//! A side whose content is not available still appears: its content is a short notice that
//! says why. Clients then show a changed file as changed, and not as created or deleted.
//! Such an edit has no line counts. The content of a symbolic link is its target.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ahp_types::state::{ContentRef, FileEdit, FileEditDiffStats, FileEditSide};
use bytes::Bytes;
use innkeeper_core::edits::{
    BlobDigest, BlobUri, EditStorage, EditStorageError, FileVersion, StoredBlob, UnknownContent,
};

use super::folding::{self, Contents, NetChange, ShownChange};
use crate::text::{self, LineCounts};
use crate::uri_of;

/// Line counts that are remembered. Each takes about 100 bytes.
const MAX_REMEMBERED_COUNTS: usize = 16_384;

const REASONS: [UnknownContent; 6] = [
    UnknownContent::NotReady,
    UnknownContent::TooManyFiles,
    UnknownContent::FileTooLarge,
    UnknownContent::RootTooLarge,
    UnknownContent::Unreadable,
    UnknownContent::Evicted,
];

/// The text that stands for a content that is not available.
fn notice(reason: UnknownContent) -> Bytes {
    format!("The content of this file is not available: {}.\n", reason.explanation()).into()
}

/// The notice with this digest, if there is one.
pub(crate) fn notice_with(digest: BlobDigest) -> Option<Bytes> {
    REASONS.into_iter().map(notice).find(|text| BlobDigest::of(text) == digest)
}

/// The content of a symbolic link.
pub(crate) fn link_content(target: &Path) -> StoredBlob {
    StoredBlob::new(target.as_os_str().as_bytes().to_vec())
}

/// The digest and size of the content that clients see; `None` for an absent file.
fn shown_content(version: &FileVersion) -> Option<(BlobDigest, u64)> {
    if let Some(reason) = folding::unknown_content(version) {
        let text = notice(reason);
        return Some((BlobDigest::of(&text), size_of(&text)));
    }
    match version {
        FileVersion::File { blob, size, .. } => Some((*blob, *size)),
        FileVersion::Link { target } => {
            let blob = link_content(target);
            Some((blob.digest, size_of(&blob.content)))
        }
        FileVersion::Absent | FileVersion::Unknown(_) => None,
    }
}

fn size_of(content: &[u8]) -> u64 {
    u64::try_from(content.len()).unwrap_or(u64::MAX)
}

fn side(path: &Path, version: &FileVersion) -> Option<FileEditSide> {
    let (digest, size) = shown_content(version)?;
    let name = path.file_name().map_or(&[][..], |name| name.as_bytes());
    Some(FileEditSide {
        uri: uri_of(path),
        content: ContentRef {
            uri: BlobUri::new(digest, name).to_string(),
            size_hint: i64::try_from(size).ok(),
            content_type: None,
            nonce: None,
        },
    })
}

/// Builds the edit of a change.
pub(crate) fn file_edit(change: &ShownChange<'_>, counts: Option<LineCounts>) -> FileEdit {
    let (from, to) = match change {
        ShownChange::One(net) => (*net, *net),
        ShownChange::Renamed { from, to } => (*from, *to),
    };
    edit_of((&from.path, &from.before), (&to.path, &to.after), counts)
}

/// Builds the edit between two versions.
pub(crate) fn edit_of(
    before: (&Path, &FileVersion),
    after: (&Path, &FileVersion),
    counts: Option<LineCounts>,
) -> FileEdit {
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    FileEdit {
        before: side(before.0, before.1),
        after: side(after.0, after.1),
        diff: counts.map(|counts| FileEditDiffStats {
            added: Some(number(counts.added)),
            removed: Some(number(counts.removed)),
        }),
    }
}

/// The versions that a change leads from and to.
pub(crate) fn versions_of<'a>(change: &ShownChange<'a>) -> (&'a FileVersion, &'a FileVersion) {
    match change {
        ShownChange::One(net) => (&net.before, &net.after),
        ShownChange::Renamed { from, to } => (&from.before, &to.after),
    }
}

/// Counts changed lines, and remembers the counts of recent pairs of contents.
#[derive(Debug, Default)]
pub(crate) struct LineCountCache {
    known: Mutex<HashMap<(CountedContent, CountedContent), Option<LineCounts>>>,
}

/// A content that lines are counted in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum CountedContent {
    Nothing,
    Blob(BlobDigest),
    Text(Vec<u8>),
}

impl CountedContent {
    /// `None` if the content is not available.
    fn of(version: &FileVersion) -> Option<Self> {
        match version {
            FileVersion::Absent => Some(Self::Nothing),
            FileVersion::Link { target } => Some(Self::Text(target.as_os_str().as_bytes().to_vec())),
            FileVersion::File { blob, stored: true, .. } => Some(Self::Blob(*blob)),
            FileVersion::File { stored: false, .. } | FileVersion::Unknown(_) => None,
        }
    }

    fn read(&self, contents: &dyn Contents) -> Result<Option<Bytes>, EditStorageError> {
        match self {
            Self::Nothing => Ok(Some(Bytes::new())),
            Self::Text(text) => Ok(Some(Bytes::copy_from_slice(text))),
            Self::Blob(digest) => contents.content(*digest),
        }
    }
}

impl LineCountCache {
    /// The counts between two versions; `None` for binary or unavailable contents.
    pub(crate) fn counts(
        &self,
        before: &FileVersion,
        after: &FileVersion,
        contents: &dyn Contents,
    ) -> Result<Option<LineCounts>, EditStorageError> {
        let (Some(old), Some(new)) = (CountedContent::of(before), CountedContent::of(after)) else {
            return Ok(None);
        };
        let key = (old, new);
        if let Some(known) = self.known().get(&key) {
            return Ok(*known);
        }
        let (Some(old), Some(new)) = (key.0.read(contents)?, key.1.read(contents)?) else { return Ok(None) };
        let counts = text::line_counts(&old, &new);
        let mut known = self.known();
        if known.len() >= MAX_REMEMBERED_COUNTS {
            known.clear();
        }
        known.insert(key, counts);
        Ok(counts)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<(CountedContent, CountedContent), Option<LineCounts>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stores the contents that clients see for symbolic links.
pub(crate) fn store_links<'a>(
    storage: &dyn EditStorage,
    nets: impl IntoIterator<Item = &'a NetChange>,
) -> Result<(), EditStorageError> {
    let mut blobs = Vec::new();
    for version in nets.into_iter().flat_map(|net| [&net.before, &net.after]) {
        if let FileVersion::Link { target } = version {
            blobs.push(link_content(target));
        }
    }
    if blobs.is_empty() { Ok(()) } else { storage.put_blobs(blobs) }
}
