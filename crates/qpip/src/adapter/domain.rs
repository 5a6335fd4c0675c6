//! Protection domains and registered memory: which queue pair may reach what.
//!
//! A work request is checked once, when it is posted; from then on the memory
//! that it names cannot be deregistered until the request is done. So nothing
//! behind the doorbell ever looks at a key again.

use landfall_placement::{Area, RegionId, Spans};
use landfall_tables::{EntryKey, Table};

use super::config::Config;
use super::error::{Error, Object, PostError};
use crate::queue::{Gather, Piece};
use crate::work::{Buffer, DomainId, MemoryKey};

/// What registered memory may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Messages are sent from it.
    Read,
    /// Messages are received to it.
    Write,
    /// Both.
    ReadWrite,
}

impl Access {
    const fn allows(self, wanted: Self) -> bool {
        matches!(
            (self, wanted),
            (Self::ReadWrite, _) | (Self::Read, Self::Read) | (Self::Write, Self::Write)
        )
    }
}

const NOTHING: Piece = Piece { key: 0, span: RegionId::new(0, 0).span(0, 0) };

#[derive(Debug)]
struct Domain {
    /// Registrations and queue pairs that belong to it.
    users: u32,
}

#[derive(Debug)]
struct Registration {
    domain: DomainId,
    memory: Area,
    access: Access,
    /// Pieces of work requests that name it.
    uses: u32,
}

/// All domains and registrations of an adapter.
#[derive(Debug)]
pub(super) struct Domains {
    domains: Table<Domain>,
    keys: Table<Registration>,
    buffers: usize,
}

impl Domains {
    pub(super) const fn new(config: &Config) -> Self {
        Self {
            domains: Table::new(config.domains),
            keys: Table::new(config.memory_keys),
            buffers: config.buffers,
        }
    }

    pub(super) fn create(&mut self) -> Result<DomainId, Error> {
        let key = self.domains.insert(Domain { users: 0 });
        let EntryKey { index, generation } = key.ok_or(Error::Full(Object::Domain))?;
        Ok(DomainId::new(index, generation))
    }

    pub(super) fn destroy(&mut self, id: DomainId) -> Result<(), Error> {
        match self.domains.named(id.index, id.generation) {
            None => Err(Error::Unknown(Object::Domain)),
            Some(domain) if domain.users > 0 => Err(Error::Busy(Object::Domain)),
            Some(_) => {
                self.domains.remove(id.index);
                Ok(())
            }
        }
    }

    pub(super) fn check(&self, id: DomainId) -> Result<(), Error> {
        self.domains.named(id.index, id.generation).ok_or(Error::Unknown(Object::Domain))?;
        Ok(())
    }

    /// One more belongs to this domain.
    pub(super) fn join(&mut self, id: DomainId) {
        if let Some(domain) = self.domains.named_mut(id.index, id.generation) {
            domain.users += 1;
        }
    }

    /// One of those is gone.
    pub(super) fn leave(&mut self, id: DomainId) {
        if let Some(domain) = self.domains.named_mut(id.index, id.generation) {
            domain.users = domain.users.saturating_sub(1);
        }
    }

    pub(super) fn register(
        &mut self,
        domain: DomainId,
        memory: Area,
        access: Access,
    ) -> Result<MemoryKey, Error> {
        self.check(domain)?;
        if !memory.is_valid() {
            return Err(Error::BadMemory);
        }
        let key = self.keys.insert(Registration { domain, memory, access, uses: 0 });
        let EntryKey { index, generation } = key.ok_or(Error::Full(Object::MemoryKey))?;
        self.join(domain);
        Ok(MemoryKey::new(index, generation))
    }

    pub(super) fn deregister(&mut self, key: MemoryKey) -> Result<Area, Error> {
        match self.keys.named(key.index, key.generation) {
            None => Err(Error::Unknown(Object::MemoryKey)),
            Some(known) if known.uses > 0 => Err(Error::Busy(Object::MemoryKey)),
            Some(&Registration { domain, memory, .. }) => {
                self.keys.remove(key.index);
                self.leave(domain);
                Ok(memory)
            }
        }
    }

    /// Checks the buffers of a work request, and from now on keeps their memory
    /// registered. The request must be let go with [`Domains::release`].
    #[inline]
    pub(super) fn claim(
        &mut self,
        domain: DomainId,
        buffers: &[Buffer],
        wanted: Access,
        may_be_empty: bool,
    ) -> Result<Gather, PostError> {
        let gather = match buffers {
            [] if may_be_empty => Gather::new(&[]),
            [] => return Err(PostError::Empty),
            [one] => Gather::new(&[self.resolve(domain, one, wanted)?]),
            many if many.len() > self.buffers => return Err(PostError::TooManyBuffers),
            many => {
                let mut pieces = [NOTHING; Spans::CAPACITY];
                for (piece, buffer) in pieces.iter_mut().zip(many) {
                    *piece = self.resolve(domain, buffer, wanted)?;
                }
                Gather::new(pieces.get(..many.len()).unwrap_or(&[]))
            }
        };
        let gather = gather.ok_or(PostError::TooLong)?;
        if gather.len() == 0 && !may_be_empty {
            return Err(PostError::Empty);
        }
        for piece in gather.pieces() {
            if let Some(known) = self.keys.get_mut(piece.key) {
                known.uses += 1;
            }
        }
        Ok(gather)
    }

    #[inline]
    fn resolve(
        &self,
        domain: DomainId,
        buffer: &Buffer,
        wanted: Access,
    ) -> Result<Piece, PostError> {
        let MemoryKey { index, generation } = buffer.key;
        let known = self.keys.named(index, generation).ok_or(PostError::UnknownKey)?;
        if known.domain != domain {
            return Err(PostError::WrongDomain);
        }
        if !known.access.allows(wanted) {
            return Err(PostError::NoRight);
        }
        let end = buffer.offset.checked_add(u64::from(buffer.len));
        if end.is_none_or(|end| end > known.memory.len) {
            return Err(PostError::OutOfBounds);
        }
        Ok(Piece { key: index, span: known.memory.span(buffer.offset, buffer.len) })
    }

    /// A work request is done: its memory may be deregistered.
    #[inline]
    pub(super) fn release(&mut self, gather: &Gather) {
        for piece in gather.pieces() {
            if let Some(known) = self.keys.get_mut(piece.key) {
                known.uses = known.uses.saturating_sub(1);
            }
        }
    }
}
