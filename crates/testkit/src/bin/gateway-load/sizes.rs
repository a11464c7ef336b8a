//! How much of everything a bench does.

use crate::speed::Load;

/// The numbers of a bench.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// How often each target is measured, in turn with the others.
    pub(crate) rounds: u32,
    /// The load for speed.
    pub(crate) load: Load,
    /// How many of the rounds others take part in, which may be a hundred times slower.
    pub(crate) others_rounds: u32,
    /// Events in a second that others can keep up with too, over all streams.
    pub(crate) gentle_per_second: u32,
    /// Events in a second for the added time, over all streams.
    pub(crate) per_second: u32,
    /// Into how many turns a paced load is cut, each with its share of the events: the highest
    /// ages are those of a busy moment, and with short turns it meets all targets alike.
    pub(crate) paced_turns: u32,
    /// Short answers for the comparison with others.
    pub(crate) short_requests: u32,
    /// Silent streams at once.
    pub(crate) idle_streams: u32,
    /// Requests for growth.
    pub(crate) requests: u32,
    /// Events of each of them, and of a short answer.
    pub(crate) request_events: u32,
    /// Requests that are cut.
    pub(crate) aborts: u32,
}

impl Sizes {
    /// The load at the gentle rate: a tenth of the events, which takes as long as a paced turn and more.
    pub(crate) fn gentle_load(&self) -> Load {
        Load { streams: self.load.streams, events: self.load.events / 10 }
    }

    /// One turn of the paced load.
    pub(crate) fn paced_load(&self) -> Load {
        Load { streams: self.load.streams, events: self.load.events / self.paced_turns }
    }

    /// The numbers that the limits are made for.
    pub(crate) const WHOLE: Self = Self {
        rounds: 5,
        load: Load { streams: 64, events: 2_000 },
        others_rounds: 2,
        gentle_per_second: 2_000,
        per_second: 20_000,
        paced_turns: 4,
        short_requests: 4_000,
        idle_streams: 500,
        requests: 100_000,
        request_events: 20,
        aborts: 10_000,
    };

    /// A few seconds, to see that everything works; too little to judge speed.
    pub(crate) const QUICK: Self = Self {
        rounds: 1,
        load: Load { streams: 16, events: 200 },
        others_rounds: 1,
        gentle_per_second: 2_000,
        per_second: 4_000,
        paced_turns: 1,
        short_requests: 200,
        idle_streams: 100,
        requests: 1_000,
        request_events: 20,
        aborts: 300,
    };
}
