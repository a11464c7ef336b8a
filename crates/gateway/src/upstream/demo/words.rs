//! The built-in texts of the demo model.
//!
//! Short Markdown for new users of Innkeeper.

use super::script::BadLine;

/// Longest prompt excerpt in a summary.
const SUMMARY_LINE: usize = 120;

/// Most prompts in a summary; the last ones are kept.
const SUMMARY_PROMPTS: usize = 20;

/// The response to an ordinary prompt.
pub(super) const WELCOME: &str = "\
**Hello! This is Innkeeper's demo model.** It is built in, works offline and always answers the same way, \
so you can look around without an account or a key.

Things to try:

- Send `tour`: I write, read and edit a file, run a command, ask you a question, start a subagent and make a plan.
- Send a script, a message whose first line is `#demo`:

  ```text
  #demo
  think What would be nice to see?
  text Here is the working directory.
  tool Bash {\"command\": \"ls\"}
  text That was all.
  ```

- Talk to a real model: start Innkeeper with `--upstream copilot` or `--upstream anthropic`.
";

/// The response where a script has no text to show, such as after its last tool.
pub(super) const END_OF_SCRIPT: &str = "The demo script ends here.";

/// The response to a script with an invalid line.
pub(super) fn bad_line(bad: &BadLine) -> String {
    format!(
        "Line {} of this demo script is invalid: {}.\n\n```text\n{}\n```\n\n{STEPS}",
        bad.number,
        bad.problem,
        bad.text.replace("```", "'''"),
    )
}

const STEPS: &str = "\
Nothing was played. The steps are:

- `text WORDS`, `think WORDS`, `repeat N WORDS`
- `tool NAME {json input}`, and `+tool NAME {json input}` for a call parallel to the previous one; \
`{plan-file}` in the input stands for the file of plan mode
- `wait MILLISECONDS`, `chunk CHARACTERS`
- `error STATUS [type] [always]`, `drop [always]`
- `echo`, `end`
";

/// The response to a request for a summary of the history.
pub(super) fn summary<'a>(prompts: impl Iterator<Item = &'a str>) -> String {
    let mut prompts: Vec<&str> = prompts.collect();
    // The last prompt is the request for this summary.
    prompts.pop();
    let skipped = prompts.len().saturating_sub(SUMMARY_PROMPTS);
    let lines: Vec<String> =
        prompts.iter().skip(skipped).map(|prompt| format!("- {}", short(prompt, SUMMARY_LINE))).collect();
    let asked = if lines.is_empty() { "- nothing yet".to_owned() } else { lines.join("\n") };
    format!("<summary>\nA conversation with Innkeeper's demo model. The user wrote:\n{asked}\n</summary>")
}

/// A text on one line, truncated to `most` characters.
pub(super) fn short(text: &str, most: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_lists_user_prompts_before_the_request() {
        let long = "x".repeat(500);
        let text = summary(["first\nprompt", &long, "make a detailed summary"].into_iter());
        assert!(text.contains("- first prompt\n"), "{text}");
        assert!(text.contains('…') && !text.contains(&long) && !text.contains("detailed"), "{text}");
        assert!(text.starts_with("<summary>") && text.ends_with("</summary>"));
    }

    #[test]
    fn invalid_line_cannot_close_its_code_block() {
        let bad = BadLine { number: 3, text: "```boom".into(), problem: "unknown step `boom`".into() };
        let text = bad_line(&bad);
        assert!(text.starts_with("Line 3 of") && text.contains("'''boom"), "{text}");
        assert_eq!(text.matches("```").count(), 2);
    }
}
