//! The limit of open files, and its division between clients and turns.
//!
//! Every connection, runtime and file needs descriptors. Clients get none of the last
//! ones: otherwise a turn could neither start a runtime nor write to the storage.

use innkeeper_gateway::GatewayLimits;
use innkeeper_server::ServerLimits;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Highest limit that is requested: far more than the host can use. macOS rejects a limit
/// above its `OPEN_MAX`.
const MAX_LIMIT: u64 = if cfg!(target_vendor = "apple") { 10_240 } else { 65_536 };

/// Limit that is assumed if the system does not report one.
const ASSUMED_LIMIT: u64 = 256;

/// Most descriptors that are reserved for turns; less if that is more than half.
const MAX_RESERVE: usize = 1024;

/// The number of files that this process may open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenFiles(usize);

impl OpenFiles {
    /// Raises the limit as far as the system permits. Runtimes inherit it; they raise it
    /// themselves anyway.
    pub(crate) fn raise() -> Self {
        let limit = match getrlimit(Resource::RLIMIT_NOFILE) {
            Ok((soft, hard)) => {
                let wanted = hard.min(MAX_LIMIT).max(soft);
                match setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) {
                    Ok(()) => wanted,
                    Err(error) => {
                        tracing::warn!(%error, soft, wanted, "cannot raise the limit of open files");
                        soft
                    }
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read the limit of open files");
                ASSUMED_LIMIT
            }
        };
        Self(usize::try_from(limit).unwrap_or(usize::MAX))
    }

    /// Lowers the limits of the server so that clients leave enough descriptors for turns.
    pub(crate) fn limit_server(self, limits: &mut ServerLimits) {
        limits.descriptors = self.0 - MAX_RESERVE.min(self.0 / 2);
        limits.unauthenticated = limits.unauthenticated.min(self.share(16));
    }

    /// Lowers the limits of the gateway so that its sockets fit into the reserve.
    pub(crate) fn limit_gateway(self, limits: &mut GatewayLimits) {
        limits.unauthenticated = limits.unauthenticated.min(self.share(16));
        limits.connections = limits.connections.min(self.share(8));
    }

    fn share(self, divisor: usize) -> usize {
        (self.0 / divisor).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_divided_between_clients_and_turns() {
        for (limit, descriptors, unauthenticated, connections) in
            [(256, 128, 16, 32), (1024, 512, 64, 128), (4096, 3072, 256, 512), (65_536, 64_512, 256, 4096)]
        {
            let (mut server, mut gateway) = (ServerLimits::default(), GatewayLimits::default());
            OpenFiles(limit).limit_server(&mut server);
            OpenFiles(limit).limit_gateway(&mut gateway);
            assert_eq!((server.descriptors, server.unauthenticated), (descriptors, unauthenticated));
            assert_eq!((gateway.connections, gateway.unauthenticated), (connections, unauthenticated));
        }
    }
}
