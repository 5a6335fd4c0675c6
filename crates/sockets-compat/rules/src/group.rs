use std::fs;
use std::process::Command;

/// The number of a group, by its name or its number: as the services say that this host asks for
/// names, or `/etc/group` where there is no `getent`. `None` where nobody knows it.
///
/// ```
/// assert_eq!(landfall_socket_rules::group_number("1001"), Some(1001));
/// assert_eq!(landfall_socket_rules::group_number("no such group"), None);
/// ```
#[must_use]
pub fn group_number(group: &str) -> Option<u32> {
    if let Ok(number) = group.parse() {
        return Some(number);
    }
    let asked = Command::new("getent").args(["group", group]).output().ok();
    let known = asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let known = known.or_else(|| fs::read_to_string("/etc/group").ok())?;
    number_in(&known, group)
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
}
