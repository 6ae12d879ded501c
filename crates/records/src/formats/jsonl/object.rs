//! What every object of every verb has in common.

use schemars::JsonSchema;
use serde::Serialize;

/// Name and version of the schema of all objects. The version changes if a key is removed or changes its meaning, not if
/// one is added.
pub const SCHEMA: &str = "dwell/2";

/// An object of one of `KINDS`, which stands in its `type` as `area.kind`.
pub trait Object: Serialize + JsonSchema {
    /// The types that the Rust type is written as. Where it is an enum with as many variants, each variant has the type
    /// at its place; otherwise each of the types has all fields.
    const KINDS: &'static [&'static str];

    /// Returns the type of this object: one of `KINDS`.
    fn kind(&self) -> &'static str {
        Self::KINDS[0]
    }
}

/// The fields with which each object begins, after `type` and `schema`.
#[derive(Debug, Clone, Copy, Default, Serialize, JsonSchema)]
pub struct Header<'a> {
    /// The moment that the object is about, in RFC 3339 (UTC); of an interval its end. Null where it is not known.
    pub time: Option<&'a str>,
    /// The host on which dwell ran. Null for captures, which may come from anywhere.
    pub host: Option<&'a str>,
}

/// Returns the names of a closed set of values, each once: what a key can be (the keyword `enum` of a schema).
pub(super) fn names<T>(all: impl IntoIterator<Item = T>, name: impl Fn(T) -> &'static str) -> Vec<&'static str> {
    let mut names: Vec<_> = Vec::new();
    for value in all.into_iter().map(name) {
        if !names.contains(&value) {
            names.push(value);
        }
    }
    names
}

/// Returns the same for a key that may also be null.
pub(super) fn names_or_null<T>(
    all: impl IntoIterator<Item = T>,
    name: impl Fn(T) -> &'static str,
) -> Vec<Option<&'static str>> {
    names(all, name).into_iter().map(Some).chain([None]).collect()
}

/// Appends one object and a line feed.
pub fn write_object<T: Object>(header: Header<'_>, body: &T, out: &mut Vec<u8>) {
    #[derive(Serialize)]
    struct Line<'a, T> {
        r#type: &'a str,
        schema: &'a str,
        #[serde(flatten)]
        header: Header<'a>,
        #[serde(flatten)]
        body: &'a T,
    }

    let line = Line { r#type: body.kind(), schema: SCHEMA, header, body };
    serde_json::to_writer(&mut *out, &line).expect("a Vec takes all, and keys are strings");
    out.push(b'\n');
}
