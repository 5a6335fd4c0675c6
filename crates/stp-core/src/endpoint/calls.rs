//! What the user calls: each call goes to the part of the engine that owns what it is about.

use landfall_placement::{Area, Instant, PathId, Peer, WordFunction, WordWidth};

use super::Endpoint;
use crate::connection::{Admission, Connect, ConnectionLink};
use crate::error::Error;
use crate::ids::{
    ConnectionId, ExposedId, OperationId, PeerRequestId, ReadId, ReceiveId, RemoteRegion,
    RequestId, Rights, SendId,
};
use crate::offload::{Command, Report};
use crate::preference::Priority;
use crate::region::{Place, PutOptions};
use crate::wire::Reason;

impl Endpoint {
    /// Adds a link to a connection: Transfers to this side are striped over all
    /// of its links, and control operations go over the first that is up. The
    /// other side learns of the link by itself, once this side has proved that it
    /// is there.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NotOpen`], [`Error::PathDown`],
    /// [`Error::Taken`] where the connection has it already, [`Error::Busy`] at
    /// the bound of eight links, or on all links.
    pub fn add_link(
        &mut self,
        now: Instant,
        id: ConnectionId,
        path: PathId,
        peer: Peer,
    ) -> Result<(), Error> {
        self.cx.now = now;
        self.net.add_link(&mut self.cx, id, path, peer)
    }

