//! From the target of a request to names below the directory.

/// The path of a request: the names of folders, and of a file unless it ends as a folder.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) names: Vec<String>,
    /// It ends with `/`.
    pub(super) is_folder: bool,
}

/// Why a path names nothing that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Not percent-encoded as it should be, or not UTF-8.
    Malformed,
    /// A name that no file has: with `/` or NUL in it.
    Impossible,
    /// It tries to leave the directory.
    Escapes,
}

impl Target {
    /// The path of a URI, without its query.
    pub(super) fn parse(path: &str) -> Result<Self, Refused> {
        let path = path.strip_prefix('/').ok_or(Refused::Malformed)?;
        let mut names = Vec::new();
        // `//` is `/`: for the file system, too.
        for segment in path.split('/').filter(|segment| !segment.is_empty()) {
            let name = decode(segment)?;
            match name.as_str() {
                "." => {}
                // Clients resolve this themselves; one that is left is up to no good.
                ".." => return Err(Refused::Escapes),
                name if name.contains(['/', '\0']) => return Err(Refused::Impossible),
                _ => names.push(name),
            }
        }
        Ok(Self { is_folder: path.is_empty() || path.ends_with('/'), names })
    }

    /// The path of a folder, encoded, beginning with one `/`: never another host.
    pub(super) fn folder_path(&self) -> String {
        let names = self.names.iter().map(|name| encode(name) + "/");
        ["/".to_owned()].into_iter().chain(names).collect()
    }
}

fn decode(segment: &str) -> Result<String, Refused> {
    let mut bytes = segment.bytes();
    let mut decoded = Vec::with_capacity(segment.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else { return Err(Refused::Malformed) };
        decoded.push((high << 4 | low) as u8);
    }
    String::from_utf8(decoded).map_err(|_| Refused::Malformed)
}

/// A name as it stands in a URI.
pub(super) fn encode(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded += &format!("%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &str) -> Result<(Vec<String>, bool), Refused> {
        Target::parse(path).map(|target| (target.names, target.is_folder))
    }

    #[test]
    fn a_path_is_decoded_once() {
        let of = |names: &[&str], is_folder| {
            Ok((names.iter().map(|name| (*name).to_owned()).collect(), is_folder))
        };
        assert_eq!(names("/"), of(&[], true));
        assert_eq!(names("/a/b%20c.txt"), of(&["a", "b c.txt"], false));
        assert_eq!(names("//a//./b/"), of(&["a", "b"], true));
        assert_eq!(names("/%e2%82%ac"), of(&["€"], false));
        assert_eq!(names("/%2561"), of(&["%61"], false), "not twice");
        assert_eq!(names("/..."), of(&["..."], false));
    }

    #[test]
    fn what_leads_out_or_is_no_name_is_refused() {
        for path in ["/..", "/../etc", "/a/../b", "/%2e%2e/x", "/.%2E/x", "/a/%2e./"] {
            assert_eq!(names(path), Err(Refused::Escapes), "{path}");
        }
        for path in ["/a%2fb", "/..%2f..%2fetc", "/a%00b"] {
            assert_eq!(names(path), Err(Refused::Impossible), "{path}");
        }
        for path in ["", "*", "a", "/%", "/%4", "/%zz", "/%ff"] {
            assert_eq!(names(path), Err(Refused::Malformed), "{path}");
        }
    }

    #[test]
    fn a_folder_is_never_another_host() {
        assert_eq!(Target::parse("//evil.example/x").unwrap().folder_path(), "/evil.example/x/");
        assert_eq!(Target::parse("/a b%0d/\"").unwrap().folder_path(), "/a%20b%0D/%22/");
    }
}
