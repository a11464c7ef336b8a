//! Opens a Claude runtime for a session.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ahp_types::common::JsonObject;
use ahp_types::state::{
    AgentCapabilities, AgentInfo, MultipleChatsCapability, MultipleWorkingDirectoriesCapability,
};
use innkeeper_claude::{
    ApiEndpoint, BypassPermissions, Conversation, Directories, HookRegistration, LaunchOptions,
    PermissionMode, Program, Runtime, RuntimeVersion, StartError, WardenProgram, is_reserved_variable,
};
use innkeeper_claude::{project, transcript};
use innkeeper_core::agent::{
    AgentConnection, AgentFeatures, AgentOffer, AgentProvider, BoxFuture, COMMAND_CAPACITY, CommandInfo,
    ConversationRecords, EVENT_CAPACITY, History, OpenAgent, OpenError, ResolvedConfig,
};
use innkeeper_core::model::ModelEndpoint;
use innkeeper_core::policy::PathResolver;
use innkeeper_core::trust::FolderTrust;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::config::{self, ModeOffer};
use super::driver::{AutoMode, BEFORE_TOOL_USE, ClaudeDriver, ConversationIdentity};
use super::failures;
use super::models::{self, AgentModels};
use super::records::ClaudeRecords;
use super::selection::Choice;
use super::sensitive_files;
use super::tool_access::AccessResolver;
use super::trust::{self, ProjectFolder, TrustedProject};

/// The provider id, also the URI scheme of its sessions.
pub(super) const PROVIDER: &str = "claude";

/// Commands that every supported runtime has, regardless of plugins. The others are known
/// only once a runtime is running. `/clear` is omitted: one version rejects it and the
/// other starts a new conversation.
const COMMANDS: [(&str, &str); 3] = [
    ("compact", "Summarize the conversation to free up context"),
    ("context", "Show what uses the context"),
    ("cost", "Show the cost of the conversation"),
];

/// Seconds that the runtime waits for the host's decision before it uses a tool. The host
/// decides at once; after the timeout the runtime would continue without the decision.
const HOOK_TIMEOUT: u32 = 86_400;

/// Finds the runtime to start. Called at every start, since a runtime may be installed
/// while the host runs. Never downloads. The error tells the user what to do.
pub type ProgramSource = Arc<dyn Fn() -> Result<Program, String> + Send + Sync>;

/// Configuration of [`ClaudeProvider`].
pub struct ClaudeProviderConfig {
    /// Finds the runtime.
    pub program: ProgramSource,
    /// The process that supervises each runtime.
    pub warden: WardenProgram,
    /// Endpoint of the runtimes' model requests.
    pub models: Arc<dyn ModelEndpoint>,
    /// Environment that runtimes inherit.
    pub environment: BTreeMap<OsString, OsString>,
    /// Working directory of sessions without one.
    pub default_directory: PathBuf,
    /// Directory for short-lived private files.
    pub scratch_dir: PathBuf,
    /// Directory that records the started runtimes.
    pub registry_dir: PathBuf,
    /// The user's decisions about folders.
    pub trust: Arc<dyn FolderTrust>,
    /// Resolves the paths of tool calls.
    pub paths: Arc<dyn PathResolver>,
    /// Time limit for the start of a runtime.
    pub start_timeout: Duration,
    /// Why the mode that skips all permission checks is not available, as text for the user.
    pub bypass_refusal: Option<String>,
}

/// The agent provider for Claude Code.
pub struct ClaudeProvider {
    config: Arc<ClaudeProviderConfig>,
    /// The offer that clients see.
    offer: watch::Sender<AgentOffer>,
    models: AgentModels,
    records: Arc<ClaudeRecords>,
    /// What is known about the permission mode `auto`.
    auto_mode: Arc<AutoMode>,
    /// The driver tasks, so that the host can wait for them.
    tasks: TaskTracker,
}

impl std::fmt::Debug for ClaudeProvider {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ClaudeProvider").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ClaudeProviderConfig {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ClaudeProviderConfig").finish_non_exhaustive()
    }
}

impl ClaudeProvider {
    /// Creates a provider whose drivers run on `tasks`.
    pub fn new(config: ClaudeProviderConfig, tasks: TaskTracker) -> Self {
        let records = Arc::new(ClaudeRecords::new(&config.environment));
        let models = AgentModels::new(Arc::clone(&config.models));
        let (offer, following) = models::follow(offer(), models.clone());
        tasks.spawn(following);
        Self { config: Arc::new(config), offer, models, records, auto_mode: Arc::default(), tasks }
    }
}

