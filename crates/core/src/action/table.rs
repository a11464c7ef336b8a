//! The action table: one row for each protocol action.
//!
//! The rows expand into the arms of one `match`, so a missing row is a compile error. The
//! columns are the fields of [`ActionMeaning`], in the same order; `-` stands for `None`,
//! `false` or `Merging::Never`.
//!
//! This host does not have canvas, annotations, terminal or automation channels yet, so
//! their rows do not accept any action from clients.

use ahp_types::actions::StateAction;

use super::{ActionMeaning, AgentRule, AgentUpdate, ClientRule, Dispatched, Durability, Merging, TurnEffect};
use crate::channel::ChannelKind;

/// Expands the table into [`meaning`].
macro_rules! table {
    ($($channel:tt { $($name:ident $client:tt $agent:tt $host:ident $turn:tt $queue:tt $list:tt $agent_update:tt
        $work:tt $merge:tt;)* })*) => {
        /// Returns the table row of an action.
        pub(crate) fn meaning(action: &StateAction) -> ActionMeaning<'_> {
            match action {
                $($(StateAction::$name(action) => ActionMeaning {
                    channel: column!(ChannelKind, $channel),
                    client: client!($name, action, $client),
                    agent: agent!(action, $agent),
                    host: Durability::$host,
                    turn: column!(TurnEffect, $turn),
                    resumes_queue: flag!(Resumes, $queue),
                    shows_in_list: flag!(Shown, $list),
                    agent_update: column!(AgentUpdate, $agent_update),
                    shows_work: flag!(Works, $work),
                    merging: merging!(action, $merge),
                },)*)*
            }
        }

        /// Returns the turn id in an agent's action, if the action has one.
        pub(crate) fn turn_of(action: &mut StateAction) -> Option<&mut String> {
            match action {
                $($(StateAction::$name(action) => turn!(action, $agent),)*)*
            }
        }

        /// The names of all rows.
        #[cfg(test)]
        pub(super) const NAMES: &[&str] = &[$($(stringify!($name),)*)*];
    };
}

/// Expands a column that names an enum variant.
macro_rules! column {
    ($type:ident, -) => {
        None
    };
    ($type:ident, $variant:ident) => {
        Some($type::$variant)
    };
}

/// Expands a column that is either `-` or one fixed word. Any other word does not
/// compile.
macro_rules! flag {
    ($word:ident, -) => {
        false
    };
    (Resumes, Resumes) => {
        true
    };
    (Shown, Shown) => {
        true
    };
    (Works, Works) => {
        true
    };
}

macro_rules! client {
    ($name:ident, $action:ident, -) => {
        None
    };
    ($name:ident, $action:ident, $durability:ident) => {
        Some(ClientRule { action: Dispatched::$name($action), durability: Durability::$durability })
    };
}

macro_rules! agent {
    ($action:ident, -) => {
        constant($action, None)
    };
    ($action:ident, InTurn) => {
        Some(AgentRule::InTurn(&$action.turn_id))
    };
    ($action:ident, $rule:ident) => {
        constant($action, Some(AgentRule::$rule))
    };
}

macro_rules! turn {
    ($action:ident, InTurn) => {
        Some(&mut $action.turn_id)
    };
    ($action:ident, $rule:tt) => {
        constant($action, None)
    };
}

macro_rules! merging {
    ($action:ident, -) => {
        Merging::Never
    };
    ($action:ident, Merges) => {
        Merging::from($action)
    };
}

/// Returns a column value that does not depend on the action.
fn constant<A, T>(_: &A, value: T) -> T {
    value
}

