//! Responses of runtimes to control requests.
//!
//! Every field is optional, and unknown fields are kept.

use serde_json::value::RawValue;

use crate::wire::fields::wire_struct;

wire_struct! {
    /// The response to an interrupt; empty in older runtimes.
    pub struct InterruptAnswer {
        /// Messages that still run.
        still_queued: Vec<String> = "still_queued",
        /// Dropped messages.
        cancelled: Vec<String> = "cancelled",
    }
}

wire_struct! {
    /// The permission mode now in effect.
    pub struct PermissionModeAnswer {
        /// Name of the mode.
        mode: String = "mode",
    }
}

wire_struct! {
    /// The effective settings.
    pub struct SettingsAnswer {
        /// All settings, merged.
        effective: Box<RawValue> = "effective",
        /// The sources of the settings.
        sources: Box<RawValue> = "sources",
        /// Derived values: model, effort and more.
        applied: Box<RawValue> = "applied",
    }
}

wire_struct! {
    /// The status of all MCP servers.
    pub struct McpStatus {
        /// Status by server.
        servers: Vec<McpServerStatus> = "mcpServers",
    }
}

wire_struct! {
    /// The status of an MCP server.
    pub struct McpServerStatus {
        /// Its name.
        name: String = "name",
        /// `connected`, `failed`, `needs-auth`, `pending` or `disabled`.
        status: String = "status",
        /// The server's description of itself.
        server_info: Box<RawValue> = "serverInfo",
        /// Why the connection failed.
        error: String = "error",
        /// Where the server is configured.
        scope: String = "scope",
        /// Its tools.
        tools: Box<RawValue> = "tools",
    }
}

wire_struct! {
    /// Changes to the set of dynamic MCP servers.
    pub struct McpServersChange {
        /// Added servers.
        added: Vec<String> = "added",
        /// Removed servers.
        removed: Vec<String> = "removed",
        /// Errors of servers that could not be added, by name.
        errors: Box<RawValue> = "errors",
    }
}

wire_struct! {
    /// The outcome of a rewind or of its dry run.
    pub struct RewindResult {
        /// Whether a checkpoint exists.
        can_rewind: bool = "canRewind",
        /// Why the rewind is not possible.
        error: String = "error",
        /// Changed files.
        files_changed: Vec<String> = "filesChanged",
        /// Added lines.
        insertions: u64 = "insertions",
        /// Removed lines.
        deletions: u64 = "deletions",
    }
}

wire_struct! {
    /// The contents of the reloaded plugins.
    pub struct ReloadedPlugins {
        /// Slash commands.
        commands: Box<RawValue> = "commands",
        /// Subagents.
        agents: Box<RawValue> = "agents",
        /// Plugins.
        plugins: Box<RawValue> = "plugins",
        /// MCP servers.
        mcp_servers: Box<RawValue> = "mcpServers",
        /// Number of plugins that failed to load.
        error_count: u64 = "error_count",
    }
}

wire_struct! {
    /// A generated title.
    pub struct Title {
        /// The title text.
        title: String = "title",
    }
}

wire_struct! {
    /// The answer to a side question.
    pub struct SideAnswer {
        /// The answer text.
        response: String = "response",
        /// Whether the runtime generated the text instead of the model.
        synthetic: bool = "synthetic",
    }
}
