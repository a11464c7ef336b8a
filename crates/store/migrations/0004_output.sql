-- Pieces of agent output that are too large for the documents, which refer to them by `name`. A fork of a chat has
-- the same pieces.
CREATE TABLE output (
    id           INTEGER PRIMARY KEY,
    chat         INTEGER NOT NULL REFERENCES chat (id) ON DELETE CASCADE,
    turn_id      TEXT NOT NULL,
    name         TEXT NOT NULL,
    content_type TEXT NOT NULL,
    body         BLOB NOT NULL,
    checksum     INTEGER,
    UNIQUE (chat, name)
) STRICT;

CREATE INDEX output_name ON output (name);
