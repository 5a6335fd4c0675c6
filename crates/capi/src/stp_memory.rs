//! Memory that is given out over STP, for C: regions, their keys, Puts, Gets and FetchOps.

use std::ffi::c_void;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Wake, Waker};

use landfall::stp::{Connection, Error, Part, RemoteMemory, RemoteRights, WordWidth};
use landfall::verbs::stp::{KeyTable, MemoryKey};

use crate::error::{Failure, code, pointer};
use crate::stp::{StpConnection, Until, WaitContext};
use crate::stp_messages::StpOperation;
use crate::verbs::{PartOf as _, Region, range, word_function};
use crate::{bytes, bytes_mut, close, shared};

/// How many bytes a key has.
const KEY: usize = MemoryKey::LEN;
/// How long a grant may take to end, in milliseconds.
const REVOKE: i64 = 5000;
const RIGHTS: [RemoteRights; 3] = [RemoteRights::GET, RemoteRights::PUT, RemoteRights::FETCH];

/// Rights as C has them.
fn rights_of(bits: u32) -> Result<RemoteRights, Failure> {
    if bits == 0 || bits >> RIGHTS.len() != 0 {
        return Err(Failure::Invalid("these are no rights: LF_STP_GET, LF_STP_PUT, LF_STP_FETCH"));
    }
    let has = |bit: &usize| bits >> bit & 1 == 1;
    Ok((0..RIGHTS.len()).filter(has).fold(RemoteRights::NONE, |all, bit| all.with(RIGHTS[bit])))
}

/// Memory of the other side: see `landfall.h`.
#[derive(Debug)]
pub struct StpRemote {
    memory: RemoteMemory,
    context: WaitContext,
}

/// What one side of a connection has given out.
#[derive(Debug)]
pub(crate) struct Shares {
    connection: Connection,
    table: Mutex<KeyTable>,
}

impl Shares {
    /// From now on the other side is answered whenever it asks for memory.
    pub(crate) fn serve(connection: &Connection) -> Arc<Self> {
        let shares = Arc::new(Self { connection: connection.clone(), table: Mutex::default() });
        let responder = Responder { shares: Arc::downgrade(&shares), state: AtomicU8::new(IDLE) };
        Arc::new(responder).wake();
        shares
    }