    /// The links of a connection.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn links_of(&self, id: ConnectionId) -> Result<alloc::vec::Vec<ConnectionLink>, Error> {
        self.net.links_of(id)
    }

    /// Can Transfers be begun on it?
    #[must_use]
    pub fn is_open(&self, id: ConnectionId) -> bool {
        self.net.is_open(id)
    }

    /// Is it open, or on its way there?
    #[must_use]
    pub fn is_opening(&self, id: ConnectionId) -> bool {
        self.net.is_opening(id)
    }

    /// Lets connections come in at a port.
    ///
    /// # Errors
    /// [`Error::Taken`] where somebody listens there already.
    pub fn listen(&mut self, port: u16, admission: Admission) -> Result<(), Error> {
        self.net.listen(port, admission)
    }

    /// Lets none come in there any more; those that are open stay so.
    pub fn stop_listening(&mut self, port: u16) {
        self.net.stop_listening(port);
    }

    /// Asks a peer for a connection. [`Event::Connected`](crate::Event::Connected) or
    /// [`Event::Closed`](crate::Event::Closed) follows.
    ///
    /// # Errors
    /// [`Error::PathDown`], [`Error::Busy`] at the bound on connections or links, [`Error::Taken`]
    /// where the same ports are being connected already.
    pub fn connect(
        &mut self,
        now: Instant,
        path: PathId,
        peer: Peer,
        connect: Connect,
    ) -> Result<ConnectionId, Error> {
        self.cx.now = now;
        self.net.connect(&mut self.cx, path, peer, connect)
    }

    /// Admits a connection that came in ([`Event::Incoming`](crate::Event::Incoming)), with eight
    /// bytes for its user.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NotOpen`] where it does not wait for that.
    pub fn admit(&mut self, now: Instant, id: ConnectionId, hello: u64) -> Result<(), Error> {
        self.cx.now = now;
        self.net.admit(&mut self.cx, id, hello)
    }

    /// Does not admit it, and says why.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub fn turn_away(&mut self, id: ConnectionId, reason: Reason) -> Result<(), Error> {
        self.net.turn_away(&mut self.cx, id, reason)
    }

    /// Sets the priority of a connection: of Transfers in both directions, and reads, that
    /// begin from now on. Those that have begun keep theirs.
    ///
    /// ```
    /// use landfall_placement::{Engine, Instant, PathId, PathLimits, PathState, Peer};
    /// use stp_core::{Config, Connect, Endpoint, Priority};
    ///
    /// let mut endpoint = Endpoint::new(Config::default(), [7; 32]).unwrap();
    /// let now = Instant::ZERO;
    /// endpoint.handle_path(now, PathId(0), PathState::Up(PathLimits::plain(1_500)));
    ///
    /// let connection = endpoint.connect(now, PathId(0), Peer::Node(1), Connect::default())?;
    /// endpoint.set_priority(connection, Priority::High)?;
    /// endpoint.set_weight(connection, 4)?;
    /// # Ok::<(), stp_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn set_priority(&mut self, id: ConnectionId, priority: Priority) -> Result<(), Error> {
        self.net.set_priority(id, priority)
    }

    /// Sets how much a connection may have of the receiver's window beside others of the same
    /// priority, and how many Blocks its Transfers are granted in their turn: 1, as all others
    /// have, to 1,000. Connections to the same peer over the same path share what the largest
    /// of their weights gives. It counts while the [policy](crate::Policy) is to serve each in
    /// turn.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::OutOfRange`].
    pub fn set_weight(&mut self, id: ConnectionId, weight: u16) -> Result<(), Error> {
        self.net.set_weight(id, weight)
    }

    /// Lends memory whose contents do not matter, for as long as the endpoint lives: what
    /// packets are filled up with that a peer asks for, to find out how long they may be. It
    /// is sent to peers. Without it, or beyond its length, none are sent, and peers go by
    /// what their paths are sure of.
    ///
    /// # Errors
    /// [`Error::BadMemory`].
    pub fn set_padding(&mut self, memory: Area) -> Result<(), Error> {
        self.net.set_padding(memory)
    }

    /// The longest packet that may come over a link, as far as is known. None where there is
    /// no such link.
    #[must_use]
    pub fn proven_unit(&self, path: PathId, peer: Peer) -> Option<u32> {
        self.net.proven_unit(path, peer)
    }

    /// Sets the priority of one Transfer that is being sent: of what is granted of it from now
    /// on.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn set_send_priority(&mut self, id: SendId, priority: Priority) -> Result<(), Error> {
        self.sends.set_send_priority(id, priority)
    }

    /// Sends memory as one Transfer, with four bytes for the user at the other side. The memory is
    /// the engine's until [`Event::Sent`](crate::Event::Sent) or
    /// [`Event::SendEnded`](crate::Event::SendEnded).
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NotOpen`], [`Error::BadMemory`], and [`Error::Busy`] where the
    /// other side's slots or our bound are used up.
    pub fn send(
        &mut self,
        now: Instant,
        id: ConnectionId,
        memory: Area,
        opaque: u32,
    ) -> Result<SendId, Error> {
        self.cx.now = now;
        self.sends.send(&mut self.net, &mut self.cx, id, memory, opaque)
    }

    /// Ends a Transfer that is being sent. [`Event::SendEnded`](crate::Event::SendEnded) follows,
    /// or [`Event::Sent`](crate::Event::Sent) where all had arrived already.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn cancel_send(&mut self, now: Instant, id: SendId) -> Result<(), Error> {
        self.cx.now = now;
        self.sends.cancel_send(&mut self.net, &mut self.cx, id)
    }

    /// Tells of the progress of one Transfer that is being sent, Block by Block, or does so no
    /// more: [`Event::SendProgress`](crate::Event::SendProgress). Returns how many bytes, from the
    /// start, are in place at the other side as far as is known.
    /// [`Config::progress`](crate::Config::progress) does it for all.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn watch_send(&mut self, id: SendId, is_watched: bool) -> Result<u64, Error> {
        self.sends.watch_send(id, is_watched)
    }

    /// May a Transfer be begun on a connection at the moment?
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn can_send(&self, id: ConnectionId) -> Result<bool, Error> {
        self.sends.can_send(&self.net, id)
    }

    /// Sends memory to a reader ([`Event::ReadRequested`](crate::Event::ReadRequested)), at most as much as
    /// it wants.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn answer_read(
        &mut self,
        now: Instant,
        id: ReadId,
        memory: Area,
        opaque: u32,
    ) -> Result<SendId, Error> {
        self.cx.now = now;
        self.sends.answer_read(&mut self.net, &mut self.cx, id, memory, opaque)
    }

    /// Sends nothing to a reader, and says why.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn refuse_read(&mut self, now: Instant, id: ReadId, reason: Reason) -> Result<(), Error> {
        self.cx.now = now;
        self.sends.refuse_read(&mut self.net, &mut self.cx, id, reason)
    }

    /// Asks the other side for a region of at least `len` bytes; `name` tells its user which.
    /// [`Event::RegionAvailable`](crate::Event::RegionAvailable) or
    /// [`Event::RegionRefused`](crate::Event::RegionRefused) follows.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NotOpen`], [`Error::Busy`] at the bound.
    pub fn request_region(
        &mut self,
        now: Instant,
        id: ConnectionId,
        name: u32,
        len: u64,
        rights: Rights,
    ) -> Result<RequestId, Error> {
        self.cx.now = now;
        self.regions.request_region(&mut self.net, &mut self.cx, id, name, len, rights)
    }

    /// Makes memory available to who asked for it
    /// ([`Event::RegionRequested`](crate::Event::RegionRequested)). What may be done with it is what was
    /// asked for and what is given here.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::BadMemory`], [`Error::Busy`] at the bound.
    pub fn expose(
        &mut self,
        id: PeerRequestId,
        memory: Area,
        rights: Rights,
    ) -> Result<ExposedId, Error> {
        self.regions.expose(&mut self.net, &mut self.cx, id, memory, rights)
    }

    /// Makes no memory available, and says why.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn refuse_region(&mut self, id: PeerRequestId, reason: Reason) -> Result<(), Error> {
        self.regions.refuse_region(&mut self.net, &mut self.cx, id, reason)
    }

    /// Takes a region back. [`Event::Revoked`](crate::Event::Revoked) follows when no driver uses
    /// it; what the other side asks of it from now on is refused.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn revoke(&mut self, id: ExposedId) -> Result<(), Error> {
        self.regions.revoke(&mut self.cx, id)
    }

    /// Writes memory to a region of the other side. [`Event::PutDone`](crate::Event::PutDone)
    /// follows once it has taken effect there, or
    /// [`Event::OperationEnded`](crate::Event::OperationEnded). Puts and FetchOps of a connection
    /// take effect in the order of the calls: so events, FetchOps and Gets show them. Who looks
    /// into the memory itself may see a Put before an earlier one to another part of the same
    /// region, while packets of that are missing; never before a FetchOp, or a Put to another
    /// region.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NotOpen`], [`Error::BadMemory`], [`Error::OutOfBounds`],
    /// [`Error::Forbidden`], [`Error::PathDown`], [`Error::Busy`] at the bound.
    pub fn put(
        &mut self,
        now: Instant,
        id: ConnectionId,
        region: &RemoteRegion,
        at: u64,
        memory: Area,
        options: PutOptions,
    ) -> Result<OperationId, Error> {
        self.cx.now = now;
        let place = Place { region, at };
        self.streams.put(&mut self.net, &mut self.cx, id, place, memory, options)
    }

    /// Reads and modifies a word of a region of the other side, in one step.
    /// [`Event::Fetched`](crate::Event::Fetched) follows with what it held, or
    /// [`Event::OperationEnded`](crate::Event::OperationEnded).
    ///
    /// # Errors
    /// As [`put`](Self::put), and [`Error::Unaligned`].
    pub fn fetch_op(
        &mut self,
        now: Instant,
        id: ConnectionId,
        region: &RemoteRegion,
        at: u64,
        width: WordWidth,
        function: WordFunction,
    ) -> Result<OperationId, Error> {
        self.cx.now = now;
        let place = Place { region, at };
        self.streams.fetch_op(&mut self.net, &mut self.cx, id, place, width, function)
    }

    /// Sets the priority of one Transfer that is being received, offered or read: of what is
    /// granted of it from now on.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn set_receive_priority(&mut self, id: ReceiveId, priority: Priority) -> Result<(), Error> {
        self.receives.set_receive_priority(id, priority)
    }

    /// Reads part of a region of the other side into memory, as much as that
    /// has. It sees every Put and FetchOp of this connection that was begun
    /// before; those begun later may be seen or not.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NotOpen`], [`Error::BadMemory`],
    /// [`Error::OutOfBounds`], [`Error::Forbidden`], [`Error::TooLong`],
    /// [`Error::Busy`] at the bound.
    pub fn get(
        &mut self,
        now: Instant,
        id: ConnectionId,
        region: &RemoteRegion,
        at: u64,
        memory: Area,
    ) -> Result<ReceiveId, Error> {
        self.cx.now = now;
        self.receives.get(&mut self.net, &mut self.cx, id, region, at, memory)
    }

    /// Asks the other side for a Transfer of at most as many bytes as the
    /// memory has; `opaque` tells its user which. [`Event::Received`](crate::Event::Received) or
    /// [`Event::ReceiveEnded`](crate::Event::ReceiveEnded) follows.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NotOpen`], [`Error::BadMemory`],
    /// [`Error::Busy`] where the other side's slots or our bound are used up.
    pub fn read(
        &mut self,
        now: Instant,
        id: ConnectionId,
        memory: Area,
        opaque: u32,
    ) -> Result<ReceiveId, Error> {
        self.cx.now = now;
        self.receives.read(&mut self.net, &mut self.cx, id, memory, opaque)
    }

    /// Posts memory for the next Transfer of a connection. `takes_part` says
    /// what becomes of one that is longer: its start is taken, or it is refused.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NotOpen`], [`Error::BadMemory`],
    /// [`Error::TooShort`] for empty memory that takes part of a Transfer,
    /// [`Error::Busy`] at the bound.
    pub fn post(
        &mut self,
        now: Instant,
        id: ConnectionId,
        memory: Area,
        takes_part: bool,
    ) -> Result<(), Error> {
        self.cx.now = now;
        self.receives.post(&mut self.net, &mut self.cx, id, memory, takes_part)
    }

    /// Takes a Transfer that was offered ([`Event::Offered`](crate::Event::Offered)) into memory.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NotOpen`] where it waits for memory no
    /// longer, [`Error::BadMemory`].
    pub fn accept(
        &mut self,
        now: Instant,
        id: ReceiveId,
        memory: Area,
        takes_part: bool,
    ) -> Result<(), Error> {
        self.cx.now = now;
        self.receives.accept(&mut self.net, &mut self.cx, id, memory, takes_part)
    }

    /// Refuses a Transfer that was offered, and says why.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn refuse(&mut self, id: ReceiveId, reason: Reason) -> Result<(), Error> {
        self.receives.refuse(&mut self.net, &mut self.cx, id, reason)
    }

    /// Takes at most this many bytes of a Transfer that was offered, before there is memory for it:
    /// its sender hears that at once, and needs the rest no more. Memory for it must then hold
    /// that much.
    ///
    /// # Errors
    /// As [`accept`](Self::accept); [`Error::TooShort`] for no bytes at all, and
    /// [`Error::Taken`] where a limit was said before: its sender may have heard only the first.
    pub fn limit(&mut self, id: ReceiveId, len: u64) -> Result<(), Error> {
        self.receives.limit(&mut self.net, &mut self.cx, id, len)
    }

    /// Lets the Data of a Transfer that was offered, or is under way, come over one link of its
    /// connection while that is up; what is granted already goes on. It need not be one that
    /// [carries Data](Self::set_data_link) otherwise.
    ///
    /// # Errors
    /// [`Error::Unknown`] where there is no such Transfer, or its connection has no such link.
    pub fn choose_link(&mut self, id: ReceiveId, path: PathId, peer: Peer) -> Result<(), Error> {
        self.receives.choose_link(&mut self.net, id, path, peer)
    }

    /// The next thing that an adapter must be told. A driver asks after each
    /// input, and before it lets anything leave that
    /// [`poll_transmit`](landfall_placement::Engine::poll_transmit) gave out later.
    pub fn poll_command(&mut self, adapter: u8) -> Option<Command> {
        self.receives.poll_command(adapter)
    }

    /// An adapter took something off the engine. Reports come in the order in which
    /// it came to pass, and before all frames that came behind it.
    pub fn handle_report(&mut self, now: Instant, adapter: u8, report: &Report) {
        self.cx.now = now;
        self.receives.handle_report(&mut self.net, &mut self.cx, adapter, report);
    }

    /// An adapter has forgotten all that it was told, and will report none of
    /// it: its Blocks are the engine's. What came to lie in its place and was not
    /// reported never came.
    pub fn adapter_lost(&mut self, _now: Instant, adapter: u8) {
        self.receives.adapter_lost(adapter);
    }

    /// Ends what is being received, or a Get. [`Event::ReceiveEnded`](crate::Event::ReceiveEnded)
    /// follows, or the event of its success where that was first.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn cancel_receive(&mut self, now: Instant, id: ReceiveId) -> Result<(), Error> {
        self.cx.now = now;
        self.receives.cancel_receive(&mut self.net, &mut self.cx, id)
    }

    /// Takes posted memory back, wherever it stands. If no Transfer has come
    /// for it, [`Event::Unposted`](crate::Event::Unposted) follows; if one is
    /// being received there, that ends as by [`cancel_receive`](Self::cancel_receive).
    ///
    /// # Errors
    /// [`Error::Unknown`] where the connection holds no such memory: what came
    /// for it is over, and was told.
    pub fn withdraw(&mut self, now: Instant, id: ConnectionId, memory: Area) -> Result<(), Error> {
        self.cx.now = now;
        self.receives.withdraw(&mut self.net, &mut self.cx, id, memory)
    }

    /// Tells of the progress of one Transfer that is being received (of a read or Get, too), Block
    /// by Block, or does so no more: [`Event::ReceiveProgress`](crate::Event::ReceiveProgress).
    /// Returns how many bytes, from the start, are in place.
    /// [`Config::progress`](crate::Config::progress) does it for all but Gets.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn watch_receive(&mut self, id: ReceiveId, is_watched: bool) -> Result<u64, Error> {
        self.receives.watch_receive(id, is_watched)
    }

    /// Closes a connection: nothing new begins on it, what is under way goes on
    /// to its end, then both sides forget it. [`Event::Closed`](crate::Event::Closed) follows.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn close(&mut self, now: Instant, id: ConnectionId) -> Result<(), Error> {
        self.cx.now = now;
        let effect = self.net.close(&mut self.cx, id)?;
        self.apply(effect);
        Ok(())
    }

    /// Ends a connection at once, with all that is under way on it.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn abort(&mut self, now: Instant, id: ConnectionId, reason: Reason) -> Result<(), Error> {
        self.cx.now = now;
        let effect = self.net.abort(&mut self.cx, id, reason)?;
        self.apply(effect);
        Ok(())
    }

    /// Returns whether Data for this side may come over a link. Control operations
    /// go over the first link that is up in any case; if no link for Data is
    /// up, Data comes over whatever is.
    ///
    /// # Errors
    /// [`Error::Unknown`] where the connection has no such link.
    pub fn set_data_link(
        &mut self,
        id: ConnectionId,
        path: PathId,
        peer: Peer,
        carries_data: bool,
    ) -> Result<(), Error> {
        self.net.set_data_link(id, path, peer, carries_data)?;
        self.receives.wake_receives(&mut self.net, id.index);
        Ok(())
    }
}
