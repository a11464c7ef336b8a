-- The agent's own name of a chat's conversation, by which another process continues it. In a table of its own, as
-- the next one, so that the tables of the first step keep their columns: a damaged database is read by them.
CREATE TABLE resume_token (
    chat  INTEGER PRIMARY KEY REFERENCES chat (id) ON DELETE CASCADE,
    token TEXT NOT NULL
) STRICT;

-- The agent's messages of a turn, as JSON. A turn from before this step has none until it is matched by order.
CREATE TABLE turn_link (
    id      INTEGER PRIMARY KEY,
    chat    INTEGER NOT NULL REFERENCES chat (id) ON DELETE CASCADE,
    turn_id TEXT NOT NULL,
    link    TEXT NOT NULL,
    UNIQUE (chat, turn_id)
) STRICT;
