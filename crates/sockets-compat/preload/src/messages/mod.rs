//! The paper's call: `socket(PF_INET, SOCK_SEQPACKET, IPPROTO_STP)`, with protocol 118.
//!
//! The kernel has no such sockets. What the program gets is one end of a pair of the
//! kernel's own sockets that keep messages apart; at the other end is the service, a
//! thread of this library, which carries them by the Scheduled Transfer Protocol. So
//! `poll`, `epoll`, `dup`, time-outs, `O_NONBLOCK` and `shutdown` are the kernel's, and a
//! child of a fork goes on with what its parent has open, as long as that lives. The
//! service begins with the first of these sockets that connects or listens.
//!
//! What does not live here: the protocol (`sockets-compat`, and the engine below it).
//!
//! A [`Holder`] is a socket of messages within a record that is used again and again.

mod carriers;
mod exchange;
pub(crate) mod packets;
mod service;

use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::kernel::Errno;
use crate::lock::Locked;
use crate::{kernel, process, rules, table};
use exchange::{Mapped, State};
use packets::{File, Kind};
use service::{Order, StpCarrier};

pub(crate) use exchange::{receive, send};
pub(crate) use service::{after_fork, end, goes_on, stands_still};

/// The number of the protocol, as IP has it.
pub(crate) const STP: c_int = 118;

/// The program's side of one socket. Descriptors that were doubled share it.
#[derive(Debug)]
pub(crate) struct Socket {
    page: Mapped,
    /// The service's end of the pair, until the service has it, and the page for it.
    service_end: Locked<Option<(File, Mapped)>>,
    pub(crate) is_v6: bool,
    names: Locked<Names>,
}

/// What both ends are called.
#[derive(Clone, Copy, Debug, Default)]
struct Names {
    here: Option<SocketAddr>,
    there: Option<SocketAddr>,
}

/// Whether it is the call of the paper.
pub(crate) fn is_meant(domain: c_int, kind: c_int, protocol: c_int) -> bool {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    matches!(domain, libc::AF_INET | libc::AF_INET6)
        && kind & !flags == libc::SOCK_SEQPACKET
        && protocol == STP
        && rules::are_on()
        && process::owns_the_tables()
}

/// A new socket.
pub(crate) fn make(domain: c_int, flags: c_int) -> Result<c_int, Errno> {
    let (near, service_end) = packets::pair(flags)?;
    let (page, file) = Mapped::create()?;
    let for_service = Mapped::of(&file)?;
    let socket = Socket {
        page,
        service_end: Locked::new(Some((service_end, for_service))),
        is_v6: domain == libc::AF_INET6,
        names: Locked::new(Names::default()),
    };
    Ok(enter(near, socket))
}

fn enter(near: File, socket: Socket) -> c_int {
    let fd = near.into_fd();
    table::insert(fd, |connection| connection.carry_messages(Box::new(socket)));
    fd
}

impl Socket {
    fn any(&self) -> SocketAddr {
        if self.is_v6 { ([0_u16; 8], 0).into() } else { ([0; 4], 0).into() }
    }

    fn take_service_end(&self) -> Result<(File, Mapped), Errno> {
        self.service_end.with(Option::take).ok_or(Errno(libc::EINVAL))
    }

    /// In a child of a fork: nobody else is here.
    pub(crate) fn after_fork(&self) {
        self.service_end.free_after_fork();
        self.names.free_after_fork();
    }

    pub(crate) fn bind(&self, address: SocketAddr) -> Result<(), Errno> {
        if self.page.state() != State::New || address.is_ipv6() != self.is_v6 {
            return Err(Errno(libc::EINVAL));
        }
        self.names.with(|names| match names.here {
            Some(_) => Err(Errno(libc::EINVAL)),
            None => {
                names.here = Some(address);
                Ok(())
            }
        })
    }

    /// Lets connections come in. The port is taken now; which one, where any would do.
    pub(crate) fn listen(&self) -> Result<(), Errno> {
        match self.page.state() {
            State::New => {}
            State::Listening => return Ok(()),
            _ => return Err(Errno(libc::EINVAL)),
        }
        let address = self.names.with(|names| names.here).unwrap_or_else(|| self.any());
        let transport = StpCarrier::chosen()?;
        let (service_end, page) = self.take_service_end()?;
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        service::order(Order::Listen { service_end, page, address, transport, tell })?;
        let (here, back) = told.recv().map_err(|_| Errno(libc::ENOBUFS))?;
        if let Some(back) = back {
            self.service_end.with(|service_end| *service_end = Some(back));
        }
        let here = here?;
        self.names.with(|names| names.here = Some(here));
        self.page.set_state(State::Listening);
        Ok(())
    }

