//! What a file is, by its name.

/// By the end of the name, in lower case.
const TYPES: [(&str, &str); 36] = [
    ("avif", "image/avif"),
    ("bmp", "image/bmp"),
    ("bz2", "application/x-bzip2"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("flac", "audio/flac"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/x-icon"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("md", "text/markdown; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("ogg", "audio/ogg"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("toml", "application/toml"),
    ("txt", "text/plain; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("webm", "video/webm"),
    ("webp", "image/webp"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xml", "application/xml"),
    ("xz", "application/x-xz"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

/// What a file with this name is. Where that is unknown, clients save it and do not guess.
pub(super) fn of(name: &str) -> &'static str {
    let end = name.rsplit_once('.').map_or(String::new(), |(_, end)| end.to_ascii_lowercase());
    let found = TYPES.binary_search_by(|(known, _)| (*known).cmp(end.as_str()));
    found.map_or("application/octet-stream", |at| TYPES[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_known_end_is_found() {
        for (end, kind) in TYPES {
            assert_eq!(of(&format!("a.b.{}", end.to_uppercase())), kind, "{end}");
        }
        for unknown in ["", "html", "a.", "a.exe"] {
            assert_eq!(of(unknown), "application/octet-stream", "{unknown}");
        }
    }
}
