//! What the kernel knows of TCP connections (`sock_diag`): whether there is one between two
//! addresses, and how many bytes it has counted. It answers everybody, for the reader's own
//! network namespace.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::Counted;
use crate::{Record, Role};

/// Bytes of a question: the head, and `struct inet_diag_req_v2`.
const QUESTION: usize = 72;
/// Where what it knows besides begins in an answer.
const ATTRIBUTES: usize = 88;
/// `INET_DIAG_INFO`: `struct tcp_info`.
const INFO: u16 = 2;

/// A socket that answers questions.
#[derive(Debug)]
pub(super) struct TcpDiag(OwnedFd);

/// An answer of the kernel's.
#[derive(Debug)]
struct Answer {
    bytes: Vec<u8>,
}

impl TcpDiag {
    pub(super) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let protocol = Some(netlink::SOCK_DIAG);
        let socket =
            rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self(socket))
    }

    /// Bytes that TCP has sent and that have come, for one end of a connection.
    pub(super) fn counted(&mut self, record: &Record) -> Option<Counted> {
        let answer = self.ask(&record.name, record.role).ok()??;
        let info = answer.attribute(INFO)?;
        let word = |at: usize| {
            info.get(at..at + 8)
                .map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap_or_default()))
        };
        // `tcpi_bytes_sent` with all that was sent again, `tcpi_bytes_retrans`, which is that.
        Some(Counted { sent: word(200)?.wrapping_sub(word(208)?), received: word(128)? })
    }

    /// Whether there is a connection between these two, at either end; an error where the kernel
    /// does not say.
    pub(super) fn is_known(&mut self, name: &[u8; Record::NAME]) -> io::Result<bool> {
        for role in [Role::Connector, Role::Acceptor] {
            if self.ask(name, role)?.is_some_and(|answer| answer.is_connected()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What the kernel knows of one end; nothing if there is none.
    fn ask(&mut self, name: &[u8; Record::NAME], role: Role) -> io::Result<Option<Answer>> {
        const ERROR: u16 = 2;
        const NOT_FOUND: i32 = -2;
        let question = question(name, role);
        rustix::net::send(&self.0, &question, SendFlags::empty())?;
        let mut bytes = vec![0; 2048];
        let (len, _, from) = rustix::net::recvfrom(&self.0, &mut bytes[..], RecvFlags::DONTWAIT)?;
        let from = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
        let nonsense = || io::Error::from(io::ErrorKind::InvalidData);
        if from.is_none_or(|from| from.pid() != 0) || len < 20 {
            return Err(nonsense());
        }
        bytes.truncate(len);
        if u16::from_ne_bytes([bytes[4], bytes[5]]) == ERROR {
            let code = i32::from_ne_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]);
            return if code == NOT_FOUND {
                Ok(None)
            } else {
                Err(io::Error::from_raw_os_error(-code))
            };
        }
        // Of whom it speaks: the port that was asked for.
        if len < ATTRIBUTES || bytes[20..22] != question[24..26] {
            return Err(nonsense());
        }
        Ok(Some(Answer { bytes }))
    }
}

impl Answer {
    fn is_connected(&self) -> bool {
        const TIME_WAIT: u8 = 6;
        const CLOSED: u8 = 7;
        const LISTENS: u8 = 10;
        !matches!(self.bytes[17], TIME_WAIT | CLOSED | LISTENS)
    }

    /// One of the things that it knows besides.
    fn attribute(&self, kind: u16) -> Option<&[u8]> {
        let mut rest = self.bytes.get(ATTRIBUTES..)?;
        while let [low, high, kind_low, kind_high, ..] = *rest {
            let len = usize::from(u16::from_ne_bytes([low, high]));
            let content = rest.get(4..len)?;
            if u16::from_ne_bytes([kind_low, kind_high]) == kind {
                return Some(content);
            }
            rest = rest.get(len.next_multiple_of(4)..)?;
        }
        None
    }
}

/// `SOCK_DIAG_BY_FAMILY` for one end of a connection.
fn question(name: &[u8; Record::NAME], role: Role) -> [u8; QUESTION] {
    const BY_FAMILY: u16 = 20;
    const REQUEST: u16 = 1;
    const INET: u8 = 2;
    const INET6: u8 = 10;
    const TCP: u8 = 6;
    const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF];
    let (connector, acceptor) = name.split_at(18);
    let (here, there) = match role {
        Role::Connector => (connector, acceptor),
        Role::Acceptor => (acceptor, connector),
    };
    let mut bytes = [0; QUESTION];
    bytes[..4].copy_from_slice(&(QUESTION as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
    let is_short = here[..12] == MAPPED && there[..12] == MAPPED;
    bytes[16] = if is_short { INET } else { INET6 };
    bytes[17] = TCP;
    bytes[18] = 1 << (INFO - 1);
    bytes[20..24].fill(0xFF);
    bytes[24..26].copy_from_slice(&here[16..]);
    bytes[26..28].copy_from_slice(&there[16..]);
    for (end, at) in [(here, 28), (there, 44)] {
        if is_short {
            bytes[at..at + 4].copy_from_slice(&end[12..16]);
        } else {
            bytes[at..at + 16].copy_from_slice(&end[..16]);
        }
    }
    // Of any number.
    bytes[64..].fill(0xFF);
    bytes
}
