//! One connection: what its program on this host does is said to the other carrier, and
//! what that one says is done here.
//!
//! One thread goes each way. What is said is in order: bytes come before the end of them,
//! and a change of ways before what goes the new way.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::wire::{Frame, HEAD, Nonsense, PIECE, Road};
use crate::connection::{CLOSED, NOBODY, RESET, SHUT};
use crate::far::{Answer, LEFT};
use crate::kernel::{self, Part};
use crate::registry::Name;
use crate::ring::{self, Incoming, Outgoing, ROOM_BY_MEMORY, Taking};
use crate::segment::{Direction, Segment, Side};
use crate::witness::Witness;

/// How long an offer stays that the program here has not taken.
const OFFER: Duration = Duration::from_secs(10);
/// Who has nothing to say says so, so that the other knows that all is well.
const SILENCE: Duration = Duration::from_secs(2);
/// Who is not heard from for so long is lost.
const PATIENCE: Duration = Duration::from_secs(20);
/// A sleep ends to look at what nobody wakes for: a program that was killed.
const LOOK_MS: u32 = 50;
const SELDOM: Duration = Duration::from_millis(500);

/// A mapping of the memory, for both threads.
pub(super) struct Mapping(Segment);

// SAFETY: it is atomics, and bytes that are only copied; see `Segment`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(super) const fn of(segment: Segment) -> Self {
        Self(segment)
    }
}

impl Deref for Mapping {
    type Target = Segment;

    fn deref(&self) -> &Segment {
        &self.0
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: references into it are borrowed from this.
        unsafe { self.0.unmap() };
    }
}

/// See the module.
pub(super) struct Line {
    memory: Arc<Mapping>,
    /// The end of the program on this host.
    side: Side,
    name: Name,
    road: Road,
    /// The other carrier has said that its program has changed its way.
    owes_known: AtomicBool,
    /// The kernel says that no process has the program's end any more.
    has_left: AtomicBool,
    /// The other carrier has said its last word.
    is_all_heard: AtomicBool,
    /// The program there has not taken what was offered: nothing is carried.
    is_off: AtomicBool,
    /// One of the threads has failed.
    is_broken: AtomicBool,
}

/// What was said of the program until now.
struct Told {
    is_here: bool,
    is_switched: bool,
    ended: u32,
    unwanted: u32,
    /// When something was said last, and the kernel asked.
    spoke: Instant,
    asked: Instant,
    began: Instant,
}

/// Nothing more comes after this.
const fn is_last(how: u32) -> bool {
    matches!(how, CLOSED | RESET | LEFT)
}

fn nonsense(_: Nonsense) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the other carrier talks nonsense")
}

fn spoilt(_: ring::Nonsense) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the program has written nonsense")
}

impl Line {
    pub(super) fn new(memory: Arc<Mapping>, side: Side, name: Name, road: Road) -> Self {
        Self {
            memory,
            side,
            name,
            road,
            owes_known: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
            is_all_heard: AtomicBool::new(false),
            is_off: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
        }
    }

    /// Carries until both ends are over.
    pub(super) fn run(&self) -> io::Result<()> {
        self.road.hears_within(PATIENCE)?;
        self.road.writes_within(SILENCE)?;
        let (out, inward) = std::thread::scope(|scope| {
            let inward = scope.spawn(|| self.ends_well(Self::hears_all));
            let out = self.ends_well(Self::says_all);
            self.road.shut(Shutdown::Write);
            (out, inward.join())
        });
        out.and(inward.unwrap_or_else(|_| Err(io::Error::other("a thread has failed"))))
    }

    /// What breaks it is told; that the other thread cannot go on then is no news.
    fn ends_well(&self, work: fn(&Self) -> io::Result<()>) -> io::Result<()> {
        let _fuse = Fuse(self);
        work(self).or_else(|why| {
            // Who has heard all needs nobody to hear more: the other program is gone.
            let is_all_heard = self.is_all_heard.load(Ordering::Acquire);
            if !is_all_heard && self.breaks() { Err(why) } else { Ok(()) }
        })
    }

