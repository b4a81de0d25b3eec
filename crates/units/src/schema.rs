//! JSON Schemas of the quantities, so that an editor knows their units.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::quantity::{RATES, SIZES, SPANS};
use crate::table::Table;
use crate::{BitRate, ByteSize, Ratio, Span};

/// Text of a number and one of the units in `table`.
fn quantity(title: &str, table: &Table) -> Schema {
    let units: Vec<_> = table.units.iter().map(|(name, _)| *name).collect();
    json_schema!({
        "title": title,
        "type": "string",
        "pattern": format!("^\\s*[0-9._]+\\s*({})\\s*$", units.join("|")),
        "examples": [table.example],
    })
}

macro_rules! json_schema_of {
    ($($quantity:ty: $title:literal, $table:ident;)*) => {$(
        impl JsonSchema for $quantity {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                $title.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                quantity($title, &$table)
            }
        }
    )*};
}
json_schema_of! {
    BitRate: "rate", RATES;
    ByteSize: "size", SIZES;
    Span: "time", SPANS;
}

impl JsonSchema for Ratio {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "share".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "title": "share",
            "anyOf": [
                { "type": "string", "pattern": "^\\s*[0-9.]+\\s*%\\s*$" },
                { "type": "number", "minimum": 0, "maximum": 1 },
            ],
            "examples": ["6 %", 0.06],
        })
    }
}
