//! As much of HTTP/1.1 (RFC 9112) as programs of others need to fetch and to
//! store something.

use std::cell::RefCell;
use std::rc::Rc;

use super::program::{Program, Say};

const BLANK_LINE: &[u8] = b"\r\n\r\n";

/// The header of a message and what follows, once the header is whole.
pub fn split_message(bytes: &[u8]) -> Option<(String, &[u8])> {
    let end = bytes.windows(BLANK_LINE.len()).position(|window| window == BLANK_LINE)?;
    let header = String::from_utf8_lossy(&bytes[..end]).into_owned();
    Some((header, &bytes[end + BLANK_LINE.len()..]))
}

/// How long a header says that the body is.
pub fn content_length(header: &str) -> Option<usize> {
    header.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    })
}

/// Serves one document to whoever asks, and keeps what is stored.
pub struct Server {
    document: Rc<Vec<u8>>,
    pub stored: Rc<RefCell<Vec<u8>>>,
    heard: Vec<u8>,
    /// The header of the answer.
    header: Vec<u8>,
    /// How much of header and document was said; nothing was asked yet.
    said: Option<usize>,
    is_read: bool,
    has_continued: bool,
}

impl Server {
    pub fn new(document: &Rc<Vec<u8>>, stored: &Rc<RefCell<Vec<u8>>>) -> Self {
        Self {
            document: Rc::clone(document),
            stored: Rc::clone(stored),
            heard: Vec::new(),
            header: Vec::new(),
            said: None,
            is_read: false,
            has_continued: true,
        }
    }

    fn answer(&mut self, body: usize) {
        self.header =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {body}\r\nConnection: close\r\n\r\n")
                .into_bytes();
        self.said = Some(0);
    }
}

impl Program for Server {
    fn say(&mut self, into: &mut [u8]) -> Say {
        if !self.has_continued {
            self.has_continued = true;
            let go_on = b"HTTP/1.1 100 Continue\r\n\r\n";
            into[..go_on.len()].copy_from_slice(go_on);
            return Say::Bytes(go_on.len());
        }
        let Some(said) = self.said else { return Say::Nothing };
        let body = if self.is_read { self.document.as_slice() } else { &[] };
        let rest = match said.checked_sub(self.header.len()) {
            None => &self.header[said..],
            Some(said) => &body[said..],
        };
        let now = rest.len().min(into.len());
        into[..now].copy_from_slice(&rest[..now]);
        self.said = Some(said + now);
        if now == 0 { Say::End } else { Say::Bytes(now) }
    }

    fn hear(&mut self, bytes: &[u8]) {
        let is_new = split_message(&self.heard).is_none();
        self.heard.extend(bytes);
        let Some((header, body)) = split_message(&self.heard) else { return };
        let len = content_length(&header).unwrap_or(0);
        if is_new && header.to_lowercase().contains("expect: 100-continue") {
            self.has_continued = false;
        }
        if self.said.is_some() || body.len() < len {
            return;
        }
        self.is_read = header.starts_with("GET ");
        if !self.is_read {
            self.stored.borrow_mut().extend(body);
        }
        self.answer(if self.is_read { self.document.len() } else { 0 });
    }
}
