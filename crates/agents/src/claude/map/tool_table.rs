//! The words for each tool: how its calls are named, described and asked for.

/// The part of a call's input that describes the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetStyle {
    /// A file, shown as a link.
    File,
    /// A command, pattern or id, shown as code.
    Code,
    /// A web page, shown as a link.
    Page,
    /// Words, shown as they are.
    Words,
}

/// How the calls of a tool are shown. The verbs precede the target, or `object` without one.
#[derive(Clone, Copy, Debug)]
pub(super) struct ToolWords {
    pub(super) names: &'static [&'static str],
    /// Name of the tool for users.
    pub(super) title: &'static str,
    /// Hint for VS Code on how to render a call.
    pub(super) kind: Option<&'static str>,
    pub(super) style: TargetStyle,
    /// The input fields that can hold the target, by preference.
    pub(super) fields: &'static [&'static str],
    /// Present, past and infinitive of the verb.
    pub(super) verbs: [&'static str; 3],
    /// Follows the verb of a call without a target.
    pub(super) object: &'static str,
    /// Question before the call; `None` to name the target in it.
    pub(super) question: Option<&'static str>,
    /// The input field that is shown instead of the whole input.
    pub(super) shown_field: Option<&'static str>,
}

/// A tool without a hint, a target or a question of its own.
const PLAIN: ToolWords = ToolWords {
    names: &[],
    title: "",
    kind: None,
    style: TargetStyle::Words,
    fields: &[],
    verbs: ["", "", ""],
    object: "",
    question: None,
    shown_field: None,
};

/// A command that is run.
const COMMAND: ToolWords = ToolWords {
    title: "Run command",
    kind: Some("terminal"),
    style: TargetStyle::Code,
    fields: &["command"],
    verbs: ["Running", "Ran", "run"],
    object: "a command",
    question: Some("Run this command?"),
    shown_field: Some("command"),
    ..PLAIN
};

/// A file that is read, written or edited.
const FILE: ToolWords = ToolWords {
    style: TargetStyle::File,
    fields: &["file_path", "notebook_path", "path"],
    object: "a file",
    ..PLAIN
};

/// A tool whose target is an id or a name.
const NAMED: ToolWords = ToolWords { style: TargetStyle::Code, ..PLAIN };

/// The words for tools that are not in [`TOOLS`]. The tool's name is the target.
pub(super) const OTHER: ToolWords =
    ToolWords { style: TargetStyle::Code, verbs: ["Calling", "Called", "call"], ..PLAIN };

