//! The progress of `createSession`, for the connection that requested it.

use ahp_types::notifications::ProgressParams;
use innkeeper_core::ChannelUri;

use crate::connection::Connection;

/// The method of the notification.
const METHOD: &str = "root/progress";

/// The one step of creating a session. The agent starts later, with the first message.
const TOTAL: i64 = 1;

/// Reports the begin of the creation, and its end when dropped.
pub(super) struct CreationProgress<'a> {
    connection: &'a Connection,
    token: String,
}

impl<'a> CreationProgress<'a> {
    /// Reports that the creation begins.
    pub(super) fn begin(connection: &'a Connection, token: String) -> Self {
        let progress = Self { connection, token };
        progress.report(0, Some("Creating the session".to_owned()));
        progress
    }

    fn report(&self, progress: i64, message: Option<String>) {
        let params = ProgressParams {
            channel: ChannelUri::root().as_str().to_owned(),
            progress_token: self.token.clone(),
            progress,
            total: Some(TOTAL),
            message,
        };
        self.connection.notify(METHOD, &params);
    }
}

impl Drop for CreationProgress<'_> {
    fn drop(&mut self) {
        // Also after a failure, so that clients do not wait.
        self.report(TOTAL, None);
    }
}
