//! Generator of the schemas from the raw types.
//!
//! It runs in tests only: the program contains its results, which are smaller than the generator.

use bentpipe_units::Span;
use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

use crate::Which;
use crate::air::AirFile;
use crate::ground::GroundFile;

/// Description of a default that is not a value, for the reference page.
pub const DEFAULT: &str = "x-default";

/// Generates the schema of a gateway's file.
pub fn schema(which: Which) -> Value {
    match which {
        Which::Air => of::<AirFile>(),
        Which::Ground => of::<GroundFile>(),
    }
}

fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    let generator = settings.with_transform(tidy).into_generator();
    generator.into_root_schema_for::<T>().to_value()
}

/// Removes `null`, which TOML does not have, and the line breaks of doc comments, and writes long
/// times in hours and minutes.
fn tidy(schema: &mut Schema) {
    if let Some(keys) = schema.as_object_mut() {
        if remove_null(keys) {
            keys.entry(DEFAULT).or_insert_with(|| "none".into());
        }
        // A described default is not the value that stands for it in the program.
        if keys.contains_key(DEFAULT) {
            keys.remove("default");
        }
        if let Some(Value::String(description)) = keys.get_mut("description") {
            *description = description.replace('\n', " ");
        }
        if keys.get("title").and_then(Value::as_str).is_some_and(|title| title.starts_with("time"))
            && let Some(Value::String(default)) = keys.get_mut("default")
            && let Ok(span) = default.parse()
        {
            *default = time(span);
        }
    }
    transform_subschemas(&mut tidy, schema);
}

/// A default in the largest unit in which it is a whole number; up to ten minutes in seconds.
fn time(span: Span) -> String {
    match span.duration().as_secs() {
        seconds if seconds > 0 && seconds % 3600 == 0 => format!("{} h", seconds / 3600),
        seconds if seconds > 600 && seconds % 60 == 0 => format!("{} min", seconds / 60),
        0 if span.duration().is_zero() => "0 s".to_owned(),
        _ => span.to_string(),
    }
}

/// Returns `true` if the schema allowed `null`.
fn remove_null(keys: &mut serde_json::Map<String, Value>) -> bool {
    let null = Value::from("null");
    if let Some(Value::Array(types)) = keys.get_mut("type")
        && types.contains(&null)
    {
        types.retain(|one| *one != null);
        if let [one] = &types[..] {
            let one = one.clone();
            keys.insert("type".to_owned(), one);
        }
        if let Some(Value::Array(values)) = keys.get_mut("enum") {
            values.retain(|value| !value.is_null());
        }
        return true;
    }
    let Some(Value::Array(choices)) = keys.get_mut("anyOf") else { return false };
    let before = choices.len();
    choices.retain(|choice| choice.get("type") != Some(&null));
    let is_removed = choices.len() < before;
    if let [Value::Object(only)] = &mut choices[..] {
        let only = std::mem::take(only);
        keys.remove("anyOf");
        for (key, value) in only {
            keys.entry(key).or_insert(value);
        }
    }
    is_removed
}
