//! Bytes both ways between a queue pair and a socket of the kernel, with equal
//! hashes at both ends.

use std::cell::RefCell;
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;

use landfall_transport::Driver;
use qpip::{CloseReason, QueuePairId};

use super::conversation::{Program, Say, Saying, hash_of};
use super::kernel::{Kernel, Received};
use super::{Report, Station, kernel};

/// Who asks for the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opener {
    Station,
    Kernel,
}

/// The ways in which two can begin to talk: is it IPv4, and who asks.
pub const OPENINGS: [(bool, Opener); 4] = [
    (true, Opener::Station),
    (true, Opener::Kernel),
    (false, Opener::Station),
    (false, Opener::Kernel),
];

/// Where the station listens.
pub const PORT: u16 = 7000;

/// How much both sides say to each other, and how they begin.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    pub is_ipv4: bool,
    pub opener: Opener,
    pub to_kernel: u64,
    pub to_station: u64,
}

impl Exchange {
    pub fn new((is_ipv4, opener): (bool, Opener), bytes: u64) -> Self {
        Self { is_ipv4, opener, to_kernel: bytes, to_station: bytes }
    }

    /// Opens a connection, exchanges, and closes; nothing may be missing.
    #[track_caller]
    pub fn run<D: Driver>(self, station: &mut Station<D>, kernel: &Kernel) -> Report {
        let at = station.at(self.is_ipv4, PORT);
        self.run_at(station, kernel, at)
    }

    /// The same where the kernel finds the station somewhere else.
    #[track_caller]
    pub fn run_at<D: Driver>(
        self,
        station: &mut Station<D>,
        kernel: &Kernel,
        at: SocketAddr,
    ) -> Report {
        let (ours, theirs) = (u64::from(self.is_ipv4), 2 + u64::from(self.is_ipv4));
        let program = Saying::new(ours, self.to_kernel);
        let (pair, stream) = open_at(station, kernel, (self.is_ipv4, self.opener), program, at);
        let (mut saying, mut hearing) = (stream.try_clone().unwrap(), stream);
        let to_station = self.to_station;
        let said = kernel.task(move || kernel::say(&mut saying, theirs, to_station));
        let heard = kernel.task(move || kernel::hear(&mut hearing));
        said.join(station);
        let heard = heard.join(station);
        let report = station.finish(pair);
        assert_eq!(heard, Received::of(ours, self.to_kernel), "{self:?}: at the kernel");
        assert_eq!(report.received, to_station, "{self:?}: at the station");
        assert_eq!(report.hash, hash_of(theirs, to_station), "{self:?}: at the station");
        assert_eq!((report.sent, report.failed_sends), (self.to_kernel, 0), "{self:?}");
        assert_eq!(report.closed, Some(CloseReason::Finished), "{self:?}");
        report
    }
}

/// Opens a connection between the station and the kernel.
#[track_caller]
pub fn open<D: Driver>(
    station: &mut Station<D>,
    kernel: &Kernel,
    opening: (bool, Opener),
    program: impl Program + 'static,
) -> (QueuePairId, TcpStream) {
    let at = station.at(opening.0, PORT);
    open_at(station, kernel, opening, program, at)
}

/// The same where the kernel finds the station somewhere else than at its own
/// address.
#[track_caller]
pub fn open_at<D: Driver>(
    station: &mut Station<D>,
    kernel: &Kernel,
    (is_ipv4, opener): (bool, Opener),
    program: impl Program + 'static,
    at: SocketAddr,
) -> (QueuePairId, TcpStream) {
    match opener {
        Opener::Station => {
            let (listener, at) = kernel.listen(is_ipv4);
            let pair = station.connect(at, program);
            let accepting = kernel.task(move || kernel::accept(&listener));
            (pair, accepting.join(station))
        }
        Opener::Kernel => {
            let listener = station.listen(station.at(is_ipv4, PORT));
            let pair = station.offer(listener, program);
            let stream = kernel.task(move || kernel::connect(at)).join(station);
            station
                .until("the connection is accepted", |station| station.report(pair).ends.is_some());
            station.adapter.stop_listening(listener).unwrap();
            (pair, stream)
        }
    }
}

// As much of HTTP/1.1 (RFC 9112) as programs of others need to fetch and to
// store something.

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

/// Serves one document to anyone who asks, and keeps what is stored.
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
