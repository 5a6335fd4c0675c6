//! What the endpoints of a domain share: queues, counters, address vectors and registered
//! memory.

use std::collections::HashMap;
use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::Arc;

use landfall::stp::{RemoteRights, blocking};
use landfall_transport::memory::MappedMemory;

use crate::abi::{
    FI_ADDR_NOTAVAIL, FI_EINVAL, FI_ENOKEY, FI_ENOMEM, FI_READ, FI_REMOTE_READ, FI_REMOTE_WRITE,
    FI_WRITE,
};
use crate::address::Name;
use crate::completion::{Completion, Counter, Failure, Queue};
use crate::notify::Notify;

/// Things with numbers, which are given out anew.
#[derive(Debug)]
pub(crate) struct Numbered<T>(Vec<Option<T>>);

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Numbered<T> {
    /// The number that the next one gets.
    pub(crate) fn next(&self) -> usize {
        self.0.iter().position(Option::is_none).unwrap_or(self.0.len())
    }

    pub(crate) fn add(&mut self, thing: T) -> usize {
        let number = self.next();
        match self.0.get_mut(number) {
            Some(free) => *free = Some(thing),
            None => self.0.push(Some(thing)),
        }
        number
    }

    pub(crate) fn get(&self, number: usize) -> Option<&T> {
        self.0.get(number)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.0.get_mut(number)?.as_mut()
    }

    pub(crate) fn remove(&mut self, number: usize) -> Option<T> {
        self.0.get_mut(number)?.take()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().flatten()
    }
}

/// An address vector.
#[derive(Debug, Default)]
pub(crate) struct AddressVector {
    names: Vec<Option<Name>>,
    numbers: HashMap<SocketAddr, u64>,
    /// Endpoints that use it.
    pub(crate) users: usize,
}

impl AddressVector {
    /// The number of an address: the one that it has already, if so.
    pub(crate) fn insert(&mut self, name: Name) -> u64 {
        if let Some(number) = self.numbers.get(&name.address) {
            return *number;
        }
        let number = self.names.len() as u64;
        self.names.push(Some(name));
        self.numbers.insert(name.address, number);
        number
    }

    pub(crate) fn remove(&mut self, number: u64) -> bool {
        let known = usize::try_from(number).ok().and_then(|number| self.names.get_mut(number));
        let Some(name) = known.and_then(Option::take) else { return false };
        self.numbers.remove(&name.address);
        true
    }

    pub(crate) fn get(&self, number: u64) -> Option<Name> {
        *self.names.get(usize::try_from(number).ok()?)?
    }

    pub(crate) fn number_of(&self, address: &SocketAddr) -> u64 {
        self.numbers.get(address).copied().unwrap_or(FI_ADDR_NOTAVAIL)
    }
}

/// Memory that was registered with a domain.
#[derive(Debug)]
pub(crate) struct Registered {
    memory: MappedMemory,
    at: std::ops::Range<u64>,
    pub(crate) rights: RemoteRights,
    /// The same with each endpoint that others reach it by.
    regions: Vec<(usize, landfall::stp::Region)>,
}

/// What peers may do with memory that was registered for this.
pub(crate) fn rights_of(access: u64) -> RemoteRights {
    // Nothing said: everything.
    let all = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    let access = if access & all == 0 { all } else { access };
    let mut rights = RemoteRights::NONE;
    if access & FI_REMOTE_READ != 0 {
        rights = rights.with(RemoteRights::GET);
    }
    if access & FI_REMOTE_WRITE != 0 {
        rights = rights.with(RemoteRights::PUT);
    }
    // Words that are changed in one step are told what they held before.
    if rights.has(RemoteRights::GET.with(RemoteRights::PUT)) {
        rights = rights.with(RemoteRights::FETCH);
    }
    rights
}

impl Registered {
    pub(crate) const fn new(
        memory: MappedMemory,
        at: std::ops::Range<u64>,
        rights: RemoteRights,
    ) -> Self {
        Self { memory, at, rights, regions: Vec::new() }
    }

    /// The bytes, registered with an endpoint.
    pub(crate) fn part(
        &mut self,
        endpoint: usize,
        stp: &blocking::Endpoint,
    ) -> Result<landfall::stp::Part, landfall::stp::Error> {
        let known = self.regions.iter().position(|(known, _)| *known == endpoint);
        let at = match known {
            Some(at) => at,
            None => {
                let region = stp.as_async().register_mapped(&self.memory)?;
                self.regions.push((endpoint, region));
                self.regions.len() - 1
            }
        };
        self.regions[at].1.part(self.at.clone())
    }

    /// An endpoint is closed.
    fn forget(&mut self, endpoint: usize) {
        self.regions.retain(|(known, _)| *known != endpoint);
    }
}

/// The names of regions by which peers ask for memory with a key are those keys; higher ones
/// have other uses.
pub(crate) const MOST_KEY: u64 = 0xffff_ff00;

/// What the endpoints of a domain share.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) queues: Numbered<Queue>,
    pub(crate) counters: Numbered<Counter>,
    pub(crate) books: Numbered<AddressVector>,
    pub(crate) memory: HashMap<u32, Registered>,
    next_key: u32,
    pub(crate) notify: Arc<Notify>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            queues: Numbered::default(),
            counters: Numbered::default(),
            books: Numbered::default(),
            memory: HashMap::new(),
            next_key: 1,
            notify: Arc::default(),
        }
    }

    /// Registers memory by a key: this one, or one of our choice.
    pub(crate) fn register(
        &mut self,
        key: Option<u64>,
        registered: Registered,
    ) -> Result<u32, c_int> {
        let key = match key {
            Some(key) if key >= MOST_KEY => return Err(FI_EINVAL),
            Some(key) => key as u32,
            None => self.free_key().ok_or(FI_ENOMEM)?,
        };
        if self.memory.contains_key(&key) {
            return Err(FI_ENOKEY);
        }
        self.memory.insert(key, registered);
        Ok(key)
    }

    fn free_key(&mut self) -> Option<u32> {
        for _ in 0..=self.memory.len() {
            let key = self.next_key;
            self.next_key = (key + 1) % MOST_KEY as u32;
            if !self.memory.contains_key(&key) {
                return Some(key);
            }
        }
        None
    }

    pub(crate) fn forget_endpoint(&mut self, endpoint: usize) {
        self.memory.values_mut().for_each(|registered| registered.forget(endpoint));
    }

    pub(crate) fn tell(
        &mut self,
        queue: Option<usize>,
        completion: Completion,
        failure: Option<Failure>,
    ) {
        if let Some(queue) = queue.and_then(|queue| self.queues.get_mut(queue)) {
            queue.push(completion, failure);
        }
    }

    pub(crate) fn count(&mut self, counter: usize, is_failure: bool) {
        if let Some(counter) = self.counters.get_mut(counter) {
            let value = if is_failure { &mut counter.errors } else { &mut counter.value };
            *value = value.wrapping_add(1);
        }
    }
}
