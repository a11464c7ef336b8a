//! A JSON object with ordered fields and raw values.
//!
//! Used to rewrite lines without knowing all their fields. A rewritten line keeps the order of its
//! fields, because readers of transcripts identify lines by their beginning.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

/// The fields of an object.
#[derive(Debug, Clone, Default)]
pub(super) struct Object(Vec<(String, Box<RawValue>)>);

impl Object {
    /// Parses an object; `None` for any other text.
    pub(super) fn parse(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    /// The raw value of a field.
    pub(super) fn get(&self, key: &str) -> Option<&RawValue> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, raw)| &**raw)
    }

    /// Replaces the value of a field, or appends the field.
    pub(super) fn set<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) {
        // Fails only for maps with non-string keys and failing implementations, which are never passed.
        let Ok(raw) = serde_json::value::to_raw_value(value) else { return };
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = raw,
            None => self.0.push((key.to_owned(), raw)),
        }
    }

    pub(super) fn remove(&mut self, keys: &[&str]) {
        self.0.retain(|(name, _)| !keys.contains(&name.as_str()));
    }

    /// The object as one line, including the line end.
    pub(super) fn to_line(&self) -> String {
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;

        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = Object;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Object(fields))
            }
        }

        deserializer.deserialize_map(ObjectVisitor)
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, raw) in &self.0 {
            map.serialize_entry(key, raw)?;
        }
        map.end()
    }
}
