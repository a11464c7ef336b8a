use super::*;
use crate::upstream::demo::plan::{CallAction, StopReason};

/// The tools of an older runtime.
const OFFERED: [&str; 9] = [
    "Agent",
    "AskUserQuestion",
    "Bash",
    "Edit",
    "EnterPlanMode",
    "ExitPlanMode",
    "Read",
    "TodoWrite",
    "Write",
];

/// The calls of a whole tour with these tools.
const ALL: [&str; 12] = [
    "TodoWrite",
    "Write",
    "Read",
    "Edit",
    "Bash",
    "AskUserQuestion",
    "Agent",
    "EnterPlanMode",
    "Write",
    "ExitPlanMode",
    "Write",
    "TodoWrite",
];

const PLAN_FILE: &str = "/config/plans/slug.md";

/// A tour whose tool results the test decides.
struct Tour {
    setting: TourSetting,
    inputs: Vec<Value>,
    texts: Vec<String>,
}

impl Tour {
    /// Takes the whole tour. `respond` gets the name and the number of earlier
    /// calls, may change the offered tools, and returns the result.
    fn take(
        offered: &[&str],
        mut respond: impl FnMut(&str, usize, &mut Vec<String>) -> Result<String, String>,
    ) -> Self {
        let mut tour = Self {
            setting: TourSetting {
                offered: offered.iter().map(|name| (*name).to_owned()).collect(),
                directory: Some("/work".to_owned()),
                ..TourSetting::default()
            },
            inputs: Vec::new(),
            texts: Vec::new(),
        };
        loop {
            let call = plan(&tour.setting);
            let names = tour.play(call.actions);
            let stop = if names.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
            assert_eq!(call.stop, stop);
            if names.is_empty() {
                return tour;
            }
            for name in names {
                if name == "EnterPlanMode" {
                    tour.setting.plan_file = Some(PLAN_FILE.to_owned());
                }
                let place = tour.setting.calls.len();
                assert!(place < 30, "the tour does not end: {:?}", tour.tools());
                let (failure, result) = match respond(&name, place, &mut tour.setting.offered) {
                    Ok(result) => (None, result),
                    Err(failure) => (Some(failure), String::new()),
                };
                tour.setting.calls.push(ToolCall { name, failure, result });
            }
        }
    }

    /// Records a response; returns the names of its tools.
    fn play(&mut self, actions: Vec<CallAction>) -> Vec<String> {
        let mut names = Vec::new();
        for action in actions {
            match action {
                CallAction::Send(Part::Text(text)) => self.texts.push(text),
                CallAction::Send(Part::ToolUse { name, input }) => {
                    self.inputs.push(serde_json::from_str(input.get()).unwrap());
                    names.push(name);
                }
                CallAction::Send(Part::Thinking(_))
                | CallAction::Wait(_)
                | CallAction::Chunk(_)
                | CallAction::Fault { .. } => {}
            }
        }
        names
    }

    fn tools(&self) -> Vec<&str> {
        self.setting.calls.iter().map(|call| call.name.as_str()).collect()
    }

    fn summary(&self) -> &str {
        self.texts.last().unwrap()
    }
}

fn allow(_: &str, _: usize, _: &mut Vec<String>) -> Result<String, String> {
    Ok(String::new())
}

#[test]
fn tour_calls_every_tool_and_ends_with_summary() {
    let tour = Tour::take(&OFFERED, allow);
    assert_eq!(tour.tools(), ALL);
    assert_eq!(tour.summary().matches(": done").count(), 9, "{}", tour.summary());
    assert!(!tour.summary().contains("not done"), "{}", tour.summary());
}

#[test]
fn files_are_written_in_own_folder_and_plan_file_only() {
    let tour = Tour::take(&OFFERED, allow);
    let paths: Vec<&str> = tour.inputs.iter().filter_map(|input| input["file_path"].as_str()).collect();
    let notes = "/work/innkeeper-tour/notes.md";
    assert_eq!(paths, [notes, notes, notes, PLAN_FILE, "/work/innkeeper-tour/greeting.md"]);
}

#[test]
fn denied_calls_do_not_stop_tour_and_are_acknowledged() {
    let deny = |_: &str, _: usize, _: &mut Vec<String>| {
        Err("<tool_use_error>The user said `no`.</tool_use_error>\n<system-reminder>".to_owned())
    };
    let tour = Tour::take(&OFFERED, deny);
    assert_eq!(
        tour.tools(),
        ["TodoWrite", "Write", "Bash", "AskUserQuestion", "Agent", "EnterPlanMode", "TodoWrite"]
    );
    assert_eq!(tour.summary().matches("not done (The user said 'no')").count(), 6, "{}", tour.summary());
    let acknowledged = tour.texts.iter().filter(|text| text.starts_with("That step was not done (The user"));
    assert_eq!(acknowledged.count(), 6, "{:?}", tour.texts);
}