/// The known tools. Each name occurs once.
pub(super) const TOOLS: &[ToolWords] = &[
    ToolWords { names: &["Bash", "PowerShell"], ..COMMAND },
    ToolWords {
        names: &["BashOutput"],
        title: "Read command output",
        fields: &["bash_id", "shell_id"],
        verbs: ["Reading the output of", "Read the output of", "read the output of"],
        question: None,
        shown_field: None,
        ..COMMAND
    },
    ToolWords {
        names: &["KillBash", "KillShell"],
        title: "Stop command",
        fields: &["shell_id", "bash_id"],
        verbs: ["Stopping", "Stopped", "stop"],
        question: Some("Stop this command?"),
        shown_field: None,
        ..COMMAND
    },
    ToolWords {
        names: &["Monitor"],
        title: "Watch command",
        kind: None,
        verbs: ["Watching", "Watched", "watch"],
        ..COMMAND
    },
    ToolWords {
        names: &["Read"],
        title: "Read file",
        kind: Some("read"),
        verbs: ["Reading", "Read", "read"],
        ..FILE
    },
    ToolWords {
        names: &["NotebookRead"],
        title: "Read notebook",
        kind: Some("read"),
        verbs: ["Reading", "Read", "read"],
        object: "a notebook",
        ..FILE
    },
    ToolWords { names: &["Write"], title: "Write file", verbs: ["Writing", "Wrote", "write"], ..FILE },
    ToolWords {
        names: &["Edit", "MultiEdit"],
        title: "Edit file",
        verbs: ["Editing", "Edited", "edit"],
        ..FILE
    },
    ToolWords {
        names: &["NotebookEdit"],
        title: "Edit notebook",
        verbs: ["Editing", "Edited", "edit"],
        object: "a notebook",
        ..FILE
    },
    ToolWords {
        names: &["LS"],
        title: "List folder",
        verbs: ["Listing", "Listed", "list"],
        object: "a folder",
        ..FILE
    },
    ToolWords {
        names: &["Glob"],
        title: "Find files",
        kind: Some("search"),
        fields: &["pattern"],
        verbs: ["Looking for files like", "Looked for files like", "look for files like"],
        object: "a pattern",
        question: Some("Search for files?"),
        shown_field: Some("pattern"),
        ..NAMED
    },
    ToolWords {
        names: &["Grep"],
        title: "Search files",
        kind: Some("search"),
        fields: &["pattern"],
        verbs: ["Searching for", "Searched for", "search for"],
        object: "a pattern",
        question: Some("Search in files?"),
        shown_field: Some("pattern"),
        ..NAMED
    },
    ToolWords {
        names: &["LSP"],
        title: "Ask language server",
        fields: &["operation"],
        verbs: [
            "Asking the language server for",
            "Asked the language server for",
            "ask the language server for",
        ],
        object: "information",
        ..NAMED
    },
    ToolWords {
        names: &["WebFetch", "web_fetch"],
        title: "Fetch page",
        style: TargetStyle::Page,
        fields: &["url"],
        verbs: ["Fetching", "Fetched", "fetch"],
        object: "a page",
        question: Some("Fetch this page?"),
        shown_field: Some("url"),
        ..PLAIN
    },
    ToolWords {
        names: &["WebSearch", "web_search"],
        title: "Search the web",
        fields: &["query"],
        verbs: ["Searching the web for", "Searched the web for", "search the web for"],
        object: "a text",
        question: Some("Search the web?"),
        shown_field: Some("query"),
        ..NAMED
    },
    ToolWords {
        names: &["SandboxNetworkAccess"],
        title: "Network access",
        fields: &["host"],
        verbs: ["Connecting to", "Connected to", "connect to"],
        object: "a host",
        shown_field: Some("host"),
        ..NAMED
    },
    // No hint: VS Code hides a subagent's row until the subagent has a chat.
    ToolWords {
        names: &["Task", "Agent"],
        title: "Delegate",
        fields: &["description"],
        verbs: ["Delegating:", "Delegated:", "delegate:"],
        object: "a task",
        question: Some("Start a subagent?"),
        ..PLAIN
    },
    ToolWords {
        names: &["SendMessage"],
        title: "Message agent",
        fields: &["to"],
        verbs: ["Sending a message to", "Sent a message to", "send a message to"],
        object: "an agent",
        ..NAMED
    },
    ToolWords {
        names: &["ListAgents"],
        title: "List agents",
        verbs: ["Listing", "Listed", "list"],
        object: "the agents",
        ..PLAIN
    },
    ToolWords {
        names: &["EnterPlanMode"],
        title: "Start planning",
        verbs: ["Entering", "Entered", "enter"],
        object: "plan mode",
        question: Some("Enter plan mode?"),
        ..PLAIN
    },
    ToolWords {
        names: &["ExitPlanMode"],
        title: "Present plan",
        verbs: ["Presenting", "Presented", "present"],
        object: "the plan",
        question: Some("Approve this plan?"),
        shown_field: Some("plan"),
        ..PLAIN
    },
    ToolWords {
        names: &["AskUserQuestion"],
        title: "Ask question",
        fields: &["questions"],
        verbs: ["Asking:", "Asked:", "ask:"],
        object: "a question",
        question: Some("Answer these questions?"),
        ..PLAIN
    },
    ToolWords {
        names: &["TodoWrite"],
        title: "Update to-do list",
        verbs: ["Updating", "Updated", "update"],
        object: "the to-do list",
        ..PLAIN
    },
    ToolWords {
        names: &["TaskCreate"],
        title: "Add to-do",
        fields: &["subject"],
        verbs: ["Adding to-do:", "Added to-do:", "add to-do:"],
        object: "a new one",
        ..PLAIN
    },
    // The verbs depend on the new status.
    ToolWords {
        names: &["TaskUpdate"],
        title: "Update to-do",
        fields: &["taskId"],
        verbs: ["Updating to-do", "Updated to-do", "update to-do"],
        ..NAMED
    },
    ToolWords {
        names: &["TaskList"],
        title: "Read to-do list",
        verbs: ["Reading", "Read", "read"],
        object: "the to-do list",
        ..PLAIN
    },
    ToolWords {
        names: &["TaskGet"],
        title: "Read to-do",
        fields: &["taskId"],
        verbs: ["Reading to-do", "Read to-do", "read to-do"],
        ..NAMED
    },
    ToolWords {
        names: &["TaskOutput", "AgentOutputTool"],
        title: "Read task output",
        fields: &["task_id", "agentId"],
        verbs: ["Reading the output of", "Read the output of", "read the output of"],
        object: "a task",
        ..NAMED
    },
    ToolWords {
        names: &["TaskStop"],
        title: "Stop task",
        fields: &["task_id", "shell_id"],
        verbs: ["Stopping", "Stopped", "stop"],
        object: "a task",
        question: Some("Stop this task?"),
        ..NAMED
    },
    ToolWords {
        names: &["ToolSearch"],
        title: "Find tools",
        fields: &["query"],
        verbs: ["Looking for tools:", "Looked for tools:", "look for tools:"],
        object: "any",
        ..NAMED
    },
    ToolWords {
        names: &["Skill"],
        title: "Use skill",
        fields: &["skill", "command"],
        verbs: ["Using skill", "Used skill", "use skill"],
        ..NAMED
    },
    ToolWords {
        names: &["SlashCommand"],
        title: "Run slash command",
        fields: &["command"],
        verbs: ["Running", "Ran", "run"],
        object: "a slash command",
        shown_field: Some("command"),
        ..NAMED
    },
    ToolWords {
        names: &["ReadMcpResource", "ReadMcpResourceTool"],
        title: "Read resource",
        fields: &["uri"],
        verbs: ["Reading", "Read", "read"],
        object: "a resource",
        ..NAMED
    },
    ToolWords {
        names: &["ListMcpResources", "ListMcpResourcesTool"],
        title: "List resources",
        fields: &["server"],
        verbs: ["Listing the resources of", "Listed the resources of", "list the resources of"],
        object: "all servers",
        ..NAMED
    },
    ToolWords {
        names: &["StructuredOutput"],
        title: "Return result",
        verbs: ["Returning", "Returned", "return"],
        object: "a structured result",
        ..PLAIN
    },
    ToolWords {
        names: &["CronCreate"],
        title: "Schedule prompt",
        fields: &["cron"],
        verbs: ["Scheduling a prompt:", "Scheduled a prompt:", "schedule a prompt:"],
        object: "once",
        ..NAMED
    },
    ToolWords {
        names: &["CronDelete"],
        title: "Delete schedule",
        fields: &["id"],
        verbs: ["Deleting schedule", "Deleted schedule", "delete schedule"],
        ..NAMED
    },
    ToolWords {
        names: &["CronList"],
        title: "List schedules",
        verbs: ["Listing", "Listed", "list"],
        object: "the schedules",
        ..PLAIN
    },
    ToolWords {
        names: &["ScheduleWakeup"],
        title: "Schedule wake-up",
        fields: &["reason"],
        verbs: ["Scheduling a wake-up:", "Scheduled a wake-up:", "schedule a wake-up:"],
        object: "later",
        ..PLAIN
    },
    ToolWords {
        names: &["EnterWorktree"],
        title: "Enter worktree",
        fields: &["name", "path"],
        verbs: ["Entering worktree", "Entered worktree", "enter worktree"],
        ..NAMED
    },
    ToolWords {
        names: &["ExitWorktree"],
        title: "Leave worktree",
        verbs: ["Leaving", "Left", "leave"],
        object: "the worktree",
        ..PLAIN
    },
    ToolWords {
        names: &["Workflow"],
        title: "Run workflow",
        fields: &["name"],
        verbs: ["Running", "Ran", "run"],
        object: "a workflow",
        ..NAMED
    },
    ToolWords {
        names: &["ReportFindings"],
        title: "Report findings",
        verbs: ["Reporting", "Reported", "report"],
        object: "findings",
        ..PLAIN
    },
    ToolWords {
        names: &["RemoteTrigger"],
        title: "Remote trigger",
        fields: &["action"],
        verbs: ["Calling a remote trigger:", "Called a remote trigger:", "call a remote trigger:"],
        object: "any",
        ..NAMED
    },
    ToolWords {
        names: &["DesignSync"],
        title: "Synchronise design",
        verbs: ["Synchronising", "Synchronised", "synchronise"],
        object: "a design",
        ..PLAIN
    },
];

/// The words for a tool.
pub(super) fn words(name: &str) -> &'static ToolWords {
    TOOLS.iter().find(|tool| tool.names.contains(&name)).unwrap_or(&OTHER)
}

/// The verbs of a call that changes the status of a to-do.
pub(super) fn status_verbs(status: &str) -> Option<[&'static str; 3]> {
    match status {
        "pending" => Some(["Reopening to-do", "Reopened to-do", "reopen to-do"]),
        "in_progress" => Some(["Starting to-do", "Started to-do", "start to-do"]),
        "completed" => Some(["Completing to-do", "Completed to-do", "complete to-do"]),
        "deleted" => Some(["Removing to-do", "Removed to-do", "remove to-do"]),
        _ => None,
    }
}
