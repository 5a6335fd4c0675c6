//! Memory that the other side may use, and that of the other side.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::status_of;
use crate::stp::{Connection, Exposed, Operation, Part, RemoteMemory, RemoteRights};
use crate::verbs::Status;

/// What the owner of some memory has named it, for the other side: tell it by a message. It
/// holds for the queue pair that it was made with, and for no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryKey {
    name: u32,
    len: u64,
    rights: RemoteRights,
}

impl MemoryKey {
    /// How many bytes [`to_bytes`](Self::to_bytes) gives.
    pub const LEN: usize = 13;

    /// A key of memory that was given out over the connection itself, by a region of this name
    /// ([`RegionRequest::name`](crate::stp::RegionRequest::name)).
    #[must_use]
    pub const fn new(name: u32, len: u64, rights: RemoteRights) -> Self {
        Self { name, len, rights }
    }

    /// As a message carries it.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.name.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.len.to_le_bytes());
        for (bit, right) in RIGHTS.into_iter().enumerate() {
            bytes[12] |= u8::from(self.rights.has(right)) << bit;
        }
        bytes
    }

    /// From a message. Nothing where no key is written so. What is made up leads to no memory:
    /// its owner refuses what it has not shared.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let [a, b, c, d, len @ .., bits] = *bytes;
        let mut rights = RemoteRights::NONE;
        for (bit, right) in RIGHTS.into_iter().enumerate() {
            if bits >> bit & 1 == 1 {
                rights = rights.with(right);
            }
        }
        let key =
            Self { name: u32::from_le_bytes([a, b, c, d]), len: u64::from_le_bytes(len), rights };
        (bits >> RIGHTS.len() == 0).then_some(key)
    }

    /// What its owner calls it.
    #[must_use]
    pub const fn name(&self) -> u32 {
        self.name
    }

    /// How many bytes the memory has.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Has it none?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What may be done with it.
    #[must_use]
    pub const fn rights(&self) -> RemoteRights {
        self.rights
    }
}

const RIGHTS: [RemoteRights; 3] = [RemoteRights::GET, RemoteRights::PUT, RemoteRights::FETCH];

/// What this side of a connection has shared with the other one, by keys. Queue pairs have one
/// each; who uses a connection by itself can have one, too.
///
/// ```
/// use landfall::stp::{Memory, RemoteRights, Transport, blocking::Endpoint};
/// use landfall::verbs::stp::KeyTable;
///
/// let endpoint = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
/// let memory = endpoint.register(Memory::zeroed(4096))?;
/// let mut table = KeyTable::default();
/// let key = table.share(&memory.part(0..64)?, RemoteRights::GET);
/// assert_eq!(key.len(), 64);
/// // Nothing was given by it yet, and nothing is from now on.
/// assert!(table.withdraw(&key).is_some_and(|given| given.is_empty()));
/// assert!(table.withdraw(&key).is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct KeyTable {
    by_name: BTreeMap<u32, (Part, RemoteRights)>,
    next: u32,
    exposed: Vec<(u32, Exposed)>,
}

impl KeyTable {
    /// Shares some memory, and names it.
    pub fn share(&mut self, part: &Part, rights: RemoteRights) -> MemoryKey {
        // A name comes again after four thousand million others.
        while self.by_name.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let name = self.next;
        self.next = name.wrapping_add(1);
        self.by_name.insert(name, (part.clone(), rights));
        MemoryKey { name, len: part.len(), rights }
    }

    /// From now on the other side is refused. It gives what was given by this key, for
    /// [`Exposed::revoke`]; dropped, that ends by itself. Nothing: there is no such key.
    pub fn withdraw(&mut self, key: &MemoryKey) -> Option<Vec<Exposed>> {
        self.by_name.remove(&key.name)?;
        let given = self.exposed.extract_if(.., |(name, _)| *name == key.name);
        Some(given.map(|(_, exposed)| exposed).collect())
    }

    /// Gives the other side what it has asked for, as far as it was shared, and refuses the rest,
    /// until it asks for nothing more; the context is woken when it does.
    pub fn answer(&mut self, connection: &Connection, cx: &mut Context<'_>) {
        while let Poll::Ready(Ok(request)) = connection.poll_region_request(cx) {
            let name = request.name();
            // A request that is dropped is refused.
            let Some((part, rights)) = self.by_name.get(&name) else { continue };
            if part.len() >= request.len()
                && rights.has(request.rights())
                && let Ok(exposed) = request.expose(part, *rights)
            {
                self.exposed.push((name, exposed));
            }
        }
    }
}

/// Memory of the other side, as far as this one has asked for it.
#[derive(Default)]
pub(super) struct RemoteKeys(BTreeMap<u32, Region>);

enum Region {
    Wanted(Operation<RemoteMemory>),
    Given(RemoteMemory),
    Refused(Status),
}

impl RemoteKeys {
    /// The memory of a key, once the other side has given it.
    pub(super) fn find(
        &mut self,
        key: &MemoryKey,
        connection: &Connection,
        cx: &mut Context<'_>,
    ) -> Poll<Result<RemoteMemory, Status>> {
        let region = match self.0.entry(key.name) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let wanted = connection.request_region(key.name, key.len, key.rights);
                entry.insert(Region::Wanted(wanted.start()))
            }
        };
        if let Region::Wanted(wanted) = region {
            match Pin::new(wanted).poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(given)) => *region = Region::Given(given),
                Poll::Ready(Err(why)) => *region = Region::Refused(status_of(&why)),
            }
        }
        Poll::Ready(match region {
            Region::Given(given) => Ok(given.clone()),
            Region::Refused(status) => Err(*status),
            Region::Wanted(_) => unreachable!("what is wanted was waited for"),
        })
    }
}