    /// Both programs shall hear of a reset; whether that is new.
    fn breaks(&self) -> bool {
        if self.is_broken.swap(true, Ordering::AcqRel) {
            return false;
        }
        let far = self.memory.far();
        let _ = far.is_broken.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
        let how = &self.theirs().sending.has_ended;
        let _ = how.compare_exchange(0, RESET, Ordering::AcqRel, Ordering::Relaxed);
        self.ours().receiving.has_ended.store(CLOSED, Ordering::Release);
        self.wakes_the_program();
        self.road.shut(Shutdown::Both);
        far.ring_the_bell();
        true
    }

    /// The direction in which the program here sends.
    fn ours(&self) -> &Direction {
        self.memory.direction_from(self.side)
    }

    /// The direction in which the other program sends.
    fn theirs(&self) -> &Direction {
        self.memory.direction_from(self.side.other())
    }

    /// The ends of the rings that the other program would have.
    fn rings(&self) -> (Outgoing<'_>, Incoming<'_>) {
        ring::ends(**self.memory, self.side.other())
    }

    fn wakes_the_program(&self) {
        let (outgoing, incoming) = self.rings();
        kernel::wake(outgoing.word_of_bytes(), i32::MAX);
        kernel::wake(incoming.word_of_room(), i32::MAX);
    }

    /// Says all that the program does, until that is over.
    fn says_all(&self) -> io::Result<()> {
        let now = Instant::now();
        let mut told = Told {
            is_here: false,
            is_switched: false,
            ended: 0,
            unwanted: 0,
            spoke: now,
            asked: now,
            began: now,
        };
        let mut piece = vec![0; HEAD + PIECE];
        let witness = Witness::open().map_err(|why| io::Error::from_raw_os_error(why.0))?;
        let result = loop {
            let seen = self.memory.far().bell.load(Ordering::SeqCst);
            if self.is_off.load(Ordering::Acquire) {
                break Ok(());
            }
            match self.says_what_is_new(&mut told, &mut piece) {
                Ok(_) if is_last(told.ended) => break Ok(()),
                Ok(true) => told.spoke = Instant::now(),
                Ok(false) => {
                    if let Err(why) = self.rests(&mut told, seen, &witness) {
                        break Err(why);
                    }
                }
                Err(why) => break Err(why),
            }
        };
        if self.has_left.load(Ordering::Acquire) {
            self.name.forget();
        }
        result
    }

    fn says(&self, frame: Frame) -> io::Result<()> {
        self.writes(&frame.to_bytes())
    }

