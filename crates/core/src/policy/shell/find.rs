//! The actions of `find`, which run commands, delete and write files.

use super::PathAccess;
use super::builder::LineBuilder;
use super::word::ShellWord;
use super::wrappers::Unwrapped;

/// Finds the commands of `find`. `-delete` counts as `rm`.
pub(super) fn unwrap(line: &mut LineBuilder, index: usize, words: &[ShellWord]) -> Unwrapped {
    let mut commands = Vec::new();
    let mut rest = words.iter().skip(1);
    let mut starts = Vec::new();
    let mut is_expression = false;
    while let Some(word) = rest.next() {
        if word.literal().is_none() && ["-delete", "-exec", "-ok"].iter().any(|action| word.may_be(action)) {
            return Unwrapped::Unknown("an action of find is only known when the line runs");
        }
        is_expression |= word.text.starts_with(['-', '(', '!']);
        match word.text.as_str() {
            "-exec" | "-execdir" | "-ok" | "-okdir" => {
                let mut command = Vec::new();
                for word in rest.by_ref().take_while(|word| !matches!(word.text.as_str(), ";" | "+")) {
                    let is_replaced = word.text.contains("{}");
                    command.push(if is_replaced { ShellWord::unknown(&word.source) } else { word.clone() });
                }
                commands.push(command);
            }
            "-delete" => commands.push(vec![ShellWord::of_text("rm"), ShellWord::unknown("{}")]),
            "-fprint" | "-fprint0" | "-fls" | "-fprintf" => match rest.next().and_then(ShellWord::path) {
                Some(path) => {
                    line.path(&path, PathAccess::Write, Some(index), false);
                }
                None => line.unknown_write(),
            },
            _ if !is_expression => starts.extend(word.path()),
            _ => {}
        }
    }
    for start in &starts {
        line.path(start, PathAccess::Read, Some(index), false);
    }
    if commands.is_empty() {
        return Unwrapped::Plain;
    }
    Unwrapped::Commands { commands, has_more: true, is_transparent: false }
}
