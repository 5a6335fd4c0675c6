//! Writes, reads, operations on words, and the DMA engine.

use landfall_placement::{Area, Instant, WordFunction, WordWidth};

use crate::address::{
    Address, DmaId, EndpointId, LinkId, OperationId, ReadId, WHOLE, WORD, WindowId, WriteId,
};
use crate::cookie::Rights;
use crate::endpoint::EndpointState;
use crate::error::Error;
use crate::nic::link_table::LinkState;
use crate::nic::{MOST_ASKED, Nic};
use crate::transfer::dma::DmaRequest;
use crate::transfer::reads::Reader;
use crate::wire::{Command, ReplyTo};

impl Nic {
    /// Writes bytes to memory of another host. They are copied, and may be used
    /// again at once: this is for what is small.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Forbidden`], [`Error::OutOfBounds`],
    /// [`Error::NoLink`], [`Error::TooLong`] for more than the write buffer takes;
    /// [`Error::Busy`] while it is full. Nothing is half written. A group that
    /// [multicasts](Self::multicast) is written by [`publish`](Self::publish) alone:
    /// [`Error::Forbidden`].
    pub fn write(
        &mut self,
        _now: Instant,
        window: WindowId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Error> {
        if self.multicast.has(window) {
            // A copy would be in place before what was published.
            return Err(Error::Forbidden);
        }
        let Self { windows, links, lines, native, .. } = self;
        let window = windows.get(window)?;
        window.check(offset, bytes.len() as u64, Rights::Write)?;
        let (base, hosts) = (window.base(), window.hosts());
        if hosts.len() != 1 {
            if native.is_some() {
                let (link, _) = links.native.ok_or(Error::NoLink)?;
                let line = lines.get_mut(link).ok_or(Error::NoLink)?;
                return line.writes.write(base, offset, bytes);
            }
            // All members of a group, or none.
            for host in hosts {
                let link = links.to_host(*host).ok_or(Error::NoLink)?;
                let line = lines.get(link).ok_or(Error::NoLink)?;
                if line.writes.room() < bytes.len() {
                    return Err(Error::Busy);
                }
            }
        }
        for host in hosts {
            let link = links.to_host(*host).ok_or(Error::NoLink)?;
            lines.get_mut(link).ok_or(Error::NoLink)?.writes.write(base, offset, bytes)?;
            links.wake(link);
        }
        Ok(())
    }

    /// Writes one word, which the other side never sees in part.
    ///
    /// # Errors
    /// As [`write`](Self::write), and [`Error::Unaligned`].
    pub fn write_word(
        &mut self,
        now: Instant,
        window: WindowId,
        offset: u64,
        value: u64,
    ) -> Result<(), Error> {
        if !offset.is_multiple_of(u64::from(WORD)) {
            return Err(Error::Unaligned);
        }
        self.write(now, window, offset, &value.to_le_bytes())
    }

    /// Writes from memory, in its order among what the program writes. The memory
    /// must stay as it is until [`Event::Written`](crate::Event::Written).
    ///
    /// # Errors
    /// As [`write`](Self::write), and [`Error::BadMemory`].
    pub fn write_from(
        &mut self,
        _now: Instant,
        window: WindowId,
        offset: u64,
        from: Area,
    ) -> Result<WriteId, Error> {
        if !from.is_valid() {
            return Err(Error::BadMemory);
        }
        let (base, link) = self.may_touch(window, offset, from.len, Rights::Write)?;
        self.may_move(offset, from.len)?;
        let line = self.lines.get_mut(link).ok_or(Error::NoLink)?;
        if !line.writes.has_room(1, 0) {
            return Err(Error::Busy);
        }
        let write = self.writes.begin(from.len).ok_or(Error::Busy)?;
        if !self.events.promise() {
            self.writes.forget(write);
            return Err(Error::Busy);
        }
        line.writes.write_from(write, base, offset, from)?;
        self.links.wake(link);
        Ok(write)
    }

    /// Reads memory of another host. The bytes are there at
    /// [`Event::Read`](crate::Event::Read); until then the memory is the
    /// adapter's.
    ///
    /// # Errors
    /// As [`write`](Self::write), [`Error::BadMemory`], [`Error::TooLong`] for
    /// 4 GiB and more.
    pub fn read(
        &mut self,
        _now: Instant,
        window: WindowId,
        offset: u64,
        into: Area,
    ) -> Result<ReadId, Error> {
        if !into.is_valid() {
            return Err(Error::BadMemory);
        }
        let len = u32::try_from(into.len).map_err(|_| Error::TooLong)?;
        let (_, link) = self.may_touch(window, offset, into.len, Rights::Read)?;
        self.may_move(offset, into.len)?;
        let from = self.windows.get(window)?.byte(offset).ok_or(Error::OutOfBounds)?;
        let nonce = self.nonce();
        let host = from.host;
        let line = self.lines.get_mut(link).ok_or(Error::NoLink)?;
        if !may_ask(line, line.reads) || !self.reads.has_room() || !self.events.promise() {
            return Err(Error::Busy);
        }
        let read = self.reads.begin(link.index, Reader::User, from, into, nonce);
        let read = read.ok_or(Error::Busy)?;
        let reply = ReplyTo { slot: read.index as u16, nonce };
        put(line, &Command::Read { from, len, reply }, host)?;
        line.reads += 1;
        self.links.wake(link);
        Ok(read)
    }

    /// Reads and changes a word of another host in one step, in its order among
    /// what the program writes. What it held comes with
    /// [`Event::Word`](crate::Event::Word).
    ///
    /// # Errors
    /// As [`write`](Self::write), and [`Error::Unaligned`]. The cookie must allow
    /// to read and to write.
    pub fn change(
        &mut self,
        _now: Instant,
        window: WindowId,
        offset: u64,
        width: WordWidth,
        function: WordFunction,
    ) -> Result<OperationId, Error> {
        let len = width.bytes();
        if !offset.is_multiple_of(u64::from(len)) {
            return Err(Error::Unaligned);
        }
        let (_, link) = self.may_touch(window, offset, u64::from(len), Rights::ReadWrite)?;
        let at = self.windows.get(window)?.byte(offset).ok_or(Error::OutOfBounds)?;
        let from = (offset % u64::from(WORD)) as u32;
        let mask = Address::mask_of(from, len).unwrap_or(WHOLE);
        let nonce = self.nonce();
        let line = self.lines.get_mut(link).ok_or(Error::NoLink)?;
        let has_room = may_ask(line, line.operations) && self.operations.has_room();
        if !has_room || !self.events.promise() {
            return Err(Error::Busy);
        }
        let at = Address { mask, ..at };
        let operation = self.operations.begin(link.index, at, nonce).ok_or(Error::Busy)?;
        let reply = ReplyTo { slot: operation.index as u16, nonce };
        put(line, &Command::WordOp { at, function, reply }, at.host)?;
        line.operations += 1;
        self.links.wake(link);
        Ok(operation)
    }

    /// Returns the DMA engine a chain of requests, all of them for one host. They
    /// are sent in order, and a word that is written last is there last:
    /// "data, then the flag" is one chain. The endpoints take turns.
    ///
    /// Memory that is named must stay as it is until
    /// [`Event::Dma`](crate::Event::Dma).
    ///
    /// # Errors
    /// As [`write`](Self::write), [`Error::BadMemory`], [`Error::Unaligned`], and
    /// [`Error::TooLong`] for more requests than a queue has room for.
    pub fn dma(
        &mut self,
        now: Instant,
        endpoint: EndpointId,
        chain: &[DmaRequest],
    ) -> Result<DmaId, Error> {
        let _: EndpointState = self.endpoints.state(endpoint)?;
        let mut over = None;
        for request in chain {
            let needed = match request {
                DmaRequest::Read { .. } => Rights::Read,
                DmaRequest::Write { .. } | DmaRequest::Word { .. } => Rights::Write,
            };
            let (at, len) = (request.offset(), request.len());
            let (_, link) = self.may_touch(request.window(), at, len, needed)?;
            self.may_move(at, len)?;
            if over.is_some_and(|over| over != link) {
                return Err(Error::Forbidden);
            }
            over = Some(link);
        }
        let link = over.ok_or(Error::TooLong)?;
        if !self.events.promise() {
            return Err(Error::Busy);
        }
        let submitted = self.dma.submit(endpoint, link.index, chain);
        match (submitted, self.lines.get_mut(link)) {
            (Ok(dma), Some(line)) => {
                let number = line.barriers.chain_submitted();
                self.chains.submitted(dma, link, number);
                self.links.wake(link);
                self.settle(now);
                Ok(dma)
            }
            (Err(error), _) => {
                self.events.release_promise();
                Err(error)
            }
            (Ok(_), None) => Err(Error::NoLink),
        }
    }

    /// Returns up what waits in the DMA queue of an endpoint. Each chain still has
    /// its event, once nothing of it is under way.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn cancel_dma(&mut self, now: Instant, endpoint: EndpointId) -> Result<(), Error> {
        let _: EndpointState = self.endpoints.state(endpoint)?;
        self.dma.cancel(endpoint);
        self.settle(now);
        Ok(())
    }

