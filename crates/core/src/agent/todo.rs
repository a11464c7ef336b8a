//! An agent's to-do list.

/// The steps that an agent plans, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TodoList {
    /// The steps. Without any, the list is removed from the session.
    pub items: Vec<TodoItem>,
}

/// One step of a to-do list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TodoItem {
    /// A short description.
    pub text: String,
    /// The step's progress.
    pub status: TodoStatus,
}

/// The progress of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TodoStatus {
    /// Not started.
    Pending,
    /// The agent is working on it.
    InProgress,
    /// Finished.
    Completed,
}
