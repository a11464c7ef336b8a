//! Decodes JSON objects to structs: known fields are typed, all others kept as raw JSON.
//!
//! Owns the `wire_struct!` macro and the `Wire` trait. Invariant: decoding and encoding preserves all
//! fields, because values that do not fit the typed field (including `null`) are kept in `extra`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

use super::cursor::{Cursor, plain_length};

/// A value that can be decoded from JSON text.
pub trait Wire: Sized {
    /// Reads the next value; `None` if it has another type.
    fn read(cursor: &mut Cursor<'_>) -> Option<Self>;

    /// Decodes the complete text; `None` if it has another type.
    fn from_json(json: &str) -> Option<Self> {
        let mut cursor = Cursor::new(json);
        let value = Self::read(&mut cursor)?;
        cursor.is_at_end().then_some(value)
    }
}

impl Wire for String {
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        cursor.string().map(Cow::into_owned)
    }
}

impl Wire for bool {
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        cursor.boolean()
    }
}

impl Wire for u64 {
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        cursor.unsigned()
    }
}

impl Wire for u32 {
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        cursor.unsigned()?.try_into().ok()
    }
}

impl Wire for i64 {
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        cursor.through_serde()
    }
}

impl Wire for Box<RawValue> {
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        cursor.raw().map(ToOwned::to_owned)
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        let mut items = Vec::new();
        cursor.list(|cursor| {
            items.push(T::read(cursor)?);
            Some(())
        })?;
        Some(items)
    }
}

impl<T: Wire> Wire for BTreeMap<String, T> {
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        let mut entries = BTreeMap::new();
        cursor.object(|key, cursor| {
            entries.insert(key.into_owned(), T::read(cursor)?);
            Some(())
        })?;
        Some(entries)
    }
}

impl<T: Wire> Wire for Box<T> {
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        T::read(cursor).map(Box::new)
    }
}

/// The fields of an object without a typed field, in their original order.
///
/// Stored as the text between the braces of an object, because most of them are never accessed.
#[derive(Debug, Clone, Default)]
pub struct Extra(String);

impl Extra {
    /// The raw JSON of the field `key`, if present.
    pub fn get(&self, key: &str) -> Option<&RawValue> {
        self.iter().find(|(name, _)| name == key).map(|(_, raw)| raw)
    }

    /// The names and raw values of all fields.
    pub fn iter(&self) -> impl Iterator<Item = (Cow<'_, str>, &RawValue)> {
        let mut cursor = Cursor::new(&self.0);
        std::iter::from_fn(move || cursor.member())
    }

    /// Adds a field. A borrowed key must not need escaping, which holds for keys from the cursor.
    pub(crate) fn keep(&mut self, key: Cow<'_, str>, text: &str) {
        // In most objects, only the kind has no typed field.
        const FIRST_CAPACITY: usize = 40;
        if self.0.is_empty() {
            self.0.reserve((key.len() + text.len() + 3).max(FIRST_CAPACITY));
        } else {
            self.0.push(',');
        }
        self.0.push('"');
        match key {
            Cow::Borrowed(plain) => self.0.push_str(plain),
            Cow::Owned(unescaped) => {
                let quoted = serde_json::Value::from(unescaped).to_string();
                self.0.push_str(quoted.get(1..quoted.len() - 1).unwrap_or_default());
            }
        }
        self.0.push_str("\":");
        self.0.push_str(text);
    }

    pub(crate) fn write_to<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        self.iter().try_for_each(|(key, raw)| map.serialize_entry(&key, raw))
    }
}

/// The discriminator fields `type` and `subtype` of an object, found without decoding the rest.
#[derive(Debug, Default)]
pub(crate) struct Tags<'a> {
    pub(crate) kind: Option<Cow<'a, str>>,
    pub(crate) subtype: Option<Cow<'a, str>>,
}

