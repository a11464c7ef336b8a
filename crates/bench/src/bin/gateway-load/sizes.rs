//! The sizes of a benchmark run.

use crate::speed::StreamLoad;

/// The sizes of a benchmark run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Number of rounds; each round measures every target.
    pub(crate) rounds: u32,
    /// The load of the speed measurement.
    pub(crate) load: StreamLoad,
    /// Rounds that include other proxies, which may be a hundred times slower.
    pub(crate) others_rounds: u32,
    /// Events per second over all streams that other proxies can sustain.
    pub(crate) gentle_per_second: u32,
    /// Events per second over all streams when the added time is measured.
    pub(crate) per_second: u32,
    /// Number of parts of a paced load, each with its share of the events. The highest ages occur in busy
    /// moments; with short parts these affect all targets alike.
    pub(crate) paced_turns: u32,
    /// Short responses for the comparison with other proxies.
    pub(crate) short_requests: u32,
    /// Concurrent idle streams.
    pub(crate) idle_streams: u32,
    /// Requests of the memory growth measurement.
    pub(crate) requests: u32,
    /// Events per request of the growth measurement and per short response.
    pub(crate) request_events: u32,
    /// Aborted requests.
    pub(crate) aborts: u32,
}

impl Sizes {
    /// The load at the gentle rate: a tenth of the events, which takes at least as long as a paced part.
    pub(crate) fn gentle_load(&self) -> StreamLoad {
        StreamLoad { streams: self.load.streams, events: self.load.events / 10 }
    }

    /// One part of the paced load.
    pub(crate) fn paced_load(&self) -> StreamLoad {
        StreamLoad { streams: self.load.streams, events: self.load.events / self.paced_turns }
    }

    /// The sizes that the limits apply to.
    pub(crate) const WHOLE: Self = Self {
        rounds: 5,
        load: StreamLoad { streams: 64, events: 2_000 },
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

    /// A few seconds, to check that everything works; too short to check speed.
    pub(crate) const QUICK: Self = Self {
        rounds: 1,
        load: StreamLoad { streams: 16, events: 200 },
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
