-- What is known of the host itself: `seq`, `clean`, `root_config`.
CREATE TABLE host (
    name  TEXT PRIMARY KEY NOT NULL,
    value TEXT NOT NULL
) STRICT;

-- A session's document. `modified_at` and `summary` are a second copy of its row in the list, from which a
-- damaged list is made again; both are NULL while it is not listed. The document is last, so that nothing
-- else has to be looked for behind it.
CREATE TABLE session (
    id          INTEGER PRIMARY KEY,
    uri         TEXT NOT NULL UNIQUE,
    created_at  TEXT NOT NULL,
    modified_at INTEGER,
    summary     TEXT,
    state       TEXT NOT NULL
) STRICT;

CREATE INDEX session_unlisted ON session (uri) WHERE modified_at IS NULL;

-- The session list. A table of its own, so that starting with many sessions reads it from end to end and
-- nothing else; without a reference to `session`, since a row has to survive the loss of its document.
CREATE TABLE session_row (
    id          INTEGER PRIMARY KEY,
    uri         TEXT NOT NULL UNIQUE,
    modified_at INTEGER NOT NULL,
    summary     TEXT NOT NULL
) STRICT;

-- A chat's document without turns. `derived`: its address follows from the session's. `resumes`: whether the
-- agent has worked on the conversation; `branch`: if not, what other one it comes from; `rewind`: how far back the
-- agent has to go.
CREATE TABLE chat (
    id           INTEGER PRIMARY KEY,
    uri          TEXT NOT NULL UNIQUE,
    session      TEXT NOT NULL REFERENCES session (uri) ON DELETE CASCADE,
    derived      INTEGER NOT NULL,
    conversation TEXT NOT NULL,
    resumes      INTEGER NOT NULL,
    branch       TEXT,
    rewind       TEXT,
    state        TEXT NOT NULL
) STRICT;

CREATE INDEX chat_session ON chat (session);
CREATE INDEX chat_further ON chat (uri, session) WHERE derived = 0;

-- Finished turns. Places count from 0 as the host counts; a gap is what damage left, and closed at the next load.
CREATE TABLE turn (
    id      INTEGER PRIMARY KEY,
    chat    INTEGER NOT NULL REFERENCES chat (id) ON DELETE CASCADE,
    place   INTEGER NOT NULL,
    turn_id TEXT NOT NULL,
    body    TEXT NOT NULL,
    UNIQUE (chat, place)
) STRICT;

-- Actions that were published since a session's documents were written.
CREATE TABLE journal (
    id      INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    number  INTEGER NOT NULL,
    channel TEXT NOT NULL,
    at      INTEGER NOT NULL,
    action  TEXT NOT NULL,
    UNIQUE (session, number)
) STRICT;

-- Clients that may come back. `handled`: the last dispatches, oldest first: what each is known by and the number of
-- its answer (0: none), eight bytes each, little-endian; one value, since a transaction writes whole pages anyway. `used` orders clients by last use.
CREATE TABLE client (
    id      INTEGER PRIMARY KEY,
    name    TEXT NOT NULL UNIQUE,
    used    INTEGER NOT NULL,
    handled BLOB NOT NULL
) STRICT;

CREATE INDEX client_used ON client (used);

-- What clients had been told when the host ended in order.
CREATE TABLE mark (
    id      INTEGER PRIMARY KEY,
    client  INTEGER NOT NULL REFERENCES client (id) ON DELETE CASCADE,
    channel TEXT NOT NULL,
    first   INTEGER NOT NULL,
    last    INTEGER NOT NULL
) STRICT;

CREATE INDEX mark_client ON mark (client);

-- The most recent actions when the host ended in order.
CREATE TABLE replay (
    id       INTEGER PRIMARY KEY,
    seq      INTEGER NOT NULL,
    channel  TEXT NOT NULL,
    only_for TEXT,
    envelope BLOB NOT NULL
) STRICT;

-- Records that could not be used. Nothing reads them but a person.
CREATE TABLE set_aside (
    id     INTEGER PRIMARY KEY,
    kind   TEXT NOT NULL,
    key    TEXT NOT NULL,
    body   BLOB NOT NULL,
    reason TEXT NOT NULL,
    at     INTEGER NOT NULL
) STRICT;

CREATE INDEX set_aside_key ON set_aside (key);