    /// How many requests of an endpoint are not done yet.
    #[must_use]
    pub fn dma_waiting(&self, endpoint: EndpointId) -> usize {
        self.dma.waiting(endpoint)
    }

    /// Where the bytes begin that may be touched, and over which link.
    fn may_touch(
        &self,
        window: WindowId,
        offset: u64,
        len: u64,
        needed: Rights,
    ) -> Result<(Address, LinkId), Error> {
        let window = self.windows.get(window)?;
        window.check(offset, len, needed)?;
        let host = window.host()?;
        let link = self.links.to_host(host).ok_or(Error::NoLink)?;
        // Behind a switch nobody knows whom to answer.
        let is_known = self.lines.get(link).is_some_and(|line| line.host == Some(host));
        if needed != Rights::Write && !is_known {
            return Err(Error::NoLink);
        }
        Ok((window.base(), link))
    }

    /// Over a native link memory is moved in whole words.
    fn may_move(&self, offset: u64, len: u64) -> Result<(), Error> {
        let word = u64::from(WORD);
        let is_whole = offset.is_multiple_of(word) && len.is_multiple_of(word);
        if self.native.is_some() && !is_whole { Err(Error::Unaligned) } else { Ok(()) }
    }
}

/// Is there room for one more question, of which this many are under way?
fn may_ask(line: &LinkState, under_way: usize) -> bool {
    under_way < MOST_ASKED && line.writes.has_room(1, crate::wire::frame::MAX_PARAMETERS)
}

/// Puts a command behind what was written; there must be room.
pub(in crate::nic) fn put(
    line: &mut LinkState,
    command: &Command,
    host: crate::HostId,
) -> Result<(), Error> {
    let (address, parameters) = command.encode(host);
    let is_alone = matches!(command, Command::WordOp { .. });
    line.writes.command(address, &parameters, is_alone)
}
