//! Checks the header of a database file, because SQLite's errors for a damaged one are
//! misleading: it takes some damage for a read-only or unsupported file.

/// Length of the header.
pub(crate) const LENGTH: u64 = 100;

/// The header fields that are the same in all databases of this program: offset, name and
/// allowed values. From the SQLite file format. A database without tables has zeros.
const FIELDS: [(usize, &str, &[&[u8]]); 7] = [
    (0, "file type", &[b"SQLite format 3\0"]),
    (16, "page size", &[&[0x10, 0]]),
    (18, "write version", &[&[1], &[2]]),
    (19, "read version", &[&[1], &[2]]),
    (20, "cell limits", &[&[0, 64, 32, 32]]),
    (44, "schema format", &[&[0, 0, 0, 0], &[0, 0, 0, 4]]),
    (56, "text encoding", &[&[0, 0, 0, 0], &[0, 0, 0, 1]]),
];

/// Why a header is damaged, if it is.
pub(crate) fn damage(head: &[u8]) -> Option<String> {
    if (head.len() as u64) < LENGTH {
        return Some("the file is shorter than its header".to_owned());
    }
    let is_wrong = |(offset, _, allowed): &&(usize, &str, &[&[u8]])| {
        let rest = head.get(*offset..).unwrap_or_default();
        !allowed.iter().any(|value| rest.starts_with(value))
    };
    let (offset, name, _) = FIELDS.iter().find(is_wrong)?;
    Some(format!("the file header is damaged: wrong {name} at byte {offset}"))
}
