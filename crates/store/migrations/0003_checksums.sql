-- The CRC-32 of a record's columns, verified when the record is read. NULL: unknown, as in a record that was
-- recovered from a damaged database of an earlier version.
ALTER TABLE session ADD COLUMN checksum INTEGER;
ALTER TABLE session_row ADD COLUMN checksum INTEGER;
ALTER TABLE chat ADD COLUMN checksum INTEGER;
ALTER TABLE turn ADD COLUMN checksum INTEGER;
ALTER TABLE journal ADD COLUMN checksum INTEGER;

UPDATE session SET checksum = record_checksum(created_at, state);
UPDATE session_row SET checksum = record_checksum(modified_at, summary);
UPDATE chat SET checksum = record_checksum(conversation, resumes, branch, rewind, state);
UPDATE turn SET checksum = record_checksum(turn_id, body);
UPDATE journal SET checksum = record_checksum(number, channel, at, action);

-- The session that a record belonged to, so that deleting the session deletes the record, too. NULL: unknown.
ALTER TABLE set_aside ADD COLUMN session TEXT;
