//! What every TCP connection is set to before anything is read of it.
//!
//! Owns how the other end's death is noticed: a machine that fell asleep or lost its
//! network says no goodbye, and would keep its place and its part in sessions for ever.
//! The system asks for a sign of life; who is alive but slow is none of its business. Who
//! dies while something is on its way to it is given up by the system, too, but later:
//! after the last of its retransmissions.

use std::io::Result;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::TcpStream;

/// How long a connection may be silent before the other end is asked for a sign of life.
const IDLE: Duration = Duration::from_secs(30);

/// Time between two questions without an answer.
const INTERVAL: Duration = Duration::from_secs(10);

/// Questions without an answer after which the other end is dead.
const PROBES: u32 = 3;

/// Sets up a connection that was just accepted.
pub(crate) fn prepare(stream: &TcpStream) -> Result<()> {
    // Small frames must not wait for more to come.
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
    async fn a_silent_connection_is_asked_for_a_sign_of_life_within_a_minute() {
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
