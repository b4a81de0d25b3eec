//! The JSON Schemas, made of the types, and the tables of docs/settings.md, made of the schemas.
//!
//! `UPDATE_SETTINGS=1 cargo test -p bentpipe-config settings` writes them. Headings and prose are
//! written by hand: a table follows the heading that has its header in back-ticks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::*;
use crate::schema::generated::{DEFAULT, schema};

/// The page, in this crate's folder.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");

/// The folder of the schemas.
const SCHEMAS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/schema");

/// First lines of each table.
const HEAD: &str = "| key | type | default | meaning |\n|---|---|---|---|\n";

/// Rows of each table, by its header; the header is empty at the top of a file.
type Tables = BTreeMap<String, String>;

#[test]
fn the_page_of_settings_is_made_of_the_types() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let generated = generated(&page);
    if std::env::var_os("UPDATE_SETTINGS").is_some() {
        std::fs::write(PAGE, &generated).unwrap();
        return;
    }
    let lines = page.lines().zip(generated.lines());
    let differences: Vec<_> = lines.filter(|(is, should)| is != should).take(3).collect();
    assert!(
        page == generated,
        "docs/settings.md differs from the types: run `UPDATE_SETTINGS=1 cargo test -p \
         bentpipe-config settings`. The first lines, as they are and as they should be: \
         {differences:#?}"
    );
}

#[test]
fn the_schemas_of_settings_are_made_of_the_types() {
    for (which, name) in [(Which::Air, "air"), (Which::Ground, "ground")] {
        let generated = serde_json::to_string_pretty(&schema(which)).unwrap() + "\n";
        if std::env::var_os("UPDATE_SETTINGS").is_some() {
            std::fs::write(format!("{SCHEMAS}/{name}.schema.json"), &generated).unwrap();
            continue;
        }
        assert!(
            which.schema() == generated,
            "{name}.schema.json differs from the types: run `UPDATE_SETTINGS=1 cargo test -p \
             bentpipe-config settings`"
        );
    }
}

/// A size is shown with three decimals, so that its default is written by hand.
#[test]
fn the_default_padding_is_the_one_that_is_shown() {
    for which in [Which::Air, Which::Ground] {
        let schema = schema(which);
        let shown = &schema["properties"]["link"]["properties"]["learn-bytes"]["default"];
        assert_eq!(shown.as_str().unwrap().parse(), Ok(rate::learn_bytes()));
    }
}

/// An editor marks nothing in the examples.
#[test]
fn the_examples_conform_to_the_schemas() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for example in ["aircraft", "cabin", "rural-paws", "ship", "village"] {
        for (file, which) in [("air.toml", Which::Air), ("ground.toml", Which::Ground)] {
            let file = examples.join(example).join(file);
            let table: toml::Table = std::fs::read_to_string(&file).unwrap().parse().unwrap();
            if let Err(wrong) = conforms(&schema(which), &table.into()) {
                panic!("{}: {wrong}", file.display());
            }
        }
    }
    let conforms = |key: &str, text: &str| {
        let table: toml::Table = text.parse().unwrap();
        conforms(&schema(Which::Air)["properties"][key], &table[key]).is_ok()
    };
    assert!(conforms("raw", "raw.protocols = ['esp', 253]"));
    assert!(!conforms("raw", "raw.protocols = 'esp'"), "no list");
    assert!(!conforms("raw", "[raw]"), "a required key is missing");
    assert!(!conforms("page", "page = { listen = '10.0.0.1:80', kontact = 'crew' }"), "unknown");
    assert!(!conforms("listen", "listen.quic = 'drop'"), "none of the choices");
}

/// Returns the first part of `value` that `schema` forbids. Texts may have any pattern.
fn conforms(schema: &Value, value: &toml::Value) -> Result<(), String> {
    if let Some(choices) = schema["anyOf"].as_array() {
        let found = choices.iter().any(|choice| conforms(choice, value).is_ok());
        return if found { Ok(()) } else { Err(format!("{value} is none of {choices:?}")) };
    }
    let kind = match value {
        toml::Value::String(text) => {
            if choices(schema).next().is_some() && !choices(schema).any(|name| name == text) {
                return Err(format!("{value} is none of the choices"));
            }
            "string"
        }
        toml::Value::Integer(_) => "integer",
        toml::Value::Float(_) => "number",
        toml::Value::Boolean(_) => "boolean",
        toml::Value::Array(list) => {
            list.iter().try_for_each(|one| conforms(&schema["items"], one))?;
            "array"
        }
        toml::Value::Table(table) => {
            for key in schema["required"].as_array().into_iter().flatten() {
                if !table.contains_key(key.as_str().unwrap()) {
                    return Err(format!("{key} is missing"));
                }
            }
            for (key, value) in table {
                let known = schema["properties"].get(key);
                let known = known.or(schema.get("additionalProperties"));
                let known = known.filter(|known| **known != false);
                conforms(known.ok_or_else(|| format!("{key} is unknown"))?, value)?;
            }
            "object"
        }
        toml::Value::Datetime(_) => "datetime",
    };
    let types = &schema["type"];
    let fits = types == kind || types.as_array().is_some_and(|all| all.iter().any(|it| it == kind));
    if fits || choices(schema).next().is_some() {
        Ok(())
    } else {
        Err(format!("{value} is not of type {types}"))
    }
}

#[test]
fn the_page_links_to_pages_that_exist() {
    let page = Path::new(PAGE);
    let text = std::fs::read_to_string(page).unwrap();
    for link in text.split("](").skip(1) {
        let target = link.split([')', '#']).next().unwrap();
        assert!(page.with_file_name(target).exists(), "{target}");
    }
}

