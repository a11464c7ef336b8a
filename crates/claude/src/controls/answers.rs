//! What runtimes answer to requests, as far as it has a shape worth naming.
//!
//! Every field is optional, and what is not known is kept.

use serde_json::value::RawValue;

use crate::wire::fields::wire_struct;

wire_struct! {
    /// The answer to an interrupt; older runtimes say nothing.
    pub struct InterruptAnswer {
        /// Messages that run next.
        still_queued: Vec<String> = "still_queued",
        /// Messages that were dropped.
        cancelled: Vec<String> = "cancelled",
    }
}

wire_struct! {
    /// The permission mode that is in effect now.
    pub struct PermissionModeAnswer {
        /// Its name.
        mode: String = "mode",
    }
}

wire_struct! {
    /// The settings in effect.
    pub struct SettingsAnswer {
        /// All of them, merged.
        effective: Box<RawValue> = "effective",
        /// Where they come from.
        sources: Box<RawValue> = "sources",
        /// What follows from them: model, effort and more.
        applied: Box<RawValue> = "applied",
    }
}

wire_struct! {
    /// The MCP servers.
    pub struct McpStatus {
        /// One by one.
        servers: Vec<McpServerStatus> = "mcpServers",
    }
}

wire_struct! {
    /// An MCP server and how it is.
    pub struct McpServerStatus {
        /// Its name.
        name: String = "name",
        /// `connected`, `failed`, `needs-auth`, `pending` or `disabled`.
        status: String = "status",
        /// What it says about itself.
        server_info: Box<RawValue> = "serverInfo",
        /// Why it failed.
        error: String = "error",
        /// Where it is configured.
        scope: String = "scope",
        /// Its tools.
        tools: Box<RawValue> = "tools",
    }
}

wire_struct! {
    /// What changed in the dynamic set of MCP servers.
    pub struct McpServersChange {
        /// New ones.
        added: Vec<String> = "added",
        /// Those that are gone.
        removed: Vec<String> = "removed",
        /// Why some could not be added, by name.
        errors: Box<RawValue> = "errors",
    }
}

wire_struct! {
    /// What a rewind did, or would do.
    pub struct Rewind {
        /// Whether there is a checkpoint.
        can_rewind: bool = "canRewind",
        /// Why not.
        error: String = "error",
        /// The files.
        files_changed: Vec<String> = "filesChanged",
        /// Lines that come back.
        insertions: u64 = "insertions",
        /// Lines that go.
        deletions: u64 = "deletions",
    }
}

wire_struct! {
    /// What plugins offer after they were read again.
    pub struct ReloadedPlugins {
        /// The slash commands.
        commands: Box<RawValue> = "commands",
        /// The subagents.
        agents: Box<RawValue> = "agents",
        /// The plugins.
        plugins: Box<RawValue> = "plugins",
        /// The MCP servers.
        mcp_servers: Box<RawValue> = "mcpServers",
        /// How many could not be read.
        error_count: u64 = "error_count",
    }
}

wire_struct! {
    /// A title.
    pub struct Title {
        /// The words.
        title: String = "title",
    }
}

wire_struct! {
    /// The answer to a question beside the conversation.
    pub struct SideAnswer {
        /// The words.
        response: String = "response",
        /// Whether the runtime made them up.
        synthetic: bool = "synthetic",
    }
}
