//! The response that a load requests from the fake upstream, as text in the user's message.
//!
//! Every proxy forwards the message, even one that rebuilds the request.
//! Invariant: [`Plan::find`] parses what `Display` writes.

use std::fmt;

/// Precedes the fields of a plan.
const START: &str = "bench-plan";
/// Follows the fields; no field contains it.
const END: &str = ".";

/// The response that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Number of events, including the framing events.
    pub events: u32,
    /// When the events are sent.
    pub pace: StreamPace,
    /// What happens to the connection after the response.
    pub ending: AfterResponse,
}

/// When the events of a response are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPace {
    /// As fast as the client reads, each flushed separately.
    Full,
    /// In turn with the other streams of a group; starts when the group is complete.
    Shared {
        /// Group id.
        group: u32,
        /// Number of streams in the group.
        streams: u32,
        /// Events per second over all streams of the group.
        per_second: u32,
    },
    /// The first event, then none until the client disconnects.
    Hold,
    /// One event per interval.
    Drip {
        /// Interval in milliseconds.
        millis: u32,
    },
}

/// What the upstream does with the connection after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterResponse {
    /// Kept open for the next request.
    KeepAlive,
    /// Closed, which removes it from a proxy's pool.
    Close,
}

impl Plan {
    /// A response of `events` events at full speed on a connection that is kept open.
    pub fn full(events: u32) -> Self {
        Self { events, pace: StreamPace::Full, ending: AfterResponse::KeepAlive }
    }

    /// Finds and parses the plan in a request body.
    pub fn find(body: &[u8]) -> Result<Self, PlanError> {
        let from = memchr::memmem::find(body, START.as_bytes()).ok_or(PlanError::Missing)?;
        let rest = body.get(from + START.len()..).ok_or(PlanError::Missing)?;
        let to = memchr::memmem::find(rest, END.as_bytes()).ok_or(PlanError::Missing)?;
        let fields = rest.get(..to).and_then(|fields| std::str::from_utf8(fields).ok());
        Self::parse(fields.ok_or(PlanError::Missing)?)
    }

    fn parse(fields: &str) -> Result<Self, PlanError> {
        let unknown = || PlanError::Unknown(fields.trim().to_owned());
        let words: Vec<&str> = fields.split_ascii_whitespace().collect();
        let [events, ending, pace @ ..] = words.as_slice() else { return Err(unknown()) };
        let number = |word: &str| word.parse::<u32>().map_err(|_| unknown());
        let ending = match *ending {
            "keep" => AfterResponse::KeepAlive,
            "close" => AfterResponse::Close,
            _ => return Err(unknown()),
        };
        let pace = match *pace {
            ["full"] => StreamPace::Full,
            ["hold"] => StreamPace::Hold,
            ["drip", millis] => StreamPace::Drip { millis: number(millis)? },
            ["shared", group, streams, per_second] => StreamPace::Shared {
                group: number(group)?,
                streams: number(streams)?,
                per_second: number(per_second)?,
            },
            _ => return Err(unknown()),
        };
        Ok(Self { events: number(events)?, pace, ending })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ending = match self.ending {
            AfterResponse::KeepAlive => "keep",
            AfterResponse::Close => "close",
        };
        write!(formatter, "{START} {} {ending} ", self.events)?;
        match self.pace {
            StreamPace::Full => write!(formatter, "full"),
            StreamPace::Hold => write!(formatter, "hold"),
            StreamPace::Drip { millis } => write!(formatter, "drip {millis}"),
            StreamPace::Shared { group, streams, per_second } => {
                write!(formatter, "shared {group} {streams} {per_second}")
            }
        }?;
        formatter.write_str(END)
    }
}

/// Why a body has no valid plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The body has no plan.
    #[error("no `{START} …{END}` in the request body")]
    Missing,
    /// The plan cannot be parsed.
    #[error("invalid plan `{0}`")]
    Unknown(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_parses_displayed_plan_in_body() {
        for pace in [
            StreamPace::Full,
            StreamPace::Hold,
            StreamPace::Drip { millis: 4 },
            StreamPace::Shared { group: 3, streams: 64, per_second: 20_000 },
        ] {
            for ending in [AfterResponse::KeepAlive, AfterResponse::Close] {
                let plan = Plan { events: 2_000, pace, ending };
                let body = format!(r#"{{"messages":[{{"role":"user","content":"{plan}"}}]}}"#);
                assert_eq!(Plan::find(body.as_bytes()), Ok(plan), "{body}");
            }
        }
    }

    #[test]
    fn find_rejects_missing_and_invalid_plans() {
        assert_eq!(Plan::find(b"{}"), Err(PlanError::Missing));
        assert_eq!(Plan::find(b"bench-plan 5 keep full"), Err(PlanError::Missing));
        for fields in ["", "5", "5 keep", "5 stay full", "x keep full", "5 keep drip", "5 keep shared 1 2"] {
            let body = format!("bench-plan {fields}.");
            assert_eq!(Plan::find(body.as_bytes()), Err(PlanError::Unknown(fields.to_owned())), "{body}");
        }
    }
}
