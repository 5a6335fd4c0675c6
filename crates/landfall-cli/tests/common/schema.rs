//! What `docs/perf-json.md` promises, taken from its tables: so the page is the schema.

use std::collections::BTreeMap;

use serde_json::Value;

const PAGE: &str = include_str!("../../../../docs/perf-json.md");

/// The names in backticks of a cell.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The first table with types below this heading: what type each field has.
fn fields(heading: &str) -> BTreeMap<&'static str, Vec<&'static str>> {
    let start = PAGE.find(heading).unwrap_or_else(|| panic!("no {heading}"));
    let below = &PAGE[start..];
    let table = below.find("| field | type |").unwrap_or_else(|| panic!("no table: {heading}"));
    let rows = below[table..].lines().skip(2).take_while(|line| line.starts_with('|'));
    let mut fields = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').collect();
        let types: Vec<&str> = cells[2].split(',').map(str::trim).collect();
        for name in names(cells[1]) {
            assert!(fields.insert(name, types.clone()).is_none(), "{name} twice in {heading}");
        }
    }
    fields
}

/// Whether a value has one of these types.
fn has_type(value: &Value, types: &[&str]) -> bool {
    types.iter().any(|kind| match *kind {
        "text" => value.is_string(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "list" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("the page speaks of a type `{other}`"),
    })
}

/// An object has exactly the fields that the page documents below a heading, each of its
/// type.
pub(crate) fn check(object: &Value, heading: &str) {
    let fields = fields(heading);
    let object = object.as_object().unwrap_or_else(|| panic!("no object: {object:#}"));
    let there: Vec<&str> = object.keys().map(String::as_str).collect();
    for name in &there {
        assert!(fields.contains_key(name), "`{name}` is not documented");
    }
    for (name, types) in fields {
        let value = object.get(name).unwrap_or_else(|| panic!("`{name}` is missing in {there:?}"));
        assert!(has_type(value, &types), "`{name}` is {value}, not {types:?}");
    }
}

/// The object `machine` of a report has exactly the fields of its table.
#[allow(dead_code, reason = "each test program uses its part")]
pub(crate) fn check_settings(machine: &Value) {
    check(machine, "`machine`");
}
