//! What the warden and the host say to each other on the control stream.
//!
//! Owns both directions' encoding: the warden reports in lines of text, the host orders in single bytes.

/// How the runtime ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuntimeStatus {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// It could not be learned.
    Lost,
}

/// What the warden tells the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// The runtime runs under this process id.
    Started(i32),
    /// The runtime could not be started, because of this error number.
    Failed(i32),
    /// The runtime ended, and so did everything that it started.
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

/// What the host tells the warden. The end of the stream is an order too: end the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// SIGINT to the whole tree.
    Interrupt,
    /// SIGTERM to the whole tree; the host decides what follows.
    Terminate,
    /// SIGKILL to the whole tree until nothing is left.
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
    fn every_report_is_read_back_as_it_was_written() {
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
    fn every_order_is_read_back_as_it_was_written() {
        for order in [Order::Interrupt, Order::Terminate, Order::Kill] {
            assert_eq!(Order::from_byte(order.to_byte()), Some(order));
        }
    }
}