table! {
    Root {                               // client agent   host  turn      queue   list  update      work  merge
        RootAgentsChanged                   -      -       After -         -       -     -           -     -;
        RootActiveSessionsChanged           -      -       After -         -       -     -           -     Merges;
        RootConfigChanged                   Ahead  -       After -         -       -     -           -     -;
        RootTerminalsChanged                -      -       After -         -       -     -           -     -;
    }
    Session {                            // client agent   host  turn      queue   list  update      work  merge
        SessionReady                        -      -       After -         -       Shown -           -     -;
        SessionCreationFailed               -      -       After -         -       Shown -           -     -;
        SessionChatAdded                    -      -       After -         -       Shown -           -     -;
        SessionChatRemoved                  -      -       After -         -       Shown -           -     -;
        SessionChatUpdated                  -      -       After -         -       Shown -           -     -;
        SessionChatsReordered               -      -       After -         -       Shown -           -     -;
        SessionDefaultChatChanged           -      -       After -         -       Shown -           -     -;
        SessionTitleChanged                 Ahead  -       Ahead -         -       Shown -           -     -;
        SessionIsReadChanged                Ahead  -       After -         -       Shown -           -     -;
        SessionIsArchivedChanged            Ahead  -       After -         -       Shown -           -     -;
        SessionActivityChanged              -      -       After -         -       Shown -           -     Merges;
        SessionChangesetsChanged            -      -       After -         -       Shown -           -     -;
        SessionServerToolsChanged           -      Anytime After -         -       Shown -           -     -;
        SessionActiveClientSet              After  -       After -         -       Shown Settings    -     -;
        SessionActiveClientRemoved          After  -       After -         -       Shown Settings    -     -;
        SessionWorkingDirectorySet          Ahead  -       After -         -       Shown Directories -     -;
        SessionWorkingDirectoryRemoved      Ahead  -       After -         -       Shown Directories -     -;
        SessionWorkingDirectoryReplaced     Ahead  -       After -         -       Shown Directories -     -;
        SessionInputNeededSet               -      -       After -         -       Shown -           -     -;
        SessionInputNeededRemoved           -      -       After -         -       Shown -           -     -;
        SessionCustomizationsChanged        -      Anytime After -         -       Shown -           -     -;
        SessionCustomizationToggled         Ahead  -       After -         -       Shown -           -     -;
        SessionCustomizationUpdated         -      Anytime After -         -       Shown -           -     -;
        SessionCustomizationRemoved         -      Anytime After -         -       Shown -           -     -;
        SessionMcpServerStateChanged        -      Anytime After -         -       Shown -           -     -;
        SessionMcpServerStartRequested      Ahead  -       After -         -       Shown -           -     -;
        SessionMcpServerStopRequested       Ahead  -       After -         -       Shown -           -     -;
        SessionMcpServerBackgroundRequested Ahead  -       After -         -       Shown -           -     -;
        SessionConfigChanged                Ahead  -       After -         -       Shown Settings    -     -;
        SessionMetaChanged                  -      -       After -         -       Shown -           -     -;
    }
    Chat {                               // client agent   host  turn      queue   list  update      work  merge
        ChatTurnStarted                     Ahead  -       Ahead Starts    Resumes Shown -           -     -;
        ChatDelta                           -      InTurn  After -         -       -     -           -     Merges;
        ChatResponsePart                    -      InTurn  After -         -       -     -           Works -;
        ChatToolCallStart                   -      InTurn  After -         -       Shown -           Works -;
        ChatToolCallDelta                   -      InTurn  After -         -       -     -           -     Merges;
        ChatToolCallReady                   -      InTurn  After -         -       Shown -           -     -;
        ChatToolCallConfirmed               Ahead  InTurn  Ahead -         -       Shown -           -     -;
        ChatToolCallComplete                Ahead  InTurn  After -         -       Shown -           -     -;
        ChatToolCallResultConfirmed         Ahead  -       After -         -       Shown -           -     -;
        ChatToolCallContentChanged          After  InTurn  After -         -       Shown -           -     -;
        ChatToolCallAuthRequired            -      InTurn  After -         -       Shown -           -     -;
        ChatToolCallAuthResolved            -      InTurn  After -         -       Shown -           -     -;
        ChatTurnComplete                    -      -       Ahead Ends      -       Shown -           Works -;
        ChatTurnCancelled                   Ahead  -       Ahead Ends      -       Shown -           -     -;
        ChatError                           -      -       Ahead Ends      -       Shown -           -     -;
        ChatTurnResume                      Ahead  -       After Resumes   Resumes Shown -           -     -;
        ChatActivityChanged                 -      Anytime After -         -       Shown -           -     Merges;
        ChatBackgroundWorkSet               -      Anytime After -         -       Shown -           -     -;
        ChatBackgroundWorkRemoved           -      Anytime After -         -       Shown -           -     -;
        ChatMovableChanged                  -      -       After -         -       Shown -           -     -;
        ChatChangesetsChanged               -      -       After -         -       Shown -           -     -;
        ChatCanvasesChanged                 -      -       After -         -       Shown -           -     -;
        ChatUsage                           -      InTurn  After -         -       -     -           -     Merges;
        ChatReasoning                       -      InTurn  After -         -       -     -           -     Merges;
        ChatWorkingDirectorySet             Ahead  -       Ahead -         -       Shown -           -     -;
        ChatWorkingDirectoryRemoved         Ahead  -       Ahead -         -       Shown -           -     -;
        ChatPendingMessageSet               Ahead  -       After -         Resumes Shown -           -     -;
        ChatPendingMessageRemoved           Ahead  -       Ahead -         -       Shown -           -     -;
        ChatQueuedMessagesReordered         Ahead  -       After -         Resumes Shown -           -     -;
        ChatDraftChanged                    After  -       After -         -       Shown -           -     -;
        ChatIsReadChanged                   Ahead  -       After -         -       Shown -           -     -;
        ChatIsArchivedChanged               Ahead  -       After -         -       Shown -           -     -;
        ChatInputRequested                  -      Running After -         -       Shown -           -     -;
        ChatInputAnswerChanged              After  -       After -         -       Shown -           -     -;
        ChatInputCompleted                  Ahead  Running After -         -       Shown -           -     -;
        ChatTruncated                       Ahead  -       Ahead Truncates -       Shown -           -     -;
        ChatTurnsLoaded                     -      -       After -         -       Shown -           -     -;
    }
    Canvas {                             // client agent   host  turn      queue   list  update      work  merge
        CanvasStateChanged                  -      -       After -         -       -     -           -     -;
    }
    Changeset {                          // client agent   host  turn      queue   list  update      work  merge
        ChangesetStatusChanged              -      -       After -         -       -     -           -     -;
        ChangesetFileSet                    -      -       After -         -       -     -           -     -;
        ChangesetFileRemoved                -      -       After -         -       -     -           -     -;
        ChangesetFilesReviewChanged         Ahead  -       After -         -       -     -           -     -;
        ChangesetContentChanged             -      -       After -         -       -     -           -     -;
        ChangesetOperationsChanged          -      -       After -         -       -     -           -     -;
        ChangesetOperationStatusChanged     -      -       After -         -       -     -           -     -;
        ChangesetCleared                    -      -       After -         -       -     -           -     -;
    }
    Annotations {                        // client agent   host  turn      queue   list  update      work  merge
        AnnotationsSet                      -      -       After -         -       -     -           -     -;
        AnnotationsUpdated                  -      -       After -         -       -     -           -     -;
        AnnotationsRemoved                  -      -       After -         -       -     -           -     -;
        AnnotationsEntrySet                 -      -       After -         -       -     -           -     -;
        AnnotationsEntryRemoved             -      -       After -         -       -     -           -     -;
    }
    Terminal {                           // client agent   host  turn      queue   list  update      work  merge
        TerminalData                        -      -       After -         -       -     -           -     -;
        TerminalInput                       -      -       After -         -       -     -           -     -;
        TerminalResized                     -      -       After -         -       -     -           -     -;
        TerminalClaimed                     -      -       After -         -       -     -           -     -;
        TerminalTitleChanged                -      -       After -         -       -     -           -     -;
        TerminalCwdChanged                  -      -       After -         -       -     -           -     -;
        TerminalExited                      -      -       After -         -       -     -           -     -;
        TerminalCleared                     -      -       After -         -       -     -           -     -;
        TerminalCommandDetectionAvailable   -      -       After -         -       -     -           -     -;
        TerminalCommandExecuted             -      -       After -         -       -     -           -     -;
        TerminalCommandFinished             -      -       After -         -       -     -           -     -;
    }
    ResourceWatch {                      // client agent   host  turn      queue   list  update      work  merge
        ResourceWatchChanged                -      -       After -         -       -     -           -     -;
    }
    Automations {                        // client agent   host  turn      queue   list  update      work  merge
        AutomationCreateRequested           -      -       After -         -       -     -           -     -;
        AutomationUpdateRequested           -      -       After -         -       -     -           -     -;
        AutomationSet                       -      -       After -         -       -     -           -     -;
        AutomationRemoved                   -      -       After -         -       -     -           -     -;
    }
    AutomationRun {                      // client agent   host  turn      queue   list  update      work  merge
        AutomationRunLifecycleChanged       -      -       After -         -       -     -           -     -;
        AutomationRunSessionSet             -      -       After -         -       -     -           -     -;
        AutomationRunSessionRemoved         -      -       After -         -       -     -           -     -;
        AutomationRunPrimarySessionChanged  -      -       After -         -       -     -           -     -;
        AutomationRunCancelRequested        -      -       After -         -       -     -           -     -;
    }
    - {                                  // client agent   host  turn      queue   list  update      work  merge
        Unknown                             -      -       After -         -       -     -           -     -;
    }
}