#[test]
fn every_single_denial_leads_to_summary() {
    for denied in 0..ALL.len() {
        let tour =
            Tour::take(
                &OFFERED,
                |_, place, _| {
                    if place == denied { Err("no".to_owned()) } else { Ok(String::new()) }
                },
            );
        assert!(tour.summary().starts_with("That was the tour"), "{denied}: {:?}", tour.tools());
        assert_eq!(tour.tools().last(), Some(&"TodoWrite"), "{denied}: {:?}", tour.tools());
    }
}

#[test]
fn file_from_earlier_tour_is_read_before_overwriting() {
    let tour = Tour::take(&OFFERED, |name, place, _| {
        let unread = name == "Write" && (place == 1 || place == 12);
        if unread { Err("File has not been read yet. Read it first".to_owned()) } else { Ok(String::new()) }
    });
    assert_eq!(tour.tools()[1..6], ["Write", "Read", "Write", "Read", "Edit"]);
    assert_eq!(tour.tools()[11..], ["ExitPlanMode", "Write", "Read", "Write", "TodoWrite"]);
    assert!(!tour.summary().contains("not done"), "{}", tour.summary());
    assert!(!tour.texts.iter().any(|text| text.contains("not done")), "{:?}", tour.texts);
}

#[test]
fn rejected_plan_is_revised_once_with_feedback() {
    let mut reviews = 0;
    let tour = Tour::take(&OFFERED, |name, _, _| {
        reviews += usize::from(name == "ExitPlanMode");
        if name == "ExitPlanMode" && reviews == 1 { Err("Be kind.".to_owned()) } else { Ok(String::new()) }
    });
    assert_eq!(tour.tools()[7..12], ["EnterPlanMode", "Write", "ExitPlanMode", "Write", "ExitPlanMode"]);
    let plan = tour.inputs[11]["plan"].as_str().unwrap();
    assert!(plan.contains("your feedback: Be kind."), "{plan}");
    assert!(tour.summary().contains("Carried out the plan: done"), "{}", tour.summary());

    let tour =
        Tour::take(
            &OFFERED,
            |name, _, _| {
                if name == "ExitPlanMode" { Err("no".to_owned()) } else { Ok(String::new()) }
            },
        );
    assert_eq!(tour.tools()[10..], ["Write", "ExitPlanMode", "TodoWrite"]);
    assert!(tour.summary().contains("stays in plan mode"), "{}", tour.summary());
}

#[test]
fn deferred_tools_are_loaded_and_tasks_completed_by_id() {
    let base = ["Agent", "Bash", "ToolSearch", "Write"];
    let tour = Tour::take(&base, |name, place, offered| {
        if name == "ToolSearch" {
            offered.extend(DEFERRED.map(str::to_owned));
        }
        Ok(if name == "TaskCreate" { format!("Task #{} created", place + 6) } else { String::new() })
    });
    assert_eq!(tour.inputs[0]["query"], "select:EnterPlanMode,ExitPlanMode,TaskCreate,TaskUpdate");
    let create = ["TaskCreate"; 3];
    let update = ["TaskUpdate"; 3];
    let rest = ["Write", "Bash", "Agent", "EnterPlanMode", "Write", "ExitPlanMode", "Write"];
    assert_eq!(tour.tools(), [&["ToolSearch"][..], &create, &rest, &update].concat());
    let ids: Vec<&Value> =
        tour.inputs.iter().map(|input| &input["taskId"]).filter(|id| !id.is_null()).collect();
    assert_eq!(ids, ["7", "8", "9"]);
}

#[test]
fn missing_tools_are_requested_once() {
    let tour = Tour::take(&["Bash", "ToolSearch"], allow);
    assert_eq!(tour.tools(), ["ToolSearch", "Bash"]);
}

#[test]
fn tool_that_is_not_offered_is_skipped() {
    assert_eq!(Tour::take(&["Bash", "Task"], allow).tools(), ["Bash", "Task"]);
    assert_eq!(Tour::take(&["Bash", "EnterPlanMode"], allow).tools(), ["Bash"]);
    let tour = Tour::take(&[], allow);
    assert!(tour.tools().is_empty() && tour.summary().contains("offers none"), "{}", tour.summary());
}

#[test]
fn parallel_calls_that_were_not_kept_are_repeated() {
    let call =
        |name: &str, result: &str| ToolCall { name: name.into(), failure: None, result: result.into() };
    let setting = TourSetting {
        calls: vec![call("TaskCreate", "Task #1 created")],
        offered: vec!["TaskCreate".into(), "TaskUpdate".into()],
        ..TourSetting::default()
    };
    let actions = plan(&setting).actions;
    let tools =
        actions.iter().filter(|action| matches!(action, CallAction::Send(Part::ToolUse { .. }))).count();
    assert_eq!(tools, 2, "{actions:?}");
}
