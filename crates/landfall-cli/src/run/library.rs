//! Where the library lies: in `LANDFALL_PRELOAD`, beside this program, in the folders that
//! the loader of programs looks through.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

const NAME: &str = "liblandfall_preload.so";

/// The first that is there; else all places that were looked at.
pub(super) fn find() -> Result<PathBuf> {
    if let Some(said) = env::var_os("LANDFALL_PRELOAD").filter(|said| !said.is_empty()) {
        let path = PathBuf::from(said);
        // Who names one wants that one.
        return match fs::canonicalize(&path) {
            Ok(path) if path.is_file() => Ok(path),
            _ => bail!("LANDFALL_PRELOAD says {}, and that is no file", path.display()),
        };
    }
    let places = places();
    match places.iter().find(|place| place.is_file()) {
        Some(found) => Ok(found.clone()),
        None => bail!("{}", not_found(&places)),
    }
}

fn not_found(places: &[PathBuf]) -> String {
    let mut said = format!("{NAME} is in none of these places:\n");
    for place in places {
        said.push_str(&format!("  {}\n", place.display()));
    }
    said.push_str(
        "build it (cargo build --release -p landfall-preload) and put it beside this program, \
         or say in LANDFALL_PRELOAD where it is",
    );
    said
}

fn places() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Ok(own) = env::current_exe().and_then(fs::canonicalize)
        && let Some(folder) = own.parent()
    {
        folders.push(folder.to_path_buf());
        // As it is installed: bin/landfall, and beside bin the libraries.
        folders.extend(folder.parent().map(|above| above.join("lib")));
    }
    if let Some(more) = env::var_os("LD_LIBRARY_PATH") {
        folders.extend(env::split_paths(&more).filter(|folder| folder.is_absolute()));
    }
    folders.extend(of_loader(Path::new("/etc/ld.so.conf"), 0));
    folders.extend(["/lib", "/usr/lib", "/lib64", "/usr/lib64"].map(PathBuf::from));
    let mut places: Vec<PathBuf> = Vec::new();
    for folder in folders {
        let place = folder.join(NAME);
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// The folders in a configuration of the loader, and in those that it includes.
fn of_loader(file: &Path, depth: u8) -> Vec<PathBuf> {
    const DEEPEST: u8 = 4;
    let Ok(text) = fs::read_to_string(file) else { return Vec::new() };
    let mut folders = Vec::new();
    for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        if line.starts_with('/') {
            folders.push(PathBuf::from(line));
        } else if let Some(pattern) = line.strip_prefix("include ")
            && depth < DEEPEST
        {
            for included in files_like(Path::new(pattern.trim())) {
                folders.extend(of_loader(&included, depth + 1));
            }
        }
    }
    folders
}

/// The files of a pattern whose last part ends one way: `/etc/ld.so.conf.d/*.conf`.
fn files_like(pattern: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (pattern.parent(), pattern.file_name()) else {
        return Vec::new();
    };
    let name = name.to_string_lossy();
    let Some(end) = name.strip_prefix('*') else { return vec![pattern.to_path_buf()] };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .filter(|entry| entry.file_name().to_string_lossy().ends_with(end))
        .map(|entry| entry.path())
        .collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_found_is_said_with_all_places() {
        let said = not_found(&places());
        let own = env::current_exe().unwrap();
        let beside = fs::canonicalize(own).unwrap().parent().unwrap().join(NAME);
        assert!(said.contains(&beside.display().to_string()), "{said}");
        assert!(said.contains("/usr/lib/") && said.contains("LANDFALL_PRELOAD"), "{said}");
    }

    #[test]
    fn the_loaders_folders_are_found_through_its_includes() {
        let folder = env::temp_dir().join(format!("landfall-loader-{}", std::process::id()));
        fs::create_dir_all(folder.join("more")).unwrap();
        let first = folder.join("conf");
        let include = format!("# all\n/first\ninclude {}/more/*.conf\n", folder.display());
        fs::write(&first, include).unwrap();
        fs::write(folder.join("more/a.conf"), "/second # why\n").unwrap();
        fs::write(folder.join("more/b.txt"), "/third\n").unwrap();
        // One that includes itself comes to an end.
        fs::write(folder.join("more/c.conf"), format!("include {}\n", first.display())).unwrap();
        let found = of_loader(&first, 0);
        fs::remove_dir_all(&folder).unwrap();
        assert!(found.starts_with(&["/first".into(), "/second".into()]), "{found:?}");
        assert!(!found.contains(&"/third".into()));
    }
}