    /// Writes all, however long the other carrier makes it wait, unless there is no hope.
    fn writes(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match (&self.road).write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => bytes = &bytes[len..],
                Err(why) if why.kind() != io::ErrorKind::WouldBlock => return Err(why),
                Err(_) if self.is_broken.load(Ordering::Acquire) => {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Whether anything was new.
    fn says_what_is_new(&self, told: &mut Told, piece: &mut [u8]) -> io::Result<bool> {
        if self.is_broken.load(Ordering::Acquire) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut is_new = false;
        let mut once = |said: &mut bool, is_so: bool, frame: Frame| {
            if is_so && !*said {
                (*said, is_new) = (true, true);
                return self.says(frame);
            }
            Ok(())
        };
        let own = self.ours();
        let is_here = self.memory.end(self.side).is_here.load(Ordering::Acquire) != 0;
        once(&mut told.is_here, is_here, Frame::Here)?;
        // How it ended is looked at before its last bytes are.
        let has_left = self.has_left.load(Ordering::Acquire);
        let ended = match own.sending.has_ended.load(Ordering::Acquire) {
            0 | SHUT if has_left => LEFT,
            how @ ..=CLOSED => how,
            _ => RESET,
        };
        let switched = own.sending.switched.load(Ordering::SeqCst);
        once(&mut told.is_switched, switched != 0, Frame::Switched(switched))?;
        if self.owes_known.swap(false, Ordering::AcqRel) {
            self.says(Frame::Known)?;
            is_new = true;
        }
        let unwanted = self.theirs().receiving.has_ended.load(Ordering::Acquire).min(CLOSED);
        if unwanted > told.unwanted {
            told.unwanted = unwanted;
            self.says(Frame::Unwanted(unwanted))?;
            is_new = true;
        }
        // A change of ways that came since the look above is told before its bytes are.
        if told.is_switched && self.says_bytes(piece)? {
            return Ok(true);
        }
        if ended > told.ended {
            told.ended = ended;
            self.says(Frame::Ended(ended))?;
            is_new = true;
        }
        Ok(is_new)
    }

    /// Takes bytes out of the program's ring and sends them; whether there were some.
    fn says_bytes(&self, piece: &mut [u8]) -> io::Result<bool> {
        let (_, incoming) = self.rings();
        let part = Part { base: piece[HEAD..].as_mut_ptr(), len: PIECE };
        // SAFETY: the piece is ours, and has room for so many behind its head.
        let len = unsafe { incoming.take(&[part], Taking::Take) }.map_err(spoilt)?;
        if len == 0 {
            return Ok(false);
        }
        if incoming.takes_the_wish_for_room() & ROOM_BY_MEMORY != 0 {
            kernel::wake(incoming.word_of_room(), i32::MAX);
        }
        piece[..HEAD].copy_from_slice(&Frame::Bytes(len).to_bytes());
        self.writes(&piece[..HEAD + len])?;
        Ok(true)
    }

    /// Sleeps until the program rings, or for a while; looks at what nobody tells.
    fn rests(&self, told: &mut Told, seen: u32, witness: &Witness) -> io::Result<()> {
        let far = self.memory.far();
        let was_quiet = told.spoke.elapsed() >= SELDOM;
        far.carrier_sleeps.store(1, Ordering::SeqCst);
        let _ = kernel::sleep_on(&far.bell, seen, if was_quiet { 5 * LOOK_MS } else { LOOK_MS });
        far.carrier_sleeps.store(0, Ordering::SeqCst);
        let now = Instant::now();
        if now.duration_since(told.spoke) >= SILENCE {
            self.says(Frame::Alive)?;
            told.spoke = now;
        }
        let pause = if was_quiet { SELDOM } else { Duration::from_millis(LOOK_MS.into()) };
        if now.duration_since(told.asked) < pause {
            return Ok(());
        }
        told.asked = now;
        let end = self.memory.end(self.side);
        let cookie = end.cookie.load(Ordering::Acquire);
        if cookie == 0 {
            if now.duration_since(told.began) >= OFFER
                && end
                    .cookie
                    .compare_exchange(0, NOBODY, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                self.name.forget();
                self.is_off.store(true, Ordering::Release);
                self.says(Frame::Nobody)?;
            }
        } else if self.is_left(witness, cookie) {
            self.has_left.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Whether no process has the program's end any more.
    fn is_left(&self, witness: &Witness, cookie: u64) -> bool {
        let interface = self.memory.end(self.side).interface.load(Ordering::Relaxed);
        match witness.end_of(&self.name, self.side, cookie, interface) {
            Ok(Some(end)) if end.is_connected() => !end.has_file,
            // Both directions of TCP are over, which says nothing of the program: it may
            // have to read yet what the end by TCP has overtaken.
            Ok(_) => {
                let process = self.memory.far().process.load(Ordering::Relaxed);
                let holders = &self.memory.end(self.side).holders;
                process != 0 && !kernel::is_alive(process) && holders.load(Ordering::Acquire) <= 1
            }
            Err(_) => false,
        }
    }

    /// Does all that the other carrier says, until it says no more.
    fn hears_all(&self) -> io::Result<()> {
        let mut piece = vec![0; PIECE];
        let mut is_over = false;
        loop {
            let mut head = [0; HEAD];
            match (&self.road).read(&mut head[..1]) {
                Ok(0) if is_over || self.is_off.load(Ordering::Acquire) => return Ok(()),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                // What it has to say is said.
                Err(_) if is_over => return Ok(()),
                Err(why) => return Err(why),
            }
            (&self.road).read_exact(&mut head[1..])?;
            let frame = Frame::from_bytes(&head).map_err(nonsense)?;
            if is_over {
                return Err(nonsense(Nonsense));
            }
            is_over = self.does(frame, &mut piece)?;
        }
    }

    /// Whether it was the last.
    fn does(&self, frame: Frame, piece: &mut [u8]) -> io::Result<bool> {
        let far = self.memory.far();
        let other = self.theirs();
        let has_ended = &other.sending.has_ended;
        match frame {
            Frame::Alive => {}
            Frame::Here => {
                self.memory.end(self.side.other()).is_here.store(1, Ordering::Release);
                far.has_news();
            }
            Frame::Switched(number) => {
                let before = other.sending.switched.swap(number, Ordering::SeqCst);
                if before != 0 {
                    return Err(nonsense(Nonsense));
                }
                self.owes_known.store(true, Ordering::Release);
                far.has_news();
                far.ring_the_bell();
            }
            Frame::Known => far.may_ring.store(1, Ordering::Release),
            Frame::Bytes(len) => {
                let is_in_order = other.sending.switched.load(Ordering::Relaxed) != 0
                    && matches!(has_ended.load(Ordering::Relaxed), 0);
                if !is_in_order {
                    return Err(nonsense(Nonsense));
                }
                (&self.road).read_exact(&mut piece[..len])?;
                self.delivers(&mut piece[..len])?;
            }
            Frame::Ended(how) => {
                has_ended.fetch_max(how, Ordering::AcqRel);
                if is_last(how) {
                    self.ours().receiving.has_ended.store(CLOSED, Ordering::Release);
                    self.is_all_heard.store(true, Ordering::Release);
                }
                far.has_news();
                self.wakes_the_program();
                return Ok(is_last(how));
            }
            Frame::Unwanted(how) => {
                raise(&self.ours().receiving.has_ended, how);
                self.wakes_the_program();
            }
            Frame::Nobody => {
                if self.side != Side::Connector {
                    return Err(nonsense(Nonsense));
                }
                far.verdict.store(Answer::Nobody as u32, Ordering::Release);
                self.is_off.store(true, Ordering::Release);
                far.ring_the_bell();
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Puts bytes into the program's ring, as it makes room for them.
    fn delivers(&self, bytes: &mut [u8]) -> io::Result<()> {
        let (outgoing, _) = self.rings();
        let far = self.memory.far();
        let own = &self.theirs().receiving;
        let mut done = 0;
        while done < bytes.len() {
            let wanted = own.has_ended.load(Ordering::Acquire);
            if wanted == CLOSED || self.has_left.load(Ordering::Acquire) {
                return Ok(());
            }
            if self.is_broken.load(Ordering::Acquire) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let rest = &mut bytes[done..];
            let part = Part { base: rest.as_mut_ptr(), len: rest.len() };
            // SAFETY: the bytes are ours.
            let put = unsafe { outgoing.put(&[part]) }.map_err(spoilt)?;
            if put > 0 {
                done += put;
                far.has_news();
                std::sync::atomic::fence(Ordering::SeqCst);
                if own.sleepers.load(Ordering::SeqCst) > 0 {
                    kernel::wake(outgoing.word_of_bytes(), i32::MAX);
                }
                continue;
            }
            if wanted == SHUT {
                // Nobody reads any more.
                return Ok(());
            }
            let word = outgoing.word_of_room();
            let seen = outgoing.room_seen();
            if !outgoing.wants_room(ROOM_BY_MEMORY).map_err(spoilt)? {
                let _ = kernel::sleep_on(word, seen, LOOK_MS);
            }
        }
        Ok(())
    }
}

/// A thread that fails in a way nobody thought of breaks its line, too.
struct Fuse<'a>(&'a Line);

impl Drop for Fuse<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.breaks();
        }
    }
}

fn raise(word: &AtomicU32, to: u32) {
    word.fetch_max(to, Ordering::AcqRel);
}
