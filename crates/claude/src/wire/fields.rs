//! How a JSON object becomes a struct here: known fields typed, everything else kept raw.
//!
//! Owns the `wire_struct!` macro and the `Wire` trait. The invariant: decoding and encoding again gives the
//! same fields, because whatever does not fit the typed field (an explicit `null` too) stays in `extra`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

/// A value that can be read from JSON text, or not.
pub trait Wire: Sized {
    /// Reads the value, or gives `None` if the text is of another shape.
    fn from_json(json: &str) -> Option<Self>;
}

macro_rules! wire_through_serde {
    ($($ty:ty),*) => {
        $(impl Wire for $ty {
            fn from_json(json: &str) -> Option<Self> {
                serde_json::from_str(json).ok()
            }
        })*
    };
}

wire_through_serde!(String, bool, u32, u64, i64, Box<RawValue>);

impl<T: Wire> Wire for Vec<T> {
    fn from_json(json: &str) -> Option<Self> {
        let items: Vec<&RawValue> = serde_json::from_str(json).ok()?;
        items.into_iter().map(|item| T::from_json(item.get())).collect()
    }
}

impl<T: Wire> Wire for BTreeMap<String, T> {
    fn from_json(json: &str) -> Option<Self> {
        let mut entries = BTreeMap::new();
        let mut fits = true;
        each_field(json, &mut |key, raw| match T::from_json(raw.get()) {
            Some(value) => {
                entries.insert(key.into_owned(), value);
            }
            None => fits = false,
        })
        .ok()?;
        fits.then_some(entries)
    }
}

impl<T: Wire> Wire for Box<T> {
    fn from_json(json: &str) -> Option<Self> {
        T::from_json(json).map(Box::new)
    }
}

/// The fields of an object that no typed field took, in the order in which they came.
#[derive(Debug, Clone, Default)]
pub struct Extra(Vec<(String, Box<RawValue>)>);

impl Extra {
    /// The raw JSON of the field `key`, if it is kept here.
    pub fn get(&self, key: &str) -> Option<&RawValue> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, raw)| &**raw)
    }

    /// The names and raw values of all kept fields.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.0.iter().map(|(name, raw)| (name.as_str(), &**raw))
    }

    pub(crate) fn keep(&mut self, key: Cow<'_, str>, raw: &RawValue) {
        self.0.push((key.into_owned(), raw.to_owned()));
    }

    pub(crate) fn write_to<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        self.0.iter().try_for_each(|(key, raw)| map.serialize_entry(key, raw))
    }
}

/// Calls `visit` with the name and raw value of each field of the object `json`.
pub(crate) fn each_field<'a>(
    json: &'a str,
    visit: &mut dyn FnMut(Cow<'a, str>, &'a RawValue),
) -> Result<(), serde_json::Error> {
    struct Fields<'f, 'a>(&'f mut dyn FnMut(Cow<'a, str>, &'a RawValue));

    impl<'a> Visitor<'a> for Fields<'_, 'a> {
        type Value = ();

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a JSON object")
        }

        fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
            while let Some((Key(key), raw)) = map.next_entry::<Key<'a>, &'a RawValue>()? {
                (self.0)(key, raw);
            }
            Ok(())
        }
    }

    let mut deserializer = serde_json::Deserializer::from_str(json);
    (&mut deserializer).deserialize_map(Fields(visit))?;
    deserializer.end()
}

/// An object key, borrowed from the text unless it holds escapes.
struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;

        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object key")
            }

            fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(key)))
            }

            fn visit_str<E>(self, key: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(key.to_owned())))
            }
        }

        deserializer.deserialize_str(KeyVisitor)
    }
}

/// The discriminating fields `type` and `subtype` of an object, found without decoding the rest.
#[derive(Debug, Default)]
pub(crate) struct Tags<'a> {
    pub(crate) kind: Option<Cow<'a, str>>,
    pub(crate) subtype: Option<Cow<'a, str>>,
}

impl<'a> Tags<'a> {
    /// Reads the tags; an object that lacks them, or something else than an object, has none.
    pub(crate) fn of(json: &'a str) -> Self {
        // Both runtimes put `type` first in most frames, which makes the scan of the whole object needless.
        if let Some((kind, rest)) = json.strip_prefix("{\"type\":\"").and_then(plain_string) {
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
        let text = |raw: &'a RawValue| serde_json::from_str::<Key<'a>>(raw.get()).ok().map(|key| key.0);
        each_field(json, &mut |key, raw| match &*key {
            "type" => tags.kind = text(raw),
            "subtype" => tags.subtype = text(raw),
            _ => {}
        })
        .map(|()| tags)
        .unwrap_or_default()
    }
}

/// Splits `text` after the closing quote of a string that holds no escapes.
fn plain_string(text: &str) -> Option<(&str, &str)> {
    let (value, rest) = text.split_once('"')?;
    (!value.contains('\\')).then_some((value, rest))
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
    pub(crate) fn new(kind: &str, json: &str) -> Option<Self> {
        Some(Self { kind: kind.to_owned(), raw: Wire::from_json(json)? })
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
            fn from_json(json: &str) -> Option<Self> {
                let mut out = Self::default();
                $crate::wire::fields::each_field(json, &mut |key, raw| {
                    match &*key {
                        $( $key => {
                            out.$field = <$ty as $crate::wire::fields::Wire>::from_json(raw.get());
                            if out.$field.is_some() {
                                return;
                            }
                        } )*
                        _ => {}
                    }
                    out.extra.keep(key, raw);
                })
                .ok()?;
                Some(out)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap;
                let mut map = serializer.serialize_map(None)?;
                $( if let Some(value) = &self.$field {
                    map.serialize_entry($key, value)?;
                } )*
                self.extra.write_to(&mut map)?;
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
            fn from_tagged(kind: &str, json: &str) -> Option<Self> {
                use $crate::wire::fields::Wire;
                match kind {
                    $( $($kind)|+ => Wire::from_json(json).map(Self::$variant), )*
                    _ => $crate::wire::fields::Opaque::new(kind, json).map(Self::Unknown),
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
