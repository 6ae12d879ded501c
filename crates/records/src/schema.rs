//! The JSON Schema of all objects, and its tables as a page of the documentation.

use std::fmt::Write;

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::formats::{Header, Object, SCHEMA, add_objects};

/// The JSON Schema (draft 2020-12) of objects, from their Rust types.
pub struct Schema {
    generator: SchemaGenerator,
    /// The schemas of objects by their types.
    kinds: Map<String, Value>,
}

impl Default for Schema {
    /// Has the objects that this crate writes.
    fn default() -> Schema {
        let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
        let mut schema = Schema { generator, kinds: Map::default() };
        add_objects(&mut schema);
        schema
    }
}

impl Schema {
    /// Adds the objects of a Rust type.
    pub fn add<T: Object>(&mut self) {
        let whole = T::json_schema(&mut self.generator).to_value();
        let header = Header::json_schema(&mut self.generator).to_value();
        let variants = whole["anyOf"].as_array().filter(|variants| variants.len() == T::KINDS.len());
        for (index, kind) in T::KINDS.iter().enumerate() {
            let body = variants.map_or(&whole, |variants| &variants[index]);
            self.kinds.insert((*kind).to_owned(), object(kind, &header, body));
        }
    }

    /// Adds the objects of a Rust type that has the header among its own fields.
    pub fn add_with_header<T: JsonSchema>(&mut self, kind: &str) {
        let body = T::json_schema(&mut self.generator).to_value();
        self.kinds.insert(kind.to_owned(), object(kind, &json!({}), &body));
    }

    /// Returns the schema, which any object must match.
    pub fn json(mut self) -> Value {
        let all: Vec<_> = self.kinds.keys().map(|kind| json!({ "$ref": format!("#/$defs/{kind}") })).collect();
        let mut definitions = self.kinds;
        definitions.extend(self.generator.take_definitions(true));
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": SCHEMA,
            "description": "One line of the JSON Lines that dwell writes.",
            "oneOf": all,
            "$defs": definitions,
        })
    }

    /// Returns a table of keys for each type of object, and for each part that several of them have.
    pub fn markdown(mut self) -> String {
        let mut page = String::new();
        let mut first_of: Vec<(Map<String, Value>, String)> = Vec::new();
        let mut add = |name: &str, schema: &Value, skipped: &[&str]| {
            let _ = write!(page, "\n## {name}\n\n{}\n", text(schema));
            let keys = keys_but(schema, "type");
            let same = first_of.iter().find(|(other, _)| !keys.is_empty() && *other == keys);
            if let Some((_, first)) = same {
                let _ = write!(page, "\nIts keys are those of [{first}](#{}).\n", anchor(first));
                return;
            }
            first_of.push((keys, name.to_owned()));
            write_values(&mut page, schema);
            let properties = schema["properties"].as_object().into_iter().flatten();
            let mut rows = properties.filter(|(key, _)| !skipped.contains(&key.as_str())).peekable();
            if rows.peek().is_some() {
                page.push_str("\n| Key | Value | Meaning |\n|---|---|---|\n");
            }
            for (key, value) in rows {
                let _ = writeln!(page, "| `{key}` | {} | {} |", value_name(value), text(value));
            }
        };
        for (kind, schema) in &self.kinds {
            add(kind, schema, &["type", "schema", "time", "host"]);
        }
        for (name, schema) in &self.generator.take_definitions(true) {
            add(name, schema, &[]);
        }
        page
    }
}

/// The keys of an object with their schemas, without one of them.
fn keys_but(schema: &Value, skipped: &str) -> Map<String, Value> {
    let mut keys = schema["properties"].as_object().cloned().unwrap_or_default();
    keys.remove(skipped);
    keys
}

/// The place of a heading in the page.
fn anchor(heading: &str) -> String {
    heading.to_lowercase().replace('.', "")
}

/// Writes the values of a closed set, one per line.
fn write_values(page: &mut String, schema: &Value) {
    let values = schema["oneOf"].as_array();
    if values.is_some() {
        page.push('\n');
    }
    for value in values.into_iter().flatten() {
        let name = match (value["const"].as_str(), value["properties"].as_object().and_then(|all| all.iter().next())) {
            (Some(name), _) => format!("\"{name}\""),
            (None, Some((key, inner))) => format!("{{\"{key}\": {}}}", value_name(inner)),
            (None, None) => continue,
        };
        let _ = writeln!(page, "- `{name}`: {}", text(value));
    }
}

/// Returns the schema of an object: the header, then the keys of `body`.
fn object(kind: &str, header: &Value, body: &Value) -> Value {
    let mut properties = Map::new();
    properties.insert("type".to_owned(), json!({ "const": kind, "description": "The type of the object." }));
    properties.insert("schema".to_owned(), json!({ "const": SCHEMA, "description": "The version of the schema." }));
    let mut required = vec![json!("type"), json!("schema")];
    for part in [header, body] {
        for (key, value) in part["properties"].as_object().into_iter().flatten() {
            properties.entry(key.clone()).or_insert_with(|| value.clone());
        }
        let more = part["required"].as_array().into_iter().flatten().filter(|key| !required.contains(key));
        let more: Vec<_> = more.cloned().collect();
        required.extend(more);
    }
    // An instant is written one way: 2026-11-21T05:10:00.123456789Z.
    if let Some(time) = properties.get_mut("time") {
        (time["minLength"], time["maxLength"]) = (json!(30), json!(30));
    }
    json!({
        "description": body["description"],
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// Returns the description of a key or type in one line.
fn text(schema: &Value) -> String {
    schema["description"].as_str().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Lists the values of a closed set, as in `"tx" or "rx"`.
fn one_of(values: &[Value]) -> String {
    let values: Vec<_> = values.iter().map(Value::to_string).collect();
    match &values[..] {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// Returns the kind of value that a key has, or its values where only a few can be.
fn value_name(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.trim_start_matches("#/$defs/");
        return format!("[{name}](#{})", anchor(name));
    }
    if let Some(all) = schema["anyOf"].as_array() {
        return all.iter().map(value_name).collect::<Vec<_>>().join(" or ");
    }
    if let Some(values) = schema["enum"].as_array() {
        return one_of(values);
    }
    let items = || match schema["prefixItems"].as_array() {
        Some(items) => value_name(&items[0]),
        None => value_name(&schema["items"]),
    };
    let name = |name: &str| match name {
        "array" => format!("array of {}", items()),
        name => name.to_owned(),
    };
    match &schema["type"] {
        Value::String(one) => name(one),
        Value::Array(all) => all.iter().filter_map(Value::as_str).map(name).collect::<Vec<_>>().join(" or "),
        _ => "any".to_owned(),
    }
}
