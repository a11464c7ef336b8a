//! What a load asks the fake upstream for, as words in the user's message.
//!
//! The message is what every proxy passes on, also one that builds the request anew.
//! Invariant: what `Display` writes, [`Plan::find`] reads back.

use std::fmt;

/// What stands before the fields of a plan.
const START: &str = "bench-plan";
/// What stands after them; no field contains it.
const END: &str = ".";

/// An answer that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// All of its events, the frame included.
    pub events: u32,
    /// When they come.
    pub pace: Pace,
    /// What happens to the connection afterwards.
    pub ending: Ending,
}

/// When the events of an answer come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As fast as they are taken, each flushed by itself.
    Full,
    /// In turn with the other streams of a group; the first event comes when the group is complete.
    Shared {
        /// Tells groups apart.
        group: u32,
        /// How many streams the group has.
        streams: u32,
        /// How many events come in a second, over all streams of the group.
        per_second: u32,
    },
    /// The first event, then nothing until the client goes.
    Hold,
    /// One event each so many milliseconds.
    Drip {
        /// The time between two events.
        millis: u32,
    },
}

/// What the upstream does with the connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It stays for the next request.
    KeepAlive,
    /// It is closed, which takes it out of a proxy's pool.
    Close,
}

impl Plan {
    /// An answer of so many events that come at once, on a connection that stays.
    pub fn full(events: u32) -> Self {
        Self { events, pace: Pace::Full, ending: Ending::KeepAlive }
    }

    /// The plan in a request's body, or what is wrong with it.
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
            "keep" => Ending::KeepAlive,
            "close" => Ending::Close,
            _ => return Err(unknown()),
        };
        let pace = match *pace {
            ["full"] => Pace::Full,
            ["hold"] => Pace::Hold,
            ["drip", millis] => Pace::Drip { millis: number(millis)? },
            ["shared", group, streams, per_second] => Pace::Shared {
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
            Ending::KeepAlive => "keep",
            Ending::Close => "close",
        };
        write!(formatter, "{START} {} {ending} ", self.events)?;
        match self.pace {
            Pace::Full => write!(formatter, "full"),
            Pace::Hold => write!(formatter, "hold"),
            Pace::Drip { millis } => write!(formatter, "drip {millis}"),
            Pace::Shared { group, streams, per_second } => {
                write!(formatter, "shared {group} {streams} {per_second}")
            }
        }?;
        formatter.write_str(END)
    }
}

/// Why a body has no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// It does not name one.
    #[error("the request has no `{START} …{END}` in it")]
    Missing,
    /// It names one that is not understood.
    #[error("the plan `{0}` is not understood")]
    Unknown(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_found_in_a_body_as_it_was_written() {
        for pace in [
            Pace::Full,
            Pace::Hold,
            Pace::Drip { millis: 4 },
            Pace::Shared { group: 3, streams: 64, per_second: 20_000 },
        ] {
            for ending in [Ending::KeepAlive, Ending::Close] {
                let plan = Plan { events: 2_000, pace, ending };
                let body = format!(r#"{{"messages":[{{"role":"user","content":"{plan}"}}]}}"#);
                assert_eq!(Plan::find(body.as_bytes()), Ok(plan), "{body}");
            }
        }
    }

    #[test]
    fn a_body_without_a_plan_or_with_a_wrong_one_is_told_so() {
        assert_eq!(Plan::find(b"{}"), Err(PlanError::Missing));
        assert_eq!(Plan::find(b"bench-plan 5 keep full"), Err(PlanError::Missing));
        for fields in ["", "5", "5 keep", "5 stay full", "x keep full", "5 keep drip", "5 keep shared 1 2"] {
            let body = format!("bench-plan {fields}.");
            assert_eq!(Plan::find(body.as_bytes()), Err(PlanError::Unknown(fields.to_owned())), "{body}");
        }
    }
}
