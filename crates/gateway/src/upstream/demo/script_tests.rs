use super::*;

/// A comparable form of a step; raw JSON does not implement equality.
fn shown(step: &ScriptStep) -> String {
    match step {
        ScriptStep::Tool { name, input, placement } => format!("{placement:?} {name} {}", input.get()),
        ScriptStep::Text(_)
        | ScriptStep::Think(_)
        | ScriptStep::Wait(_)
        | ScriptStep::Chunk(_)
        | ScriptStep::Fault { .. }
        | ScriptStep::Echo
        | ScriptStep::End => format!("{step:?}"),
    }
}

#[test]
fn script_is_recognised_by_its_first_line() {
    for script in ["#demo", "#demo\ntext a", "#demo  \r\ntext a", "\n  #demo\nend"] {
        assert!(is_script(script), "{script:?}");
    }
    for other in ["", "#demonstrate", "#demo text a", "text\n#demo", "# demo"] {
        assert!(!is_script(other), "{other:?}");
    }
}

#[test]
fn parses_every_step() {
    for (line, expected) in [
        ("text two  words ", r#"Text("two  words")"#),
        ("think  hm", r#"Think("hm")"#),
        ("tool Bash {\"command\": \"ls -l\"}", r#"Alone Bash {"command": "ls -l"}"#),
        ("tool Stop", "Alone Stop {}"),
        ("+tool Read { }", "Previous Read { }"),
        ("wait 250", "Wait(250ms)"),
        ("chunk 3", "Chunk(3)"),
        ("repeat 3 la la", r#"Text("la la la la la la")"#),
        ("error 529", "Fault { kind: Error { status: 529, kind: None }, repeat: Once }"),
        (
            "error 429 slow_down",
            r#"Fault { kind: Error { status: 429, kind: Some("slow_down") }, repeat: Once }"#,
        ),
        ("error 500 always", "Fault { kind: Error { status: 500, kind: None }, repeat: Always }"),
        (
            "error 400 odd_error always",
            r#"Fault { kind: Error { status: 400, kind: Some("odd_error") }, repeat: Always }"#,
        ),
        ("drop", "Fault { kind: Drop, repeat: Once }"),
        ("drop always", "Fault { kind: Drop, repeat: Always }"),
        ("echo", "Echo"),
        ("end", "End"),
        ("  text indented", r#"Text("indented")"#),
    ] {
        let steps = parse(&format!("#demo\n{line}\r\n")).unwrap();
        assert_eq!(steps.iter().map(shown).collect::<Vec<_>>(), [expected], "{line}");
    }
}

#[test]
fn invalid_line_is_reported_with_number_and_problem() {
    for (line, problem) in [
        ("dance", "unknown step `dance`"),
        ("Text a", "unknown step `Text`"),
        ("text", "missing text"),
        ("think ", "missing text"),
        ("tool", "missing tool name"),
        ("tool Bash {\"command\":", "not JSON"),
        ("tool Bash [1]", "not a JSON object"),
        ("tool Bash {} {}", "not JSON"),
        ("wait", "milliseconds"),
        ("wait soon", "milliseconds"),
        ("wait 99999999", "longest wait"),
        ("chunk 0", "1 or more"),
        ("chunk -1", "1 or more"),
        ("repeat", "repeat count"),
        ("repeat x y", "repeat count"),
        ("repeat 0 y", "1 or more"),
        ("repeat 3", "missing text"),
        ("repeat 18446744073709551615 y", "more than"),
        ("error", "400 to 599"),
        ("error 200", "400 to 599"),
        ("error 999", "400 to 599"),
        ("error 500 one two", "unexpected `two`"),
        ("drop never", "expected `always`"),
        ("echo me", "unexpected `me`"),
        ("end now", "unexpected `now`"),
    ] {
        let bad = parse(&format!("#demo\n\ntext fine\n{line}\ntext unread")).unwrap_err();
        assert_eq!((bad.number, bad.text.as_str()), (4, line.trim()));
        assert!(bad.problem.contains(problem), "{line}: {}", bad.problem);
    }
}

#[test]
fn repeats_share_one_limit() {
    let half = REPEAT_CAP / 4 + 1;
    let line = format!("repeat {half} a\n");
    assert!(parse(&format!("#demo\n{line}")).is_ok());
    assert_eq!(parse(&format!("#demo\n{line}{line}")).unwrap_err().number, 3);
}