impl<'a> Tags<'a> {
    /// The tags of the next value; empty if they are missing or it is not an object.
    pub(crate) fn of(cursor: &Cursor<'a>) -> Self {
        // Both runtimes put `type` first in most frames, so the rest need not be scanned.
        if let Some((kind, rest)) = cursor.rest().strip_prefix("{\"type\":\"").and_then(plain_string) {
            match rest.strip_prefix(",\"subtype\":\"").and_then(plain_string) {
                Some((subtype, _)) => {
                    return Self { kind: Some(kind.into()), subtype: Some(subtype.into()) };
                }
                None if kind != "system" && kind != "result" => {
                    return Self { kind: Some(kind.into()), subtype: None };
                }
                None => {}
            }
        }
        let mut tags = Self::default();
        let found = cursor.clone().object(|key, cursor| {
            match &*key {
                "type" if cursor.is_at_string() => tags.kind = Some(cursor.string()?),
                "subtype" if cursor.is_at_string() => tags.subtype = Some(cursor.string()?),
                _ => {
                    cursor.value_text()?;
                }
            }
            Some(())
        });
        found.map(|()| tags).unwrap_or_default()
    }
}

/// The tags seen so far in an object.
///
/// An object with a duplicate tag is ambiguous. It is not decoded, so the container keeps it as raw JSON:
/// otherwise its kind would depend on the position of the tag.
#[derive(Debug, Default)]
pub(crate) struct TagsSeen {
    kind: bool,
    subtype: bool,
}

impl TagsSeen {
    /// Records a key; `None` if it is a duplicate tag.
    pub(crate) fn see(&mut self, key: &str) -> Option<()> {
        let seen = match key {
            "type" => &mut self.kind,
            "subtype" => &mut self.subtype,
            _ => return Some(()),
        };
        (!std::mem::replace(seen, true)).then_some(())
    }
}

/// Splits `text` after the closing quote of a string without escapes.
fn plain_string(text: &str) -> Option<(&str, &str)> {
    let length = plain_length(text.as_bytes())?;
    Some((text.get(..length)?, text.get(length + 1..)?))
}

/// A value of an unknown kind, kept as raw JSON.
#[derive(Debug, Clone)]
pub struct Opaque {
    /// Name of the kind; empty if missing.
    pub kind: String,
    /// The complete value.
    pub raw: Box<RawValue>,
}

impl Opaque {
    pub(crate) fn read(kind: &str, cursor: &mut Cursor<'_>) -> Option<Self> {
        Some(Self { kind: kind.to_owned(), raw: Wire::read(cursor)? })
    }
}

impl Serialize for Opaque {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.raw.serialize(serializer)
    }
}

/// Declares a wire struct: every field is optional, and `extra` holds all other fields.
macro_rules! wire_struct {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$field_meta:meta])* $field:ident : $ty:ty = $key:literal ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: Option<$ty>, )*
            /// The fields without a typed field.
            pub extra: $crate::wire::fields::Extra,
        }

        impl $crate::wire::fields::Wire for $name {
            fn read(cursor: &mut $crate::wire::cursor::Cursor<'_>) -> Option<Self> {
                let mut out = Self::default();
                let mut tags = $crate::wire::fields::TagsSeen::default();
                cursor.object(|key, cursor| {
                    tags.see(&key)?;
                    match &*key {
                        $( $key if cursor.field(&mut out.$field) => {} )*
                        _ => out.extra.keep(key, cursor.value_text()?),
                    }
                    Some(())
                })?;
                Some(out)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap;
                let mut map = serializer.serialize_map(None)?;
                // Written first because keys may be duplicated: a value in a typed field came after one
                // in `extra`.
                self.extra.write_to(&mut map)?;
                $( if let Some(value) = &self.$field {
                    map.serialize_entry($key, value)?;
                } )*
                map.end()
            }
        }
    };
}

/// Declares an enum discriminated by the object's `type`; other kinds are kept as raw JSON.
macro_rules! wire_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $( $(#[$variant_meta:meta])* $variant:ident ( $ty:ty ) = $($kind:literal)|+ ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone)]
        pub enum $name {
            $( $(#[$variant_meta])* $variant($ty), )*
            /// An unknown kind, kept as raw JSON.
            Unknown($crate::wire::fields::Opaque),
        }

        impl $name {
            fn read_tagged(kind: &str, cursor: &mut $crate::wire::cursor::Cursor<'_>) -> Option<Self> {
                use $crate::wire::fields::Wire;
                match kind {
                    $( $($kind)|+ => Wire::read(cursor).map(Self::$variant), )*
                    _ => $crate::wire::fields::Opaque::read(kind, cursor).map(Self::Unknown),
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $( Self::$variant(value) => value.serialize(serializer), )*
                    Self::Unknown(value) => value.serialize(serializer),
                }
            }
        }
    };
}

pub(crate) use {wire_enum, wire_struct};
