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
//! how far ahead is bounded. Where a name is taken, the source shows the hash of its file and
//! goes on; what the receiver says of it is heard later. Contents are hashed right after they were read, while they
//! are in the cache, and before their memory is lent to be sent.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::time::Duration;

use landfall::stp::blocking::Endpoint;

use super::Presence;
use super::contents::{Chain, ContentHasher};
use super::extents::{Extent, Extents, hash_prefix};
use super::meter::Tally;
use super::options::Pace;
use super::outcome::{Failure, Outcome};
use super::pipe::{Frame, Inlet, MOST_CONTENTS, Outlet, Unsealed};
use super::walk::{Found, Roots, Walk, modified};
use super::wire::{
    Answer, Entry, FULL_BUNDLE, Kind, MOST_ANNOUNCED, SMALL, ToReceiver, ToSender, TransferMessages,
};

/// What the source hands on.
pub(crate) enum ToSend {
    Messages(TransferMessages),
    Piece(Unsealed),
}

/// Sends what is handed on, in order, until there is no more.
pub(crate) fn pump(mut outlet: Outlet, from: &Receiver<ToSend>) -> Result<(), Failure> {
    while let Ok(next) = from.recv() {
        match next {
            ToSend::Messages(bundle) => outlet.bundle(bundle)?,
            ToSend::Piece(piece) => outlet.piece(piece)?,
        }
    }
    Ok(outlet.drain()?)
}

/// Takes what the receiver says, until it says the last word.
pub(crate) fn hear(mut inlet: Inlet, to: &SyncSender<ToSender>) -> Result<(), Failure> {
    loop {
        let Frame::Messages(bundle) = inlet.next()? else {
            return Err(Failure::nonsense("a receiver sends no contents"));
        };
        for message in ToSender::all(&bundle) {
            let message = message?;
            if let ToSender::Abort { why } = message {
                return Err(Failure::Theirs(why));
            }
            let is_last = matches!(message, ToSender::Finished { .. });
            if to.send(message).is_err() || is_last {
                return Ok(());
            }
        }
    }
}

/// The sender's thread that walks the tree, announces it, and reads and hashes contents.
pub(crate) struct Source {
    endpoint: Endpoint,
    to: SyncSender<ToSend>,
    answers: Receiver<ToSender>,
    tally: Arc<Tally>,
    outcome: Outcome,
    pace: Pace,
    /// An answer is waited for so long at most, and nothing is read for who is gone.
    idle: Duration,
    presence: Presence,
    bundle: TransferMessages,
    walk: Option<Walk>,
    announced: VecDeque<(u64, Found)>,
    next: u64,
    /// Files whose hash was shown, for their names are taken.
    compared: BTreeMap<u64, Found>,
    /// Those of them that differ, and shall be sent.
    replacing: VecDeque<(u64, Found)>,
    /// Files that were sent, and might not have arrived whole.
    unconfirmed: u64,
}

/// How the contents of a file were read.
enum Contents {
    /// With their hash, and how much of them was no hole.
    Whole(blake3::Hash, u64),
    /// It is not what was announced any more.
    Changed(String),
}

impl Source {
    pub(crate) fn new(
        endpoint: &Endpoint,
        (to, answers): (SyncSender<ToSend>, Receiver<ToSender>),
        tally: &Arc<Tally>,
        pace: Pace,
        (idle, presence): (Duration, Presence),
    ) -> Self {
        Self {
            endpoint: endpoint.clone(),
            to,
            answers,
            tally: Arc::clone(tally),
            outcome: Outcome::default(),
            pace,
            idle,
            presence,
            bundle: TransferMessages::default(),
            walk: None,
            announced: VecDeque::new(),
            next: 0,
            compared: BTreeMap::new(),
            replacing: VecDeque::new(),
            unconfirmed: 0,
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
            if let Some((index, found)) = self.replacing.pop_front() {
                self.send_file(index, &found, (0, None))?;
            } else if let Some((index, found)) = self.announced.pop_front() {
                let answer = self.answer_to(index)?;
                self.serve(index, found, answer)?;
            } else if self.compared.is_empty() {
                break;
            } else {
                let message = self.hear()?;
                self.note(message)?;
            }
        }
        self.say(&ToReceiver::Finish)?;
        self.flush()?;
        loop {
            match self.hear()? {
                ToSender::Finished { .. } => return Ok(self.outcome),
                // The last files may have arrived damaged.
                message => self.note(message)?,
            }
        }
    }

    /// The first entry that is not dealt with.
    fn oldest(&self) -> u64 {
        let announced = self.announced.front().map(|(index, _)| *index);
        let compared = self.compared.first_key_value().map(|(index, _)| *index);
        let replacing = self.replacing.iter().map(|(index, _)| *index);
        replacing.chain(announced).chain(compared).min().unwrap_or(self.next)
    }

