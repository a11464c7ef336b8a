//! Times that clients supply.
//!
//! They order chats and sessions in every client's list, and reducers add durations to
//! them. A wrong clock must not put a session at the top forever or overflow a reducer.

use jiff::{SignedDuration, Timestamp};

/// Most by which a client's clock may be ahead.
const MAX_AHEAD: SignedDuration = SignedDuration::from_hours(24);

/// Returns why a client's time is rejected, given the host's time.
pub(super) fn rejection_reason(time: &str, now: &str) -> Option<&'static str> {
    let Some(time) = rfc3339(time) else { return Some("not an RFC 3339 time") };
    if time < Timestamp::UNIX_EPOCH {
        return Some("before 1970; check the client's clock");
    }
    // The host formats its own time.
    let latest = now.parse::<Timestamp>().ok()?.checked_add(MAX_AHEAD).ok()?;
    (time > latest).then_some("more than a day in the future; check the client's clock")
}

/// Parses a time. The library also accepts other notations, which clients may not.
fn rfc3339(text: &str) -> Option<Timestamp> {
    let (seconds, rest) = text.split_at_checked("2026-11-15T09:00:05".len())?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let offset = match rest.strip_prefix('.') {
        Some(rest) => {
            let offset = rest.trim_start_matches(|each: char| each.is_ascii_digit());
            // The library's precision.
            if !(1..=9).contains(&(rest.len() - offset.len())) {
                return None;
            }
            offset
        }
        None => rest,
    };
    let has_offset = offset == "Z"
        || offset.strip_prefix(['+', '-']).and_then(|offset| offset.split_once(':')).is_some_and(
            |(hours, minutes)| hours.len() == 2 && minutes.len() == 2 && digits(hours) && digits(minutes),
        );
    let shape = seconds.bytes().map(|byte| if byte.is_ascii_digit() { b'0' } else { byte });
    (has_offset && shape.eq(*b"0000-00-00T00:00:00")).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-11-15T10:00:00.000Z";

    #[test]
    fn accepts_rfc3339_times_from_1970_to_a_day_ahead() {
        for time in [
            NOW,
            "1970-01-01T00:00:00Z",
            "2026-11-15T10:00:00.123456789+05:30",
            "2026-11-16T10:00:00Z",
            "2026-11-16T08:59:59.9-01:00",
        ] {
            assert_eq!(rejection_reason(time, NOW), None, "{time}");
        }
    }

    #[test]
    fn rejects_other_notations_and_times_out_of_range() {
        for time in [
            "",
            "yesterday",
            "2026-11-15",
            "2026-11-15T10:00Z",
            "2026-11-15T10:00:00",
            "2026-11-15 10:00:00Z",
            "2026-11-15t10:00:00z",
            "20261115T100000Z",
            "+002026-11-15T10:00:00Z",
            "2026-11-15T10:00:00.Z",
            "2026-11-15T10:00:00,5Z",
            "2026-11-15T10:00:00.1234567890Z",
            "2026-11-15T10:00:00+0100",
            "2026-11-15T10:00:00+01:00[Europe/Berlin]",
            "2026-11-15T10:00:00Z ",
            "2026-02-30T10:00:00Z",
            "2026-11-15T25:00:00Z",
            "２026-11-15T10:00:00Z",
            "1969-12-31T23:59:59Z",
            "2026-11-16T10:00:01Z",
            "9999-12-30T22:00:00.999Z",
        ] {
            assert!(rejection_reason(time, NOW).is_some(), "{time}");
        }
    }
}