/// The page with new tables.
fn generated(page: &str) -> String {
    let [air, ground] = [Which::Air, Which::Ground].map(|which| {
        let mut tables = Tables::new();
        add(&mut tables, "", "", &schema(which));
        tables
    });
    let mut missing: BTreeSet<_> = air.keys().map(|header| ("air.toml", header.clone())).collect();
    missing.extend(ground.keys().map(|header| ("ground.toml", header.clone())));
    let mut parts = page.split("\n## ");
    let mut text = parts.next().unwrap().to_owned();
    for part in parts {
        let (file, _) = part.split_once('\n').unwrap();
        let files: &[_] = match file {
            "air.toml" => &[("air.toml", &air)],
            "ground.toml" => &[("ground.toml", &ground)],
            "Either file" => &[("air.toml", &air), ("ground.toml", &ground)],
            _ => &[],
        };
        let mut sections = part.split("\n### ");
        text += &format!("\n## {}", sections.next().unwrap());
        for section in sections {
            let (heading, _) = section.split_once('\n').unwrap();
            let mut rows = BTreeSet::new();
            for header in if heading == "Top" { vec![""] } else { code(heading).collect() } {
                for (file, tables) in files {
                    rows.extend(tables.get(header));
                    missing.remove(&(*file, header.to_owned()));
                }
            }
            assert_eq!(rows.len(), 1, "{heading:?} of {file} has one table");
            text += &format!("\n### {}", with_rows(section, rows.first().unwrap()));
        }
    }
    assert!(missing.is_empty(), "no heading in docs/settings.md for {missing:?}");
    text
}

/// The section with `rows` in its table.
fn with_rows(section: &str, rows: &str) -> String {
    let (before, table) = section.split_once("\n| ").unwrap_or((section, ""));
    let after: String =
        table.split_inclusive('\n').skip(1).skip_while(|line| line.starts_with('|')).collect();
    format!("{before}\n{HEAD}{rows}{after}")
}

/// Text between back-ticks.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Adds the table described by `schema`, and those in it. Its keys have the prefix `path`.
fn add(tables: &mut Tables, header: &str, path: &str, schema: &Value) {
    let required = schema["required"].as_array();
    let mut rows = String::new();
    for (key, value) in schema["properties"].as_object().unwrap() {
        let is_required = required.is_some_and(|keys| keys.iter().any(|it| it == key));
        let default = if is_required { "required".to_owned() } else { default(value) };
        let meaning = meaning(value["description"].as_str().unwrap_or_default());
        rows += &format!("| `{key}` | {} | {default} | {meaning} |\n", kind(value));
        let below = format!("{path}{key}");
        if let Some(name) = value["x-key"].as_str() {
            let one = value["properties"].as_object().unwrap().values().next().unwrap();
            add(tables, &format!("[{below}.{name}]"), &format!("{below}.{name}."), one);
        } else if value["properties"].is_object() {
            add(tables, &format!("[{below}]"), &format!("{below}."), value);
        } else if value["items"]["properties"].is_object() {
            add(tables, &format!("[[{below}]]"), &format!("{below}."), &value["items"]);
        }
    }
    tables.insert(header.to_owned(), rows);
}

/// Type of a value, with the unit.
fn kind(value: &Value) -> String {
    let names: Vec<_> = choices(value).map(|name| format!("`{name}`")).collect();
    if let Some(title) = value["title"].as_str() {
        title.to_owned()
    } else if let [first @ .., last] = &names[..] {
        format!("{} or {last}", first.join(", "))
    } else if value["x-key"].is_string() {
        "tables".to_owned()
    } else if value["items"]["properties"].is_object() {
        "list of tables".to_owned()
    } else {
        match value["type"].as_str() {
            Some("object") => "table",
            Some("string") => "text",
            Some("integer") => "number",
            Some(name) => name,
            None => panic!("no type: {value}"),
        }
        .to_owned()
    }
}

/// Names that may be written.
fn choices(value: &Value) -> impl Iterator<Item = &Value> {
    let described = value["oneOf"].as_array().into_iter().flatten().map(|one| &one["const"]);
    value["enum"].as_array().into_iter().flatten().chain(described)
}

/// Default of a key that is not required.
fn default(value: &Value) -> String {
    match (value[DEFAULT].as_str(), value.get("default")) {
        (Some(said), _) => said.to_owned(),
        (None, Some(Value::Array(all))) => {
            let all: Vec<_> = all.iter().map(Value::to_string).collect();
            format!("`[{}]`", all.join(", "))
        }
        (None, Some(default)) => format!("`{default}`"),
        (None, None) if value["type"] == "object" && value["x-key"].is_null() => "below".to_owned(),
        (None, None) => "none".to_owned(),
    }
}

/// A description with links to the pages that it names.
fn meaning(description: &str) -> String {
    let text =
        description.strip_suffix('.').filter(|text| !text.contains(". ")).unwrap_or(description);
    let mut words = Vec::new();
    for word in text.split(' ') {
        let bare = word.trim_matches(['(', ')', ',', ':', '.']);
        words.push(match bare.strip_prefix("docs/") {
            Some(page) => {
                let file = page.split('#').next().unwrap_or_default();
                let name = file.rsplit('/').next().unwrap_or_default();
                word.replace(bare, &format!("[{name}]({page})"))
            }
            None => word.to_owned(),
        });
    }
    words.join(" ")
}
