//! TCP by scripts: packets with times in, packets with times out, by section of each RFC.
//!
//! | file | what it has |
//! | --- | --- |
//! | `text` | the form of a script |
//! | `adapter` | plays one to an adapter, in virtual time |
//! | `rfc*.txt`, `ours.txt` | the scripts, a file for each RFC |

mod adapter;
mod text;

/// Plays all scripts of a file, and fails with all that do not pass.
fn play(file: &str) {
    // Read, not included: a script is changed without compiling anything.
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let scripts = text::read(&std::fs::read_to_string(folder.join(file)).unwrap());
    assert!(!scripts.is_empty(), "{file} has no scripts");
    let mut failures = Vec::new();
    let only = std::env::var("LANDFALL_SCRIPT").ok();
    for script in &scripts {
        if only.as_ref().is_some_and(|only| !script.name.contains(only.as_str())) {
            continue;
        }
        let played = std::panic::catch_unwind(|| adapter::Player::new(script).play(script));
        let why = match played {
            Ok(Ok(())) => continue,
            Ok(Err(why)) => why,
            Err(_) => "it panicked".into(),
        };
        failures.push(format!("{file}:{}: [{}]\n    {why}", script.line, script.name));
    }
    let (failed, all) = (failures.len(), scripts.len());
    assert!(failed == 0, "{failed} of {all} scripts:\n{}", failures.join("\n"));
}

#[test]
fn scripts_of_rfc_9293() {
    play("rfc9293.txt");
}

#[test]
fn scripts_of_rfc_5961() {
    play("rfc5961.txt");
}

#[test]
fn scripts_of_rfc_2018_and_2883() {
    play("rfc2018.txt");
}

#[test]
fn scripts_of_rfc_5681_3042_and_6582() {
    play("rfc5681.txt");
}

#[test]
fn scripts_of_rfc_8985() {
    play("rfc8985.txt");
}

#[test]
fn scripts_of_rfc_7323() {
    play("rfc7323.txt");
}

#[test]
fn scripts_of_rfc_6298() {
    play("rfc6298.txt");
}

#[test]
fn scripts_of_rfc_3168() {
    play("rfc3168.txt");
}

#[test]
fn scripts_of_the_window_that_is_memory() {
    play("window.txt");
}

#[test]
fn scripts_of_what_is_chosen_for_a_connection() {
    play("options.txt");
}
