//! The protocol between warden and host on the control stream.
//!
//! Owns the encoding of both directions: the warden sends reports as lines of text, the host sends orders
//! as single bytes.

/// How the runtime exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuntimeStatus {
    /// Exited with this code.
    Code(i32),
    /// Killed by this signal.
    Signal(i32),
    /// Unknown status.
    Lost,
}

/// A report from the warden to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// The runtime was started with this process id.
    Started(i32),
    /// The runtime could not be started because of this error number.
    Failed(i32),
    /// The runtime and all its descendants have exited.
    Exited(RuntimeStatus),
}

impl Report {
    pub(crate) fn to_line(self) -> String {
        match self {
            Self::Started(pid) => format!("started {pid}\n"),
            Self::Failed(error) => format!("failed {error}\n"),
            Self::Exited(RuntimeStatus::Code(code)) => format!("code {code}\n"),
            Self::Exited(RuntimeStatus::Signal(signal)) => format!("signal {signal}\n"),
            Self::Exited(RuntimeStatus::Lost) => "lost 0\n".to_owned(),
        }
    }

    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let (word, number) = line.trim_end().split_once(' ')?;
        let number = number.parse().ok()?;
        Some(match word {
            "started" => Self::Started(number),
            "failed" => Self::Failed(number),
            "code" => Self::Exited(RuntimeStatus::Code(number)),
            "signal" => Self::Exited(RuntimeStatus::Signal(number)),
            "lost" => Self::Exited(RuntimeStatus::Lost),
            _ => return None,
        })
    }
}

/// An order from the host to the warden. The end of the stream means: terminate the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Send SIGINT to the whole tree.
    Interrupt,
    /// Send SIGTERM to the whole tree; the host decides the next step.
    Terminate,
    /// Send SIGKILL to the whole tree until all processes are gone.
    Kill,
}

impl Order {
    pub(crate) fn to_byte(self) -> u8 {
        match self {
            Self::Interrupt => b'I',
            Self::Terminate => b'T',
            Self::Kill => b'K',
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            b'I' => Some(Self::Interrupt),
            b'T' => Some(Self::Terminate),
            b'K' => Some(Self::Kill),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_round_trip_through_lines() {
        for report in [
            Report::Started(17),
            Report::Failed(2),
            Report::Exited(RuntimeStatus::Code(143)),
            Report::Exited(RuntimeStatus::Signal(9)),
            Report::Exited(RuntimeStatus::Lost),
        ] {
            assert_eq!(Report::from_line(&report.to_line()), Some(report));
        }
    }

    #[test]
    fn orders_round_trip_through_bytes() {
        for order in [Order::Interrupt, Order::Terminate, Order::Kill] {
            assert_eq!(Order::from_byte(order.to_byte()), Some(order));
        }
    }
}
