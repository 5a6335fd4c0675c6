//! The sender's part of a session: announces what there is, hears what is wanted, reads
//! and hashes it, and hands it on to be sent.
//!
//! | thread | what it does |
//! | --- | --- |
//! | [`Source`] | walks, announces, reads, hashes |
//! | [`pump`] | sends what the source hands on; several transfers are under way |
//! | [`hear`] | takes what the receiver says |
//!
//! Announcements run ahead of contents, so that many small files cost no round trip each;
//! how far ahead is bounded. Contents are hashed right after they were read, while they
//! are in the cache, and before their memory is lent to be sent.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::time::Duration;

use blake3::Hasher;
use landfall::stp::Memory;
use landfall::stp::blocking::Endpoint;

use super::meter::Tally;
use super::outcome::{Failure, Outcome};
use super::pace::Pace;
use super::path::printable;
use super::pipe::{Frame, Inlet, Outlet};
use super::walk::{Found, Roots, Walk, modified};
use super::wire::{
    Answer, Bundle, Entry, FULL_BUNDLE, FileTime, Kind, MOST_ANNOUNCED, MOST_PIECE, SMALL,
    ToReceiver, ToSender,
};

/// What the source hands on.
pub(crate) enum ToSend {
    Bundle(Bundle),
    Piece(Memory),
}

/// Sends what is handed on, in order, until there is no more.
pub(crate) fn pump(mut outlet: Outlet, from: &Receiver<ToSend>) -> Result<(), Failure> {
    while let Ok(next) = from.recv() {
        match next {
            ToSend::Bundle(bundle) => outlet.bundle(bundle)?,
            ToSend::Piece(memory) => outlet.piece(memory)?,
        }
    }
    Ok(outlet.drain()?)
}

/// Takes what the receiver says, until it says the last word.
pub(crate) fn hear(mut inlet: Inlet, to: &SyncSender<ToSender>) -> Result<(), Failure> {
    loop {
        let Frame::Bundle(bundle) = inlet.next()? else {
            return Err(Failure::nonsense("a receiver sends no contents"));
        };
        for message in ToSender::all(&bundle) {
            let message = message?;
            if let ToSender::Abort { why } = message {
                return Err(Failure::Theirs(printable(&why)));
            }
            let is_last = matches!(message, ToSender::Finished { .. });
            if to.send(message).is_err() || is_last {
                return Ok(());
            }
        }
    }
}

/// See the module.
pub(crate) struct Source {
    endpoint: Endpoint,
    to: SyncSender<ToSend>,
    answers: Receiver<ToSender>,
    tally: Arc<Tally>,
    outcome: Outcome,
    pace: Pace,
    /// An answer is waited for so long at most.
    idle: Duration,
    bundle: Bundle,
    walk: Option<Walk>,
    announced: VecDeque<(u64, Found)>,
    next: u64,
}

/// How the contents of a file were read.
enum Contents {
    Whole(blake3::Hash),
    /// It is not what was announced any more.
    Changed(String),
}

impl Source {
    pub(crate) fn new(
        endpoint: &Endpoint,
        (to, answers): (SyncSender<ToSend>, Receiver<ToSender>),
        tally: &Arc<Tally>,
        pace: Pace,
        idle: Duration,
    ) -> Self {
        Self {
            endpoint: endpoint.clone(),
            to,
            answers,
            tally: Arc::clone(tally),
            outcome: Outcome::default(),
            pace,
            idle,
            bundle: Bundle::default(),
            walk: None,
            announced: VecDeque::new(),
            next: 0,
        }
    }

    /// Sends everything, and waits until the receiver says that it is in place.
    pub(crate) fn run(mut self, roots: &Roots, plan: (u64, u64)) -> Result<Outcome, Failure> {
        let (files, bytes) = plan;
        self.say(&ToReceiver::Plan { files, bytes })?;
        self.walk = Some(roots.walk());
        loop {
            if self.announced.len() <= MOST_ANNOUNCED / 2 {
                self.announce()?;
            }
            let Some((index, found)) = self.announced.pop_front() else { break };
            let answer = self.answer_to(index)?;
            self.serve(index, &found, answer)?;
        }
        self.say(&ToReceiver::Finish)?;
        self.flush()?;
        loop {
            match self.hear()? {
                // The last files may have arrived damaged.
                ToSender::Answer { answer: Answer::Refused { why }, index } => {
                    self.outcome.refuse(&format!("entry {index}"), &why);
                }
                ToSender::Finished { .. } => return Ok(self.outcome),
                _ => return Err(Failure::nonsense("an answer that nobody asked for")),
            }
        }
    }

    fn announce(&mut self) -> Result<(), Failure> {
        while self.announced.len() < MOST_ANNOUNCED {
            let Some(found) = self.walk.as_mut().and_then(Iterator::next) else { return Ok(()) };
            match found {
                Err(problem) => self.outcome.refuse(&problem.what, &problem.why),
                Ok(found) => {
                    let Found { kind, mode, modified, path, .. } = &found;
                    let (index, kind, path) = (self.next, kind.clone(), Ok(path.clone()));
                    let (mode, modified) = (*mode, *modified);
                    self.say(&ToReceiver::Entry(Entry { index, kind, mode, modified, path }))?;
                    self.announced.push_back((index, found));
                    self.next += 1;
                }
            }
        }
        Ok(())
    }