    fn announce(&mut self) -> Result<(), Failure> {
        let until = self.oldest() + MOST_ANNOUNCED as u64;
        while self.next < until {
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
        if bundle.is_empty() { Ok(()) } else { self.hand_on(ToSend::Messages(bundle)) }
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
                message => self.note(message)?,
            }
        }
    }

    /// What the receiver says about something before.
    fn note(&mut self, message: ToSender) -> Result<(), Failure> {
        let nobody_asked = || Failure::nonsense("an answer that nobody asked for");
        let ToSender::Answer { index, answer } = message else { return Err(nobody_asked()) };
        match answer {
            // Something sent before did not arrive whole.
            Answer::Refused { why } if index < self.next => {
                self.unconfirmed = self.unconfirmed.checked_sub(1).ok_or_else(nobody_asked)?;
                self.outcome.refuse(&format!("entry {index}"), &why);
            }
            Answer::Same => {
                let found = self.compared.remove(&index).ok_or_else(nobody_asked)?;
                let size = found.size();
                self.outcome.same += 1;
                self.outcome.bytes_there = self.outcome.bytes_there.saturating_add(size);
                self.tally.bytes.fetch_add(size, std::sync::atomic::Ordering::Relaxed);
            }
            Answer::Other { may_replace } => {
                let found = self.compared.remove(&index).ok_or_else(nobody_asked)?;
                if may_replace {
                    self.replacing.push_back((index, found));
                } else {
                    let why = "another file of that name is there: `landfall receive \
                               --overwrite` would replace it";
                    self.outcome.refuse(&found.path.to_string(), why);
                }
            }
            _ => return Err(nobody_asked()),
        }
        Ok(())
    }

    fn serve(&mut self, index: u64, found: Found, answer: Answer) -> Result<(), Failure> {
        let name = found.path.to_string();
        if matches!(found.kind, Kind::File { .. } | Kind::Stream) {
            self.tally.files.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        match (answer, &found.kind) {
            (Answer::Refused { why }, _) => self.outcome.refuse(&name, &why),
            (Answer::Made, Kind::Folder) => self.outcome.folders += 1,
            (Answer::Made, Kind::Link { .. }) => self.outcome.links += 1,
            (Answer::There, Kind::File { .. }) => self.compare(index, found)?,
            (Answer::Want { have, hash }, Kind::File { size }) if have <= *size => {
                self.tally.say(name);
                let start = Some(blake3::Hash::from_bytes(hash));
                self.send_file(index, &found, (have, start))?;
            }
            (Answer::Want { have: 0, .. }, Kind::Stream) => {
                self.tally.say("standard input".into());
                self.send_stream(index)?;
            }
            _ => return Err(Failure::nonsense("an answer that does not fit what was asked")),
        }
        Ok(())
    }

    fn leave(&mut self, index: u64, found: &Found, why: String) -> Result<(), Failure> {
        self.outcome.refuse(&found.path.to_string(), &why);
        self.say(&ToReceiver::Leave { index, why })
    }

    /// The name of a file is taken: is it by the same one?
    fn compare(&mut self, index: u64, found: Found) -> Result<(), Failure> {
        self.tally.say(format!("comparing {}", found.path));
        let mut hasher = ContentHasher::new();
        let read = open(&found).map_err(|error| error.to_string()).and_then(|file| {
            hash_prefix(&file, found.size(), &mut hasher, &self.presence)
                .map_err(|error| short_or(&error))?;
            unchanged(&file, &found)
        });
        match read {
            Ok(()) => {
                self.compared.insert(index, found);
                let hash = hasher.finalize().into();
                self.say(&ToReceiver::Compare { index, hash })
            }
            Err(why) => self.leave(index, &found, why),
        }
    }

    /// Sends a file, if the receiver has so much of it, with this hash.
    fn send_file(
        &mut self,
        index: u64,
        found: &Found,
        (have, start): (u64, Option<blake3::Hash>),
    ) -> Result<(), Failure> {
        let size = found.size();
        let file = match open(found) {
            Ok(file) => file,
            Err(error) => return self.leave(index, found, error.to_string()),
        };
        if let Err(why) = unchanged(&file, found) {
            return self.leave(index, found, why);
        }
        if size <= SMALL && have == 0 {
            return self.send_small(index, found, &file);
        }
        let mut chain = Chain::new();
        let mut from = 0;
        if have > 0 {
            let mut hasher = ContentHasher::new();
            self.tally.say(format!("checking what is there of {}", found.path));
            let hashed = hash_prefix(&file, have, &mut hasher, &self.presence);
            let prefix = hasher.finalize();
            let is_same = hashed.is_ok() && Some(prefix) == start;
            self.tally.say(found.path.to_string());
            if is_same {
                chain = Chain::behind(&prefix);
                from = have;
                self.outcome.resumed += 1;
                self.outcome.bytes_there = self.outcome.bytes_there.saturating_add(have);
                self.tally.bytes.fetch_add(have, std::sync::atomic::Ordering::Relaxed);
            }
        }
        if let Some(bytes) = contents_of(&file).filter(|bytes| *bytes < size) {
            self.say(&ToReceiver::Sparse { index, bytes })?;
        }
        self.say(&ToReceiver::Begin { index, from })?;
        self.flush()?;
        match self.send_extents((index, found), &file, from, &mut chain)? {
            Contents::Whole(hash, moved) => {
                self.outcome.sent(moved);
                self.unconfirmed += 1;
                self.say(&ToReceiver::End { index, len: size, hash: hash.into() })
            }
            Contents::Changed(why) => self.leave(index, found, why),
        }
    }

    fn send_small(&mut self, index: u64, found: &Found, file: &File) -> Result<(), Failure> {
        let size = found.size();
        let mut bytes = vec![0; size as usize];
        let read = file.read_exact_at(&mut bytes, 0).map_err(|error| short_or(&error));
        if let Err(why) = read.and_then(|()| unchanged(file, found)) {
            return self.leave(index, found, why);
        }
        self.pace.keep(size);
        let hash = ContentHasher::hash(&bytes).into();
        self.say(&ToReceiver::Small { index, hash, bytes: &bytes })?;
        self.outcome.sent(size);
        self.unconfirmed += 1;
        self.tally.add_moved(size);
        Ok(())
    }

    fn send_extents(
        &mut self,
        (index, found): (u64, &Found),
        file: &File,
        from: u64,
        chain: &mut Chain,
    ) -> Result<Contents, Failure> {
        let mut moved = 0;
        for extent in Extents::new(file, from, found.size()) {
            let Extent { at, len, is_hole } = match extent {
                Ok(extent) => extent,
                Err(error) => return Ok(Contents::Changed(short_or(&error))),
            };
            if is_hole {
                chain.hole(len);
                self.tally.bytes.fetch_add(len, std::sync::atomic::Ordering::Relaxed);
                self.say(&ToReceiver::Hole { index, len })?;
                // Pieces do not wait for the messages before them.
                self.flush()?;
            } else if let Err(why) = self.send_pieces(file, at, len, chain)? {
                return Ok(Contents::Changed(why));
            } else {
                moved += len;
            }
        }
        Ok(match unchanged(file, found) {
            Ok(()) => Contents::Whole(chain.finalize(), moved),
            Err(why) => Contents::Changed(why),
        })
    }

    fn send_pieces(
        &mut self,
        file: &File,
        from: u64,
        len: u64,
        chain: &mut Chain,
    ) -> Result<Result<(), String>, Failure> {
        let (mut at, end) = (from, from + len);
        while at < end {
            let len = (end - at).min(MOST_CONTENTS as u64) as usize;
            let mut memory = Unsealed::memory(&self.endpoint, len)?;
            if let Err(error) = file.read_exact_at(&mut memory[..len], at) {
                return Ok(Err(short_or(&error)));
            }
            let piece = Unsealed::new(memory);
            chain.piece(piece.digest());
            self.pace.keep(len as u64);
            self.hand_on(ToSend::Piece(piece))?;
            at += len as u64;
            self.tally.add_moved(len as u64);
        }
        Ok(Ok(()))
    }

    /// Standard input, until it ends: nobody knows when.
    fn send_stream(&mut self, index: u64) -> Result<(), Failure> {
        self.say(&ToReceiver::Begin { index, from: 0 })?;
        self.flush()?;
        let (mut chain, mut len) = (Chain::new(), 0);
        let mut input = io::stdin().lock();
        loop {
            let mut memory = Unsealed::memory(&self.endpoint, MOST_CONTENTS)?;
            let filled = match fill(&mut input, &mut memory[..MOST_CONTENTS]) {
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
            let is_last = filled < MOST_CONTENTS;
            let piece =
                if is_last { Unsealed::of(&memory[..filled]) } else { Unsealed::new(memory) };
            chain.piece(piece.digest());
            len += filled as u64;
            self.pace.keep(filled as u64);
            self.hand_on(ToSend::Piece(piece))?;
            self.tally.add_moved(filled as u64);
            if is_last {
                break;
            }
        }
        self.outcome.sent(len);
        self.unconfirmed += 1;
        self.say(&ToReceiver::End { index, len, hash: chain.finalize().into() })
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
fn unchanged(file: &File, found: &Found) -> Result<(), String> {
    let now = file.metadata().map_err(|error| error.to_string())?;
    if now.is_file() && now.len() == found.size() && modified(&now) == found.modified {
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

/// How many bytes its file system has for it: of one with holes fewer than it is long.
fn contents_of(file: &File) -> Option<u64> {
    Some(file.metadata().ok()?.blocks().saturating_mul(512))
}
