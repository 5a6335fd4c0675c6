//! Runs the real program.

use std::io::Read;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Long for whatever a test asks, on however slow a machine.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs `landfall` with these arguments; it does not hang.
pub(crate) fn landfall(arguments: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_landfall"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let stdout = thread::spawn(move || {
        let mut bytes = Vec::new();
        out.read_to_end(&mut bytes).map(|_| bytes)
    });
    let stderr = thread::spawn(move || {
        let mut bytes = Vec::new();
        err.read_to_end(&mut bytes).map(|_| bytes)
    });
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("`landfall {}` did not end within {LIMIT:?}", arguments.join(" "));
        }
        thread::sleep(Duration::from_millis(10));
    };
    let (stdout, stderr) = (stdout.join().unwrap().unwrap(), stderr.join().unwrap().unwrap());
    Output { status, stdout, stderr }
}

/// What it printed, which must be one JSON value.
pub(crate) fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let problems = String::from_utf8_lossy(&output.stderr);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in:\n{text}\nstderr:\n{problems}"))
}

pub(crate) mod schema {
    //! What `docs/perf-json.md` promises, taken from its tables: so the page is the schema.

    use std::collections::BTreeMap;

    use serde_json::Value;

    const PAGE: &str = include_str!("../../../docs/perf-json.md");

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
            let value =
                object.get(name).unwrap_or_else(|| panic!("`{name}` is missing in {there:?}"));
            assert!(has_type(value, &types), "`{name}` is {value}, not {types:?}");
        }
    }

    /// The object `machine` of a report has exactly the fields of its table.
    pub(crate) fn check_settings(machine: &Value) {
        check(machine, "`machine`");
    }
}