    /// Connects; who may wait, waits.
    pub(crate) fn connect(&self, fd: c_int, address: SocketAddr) -> Result<(), Errno> {
        if address.is_ipv6() != self.is_v6 {
            return Err(Errno(libc::EAFNOSUPPORT));
        }
        let transport = StpCarrier::chosen()?;
        if !self.page.change(State::New, State::Connecting) {
            return Err(match self.page.state() {
                State::Connecting => Errno(libc::EALREADY),
                State::Connected => Errno(libc::EISCONN),
                State::Over => self.page.take_trouble().unwrap_or(Errno(libc::EINVAL)),
                State::New | State::Listening => Errno(libc::EINVAL),
            });
        }
        self.names.with(|names| names.there = Some(address));
        let (service_end, page) = self.take_service_end()?;
        // There is room to write when it is connected: `poll` is to say so then.
        packets::fill(fd)?;
        service::order(Order::Connect { service_end, page, address, transport })?;
        if kernel::is_nonblocking(fd) {
            return Err(Errno(libc::EINPROGRESS));
        }
        while self.page.state() == State::Connecting {
            let found = kernel::poll_one(fd, libc::POLLOUT, -1)?;
            // Its carrier would have said before how it went.
            if found & libc::POLLHUP != 0 && self.page.state() == State::Connecting {
                return Err(Errno(libc::ECONNABORTED));
            }
        }
        match self.page.state() {
            State::Over => Err(self.page.take_trouble().unwrap_or(Errno(libc::ECONNREFUSED))),
            _ => Ok(()),
        }
    }

    /// The next connection that came in, and where it comes from.
    pub(crate) fn accept(&self, fd: c_int, flags: c_int) -> Result<(c_int, SocketAddr), Errno> {
        if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0
            || self.page.state() != State::Listening
        {
            return Err(Errno(libc::EINVAL));
        }
        let mut body = [0_u8; packets::BOTH];
        let parts = [kernel::Part { base: body.as_mut_ptr(), len: body.len() }];
        // SAFETY: memory of ours.
        let packet = unsafe { packets::receive(fd, &parts, 0) }?;
        let [Some(near), Some(page)] = packet.files else {
            return Err(Errno(if packet.len == 0 { libc::EINVAL } else { libc::ECONNABORTED }));
        };
        let (here, there) = packets::read(&body).ok_or(Errno(libc::ECONNABORTED))?;
        packets::set_flags(&near, flags)?;
        let names = Names { here: Some(here), there: Some(there) };
        let socket = Socket {
            page: Mapped::of(&page)?,
            service_end: Locked::new(None),
            is_v6: self.is_v6,
            names: Locked::new(names),
        };
        Ok((enter(near, socket), there))
    }

    /// What an end is called.
    pub(crate) fn name(&self, of_peer: bool) -> Result<SocketAddr, Errno> {
        let names = self.names.with(|names| *names);
        if !of_peer {
            return Ok(names.here.unwrap_or_else(|| self.any()));
        }
        let is_connected = self.page.state() == State::Connected;
        names.there.filter(|_| is_connected).ok_or(Errno(libc::ENOTCONN))
    }

    /// An option that the kernel would answer for the pair, and not for the socket.
    pub(crate) fn option(&self, level: c_int, name: c_int) -> Option<c_int> {
        if level != libc::SOL_SOCKET {
            return None;
        }
        Some(match name {
            libc::SO_PROTOCOL => STP,
            libc::SO_DOMAIN if self.is_v6 => libc::AF_INET6,
            libc::SO_DOMAIN => libc::AF_INET,
            libc::SO_ACCEPTCONN => c_int::from(self.page.state() == State::Listening),
            libc::SO_ERROR => self.page.take_trouble().map_or(0, |why| why.0),
            libc::SO_RCVBUF => {
                self.page.limit().map_or(service::USUAL_LIMIT, |limit| limit.cast_signed())
            }
            _ => return None,
        })
    }

    /// How long messages may be that are taken in (`SO_RCVBUF`), from now on.
    pub(crate) fn set_limit(&self, fd: c_int, limit: c_int) -> Result<(), Errno> {
        let limit = u32::try_from(limit).map_err(|_| Errno(libc::EINVAL))?.max(1);
        self.page.set_limit(limit);
        if self.page.state() != State::Connected {
            return Ok(());
        }
        let answer = File::counter()?;
        let body: [&[u8]; 2] = [&[Kind::Limit as u8], &limit.to_ne_bytes()];
        packets::send_bytes(fd, &body, &[&answer], libc::MSG_NOSIGNAL)?;
        exchange::wait_for(&answer, fd, &self.page)
    }
}

/// Holds one, or none.
#[derive(Debug)]
pub(crate) struct Holder(AtomicPtr<Socket>);

impl Holder {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Into a holder that has none, before anybody looks at it.
    pub(crate) fn put(&self, socket: Box<Socket>) {
        self.0.store(Box::into_raw(socket), Ordering::Release);
    }

    pub(crate) fn get(&self) -> Option<&Socket> {
        // SAFETY: `put` has stored it, and who clears it promises that nobody looks.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Ends what it holds.
    ///
    /// # Safety
    ///
    /// Nobody has it, and nobody will ask for it before there is another.
    pub(crate) unsafe fn clear(&self) {
        let socket = self.0.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !socket.is_null() {
            // SAFETY: `put` made it of a box, and it is asked for no more.
            drop(unsafe { Box::from_raw(socket) });
        }
    }
}