    fn table(&self) -> MutexGuard<'_, KeyTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const IDLE: u8 = 0;
const BUSY: u8 = 1;
const AGAIN: u8 = 2;

/// Is woken by the thread that drives the endpoint, and answers there. It may be woken while it
/// answers: then it looks again afterwards.
struct Responder {
    shares: Weak<Shares>,
    state: AtomicU8,
}

impl Wake for Responder {
    fn wake(self: Arc<Self>) {
        if self.state.swap(AGAIN, Ordering::AcqRel) != IDLE {
            return; // Who answers sees that it has to look again.
        }
        let waker = Waker::from(Arc::clone(&self));
        loop {
            self.state.store(BUSY, Ordering::Release);
            // The connection is closed: nobody answers any more.
            let Some(shares) = self.shares.upgrade() else { return };
            shares.table().answer(&shares.connection, &mut Context::from_waker(&waker));
            let idle = self.state.compare_exchange(BUSY, IDLE, Ordering::AcqRel, Ordering::Acquire);
            if idle.is_ok() {
                return;
            }
        }
    }
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_share(
    connection: *const StpConnection,
    region: *const Region,
    at: u64,
    length: u64,
    rights: u32,
    key: *mut u8,
) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let (connection, region) = unsafe { (shared(connection)?, shared(region)?) };
        // SAFETY: the caller's promise: there is room for a key.
        let key = unsafe { bytes_mut(key, KEY) }?;
        let (part, rights) = (Part::of(region, range(at, length)?)?, rights_of(rights)?);
        key.copy_from_slice(&connection.shares.table().share(&part, rights).to_bytes());
        Ok(())
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_withdraw(connection: *const StpConnection, key: *const u8) -> i32 {
    code(|| {
        // SAFETY: the caller's promise: a key has this many bytes.
        let (connection, key) = unsafe { (shared(connection)?, bytes(key, KEY)?) };
        let given = connection.shares.table().withdraw(&key_of(key)?);
        for exposed in given.ok_or(Failure::Invalid("nothing was shared by this key"))? {
            // Until no write is under way, which takes no longer than a turn of the endpoint.
            let revoked = &mut pin!(exposed.revoke());
            connection.context.wait(revoked, Until::new(REVOKE)).ok_or(Failure::TimedOut)?;
        }
        Ok(())
    })
}

/// The key of what was shared, out of a message.
fn key_of(bytes: &[u8]) -> Result<MemoryKey, Failure> {
    let key = bytes.try_into().ok().and_then(MemoryKey::from_bytes);
    key.ok_or(Failure::Invalid("these bytes are no key: LF_STP_KEY bytes of lf_stp_share"))
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_remote_open(
    connection: *const StpConnection,
    key: *const u8,
    timeout: i64,
) -> *mut StpRemote {
    pointer(|| {
        // SAFETY: the caller's promise: a key has this many bytes.
        let (connection, key) = unsafe { (shared(connection)?, bytes(key, KEY)?) };
        let key = key_of(key)?;
        let mut asked = connection.connection.request_region(key.name(), key.len(), key.rights());
        let given = connection.context.wait(&mut asked, Until::new(timeout));
        let memory = given.ok_or(Failure::TimedOut)?.map_err(Error::from)?;
        Ok(StpRemote { memory, context: connection.context.clone() })
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_remote_close(remote: *mut StpRemote) {
    // SAFETY: the caller's promise.
    unsafe { close(remote) }
}

impl StpRemote {
    fn put(&self, at: u64, bytes: &[u8]) -> Result<StpOperation, Failure> {
        let put = self.memory.put(at, self.context.copy(bytes)?).start();
        Ok(StpOperation::new(&self.context, async { put.await.map(|_| 0).map_err(Error::from) }))
    }

    fn fetch(
        &self,
        at: u64,
        width: u32,
        function: u32,
        operands: [u64; 2],
    ) -> Result<StpOperation, Failure> {
        let width = match width {
            4 => WordWidth::Four,
            8 => WordWidth::Eight,
            _ => return Err(Failure::Invalid("a word has 4 or 8 bytes")),
        };
        let function = word_function(function, operands)?;
        let fetch = self.memory.fetch_op(at, width, function).start();
        Ok(StpOperation::new(&self.context, async { fetch.await.map_err(Error::from) }))
    }
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_put(
    remote: *const StpRemote,
    at: u64,
    from: *const c_void,
    length: usize,
    timeout: i64,
) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let (remote, from) = unsafe { (shared(remote)?, bytes(from.cast(), length)?) };
        remote.put(at, from)?.status(Until::new(timeout)).map(drop)
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_begin_put(
    remote: *const StpRemote,
    at: u64,
    from: *const c_void,
    length: usize,
) -> *mut StpOperation {
    pointer(|| {
        // SAFETY: the caller's promise.
        let (remote, from) = unsafe { (shared(remote)?, bytes(from.cast(), length)?) };
        remote.put(at, from)
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_get(
    remote: *const StpRemote,
    at: u64,
    into: *mut c_void,
    length: usize,
    timeout: i64,
) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let (remote, into) = unsafe { (shared(remote)?, bytes_mut(into.cast(), length)?) };
        let mut get = remote.memory.get(at, remote.context.memory(length)?);
        let got = remote.context.wait(&mut get, Until::new(timeout));
        let got = got.ok_or(Failure::TimedOut)?.map_err(Error::from)?;
        if got.len() != into.len() {
            return Err(Failure::Known(-9, "fewer bytes came than were asked for".to_owned()));
        }
        into.copy_from_slice(&got);
        Ok(())
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_begin_get(
    remote: *const StpRemote,
    at: u64,
    region: *const Region,
    region_at: u64,
    length: u64,
) -> *mut StpOperation {
    pointer(|| {
        // SAFETY: the caller's promise.
        let (remote, region) = unsafe { (shared(remote)?, shared(region)?) };
        let get = remote.memory.get_into(at, &Part::of(region, range(region_at, length)?)?).start();
        Ok(StpOperation::new(&remote.context, async { Ok(get.await?.len) }))
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_fetch(
    remote: *const StpRemote,
    at: u64,
    width: u32,
    function: u32,
    operand: u64,
    expected: u64,
    old: *mut u64,
    timeout: i64,
) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let remote = unsafe { shared(remote) }?;
        let fetch = remote.fetch(at, width, function, [operand, expected])?;
        let found = fetch.status(Until::new(timeout))?;
        // SAFETY: it is null, or the caller's promise.
        if let Some(old) = unsafe { old.as_mut() } {
            *old = found;
        }
        Ok(())
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_begin_fetch(
    remote: *const StpRemote,
    at: u64,
    width: u32,
    function: u32,
    operand: u64,
    expected: u64,
) -> *mut StpOperation {
    pointer(|| {
        // SAFETY: the caller's promise.
        let remote = unsafe { shared(remote) }?;
        remote.fetch(at, width, function, [operand, expected])
    })
}
