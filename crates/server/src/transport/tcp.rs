//! Socket options of TCP connections.
//!
//! Enables keep-alive probes: a peer that is suspended or loses its network does not close
//! the connection, which would then keep its slot and its subscriptions forever. The
//! system's probes do not affect a peer that is alive but slow. If a peer disappears while
//! data is in flight, the system also closes the connection, but later: after the last
//! retransmission.

use std::io::Result;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::TcpStream;

/// Idle time before the first keep-alive probe.
const IDLE: Duration = Duration::from_secs(30);

/// Time between two unanswered probes.
const INTERVAL: Duration = Duration::from_secs(10);

/// Unanswered probes after which the connection is closed.
const PROBES: u32 = 3;

/// Sets the options of an accepted connection.
pub(crate) fn prepare(stream: &TcpStream) -> Result<()> {
    // Send small frames without delay.
    stream.set_nodelay(true)?;
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    #[cfg(target_os = "linux")]
    setsockopt(stream, sockopt::TcpKeepIdle, &seconds(IDLE))?;
    #[cfg(target_vendor = "apple")]
    setsockopt(stream, sockopt::TcpKeepAlive, &seconds(IDLE))?;
    setsockopt(stream, sockopt::TcpKeepInterval, &seconds(INTERVAL))?;
    setsockopt(stream, sockopt::TcpKeepCount, &PROBES)?;
    Ok(())
}

fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use nix::sys::socket::getsockopt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn idle_connection_is_probed_within_a_minute() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        prepare(&stream).unwrap();
        assert!(stream.nodelay().unwrap());
        assert!(getsockopt(&stream, sockopt::KeepAlive).unwrap());
        let idle = getsockopt(&stream, sockopt::TcpKeepIdle).unwrap();
        let interval = getsockopt(&stream, sockopt::TcpKeepInterval).unwrap();
        let probes = getsockopt(&stream, sockopt::TcpKeepCount).unwrap();
        assert_eq!((idle, interval, probes), (30, 10, 3));
    }
}
