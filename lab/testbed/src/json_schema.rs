//! Checks JSON against a JSON Schema, as far as `dwell schema` uses that language.

use serde_json::Value;

/// Keywords that describe and do not restrict.
const WORDS: [&str; 8] = ["$schema", "$defs", "title", "description", "default", "format", "minimum", "maximum"];

/// Checks a value.
///
/// # Errors
///
/// The first place where the value differs from the schema, or a keyword that is not known here.
pub fn check(schema: &Value, value: &Value) -> Result<(), String> {
    Checker { definitions: &schema["$defs"] }.check(schema, value, "")
}

/// Checks a value by one of a schema's definitions.
///
/// # Errors
///
/// As [`check`], and if there is no such definition.
pub fn check_as(schema: &Value, definition: &str, value: &Value) -> Result<(), String> {
    let definitions = &schema["$defs"];
    Checker { definitions }.check(&definitions[definition], value, "")
}

struct Checker<'a> {
    definitions: &'a Value,
}

impl Checker<'_> {
    fn check(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        let rules = match schema {
            Value::Bool(true) => return Ok(()),
            Value::Object(rules) => rules,
            other => return Err(format!("{at}: the schema is {other}")),
        };
        for (keyword, rule) in rules {
            let is_met = match keyword.as_str() {
                "$ref" => {
                    let name = rule.as_str().unwrap_or_default().trim_start_matches("#/$defs/");
                    self.check(&self.definitions[name], value, at)?;
                    true
                }
                "const" => value == rule,
                "enum" => list(rule).contains(value),
                "type" => match rule {
                    Value::Array(names) => names.iter().any(|name| is_of(value, name)),
                    name => is_of(value, name),
                },
                "oneOf" => self.matching(rule, value, at) == 1,
                "anyOf" => self.matching(rule, value, at) > 0,
                "required" | "minItems" | "maxItems" if !value.is_object() && !value.is_array() => true,
                "required" => list(rule).iter().filter_map(Value::as_str).all(|key| value.get(key).is_some()),
                "properties" => {
                    self.check_keys(rule, rules.get("additionalProperties"), value, at)?;
                    true
                }
                "additionalProperties" if rules.contains_key("properties") => true,
                "additionalProperties" => {
                    self.check_keys(&Value::Null, Some(rule), value, at)?;
                    true
                }
                "items" => {
                    list(value).iter().try_for_each(|item| self.check(rule, item, at))?;
                    true
                }
                "minItems" => rule.as_u64() <= Some(list(value).len() as u64),
                "maxItems" => rule.as_u64() >= Some(list(value).len() as u64),
                "minLength" => value.as_str().is_none_or(|text| rule.as_u64() <= Some(text.chars().count() as u64)),
                "maxLength" => value.as_str().is_none_or(|text| rule.as_u64() >= Some(text.chars().count() as u64)),
                word if WORDS.contains(&word) => true,
                word => return Err(format!("{at}: unknown keyword {word}")),
            };
            if !is_met {
                return Err(format!("{at}: {value} does not match {keyword}: {rule}"));
            }
        }
        Ok(())
    }

    fn matching(&self, rules: &Value, value: &Value, at: &str) -> usize {
        list(rules).iter().filter(|rule| self.check(rule, value, at).is_ok()).count()
    }

    fn check_keys(&self, known: &Value, other: Option<&Value>, value: &Value, at: &str) -> Result<(), String> {
        for (key, value) in value.as_object().into_iter().flatten() {
            let at = format!("{at}.{key}");
            match (known.get(key), other) {
                (Some(rule), _) => self.check(rule, value, &at)?,
                (None, Some(Value::Bool(false))) => return Err(format!("{at}: not in the schema")),
                (None, Some(rule)) => self.check(rule, value, &at)?,
                (None, None) => {}
            }
        }
        Ok(())
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn is_of(value: &Value, name: &Value) -> bool {
    match name.as_str().unwrap_or_default() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_that_differs_is_refused_with_its_place() {
        let pair = json!({ "type": ["array", "null"], "items": { "type": "integer" }, "minItems": 2, "maxItems": 2 });
        let schema = json!({
            "oneOf": [{ "$ref": "#/$defs/a" }],
            "$defs": { "a": {
                "type": "object",
                "properties": { "type": { "const": "a" }, "n": { "type": ["integer", "null"] }, "pair": pair },
                "required": ["type"],
                "additionalProperties": false,
            } },
        });
        let part = json!({ "$ref": "#/$defs/a", "$defs": schema["$defs"] });
        for good in
            [json!({ "type": "a" }), json!({ "type": "a", "n": 3 }), json!({ "type": "a", "n": null, "pair": null })]
        {
            assert_eq!(check(&schema, &good), Ok(()));
        }
        for (bad, place) in [
            (json!({ "n": 3 }), "required"),
            (json!({ "type": "a", "n": "3" }), ".n"),
            (json!({ "type": "a", "m": 3 }), ".m: not in the schema"),
            (json!({ "type": "b" }), ".type"),
            (json!({ "type": "a", "pair": [1] }), ".pair"),
        ] {
            assert!(check(&schema, &bad).is_err());
            assert!(check(&part, &bad).unwrap_err().contains(place), "{bad}");
        }
        assert!(check(&json!({ "pattern": "a" }), &json!("a")).is_err());
    }
}
