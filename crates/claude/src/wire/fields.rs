//! How a JSON object becomes a struct here: known fields typed, everything else kept raw.
//!
//! Owns the `wire_struct!` macro and the `Wire` trait. The invariant: decoding and encoding again gives the
//! same fields, because whatever does not fit the typed field (an explicit `null` too) stays in `extra`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

use super::cursor::{Cursor, plain_length};

/// A value that can be read from JSON text, or not.
pub trait Wire: Sized {
    /// Takes the next value, or gives `None` if it is of another shape.
    fn read(cursor: &mut Cursor<'_>) -> Option<Self>;

    /// Reads the value that is all of `json`, or gives `None` if the text is of another shape.
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

/// The fields of an object that no typed field took, in the order in which they came.
///
/// They are kept as the text between the braces of an object, as most of them are never looked at.
#[derive(Debug, Clone, Default)]
pub struct Extra(String);

impl Extra {
    /// The raw JSON of the field `key`, if it is kept here.
    pub fn get(&self, key: &str) -> Option<&RawValue> {
        self.iter().find(|(name, _)| name == key).map(|(_, raw)| raw)
    }

    /// The names and raw values of all kept fields.
    pub fn iter(&self) -> impl Iterator<Item = (Cow<'_, str>, &RawValue)> {
        let mut cursor = Cursor::new(&self.0);
        std::iter::from_fn(move || cursor.member())
    }

    /// Keeps a field. A borrowed key holds nothing that needs an escape, as the cursor gives it.
    pub(crate) fn keep(&mut self, key: Cow<'_, str>, text: &str) {
        // The name of the kind is all that most objects leave over.
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

/// The discriminating fields `type` and `subtype` of an object, found without reading the rest.
#[derive(Debug, Default)]
pub(crate) struct Tags<'a> {
    pub(crate) kind: Option<Cow<'a, str>>,
    pub(crate) subtype: Option<Cow<'a, str>>,
}

impl<'a> Tags<'a> {
    /// The tags of the object that is next; one that lacks them, or something else than an object, has none.
    pub(crate) fn of(cursor: &Cursor<'a>) -> Self {
        // Both runtimes put `type` first in most frames, which makes the scan of the whole object needless.
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

/// Which tags an object has had so far.
///
/// An object with two of one tag is two things at once. It is not read, and so kept whole by whoever holds it:
/// reading it would make it one of them, and which one would depend on where the tag stands.
#[derive(Debug, Default)]
pub(crate) struct TagsSeen {
    kind: bool,
    subtype: bool,
}

impl TagsSeen {
    /// Notes a key; `None` if it is a tag that was there before.
    pub(crate) fn see(&mut self, key: &str) -> Option<()> {
        let seen = match key {
            "type" => &mut self.kind,
            "subtype" => &mut self.subtype,
            _ => return Some(()),
        };
        (!std::mem::replace(seen, true)).then_some(())
    }
}

/// Splits `text` after the closing quote of a string that holds no escapes.
fn plain_string(text: &str) -> Option<(&str, &str)> {
    let length = plain_length(text.as_bytes())?;
    Some((text.get(..length)?, text.get(length + 1..)?))
}

/// A value kept whole because nothing is known about its kind.
#[derive(Debug, Clone)]
pub struct Opaque {
    /// The value's own name of its kind, empty if it has none.
    pub kind: String,
    /// The whole value.
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

/// Declares a wire struct: every field is optional, and `extra` holds what no field took.
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
            /// The fields that none of the others took.
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
                // First, because a key may come twice: what a typed field took came after what it did not.
                self.extra.write_to(&mut map)?;
                $( if let Some(value) = &self.$field {
                    map.serialize_entry($key, value)?;
                } )*
                map.end()
            }
        }
    };
}

/// Declares an enum whose variants are told apart by the object's `type`; the rest is kept opaque.
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
            /// A kind that this version of the crate does not know, kept whole.
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