impl AgentProvider for ClaudeProvider {
    fn offer(&self) -> watch::Receiver<AgentOffer> {
        self.offer.subscribe()
    }

    fn records(&self) -> Option<Arc<dyn ConversationRecords>> {
        Some(Arc::clone(&self.records) as Arc<dyn ConversationRecords>)
    }

    fn resolve_config(&self, chosen: &JsonObject) -> ResolvedConfig {
        let bypass_refusal = self.config.bypass_refusal.clone();
        config::resolve(chosen, &ModeOffer { auto: self.auto_mode.is_accepted(), bypass_refusal })
    }

    fn open(
        &self,
        request: OpenAgent,
        cancel: CancellationToken,
    ) -> BoxFuture<Result<AgentConnection, OpenError>> {
        let (config, tasks) = (Arc::clone(&self.config), self.tasks.clone());
        let (auto_mode, models) = (Arc::clone(&self.auto_mode), self.models.clone());
        Box::pin(async move {
            let selected = Choice::of(&request.selection);
            // A message without another model fails if the service does not have this one.
            let choice = models.resolve(selected.clone()).unwrap_or(selected);
            let mut options = launch_options(&config, &request, &choice)?;
            let project = trusted_project(&config, &request, &options).await?;
            if project.is_none() {
                project::restrict(&mut options);
            }
            let access = access_resolver(&config, &options).await?;
            let recorder = request.edits.recorder(access.directories());
            let identity = identity(&request, &options.conversation);
            let asked = StartedProgram::of(&options);
            let (runtime, messages) = match Runtime::start(options, cancel.clone()).await {
                Ok(started) => started,
                Err(error) => {
                    let explained = cancel.run_until_cancelled(asked.open_error(&config, error)).await;
                    return Err(explained.unwrap_or(OpenError::Cancelled));
                }
            };
            tracing::info!(conversation = %request.conversation, pid = runtime.pid(), "started Claude runtime");
            let (commands, command_receiver) = mpsc::channel(COMMAND_CAPACITY);
            let (event_sender, events) = mpsc::channel(EVENT_CAPACITY);
            let close = CancellationToken::new();
            models.note_reported(runtime.initialized());
            let driver = ClaudeDriver::new(
                (runtime, messages),
                (command_receiver, event_sender),
                close.clone(),
                (request, identity),
                (models, choice),
                project,
                (access, recorder, auto_mode),
            );
            tasks.spawn(driver.run());
            Ok(AgentConnection { commands, events, close })
        })
    }
}

fn offer() -> AgentOffer {
    let info = AgentInfo {
        provider: PROVIDER.to_owned(),
        display_name: "Claude".to_owned(),
        // The description and the models follow the catalogue.
        description: String::new(),
        models: Vec::new(),
        protected_resources: None,
        customizations: None,
        capabilities: Some(AgentCapabilities {
            multiple_chats: Some(MultipleChatsCapability::default()),
            // The runtime stores transcripts by the directory that it was started in.
            multiple_working_directories: Some(MultipleWorkingDirectoriesCapability {
                immutable_primary: Some(true),
                primary_replacement: None,
            }),
        }),
    };
    let command = |(name, description): &(&str, &str)| CommandInfo {
        name: (*name).to_owned(),
        description: (*description).to_owned(),
    };
    let features = AgentFeatures {
        questions: true,
        live_config: true,
        steering: true,
        stop_work: true,
        release: true,
        ..AgentFeatures::default()
    };
    AgentOffer { commands: COMMANDS.iter().map(command).collect(), features, ..AgentOffer::new(info) }
}