    fn say(&mut self, message: &ToReceiver<'_>) -> Result<(), Failure> {
        self.bundle.push_to_receiver(message);
        if self.bundle.len() >= FULL_BUNDLE { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let bundle = std::mem::take(&mut self.bundle);
        if bundle.is_empty() { Ok(()) } else { self.hand_on(ToSend::Bundle(bundle)) }
    }

    fn hand_on(&self, what: ToSend) -> Result<(), Failure> {
        // Nobody takes it any more: the thread that should says why.
        self.to.send(what).map_err(|_| Failure::Elsewhere)
    }

    /// What the receiver says next; what waits here to be sent is sent first.
    fn hear(&mut self) -> Result<ToSender, Failure> {
        match self.answers.try_recv() {
            Ok(message) => Ok(message),
            Err(TryRecvError::Disconnected) => Err(Failure::Elsewhere),
            Err(TryRecvError::Empty) => {
                self.flush()?;
                Failure::of_waiting(self.answers.recv_timeout(self.idle), self.idle)
            }
        }
    }

    fn answer_to(&mut self, wanted: u64) -> Result<Answer, Failure> {
        loop {
            match self.hear()? {
                ToSender::Answer { index, answer } if index == wanted => return Ok(answer),
                // Something sent before did not arrive whole.
                ToSender::Answer { index, answer: Answer::Refused { why } } if index < wanted => {
                    self.outcome.refuse(&format!("entry {index}"), &why);
                }
                _ => return Err(Failure::nonsense("an answer that nobody asked for")),
            }
        }
    }

    fn serve(&mut self, index: u64, found: &Found, answer: Answer) -> Result<(), Failure> {
        let name = found.path.to_string();
        match (answer, &found.kind) {
            (Answer::Refused { why }, _) => self.outcome.refuse(&name, &printable(&why)),
            (Answer::Made, Kind::Folder) => self.outcome.folders += 1,
            (Answer::Made, Kind::Link { .. }) => self.outcome.links += 1,
            (Answer::There { hash, may_replace }, Kind::File { size }) => {
                let hash = blake3::Hash::from_bytes(hash);
                self.compare(index, found, *size, hash, may_replace)?;
            }
            (Answer::Want { have, hash }, Kind::File { size }) if have <= *size => {
                let size = *size;
                self.tally.say(name);
                self.send_file(index, found, size, have, blake3::Hash::from_bytes(hash))?;
            }
            (Answer::Want { have: 0, .. }, Kind::Stream) => {
                self.tally.say("standard input".into());
                self.send_stream(index)?;
            }
            _ => return Err(Failure::nonsense("an answer that does not fit what was asked")),
        }
        if matches!(found.kind, Kind::File { .. } | Kind::Stream) {
            self.tally.files.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        Ok(())
    }

    fn leave(&mut self, index: u64, found: &Found, why: String) -> Result<(), Failure> {
        self.outcome.refuse(&found.path.to_string(), &why);
        self.say(&ToReceiver::Leave { index, why })
    }

    /// A file of the same length is there: is it the same?
    fn compare(
        &mut self,
        index: u64,
        found: &Found,
        size: u64,
        theirs: blake3::Hash,
        may_replace: bool,
    ) -> Result<(), Failure> {
        self.tally.say(format!("comparing {}", found.path));
        let mut hasher = Hasher::new();
        let read = open(found).and_then(|file| hash_prefix(&file, size, &mut hasher));
        match read {
            Ok(()) if hasher.finalize() == theirs => {
                self.outcome.same += 1;
                self.outcome.bytes_there += size;
                self.tally.bytes.fetch_add(size, std::sync::atomic::Ordering::Relaxed);
                self.say(&ToReceiver::Same { index })
            }
            Ok(()) if may_replace => {
                self.send_file(index, found, size, 0, blake3::Hash::from_bytes([0; 32]))
            }
            Ok(()) => {
                let why = "another file of that name is there: `landfall receive --overwrite` \
                           would replace it";
                self.leave(index, found, why.into())
            }
            Err(error) => self.leave(index, found, error.to_string()),
        }
    }

    fn send_file(
        &mut self,
        index: u64,
        found: &Found,
        size: u64,
        have: u64,
        prefix: blake3::Hash,
    ) -> Result<(), Failure> {
        let file = match open(found) {
            Ok(file) => file,
            Err(error) => return self.leave(index, found, error.to_string()),
        };
        if let Err(why) = unchanged(&file, size, found.modified) {
            return self.leave(index, found, why);
        }
        if size <= SMALL && have == 0 {
            return self.send_small(index, found, &file, size);
        }
        let mut hasher = Hasher::new();
        let mut from = 0;
        if have > 0 {
            self.tally.say(format!("checking what is there of {}", found.path));
            let is_same =
                hash_prefix(&file, have, &mut hasher).is_ok() && hasher.finalize() == prefix;
            self.tally.say(found.path.to_string());
            if is_same {
                from = have;
                self.outcome.resumed += 1;
                self.outcome.bytes_there += have;
                self.tally.bytes.fetch_add(have, std::sync::atomic::Ordering::Relaxed);
            } else {
                hasher.reset();
            }
        }
        self.say(&ToReceiver::Begin { index, from })?;
        self.flush()?;
        match self.send_pieces(&file, from, size, &mut hasher, found.modified)? {
            Contents::Whole(hash) => {
                self.outcome.sent(size - from);
                self.say(&ToReceiver::End { index, len: size, hash: hash.into() })
            }
            Contents::Changed(why) => self.leave(index, found, why),
        }
    }

    fn send_small(
        &mut self,
        index: u64,
        found: &Found,
        file: &File,
        size: u64,
    ) -> Result<(), Failure> {
        let mut bytes = vec![0; size as usize];
        let read = file.read_exact_at(&mut bytes, 0).map_err(|error| short_or(&error));
        if let Err(why) = read.and_then(|()| unchanged(file, size, found.modified)) {
            return self.leave(index, found, why);
        }
        self.pace.keep(size);
        let hash = blake3::hash(&bytes).into();
        self.say(&ToReceiver::Small { index, hash, bytes: &bytes })?;
        self.outcome.sent(size);
        self.tally.add_moved(size);
        Ok(())
    }

    fn send_pieces(
        &mut self,
        file: &File,
        from: u64,
        size: u64,
        hasher: &mut Hasher,
        modified: FileTime,
    ) -> Result<Contents, Failure> {
        let mut at = from;
        while at < size {
            let len = (size - at).min(MOST_PIECE as u64) as usize;
            let mut memory = self.endpoint.memory(len)?;
            if let Err(error) = file.read_exact_at(&mut memory, at) {
                return Ok(Contents::Changed(short_or(&error)));
            }
            hasher.update(&memory);
            self.pace.keep(len as u64);
            self.hand_on(ToSend::Piece(memory))?;
            at += len as u64;
            self.tally.add_moved(len as u64);
        }
        Ok(match unchanged(file, size, modified) {
            Ok(()) => Contents::Whole(hasher.finalize()),
            Err(why) => Contents::Changed(why),
        })
    }

    /// Standard input, until it ends: nobody knows when.
    fn send_stream(&mut self, index: u64) -> Result<(), Failure> {
        self.say(&ToReceiver::Begin { index, from: 0 })?;
        self.flush()?;
        let (mut hasher, mut len) = (Hasher::new(), 0);
        let mut input = io::stdin().lock();
        loop {
            let mut memory = self.endpoint.memory(MOST_PIECE)?;
            let filled = match fill(&mut input, &mut memory) {
                Ok(filled) => filled,
                Err(error) => {
                    let why = format!("standard input cannot be read: {error}");
                    self.outcome.refuse("standard input", &why);
                    return self.say(&ToReceiver::Leave { index, why });
                }
            };
            if filled == 0 {
                break;
            }
            hasher.update(&memory[..filled]);
            len += filled as u64;
            self.pace.keep(filled as u64);
            let is_last = filled < memory.len();
            let whole = if is_last { Memory::from_bytes(&memory[..filled]) } else { memory };
            self.hand_on(ToSend::Piece(whole))?;
            self.tally.add_moved(filled as u64);
            if is_last {
                break;
            }
        }
        self.outcome.sent(len);
        self.say(&ToReceiver::End { index, len, hash: hasher.finalize().into() })
    }
}

/// Reads until the memory is full or the input has ended.
fn fill(input: &mut impl Read, memory: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < memory.len() {
        match input.read(&mut memory[filled..]) {
            Ok(0) => break,
            Ok(len) => filled += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// A pipe that took the place of a file since is not waited for, and what became a link
/// meanwhile is not followed.
fn open(found: &Found) -> io::Result<File> {
    let Some(real) = &found.real else { return Err(io::ErrorKind::NotFound.into()) };
    let follow = if found.is_named { 0 } else { libc::O_NOFOLLOW };
    OpenOptions::new().read(true).custom_flags(follow | libc::O_NONBLOCK).open(real)
}

/// Is it what was announced?
fn unchanged(file: &File, size: u64, announced: FileTime) -> Result<(), String> {
    let now = file.metadata().map_err(|error| error.to_string())?;
    if now.is_file() && now.len() == size && modified(&now) == announced {
        Ok(())
    } else {
        Err("it changed while it was being sent: send it again".into())
    }
}

fn short_or(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        "it became shorter while it was being sent: send it again".into()
    } else {
        error.to_string()
    }
}

/// Hashes the first bytes of a file.
pub(crate) fn hash_prefix(file: &File, len: u64, hasher: &mut Hasher) -> io::Result<()> {
    let mut buffer = vec![0; MOST_PIECE.min(usize::try_from(len).unwrap_or(MOST_PIECE))];
    let mut at = 0;
    while at < len {
        let piece = (len - at).min(buffer.len() as u64) as usize;
        file.read_exact_at(&mut buffer[..piece], at)?;
        hasher.update(&buffer[..piece]);
        at += piece as u64;
    }
    Ok(())
}
