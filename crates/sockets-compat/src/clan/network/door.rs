//! [`Door`]: a port that is listened at.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use std::{io, thread};

use landfall::clan::Error;
use landfall::clan::network::{Endpoint, Notice, Port, Reason};

use super::super::desk::{Desk, Entrance, Reception};
use super::super::stream::Ends;
use super::greeting::{Guest, Kind, NO_ROOM};
use super::{Inner, address_of, unconnected};
use crate::address::Address;
use crate::waiting::{block_until, locked};

/// See the module.
pub(super) struct Door {
    desk: Arc<Desk<Ends>>,
    inner: Arc<Inner>,
    kind: Kind,
    local: Address,
    /// Wakes the thread that listens.
    waker: Mutex<Option<Waker>>,
}

impl Door {
    /// Opens it, and the address that it has.
    pub(super) fn open(
        inner: &Arc<Inner>,
        port: u16,
        kind: Kind,
    ) -> io::Result<(Reception<Self>, Address)> {
        let (endpoint, port) = endpoint_at(inner, port)?;
        endpoint.listen().map_err(unconnected)?;
        let local = inner.local(port);
        let desk = Desk::new(inner.options.backlog);
        let (inner, waker) = (Arc::clone(inner), Mutex::default());
        let door = Self { desk, inner, kind, local: local.clone(), waker };
        Ok((Reception::open(door, move |door| door.serve(&endpoint))?, local))
    }

    /// Sees to those that come, until the listener is dropped or its node is gone.
    fn serve(self: &Arc<Self>, endpoint: &Endpoint) {
        let next = |cx: &mut Context<'_>| {
            *locked(&self.waker) = Some(cx.waker().clone());
            match self.desk.is_over() {
                true => Poll::Ready(Err(Error::Closed)),
                false => endpoint.poll_next(cx),
            }
        };
        while let Some(Ok(notice)) = block_until(None, next) {
            let Notice::Request(request) = notice else { continue };
            self.wait_for_hands();
            let guest = match self.desk.is_full() {
                true => Err(NO_ROOM),
                false => Guest::of(&self.inner, request, self.kind),
            };
            match guest {
                Ok(guest) => {
                    let door = Arc::clone(self);
                    self.desk.receive(move || door.greet(guest));
                }
                Err(why) => {
                    let mut body = [0; 40];
                    body[0] = why;
                    // Who is not told hears nothing, and gives up.
                    let _ = endpoint.refuse(&request, Reason::Refused, body);
                }
            }
        }
    }

    /// As many are made at a time as may be: others wait in the queue of the endpoint.
    fn wait_for_hands(&self) {
        while self.desk.is_busy() && !self.desk.is_over() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn greet(&self, guest: Guest) -> Option<Ends> {
        let peer = self.inner.node.link_to(guest.host()).and_then(|link| link.peer());
        let joined = guest.welcome(&self.inner, self.kind)?;
        Some(Ends::new(joined, self.local.clone(), address_of(peer, 0)))
    }
}

/// The endpoint of that port, or of one that is free.
fn endpoint_at(inner: &Inner, port: u16) -> io::Result<(Endpoint, u16)> {
    /// Those that nobody asks for by number.
    const FREE: std::ops::RangeInclusive<u16> = 0xc000..=0xffff;
    let ports = if port == 0 { FREE } else { port..=port };
    for port in ports {
        match inner.node.endpoint(Some(Port(port.into()))) {
            Ok(endpoint) => return Ok((endpoint, port)),
            Err(Error::Engine(_)) => {}
            Err(error) => return Err(unconnected(error)),
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "somebody listens at that port"))
}

impl Entrance for Door {
    fn desk(&self) -> &Desk<Ends> {
        &self.desk
    }

    fn wake(&self) {
        if let Some(waker) = locked(&self.waker).take() {
            waker.wake();
        }
    }
}