fn launch_options(
    config: &ClaudeProviderConfig,
    request: &OpenAgent,
    choice: &Choice,
) -> Result<LaunchOptions, OpenError> {
    let program = (config.program)()
        .map_err(|message| OpenError::Failed { error_type: "runtime_missing".to_owned(), message })?;
    let (cwd, others) = match request.working_directories.split_first() {
        Some((first, others)) => (first.clone(), others.to_vec()),
        None => (config.default_directory.clone(), Vec::new()),
    };
    if !cwd.is_dir() {
        return Err(OpenError::Failed {
            error_type: "working_directory_missing".to_owned(),
            message: format!("The working directory {} does not exist.", cwd.display()),
        });
    }
    if let Some(reserved) = request.environment.keys().find(|name| is_reserved_variable(name)) {
        return Err(OpenError::Failed {
            error_type: "invalid_environment".to_owned(),
            message: format!(
                "The environment variable {reserved} is set by Innkeeper. Remove it from the session's environment."
            ),
        });
    }
    let access = config.models.access(request.conversation);
    let directories = Directories { cwd, scratch: config.scratch_dir.clone() };
    let conversation = conversation(config, request)?;
    let variables = request.environment.iter().map(|(name, value)| (name.into(), value.into()));
    Ok(LaunchOptions {
        endpoint: Some(ApiEndpoint { base_url: access.base_url, bearer: access.bearer }),
        // Passed at every start: a runtime that resumes a conversation does not always
        // restore them from its transcript.
        model: choice.model_name().map(str::to_owned),
        effort: choice.effort,
        agent: choice.agent.clone(),
        // Without it, the user's settings would choose a mode that clients do not see.
        permission_mode: Some(config::permission_mode(&request.config).unwrap_or(PermissionMode::Default)),
        bypass_permissions: match config.bypass_refusal {
            Some(_) => BypassPermissions::Forbidden,
            None => BypassPermissions::Selectable,
        },
        hooks: vec![HookRegistration {
            event: "PreToolUse".to_owned(),
            matcher: None,
            callbacks: vec![BEFORE_TOOL_USE.to_owned()],
            timeout_seconds: Some(HOOK_TIMEOUT),
            blocks_on_failure: true,
        }],
        hook_events: true,
        per_task_stop: true,
        settings: sensitive_files::settings(),
        environment: config.environment.clone(),
        overrides: variables.collect(),
        registry: Some(config.registry_dir.clone()),
        directories: others,
        start_timeout: config.start_timeout,
        ..LaunchOptions::new(program, config.warden.clone(), conversation, directories)
    })
}

/// Resolves the working directories, on a thread that may block.
async fn access_resolver(
    config: &ClaudeProviderConfig,
    options: &LaunchOptions,
) -> Result<AccessResolver, OpenError> {
    let (paths, cwd, others) = (Arc::clone(&config.paths), options.cwd.clone(), options.directories.clone());
    let config_dir = transcript::config_dir(&config.environment);
    let resolve = move || AccessResolver::new(paths, cwd, &others, config_dir.as_deref());
    tokio::task::spawn_blocking(resolve).await.map_err(|error| OpenError::Failed {
        error_type: "internal_error".to_owned(),
        message: format!("Cannot resolve the working directories: {error}."),
    })
}

/// The project whose settings the runtime may use, if any. Asks the user if necessary.
async fn trusted_project(
    config: &ClaudeProviderConfig,
    request: &OpenAgent,
    options: &LaunchOptions,
) -> Result<Option<TrustedProject>, OpenError> {
    let folder = ProjectFolder {
        cwd: options.cwd.clone(),
        others: options.directories.clone(),
        environment: config.environment.clone(),
        trusted: request.trusted.clone(),
        answer: request.answer.clone(),
    };
    let trust = Arc::clone(&config.trust);
    tokio::task::spawn_blocking(move || trust::judge(folder, trust)).await.unwrap_or_else(|error| {
        Err(OpenError::Failed {
            error_type: "internal_error".to_owned(),
            message: format!("Cannot check the settings of the folder: {error}."),
        })
    })
}

/// Returns the conversation to open. The runtime refuses to start one that has a
/// transcript, and to resume one that has none. Starting an empty conversation instead of
/// one that clients display would lose data, so a missing transcript is an error.
fn conversation(config: &ClaudeProviderConfig, request: &OpenAgent) -> Result<Conversation, OpenError> {
    let is_written = |id: Uuid| transcript::find(&config.environment, id).is_some();
    match &request.history {
        History::Resume => {
            // Older versions of the host did not store a token; the runtime then had the host's id.
            let named = request.resume_token.as_ref().and_then(ConversationIdentity::parse);
            let ConversationIdentity { id, has_messages, .. } =
                named.unwrap_or_else(|| ConversationIdentity::new(request.conversation, true));
            match is_written(id) {
                true => Ok(Conversation::Resume(id)),
                false if has_messages => Err(history_missing(config, id)),
                false => Ok(Conversation::New(id)),
            }
        }
        History::Fresh | History::Rebuild(_) if is_written(request.conversation) => {
            Ok(Conversation::New(Uuid::new_v4()))
        }
        History::Fresh | History::Rebuild(_) => Ok(Conversation::New(request.conversation)),
        History::Branch(_) => Err(OpenError::Failed {
            error_type: "branch_not_supported".to_owned(),
            message: "Forking a Claude conversation is not supported yet; start a new chat instead."
                .to_owned(),
        }),
    }
}

