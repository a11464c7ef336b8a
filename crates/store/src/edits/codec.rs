//! The binary form of file versions and of operations.
//!
//! Numbers are little-endian; bytes and texts follow their length. Paths are bytes, since they
//! need not be UTF-8. Every form is self-contained and is decoded completely or not at all.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use innkeeper_core::channel::ChannelUri;
use innkeeper_core::edits::{
    BlobDigest, EditRecord, EditSource, FileVersion, OperationRecord, OperationStep, UnknownContent,
};
use uuid::Uuid;

/// The kinds of versions.
const ABSENT: u8 = 0;
const FILE: u8 = 1;
const UNSTORED_FILE: u8 = 2;
const LINK: u8 = 3;
const UNKNOWN: u8 = 4;

/// The text of a decoding error.
type Decoded<T> = Result<T, String>;

/// Encodes a version.
pub(crate) fn encode_version(version: &FileVersion) -> Vec<u8> {
    let mut writer = FormWriter::default();
    writer.version(version);
    writer.bytes
}

/// Decodes a version.
pub(crate) fn decode_version(bytes: &[u8]) -> Decoded<FileVersion> {
    let mut reader = FormReader { rest: bytes };
    let version = reader.version()?;
    reader.end()?;
    Ok(version)
}

/// Encodes what an operation may change and its steps.
pub(crate) fn encode_operation(operation: &OperationRecord) -> Vec<u8> {
    let mut writer = FormWriter::default();
    writer.length(operation.roots.len());
    for root in &operation.roots {
        writer.path(root);
    }
    writer.length(operation.steps.len());
    for step in &operation.steps {
        writer.path(&step.path);
        writer.version(&step.before);
        writer.version(&step.after);
        writer.number(u64::from(step.removed_parents));
        writer.length(step.records.len());
        for record in &step.records {
            writer.record(record, &operation.session);
        }
    }
    writer.bytes
}

/// Decodes the directories and the steps of an operation of a session.
pub(crate) fn decode_operation(
    bytes: &[u8],
    session: &ChannelUri,
) -> Decoded<(Vec<PathBuf>, Vec<OperationStep>)> {
    let mut reader = FormReader { rest: bytes };
    let roots = reader.list(FormReader::path)?;
    let steps = reader.list(|reader| {
        Ok(OperationStep {
            path: reader.path()?,
            before: reader.version()?,
            after: reader.version()?,
            removed_parents: reader.small_number()?,
            records: reader.list(|reader| reader.record(session))?,
        })
    })?;
    reader.end()?;
    Ok((roots, steps))
}

/// A path as bytes.
pub(crate) fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// A path from bytes.
pub(crate) fn path_of(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}

/// Appends values to a form.
#[derive(Debug, Default)]
struct FormWriter {
    bytes: Vec<u8>,
}

impl FormWriter {
    fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    fn number(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    fn length(&mut self, length: usize) {
        self.number(length as u64);
    }

    fn content(&mut self, content: &[u8]) {
        self.length(content.len());
        self.bytes.extend_from_slice(content);
    }

    fn path(&mut self, path: &Path) {
        self.content(path_bytes(path));
    }

    fn optional(&mut self, content: Option<&[u8]>) {
        self.byte(u8::from(content.is_some()));
        if let Some(content) = content {
            self.content(content);
        }
    }

    fn version(&mut self, version: &FileVersion) {
        match version {
            FileVersion::Absent => self.byte(ABSENT),
            FileVersion::File { blob, size, mode, stored } => {
                self.byte(if *stored { FILE } else { UNSTORED_FILE });
                self.bytes.extend_from_slice(blob.as_bytes());
                self.number(*size);
                self.number(u64::from(*mode));
            }
            FileVersion::Link { target } => {
                self.byte(LINK);
                self.path(target);
            }
            FileVersion::Unknown(reason) => {
                self.byte(UNKNOWN);
                self.content(reason.as_str().as_bytes());
            }
        }
    }

    /// Without its session if that is the operation's, so that the record moves with it.
    fn record(&mut self, record: &EditRecord, session: &ChannelUri) {
        self.number(record.number);
        let other = Some(&record.session).filter(|other| *other != session);
        self.optional(other.map(|other| other.as_str().as_bytes()));
        self.content(record.chat.as_str().as_bytes());
        self.content(record.turn.as_bytes());
        self.optional(record.tool_call.as_ref().map(String::as_bytes));
        self.content(record.source.as_str().as_bytes());
        self.path(&record.path);
        self.version(&record.before);
        self.version(&record.after);
        self.number(u64::from(record.new_parents));
        self.byte(u8::from(record.overlaps));
        self.optional(record.operation.as_ref().map(|operation| operation.as_bytes().as_slice()));
        self.number(record.recorded_at.cast_unsigned());
    }
}

/// Reads values from a form.
#[derive(Debug)]
struct FormReader<'a> {
    rest: &'a [u8],
}

