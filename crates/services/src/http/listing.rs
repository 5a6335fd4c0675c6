//! The page of a directory without an index.

use std::os::fd::OwnedFd;

use rustix::fs::{Dir, FileType};
use rustix::io::Errno;

use super::target::{Target, encode};

/// A longer list is cut, and says so.
const MOST: usize = 10_000;

/// The page of a folder. Hidden names are left out. Blocks.
pub(super) fn page(folder: OwnedFd, target: &Target) -> Result<String, Errno> {
    let mut names = Vec::new();
    let mut is_cut = false;
    for entry in Dir::new(folder)? {
        let entry = entry?;
        // A name that is no UTF-8 cannot be asked for.
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name.starts_with('.') {
            continue;
        }
        if names.len() == MOST {
            is_cut = true;
            break;
        }
        let end = if entry.file_type() == FileType::Directory { "/" } else { "" };
        names.push((name.to_owned(), end));
    }
    names.sort();
    let path = escape(&format!("/{}", target.names.join("/")));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{path}</title>\
         </head>\n<body><h1>{path}</h1>\n<ul>\n"
    );
    if !target.names.is_empty() {
        page += "<li><a href=\"../\">../</a></li>\n";
    }
    for (name, end) in names {
        page +=
            &format!("<li><a href=\"./{}{end}\">{}{end}</a></li>\n", encode(&name), escape(&name));
    }
    page += "</ul>\n";
    if is_cut {
        page += &format!("<p>The first {MOST} names.</p>\n");
    }
    Ok(page + "</body></html>\n")
}

/// Text that is no markup, whatever a file is called.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_markup() {
        assert_eq!(
            escape("<a href='x'>&\"</a>"),
            "&lt;a href=&#39;x&#39;&gt;&amp;&quot;&lt;/a&gt;"
        );
    }
}