fn identity(request: &OpenAgent, conversation: &Conversation) -> ConversationIdentity {
    let has_messages = !matches!(conversation, Conversation::New(_));
    let stored = request.resume_token.as_ref().and_then(ConversationIdentity::parse);
    let earlier = stored.map(|stored| stored.renamed(conversation.id()).earlier).unwrap_or_default();
    ConversationIdentity { id: conversation.id(), has_messages, earlier }
}

fn history_missing(config: &ClaudeProviderConfig, id: Uuid) -> OpenError {
    let place = match transcript::config_dir(&config.environment) {
        Some(directory) => directory.join("projects").display().to_string(),
        None => "its configuration directory".to_owned(),
    };
    let message = format!("Cannot find Claude's transcript of this conversation ({id}.jsonl) in {place}.");
    OpenError::HistoryMissing { message }
}

/// What a failed start is explained with.
struct StartedProgram {
    program: Program,
    conversation: Conversation,
}

impl StartedProgram {
    fn of(options: &LaunchOptions) -> Self {
        Self { program: options.program.clone(), conversation: options.conversation }
    }

    async fn open_error(&self, config: &ClaudeProviderConfig, error: StartError) -> OpenError {
        let mut message = format!("Cannot start Claude: {}", with_causes(&error));
        let error_type = match &error {
            StartError::Cancelled => return OpenError::Cancelled,
            StartError::Exited { exit, .. }
                if !matches!(self.conversation, Conversation::New(_))
                    && failures::is_missing_conversation(&exit.stderr_tail) =>
            {
                return history_refused(config, self.conversation.id());
            }
            StartError::Program { .. } => {
                message.push_str(
                    ".\nRun `innkeeper runtime install`, or correct --claude; then resume the turn.",
                );
                "runtime_missing"
            }
            StartError::Exited { .. } | StartError::TimedOut { .. } | StartError::Refused { .. } => {
                match RuntimeVersion::of(&self.program, &config.environment).await {
                    Some(version) if version < RuntimeVersion::OLDEST_SUPPORTED => {
                        message = format!(
                            "The Claude runtime is too old: it has version {version}, and the oldest supported \
                             version is {}.\nRun `innkeeper runtime install`, or update it; then resume the turn.",
                            RuntimeVersion::OLDEST_SUPPORTED
                        );
                        "runtime_too_old"
                    }
                    Some(_) | None => start_failure(&error, &mut message),
                }
            }
            StartError::WorkingDirectory { .. }
            | StartError::Warden { .. }
            | StartError::Scratch { .. }
            | StartError::Lease(_)
            | StartError::Transport(_) => "runtime_start_failed",
        };
        OpenError::Failed { error_type: error_type.to_owned(), message }
    }
}

/// The type of a failed start of a supported runtime. Adds the advice to the message.
fn start_failure(error: &StartError, message: &mut String) -> &'static str {
    let stderr = match error {
        StartError::Exited { exit, .. } => exit.stderr_tail.as_str(),
        StartError::TimedOut { stderr_tail, .. } => stderr_tail.as_str(),
        StartError::Refused { .. }
        | StartError::Cancelled
        | StartError::Program { .. }
        | StartError::WorkingDirectory { .. }
        | StartError::Warden { .. }
        | StartError::Scratch { .. }
        | StartError::Lease(_)
        | StartError::Transport(_) => "",
    };
    let (error_type, advice) = if failures::is_out_of_memory(stderr) {
        ("runtime_out_of_memory", "The runtime ran out of memory. Free some memory, then resume the turn.")
    } else if matches!(error, StartError::TimedOut { .. }) {
        (
            "runtime_start_timeout",
            "Resume the turn to try again. If this continues, check --claude and the hooks.",
        )
    } else {
        ("runtime_start_failed", "Resume the turn to try again. If this continues, check --claude.")
    };
    message.push_str(".\n");
    message.push_str(advice);
    error_type
}

/// The runtime has a transcript but does not accept it.
fn history_refused(config: &ClaudeProviderConfig, id: Uuid) -> OpenError {
    let place = match transcript::find(&config.environment, id) {
        Some(path) => path.display().to_string(),
        None => format!("{id}.jsonl"),
    };
    let message = format!(
        "Claude cannot continue this conversation: its transcript ({place}) is damaged or belongs to another \
         directory."
    );
    OpenError::HistoryMissing { message }
}

fn with_causes(error: &StartError) -> String {
    let mut message = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        message.push_str(": ");
        message.push_str(&cause.to_string());
        source = cause.source();
    }
    message
}