impl<'a> FormReader<'a> {
    fn take(&mut self, length: usize) -> Decoded<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or("it is truncated")?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const LENGTH: usize>(&mut self) -> Decoded<[u8; LENGTH]> {
        self.take(LENGTH)?.try_into().map_err(|_| "it is truncated".to_owned())
    }

    fn byte(&mut self) -> Decoded<u8> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    fn flag(&mut self) -> Decoded<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(format!("invalid flag {other}")),
        }
    }

    fn number(&mut self) -> Decoded<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn small_number(&mut self) -> Decoded<u32> {
        u32::try_from(self.number()?).map_err(|_| "a number is too large".to_owned())
    }

    fn content(&mut self) -> Decoded<Vec<u8>> {
        let length = usize::try_from(self.number()?).map_err(|_| "a length is too large")?;
        Ok(self.take(length)?.to_vec())
    }

    fn text(&mut self) -> Decoded<String> {
        String::from_utf8(self.content()?).map_err(|_| "a text is not UTF-8".to_owned())
    }

    fn path(&mut self) -> Decoded<PathBuf> {
        Ok(path_of(self.content()?))
    }

    fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Decoded<T>) -> Decoded<Option<T>> {
        if self.flag()? { read(self).map(Some) } else { Ok(None) }
    }

    /// Does not reserve memory for the length, which may be damaged.
    fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Decoded<T>) -> Decoded<Vec<T>> {
        let length = self.number()?;
        let mut items = Vec::new();
        for _ in 0..length {
            items.push(read(self)?);
        }
        Ok(items)
    }

    fn version(&mut self) -> Decoded<FileVersion> {
        Ok(match self.byte()? {
            ABSENT => FileVersion::Absent,
            kind @ (FILE | UNSTORED_FILE) => FileVersion::File {
                blob: BlobDigest::from_bytes(self.array()?),
                size: self.number()?,
                mode: self.small_number()?,
                stored: kind == FILE,
            },
            LINK => FileVersion::Link { target: self.path()? },
            UNKNOWN => {
                let reason = self.text()?;
                let parsed = UnknownContent::parse(&reason);
                FileVersion::Unknown(parsed.ok_or_else(|| format!("unknown reason {reason:?}"))?)
            }
            other => return Err(format!("unknown kind of version {other}")),
        })
    }

    fn record(&mut self, session: &ChannelUri) -> Decoded<EditRecord> {
        Ok(EditRecord {
            number: self.number()?,
            session: self.optional(Self::text)?.map_or_else(|| session.clone(), |uri| ChannelUri::new(&uri)),
            chat: ChannelUri::new(&self.text()?),
            turn: self.text()?,
            tool_call: self.optional(Self::text)?,
            source: self.source()?,
            path: self.path()?,
            before: self.version()?,
            after: self.version()?,
            new_parents: self.small_number()?,
            overlaps: self.flag()?,
            operation: self
                .optional(|reader| Uuid::from_slice(&reader.content()?).map_err(|error| error.to_string()))?,
            recorded_at: self.number()?.cast_signed(),
        })
    }

    fn source(&mut self) -> Decoded<EditSource> {
        let name = self.text()?;
        EditSource::parse(&name).ok_or_else(|| format!("unknown source {name:?}"))
    }

    fn end(&self) -> Decoded<()> {
        if self.rest.is_empty() { Ok(()) } else { Err("it has unexpected data at its end".to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_or_extended_version_is_rejected() {
        let link = FileVersion::Link { target: path_of(vec![b'a', 0xff]) };
        let bytes = encode_version(&link);
        assert_eq!(decode_version(&bytes), Ok(link));
        for length in 0..bytes.len() {
            decode_version(&bytes[..length]).unwrap_err();
        }
        decode_version(&[bytes, vec![0]].concat()).unwrap_err();
    }

    #[test]
    fn huge_length_is_rejected_without_reserving_memory() {
        let session = ChannelUri::new("s:/1");
        decode_operation(&u64::MAX.to_le_bytes(), &session).unwrap_err();
        decode_operation(&[[0; 8], u64::MAX.to_le_bytes()].concat(), &session).unwrap_err();
    }
}
