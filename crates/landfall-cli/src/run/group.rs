//! Which group a name or a number means.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The number of a group that this user is in, or may become: the superuser's programs change their
/// groups later.
pub(super) fn number_of(group: &str) -> Result<u32> {
    let number = match group.parse() {
        Ok(number) => number,
        Err(_) => named(group).with_context(|| format!("there is no group called {group}"))?,
    };
    let is_in = rustix::process::geteuid().is_root()
        || rustix::process::getegid().as_raw() == number
        || rustix::process::getgroups()?.iter().any(|group| group.as_raw() == number);
    ensure!(
        is_in,
        "this user is not in group {group}: the superuser puts him there (usermod -aG {group} USER), \
         and it holds from the next login on"
    );
    Ok(number)
}

/// By the services that the host asks for names, where it has the program for that.
fn named(name: &str) -> Option<u32> {
    let asked = Command::new("getent").args(["group", name]).output().ok();
    let known = asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let known = known.or_else(|| fs::read_to_string("/etc/group").ok())?;
    number_in(&known, name)
}

/// Out of lines as `/etc/group` has them.
fn number_in(lines: &str, name: &str) -> Option<u32> {
    lines.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_its_whole_name() {
        let lines = "root:x:0:\nweb-old:x:7:\nweb:x:1001:www-data,app\nbroken\nweb:x:9:\n";
        assert_eq!(number_in(lines, "web"), Some(1001));
        assert_eq!(number_in(lines, "root"), Some(0));
        for missing in ["we", "app", "x", "", "broken"] {
            assert_eq!(number_in(lines, missing), None, "{missing}");
        }
    }

    #[test]
    fn a_group_that_is_not_there_is_named() {
        let why = number_of("no-such-group-here").unwrap_err();
        assert_eq!(why.to_string(), "there is no group called no-such-group-here");
        let own = rustix::process::getegid().as_raw();
        assert_eq!(number_of(&own.to_string()).unwrap(), own);
    }
}
