//! One client, as the server sees it.

use clan_dsm::{Access, ConnectRequest, Cookie, Rights};

use super::slots::Shape;
use crate::clan::network::endpoint::Endpoint;
use crate::clan::network::events::Events;
use crate::clan::network::memory::Aperture;
use crate::clan::network::node::Node;
use crate::clan::network::tripwire::Tripwire;
use crate::clan::network::window::Window;
use crate::clan::{Error, Fabric, Local, Remote};

#[derive(Debug)]
pub(super) struct Connection {
    endpoint: Endpoint,
    shape: Shape,
    /// Where requests are written.
    memory: Aperture,
    cookie: Cookie,
    /// Where replies are written.
    window: Window,
    tripwire: Tripwire,
    /// The next request.
    next: u64,
}

impl Connection {
    pub(super) fn open(node: &Node, request: &ConnectRequest, shape: Shape) -> Result<Self, Error> {
        let theirs = shape.greeted(&request.body)?;
        let window = node.map(&theirs)?;
        let (memory, cookie) = node.expose(shape.bytes(), Rights::Write)?;
        let tripwire = node.watch(&memory, 0..shape.flags(), Access::Write, None)?;
        let endpoint = node.endpoint(None)?;
        Ok(Self { endpoint, shape, memory, cookie, window, tripwire, next: 0 })
    }

    pub(super) fn register(
        &self,
        events: &Events,
        tripwire: u64,
        messages: u64,
    ) -> Result<(), Error> {
        events.register(&self.tripwire, tripwire)?;
        events.register(&self.endpoint, messages)
    }

    pub(super) fn accept(&self, request: &ConnectRequest) -> Result<(), Error> {
        self.endpoint.accept(request, self.shape.greeting(&self.cookie))
    }

    /// Answers each request that is there. What it writes is sent with the next
    /// turn of the node. After [`Error::Busy`] it is called again.
    pub(super) fn serve(
        &mut self,
        answer: &mut impl FnMut(&[u8], &mut Vec<u8>),
        request: &mut Vec<u8>,
        reply: &mut Vec<u8>,
        served: &mut u64,
    ) -> Result<(), Error> {
        let shape = self.shape;
        while let Some(len) = shape.find(&self.memory, self.next)? {
            if !self.window.is_reached(crate::clan::Stage::Room)? {
                return Err(Error::Busy);
            }
            request.resize(len, 0);
            self.memory.copy_out(shape.place_at(self.next), request)?;
            reply.clear();
            answer(request, reply);
            reply.truncate(shape.size as usize);
            let flag = Shape::flag(self.next, reply.len());
            Shape::make_whole(reply);
            self.window.write(shape.place_at(self.next), reply)?;
            self.window.store(shape.flag_at(self.next), flag)?;
            self.next += 1;
            *served += 1;
        }
        Ok(())
    }

    /// Has the client ended it, or is it gone?
    pub(super) fn is_over(&self) -> bool {
        while let Some(notice) = self.endpoint.try_next() {
            let is_leaving = matches!(notice, clan_dsm::Notice::Disconnected { .. });
            if is_leaving || notice.is_last() {
                return true;
            }
        }
        false
    }
}
