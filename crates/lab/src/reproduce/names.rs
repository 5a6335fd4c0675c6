//! What exhibits and their files are called.

use nic_firmware_model::reproduce::Design;
use nic_firmware_model::reproduce::report::Chapter;

/// What the command line calls a chapter.
pub(crate) fn key(design: Option<Design>) -> &'static str {
    match design {
        Some(Design::Stp) => "stp",
        Some(Design::Qpip) => "qpip",
        Some(Design::Defrag) => "defrag",
        Some(Design::Clan) => "clan",
        None => "beyond",
    }
}

/// A name for each exhibit, different from all others: "clan-figure-7". Where two have the
/// same name in a chapter, their titles tell them apart.
pub(crate) fn ids(chapter: &Chapter) -> Vec<String> {
    let exhibits = &chapter.exhibits;
    let id = |words: &str| format!("{}-{}", key(chapter.design), slug(words));
    let name = exhibits.iter().map(|exhibit| {
        let is_shared = exhibits.iter().filter(|other| other.name == exhibit.name).count() > 1;
        if is_shared {
            id(&format!("{} {}", exhibit.name, exhibit.title))
        } else {
            id(exhibit.name)
        }
    });
    name.collect()
}

/// In letters that every file system and every address takes.
fn slug(words: &str) -> String {
    let words: String = words
        .chars()
        .map(
            |letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { ' ' },
        )
        .collect();
    words.split_whitespace().collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use nic_firmware_model::reproduce::Exhibit;

    #[test]
    fn names_suit_file_systems() {
        assert_eq!(slug("Section 4.2.1, Figure 3"), "section-4-2-1-figure-3");
        assert_eq!(slug("../µ/\"x\""), "x");
    }

    #[test]
    fn equal_names_are_told_apart() {
        let exhibit = |title| Exhibit {
            design: Design::Stp,
            name: "STP",
            title,
            columns: Vec::new(),
            rows: Vec::new(),
            remarks: Vec::new(),
        };
        let exhibits = vec![exhibit("one"), exhibit("two")];
        let chapter = Chapter { design: None, exhibits, constants: Vec::new() };
        assert_eq!(ids(&chapter), ["beyond-stp-one", "beyond-stp-two"]);
    }
}
