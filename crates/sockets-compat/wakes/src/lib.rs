#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
mod words;

pub use words::{RoomWatchers, RoomWish, Shortcut, Waiters, Wish, Wishes};

/// Rings that somebody may need stay for this many looks: who seems to sleep may have been killed,
/// and a ring that stays keeps others from sleep.
const LONG_ENOUGH: u32 = if cfg!(all(test, loom)) { 1 } else { 64 };

/// One end of a connection, as a thread at it sees it.
pub trait End {
    /// Wishes of this end to be rung for bytes.
    fn wishes(&self) -> &Wishes;
    /// Who sleeps at this end.
    fn waiters(&self) -> &Waiters;
    /// Who of them waits for room.
    fn room_watchers(&self) -> &RoomWatchers;
    /// By which shorter way they are woken.
    fn shortcut(&self) -> &Shortcut;
    /// Wakes those of this end who sleep on the word of shared memory.
    fn wakes_by_memory(&self);
    /// Whether bytes wait in memory, or nonsense.
    fn has_bytes(&self) -> bool;
    /// Says to the other end that room is wanted, in `poll` or `epoll` ([`RoomWish::make`]).
    fn wants_room(&self);
    /// Whether there is room that one who waits for it is told of.
    fn has_room(&self) -> bool;
    /// Whether what this end sends goes by memory, so that room is not TCP's to tell.
    fn is_sending_switched(&self) -> bool;
    /// Whether somebody holds the lock of the half that receives, looked at after a full fence.
    fn is_being_received(&self) -> bool;
    /// How many bytes lie in TCP's queue.
    fn queued(&self) -> usize;
    /// Takes this many of them away.
    fn discard(&self, bytes: usize);
}

/// Somebody who sleeps, or is about to, and watches an end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    wish: Option<Wish>,
    for_room: bool,
    /// Whether every ring will be found: else who sleeps looks by itself after a moment.
    pub is_sure: bool,
}

/// Somebody will sleep who watches this end, until [`stops_watching`], and is woken by a shortcut
/// of this number; zero if it has none. The caller looks at the rings of bytes once more, after this.
pub fn watches<E: End + ?Sized>(end: &E, for_bytes: bool, for_room: bool, shortcut: u32) -> Watch {
    end.waiters().adds_watcher();
    if end.shortcut().joins(shortcut).displaces_memory {
        end.wakes_by_memory();
    }
    if for_room {
        end.room_watchers().add();
        end.wants_room();
    }
    let wish = for_bytes.then(|| end.wishes().make());
    Watch { wish, for_room, is_sure: !end.is_being_received() }
}

/// Who watched sleeps no more.
pub fn stops_watching<E: End + ?Sized>(end: &E, watch: Watch) {
    if let Some(wish) = watch.wish {
        end.wishes().take_back(wish);
    }
    if watch.for_room {
        end.room_watchers().lose();
    }
    end.shortcut().leaves();
    end.waiters().loses_watcher();
}

/// How one who sleeps for bytes in a call is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bed {
    /// By the word of shared memory alone.
    Memory,
    /// By TCP.
    Tcp {
        /// Whether every ring will be found: else it sleeps for a moment only.
        is_sure: bool,
    },
}

/// Sleeps for bytes in a call, as `sleep` does it, unless there are some; by memory if that is
/// wanted and all who sleep at this end do. Gives what `sleep` gave, and whether nobody else sleeps
/// so: then rings may be taken away.
///
/// The lock is looked at before the memory: who held it without knowing of this sleeper may have
/// taken a ring for bytes that came just then.
pub fn sleeps_for_bytes<E: End + ?Sized, T>(
    end: &E,
    by_memory: bool,
    sleep: impl FnOnce(Bed) -> T,
) -> (Option<T>, bool) {
    end.waiters().adds_sleeper();
    let joined = end.shortcut().joins(if by_memory { Shortcut::MEMORY } else { 0 });
    if joined.displaces_memory {
        end.wakes_by_memory();
    }
    let wish = end.wishes().make();
    let is_sure = !end.is_being_received();
    let bed = if by_memory && joined.is_agreed { Bed::Memory } else { Bed::Tcp { is_sure } };
    let slept = (!end.has_bytes()).then(|| sleep(bed));
    end.wishes().take_back(wish);
    end.shortcut().leaves();
    (slept, end.waiters().loses_sleeper())
}

/// Whether a ring in TCP's queue may be for somebody who sleeps, or wakes just now. To be asked
/// by one who has the lock of the half that receives.
pub fn somebody_may_need_a_ring<E: End + ?Sized>(end: &E) -> bool {
    end.waiters().count() > 0
}

/// Whether rings are worth a try to take them away: nobody may need them, or they have
/// stayed for long enough.
pub fn rings_may_go<E: End + ?Sized>(end: &E) -> bool {
    if somebody_may_need_a_ring(end) && !end.waiters().has_kept_for_long() {
        return false;
    }
    end.waiters().begins_to_keep();
    true
}

/// Takes away what lies in TCP's queue, if it has nothing to tell to anybody any more. The
/// caller has the lock of the half that receives, and knows that they are nothing but
/// rings.
pub fn drop_rings<E: End + ?Sized>(end: &E) {
    let rings = end.queued();
    // What comes from here on comes behind those, and stays.
    if rings > 0 && (!somebody_may_need_a_ring(end) || is_all_told(end)) {
        end.discard(rings);
    }
}

/// Lets those who watch be rung for what comes next; whether there is nothing for them
/// yet.
fn is_all_told<E: End + ?Sized>(end: &E) -> bool {
    end.wishes().make();
    if end.has_bytes() {
        return false;
    }
    if !end.room_watchers().are_any() || !end.is_sending_switched() {
        return true;
    }
    end.wants_room();
    !end.has_room()
}

/// How many bytes of TCP's queue are certainly the program's and no rings, for one who has taken
/// `taken`. `switched_after` says after how many bytes the other end went over to memory, if it
/// has. `None`: all have been taken.
///
/// The queue is measured before the way is looked at: what lay there before the other end had
/// gone over is the program's. Who takes more than that takes rings of which others have not
/// heard.
pub fn certain_by_tcp(
    taken: u64,
    queued: impl FnOnce() -> usize,
    switched_after: impl Fn() -> Option<u64>,
) -> Option<u64> {
    let left = |sum: u64| Some(sum.saturating_sub(taken)).filter(|&left| left > 0);
    if let Some(sum) = switched_after() {
        return left(sum);
    }
    let queued = queued() as u64;
    switched_after().map_or(Some(queued), left)
}
