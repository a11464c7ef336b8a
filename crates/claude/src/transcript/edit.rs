//! Small changes to a transcript: title, tag, deletion.
//!
//! Transcripts are only appended to, never rewritten, so that a runtime with an open transcript loses
//! nothing.

use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use serde::Serialize;
use uuid::Uuid;

use super::error::TranscriptError;
use super::scan::{folder_of, session_of_file};

/// Sets the title of a conversation.
pub fn rename(transcript: &Path, title: &str) -> Result<(), TranscriptError> {
    let custom_title = title.trim();
    if visible(custom_title).is_empty() {
        return Err(TranscriptError::EmptyTitle);
    }
    let session_id = session_of(transcript)?.to_string();
    append(transcript, &TitleLine { kind: "custom-title", custom_title, session_id })
}

/// Sets or clears the tag of a conversation.
pub fn set_tag(transcript: &Path, tag: Option<&str>) -> Result<(), TranscriptError> {
    let visible = tag.map(visible).unwrap_or_default();
    if tag.is_some() && visible.is_empty() {
        return Err(TranscriptError::EmptyTag);
    }
    let session_id = session_of(transcript)?.to_string();
    append(transcript, &TagLine { kind: "tag", tag: &visible, session_id })
}

/// Deletes a conversation's transcript and the folder next to it.
pub fn delete(transcript: &Path) -> Result<(), TranscriptError> {
    session_of(transcript)?;
    fs::remove_file(transcript).map_err(TranscriptError::io("delete", transcript))?;
    let folder = folder_of(transcript);
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(TranscriptError::io("delete", &folder)(error))
        }
        _ => Ok(()),
    }
}

/// The conversation of a transcript.
pub(super) fn session_of(transcript: &Path) -> Result<Uuid, TranscriptError> {
    let name = transcript.file_name().and_then(|name| name.to_str());
    let session = name.and_then(session_of_file);
    session.ok_or_else(|| TranscriptError::NotATranscript { path: transcript.to_owned() })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TitleLine<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    custom_title: &'a str,
    session_id: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TagLine<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    tag: &'a str,
    session_id: String,
}

/// Appends a line in a single write, so that it does not interleave with a line from the runtime.
fn append(transcript: &Path, line: &impl Serialize) -> Result<(), TranscriptError> {
    let failed = || TranscriptError::io("write to", transcript);
    let mut file = OpenOptions::new().read(true).append(true).open(transcript).map_err(failed())?;
    let size = file.metadata().map_err(failed())?.len();
    if size == 0 {
        return Err(TranscriptError::NotFound { path: transcript.to_owned() });
    }
    let mut last = [0];
    file.seek(SeekFrom::Start(size - 1)).and_then(|_| file.read_exact(&mut last)).map_err(failed())?;
    // A killed runtime may have left an incomplete line; start a new one.
    let mut text = if last == *b"\n" { String::new() } else { "\n".to_owned() };
    text.push_str(&serde_json::to_string(line).unwrap_or_default());
    text.push('\n');
    file.write_all(text.as_bytes()).map_err(failed())
}

/// Removes invisible characters: control and formatting characters.
fn visible(text: &str) -> String {
    let invisible = |character: char| {
        character.is_control()
            || matches!(character,
                '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
                | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{e000}'..='\u{f8ff}' | '\u{e0000}'..='\u{e0fff}')
    };
    text.chars().filter(|character| !invisible(*character)).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_removed() {
        assert_eq!(visible(" ta\u{200b}g\u{7} "), "tag");
        assert_eq!(visible("\u{200b}\u{feff}"), "");
        assert_eq!(visible("größe ✓"), "größe ✓");
    }
}
