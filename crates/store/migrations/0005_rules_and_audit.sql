-- Permission rules that apply beyond one session. `root`: the workspace; empty: all workspaces.
CREATE TABLE rule (
    id         INTEGER PRIMARY KEY,
    root       TEXT NOT NULL,
    behavior   TEXT NOT NULL,
    rule       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    checksum   INTEGER,
    UNIQUE (root, behavior, rule)
) STRICT;

-- Decisions about tool calls; newer records have larger ids. Without a reference to `session`, since a record has to
-- survive the loss of its session's document. Deleting a session or chat deletes its records.
CREATE TABLE audit (
    id           INTEGER PRIMARY KEY,
    at           INTEGER NOT NULL,
    session      TEXT NOT NULL,
    chat         TEXT NOT NULL,
    turn_id      TEXT,
    tool_call    TEXT NOT NULL,
    tool         TEXT NOT NULL,
    input_digest TEXT NOT NULL,
    decision     TEXT NOT NULL,
    layer        TEXT NOT NULL,
    rule         TEXT,
    client       TEXT,
    checksum     INTEGER
) STRICT;

CREATE INDEX audit_session ON audit (session);
CREATE INDEX audit_chat ON audit (chat);
CREATE INDEX audit_at ON audit (at);
