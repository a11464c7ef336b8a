-- Contents by their SHA-256 digest. `put_at`: the time of the last put, in milliseconds since 1970; 0: deleted by the next
-- garbage collection if nothing refers to it. Without the content itself, so that a collection reads few pages.
CREATE TABLE blob (
    digest     BLOB PRIMARY KEY NOT NULL,
    content    INTEGER NOT NULL,
    compressed INTEGER NOT NULL,
    size       INTEGER NOT NULL,
    stored     INTEGER NOT NULL,
    put_at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE content (
    id   INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;

-- Changes of files. Numbers are never used again, since reviews refer to them. `before` and `after` are encoded versions;
-- `before_blob` and `after_blob` are the digests of their contents, if these were stored.
CREATE TABLE record (
    number      INTEGER PRIMARY KEY AUTOINCREMENT,
    session     TEXT NOT NULL,
    chat        TEXT NOT NULL,
    turn        TEXT NOT NULL,
    tool_call   TEXT,
    source      TEXT NOT NULL,
    path        BLOB NOT NULL,
    before      BLOB NOT NULL,
    before_blob BLOB,
    after       BLOB NOT NULL,
    after_blob  BLOB,
    new_parents INTEGER NOT NULL,
    overlaps    INTEGER NOT NULL,
    operation   BLOB,
    recorded_at INTEGER NOT NULL,
    checksum    INTEGER NOT NULL
) STRICT;

CREATE INDEX record_session ON record (session);
CREATE INDEX record_chat ON record (chat);
CREATE INDEX record_path ON record (path);
CREATE INDEX record_before ON record (before_blob) WHERE before_blob IS NOT NULL;
CREATE INDEX record_after ON record (after_blob) WHERE after_blob IS NOT NULL;

-- Operations that are not finished, and the last finished one of each session. `body`: encoded directories and steps.
CREATE TABLE operation (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    id       BLOB NOT NULL UNIQUE,
    session  TEXT NOT NULL,
    chat     TEXT,
    label    TEXT NOT NULL,
    can_redo INTEGER NOT NULL,
    finished INTEGER NOT NULL,
    body     BLOB NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;

CREATE INDEX operation_session ON operation (session);

-- The contents that an operation needs.
CREATE TABLE operation_blob (
    blob      BLOB NOT NULL,
    operation INTEGER NOT NULL REFERENCES operation (number) ON DELETE CASCADE,
    PRIMARY KEY (blob, operation)
) STRICT, WITHOUT ROWID;

CREATE INDEX operation_blob_operation ON operation_blob (operation);

-- Reviewed files. Without `chat` or `turn`: in a changeset of all of them.
CREATE TABLE review (
    session TEXT NOT NULL,
    chat    TEXT,
    turn    TEXT,
    path    BLOB NOT NULL,
    through INTEGER NOT NULL
) STRICT;

CREATE INDEX review_session ON review (session, path);
