//! The receiver's part of a session: answers what is announced, writes what comes, checks
//! its hash, and gives it its name.
//!
//! | thread | what it does |
//! | --- | --- |
//! | `Taking` | takes transfers |
//! | [`check`] | opens them, and puts them in order |
//! | [`Sink`] | answers, and writes |
//!
//! A sender that knows the code is still not trusted with more than the folder: whatever
//! it announces is checked, whatever it sends has to fit what it announced. Nor is it told
//! of what lies in the folder: that a name is taken, and whether it has the same contents.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};

use blake3::Hash;

use super::Presence;
use super::admission::{Folders, Limits, Order, Unfinished};
use super::contents::{Chain, ContentHasher};
use super::folder::{Denied, ExistingFile, Folder, Partial, TAKEN};
use super::journal::Journal;
use super::meter::Tally;
use super::outcome::{Failure, Outcome};
use super::path::{RelPath, check_target};
use super::pipe::{Broken, Frame, Inlet, Outlet, Piece};
use super::receive::{flush_output, print, print_zeros};
use super::wire::{
    Answer, Entry, FULL_ANSWERS, FileTime, Kind, MOST_ANNOUNCED, SMALL, ToReceiver, ToSender,
    TransferMessages,
};

/// Takes what is sealed in its order until nobody wants it, or the connection ends.
pub(crate) fn check(mut inlet: Inlet, to: &SyncSender<Frame>) -> Result<(), Broken> {
    loop {
        let frame = inlet.next()?;
        if to.send(frame).is_err() {
            return Ok(());
        }
    }
}

/// Where contents go.
pub(crate) enum Place {
    Folder(Folder),
    /// Standard output: one file.
    Output {
        is_used: bool,
    },
}

/// A file or stream that was announced, and whose turn has not come.
struct Announced {
    path: RelPath,
    /// Nothing where nobody knows.
    size: Option<u64>,
    mode: u16,
    modified: FileTime,
    start: Option<(u64, Hash)>,
    /// How much of it is no hole, where the sender has told.
    contents: Option<u64>,
    next: Next,
}

/// What the sender may do about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Send,
    /// Show its hash, for the name is taken.
    Compare,
}

/// The file whose pieces come now.
struct Open {
    index: u64,
    announced: Announced,
    came: u64,
    /// What of it crossed the network.
    moved: u64,
    chain: Chain,
    /// Nothing on standard output, and where writing it has failed: the rest is passed over.
    partial: Option<Partial>,
    failed: Option<String>,
}

/// While so much of what is there is hashed, the sender waits for answers before it.
const LONG: u64 = 4 << 20;

/// The receiver's thread that answers announcements, writes contents and names files.
pub(crate) struct Sink {
    place: Place,
    outlet: Outlet,
    tally: Arc<Tally>,
    answers: TransferMessages,
    presence: Presence,
    limits: Limits,
    /// Bytes that were announced or came, and count.
    admitted: u64,
    order: Order,
    announced: BTreeMap<u64, Announced>,
    next: u64,
    open: Option<Open>,
    folders: Folders,
    outcome: Outcome,
}

impl Sink {
    pub(crate) fn new(
        (place, limits): (Place, Limits),
        outlet: Outlet,
        tally: &Arc<Tally>,
        ready: &ToSender,
    ) -> Self {
        let mut answers = TransferMessages::default();
        answers.push_to_sender(ready);
        Self {
            place,
            presence: outlet.presence(),
            outlet,
            limits,
            admitted: 0,
            order: Order::default(),
            tally: Arc::clone(tally),
            answers,
            announced: BTreeMap::new(),
            next: 0,
            open: None,
            folders: Folders::default(),
            outcome: Outcome::default(),
        }
    }

    /// Deals with everything until the sender has finished. The outcome says what is in
    /// place in any case.
    pub(crate) fn run(mut self, frames: &Receiver<Frame>) -> (Outcome, Result<(), Failure>) {
        let result = self.deal(frames);
        if let Err(Failure::Ours(why)) = &result {
            self.answers.push_to_sender(&ToSender::Abort { why: why.clone() });
            // Best effort: the sender may be gone as well.
            let _ = self.flush().and_then(|()| Ok(self.outlet.drain()?));
        }
        (self.outcome, result)
    }

    fn deal(&mut self, frames: &Receiver<Frame>) -> Result<(), Failure> {
        loop {
            let frame = match frames.try_recv() {
                Ok(frame) => frame,
                Err(TryRecvError::Disconnected) => return Err(Failure::Elsewhere),
                Err(TryRecvError::Empty) => {
                    self.flush()?;
                    // Everything was dealt with and answered: it is the sender's turn.
                    let idle = self.outlet.idle();
                    Failure::of_waiting(frames.recv_timeout(idle), idle)?
                }
            };
            match frame {
                Frame::Piece(piece) => self.piece(&piece)?,
                Frame::Messages(bundle) => {
                    let mut messages = ToReceiver::all(&bundle);
                    while let Some(message) = messages.next() {
                        let message = message?;
                        let is_last = matches!(message, ToReceiver::Finish);
                        if is_last && messages.next().is_some() {
                            return Err(Failure::nonsense("something behind the end"));
                        }
                        self.hear(message)?;
                        if is_last {
                            return Ok(());
                        }
                    }
                }
            }
        }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let bundle = std::mem::take(&mut self.answers);
        if bundle.is_empty() { Ok(()) } else { Ok(self.outlet.bundle(bundle)?) }
    }

    fn answer(&mut self, index: u64, answer: Answer) -> Result<(), Failure> {
        self.answers.push_to_sender(&ToSender::Answer { index, answer });
        if self.answers.len() >= FULL_ANSWERS { self.flush() } else { Ok(()) }
    }

    fn refuse(&mut self, index: u64, path: &str, why: String) -> Result<(), Failure> {
        self.outcome.refuse(path, &why);
        self.answer(index, Answer::Refused { why })
    }

    fn hear(&mut self, message: ToReceiver<'_>) -> Result<(), Failure> {
        match message {
            ToReceiver::Plan { files, bytes } => {
                self.tally.total_files.store(files, Ordering::Relaxed);
                self.tally.total_bytes.store(bytes, Ordering::Relaxed);
            }
            ToReceiver::Entry(entry) => self.announce(entry)?,
            ToReceiver::Small { index, hash, bytes } => self.small(index, hash, bytes)?,
            ToReceiver::Sparse { index, bytes } => {
                let announced = self.announced.get_mut(&index);
                let announced = announced.filter(|announced| announced.size.is_some());
                announced.ok_or_else(|| Failure::nonsense(NOT_ANNOUNCED))?.contents = Some(bytes);
            }
            ToReceiver::Begin { index, from } => self.begin(index, from)?,
            ToReceiver::Hole { index, len } => self.hole(index, len)?,
            ToReceiver::End { index, len, hash } => self.end(index, len, hash)?,
            ToReceiver::Compare { index, hash } => self.compare(index, hash)?,
            ToReceiver::Leave { index, why } => self.leave(index, &why)?,
            ToReceiver::Finish => self.finish()?,
            ToReceiver::Abort { why } => return Err(Failure::Theirs(why)),
        }
        self.complete_folders()
    }

    /// The first entry that is not dealt with.
    fn oldest(&self) -> u64 {
        let open = self.open.as_ref().map(|open| open.index);
        let announced = self.announced.first_key_value().map(|(index, _)| *index);
        open.into_iter().chain(announced).min().unwrap_or(self.next)
    }

    fn complete_folders(&mut self) -> Result<(), Failure> {
        let oldest = self.oldest();
        while let Some(complete) = self.folders.complete(oldest) {
            let Place::Folder(folder) = &mut self.place else { return Ok(()) };
            let Unfinished { path, mode, modified, made } = complete;
            match folder.finish_folder(&path, (mode, modified), made) {
                Ok(()) => {}
                Err(Denied::Entry(why)) => self.outcome.refuse(&path.to_string(), &why),
                Err(Denied::Fatal(why)) => return Err(Failure::Ours(why)),
            }
        }
        Ok(())
    }

    fn announce(&mut self, entry: Entry) -> Result<(), Failure> {
        let index = entry.index;
        if index != self.next || index - self.oldest() >= MOST_ANNOUNCED as u64 {
            return Err(Failure::nonsense("an announcement that is out of turn"));
        }
        self.limits.admit_entry(index).map_err(Failure::Ours)?;
        self.next += 1;
        let path = match &entry.path {
            Ok(path) => path.clone(),
            Err(why) => return self.refuse(index, "a name", why.to_string()),
        };
        if let Err(why) = self.order.admit(&path) {
            return self.refuse(index, &path.to_string(), why.to_string());
        }
        self.folders.announce(index, &path);
        match self.look(entry, path.clone()) {
            Ok(answer) => self.answer(index, answer),
            Err(Denied::Entry(why)) => self.refuse(index, &path.to_string(), why),
            Err(Denied::Fatal(why)) => Err(Failure::Ours(why)),
        }
    }

    fn look(&mut self, entry: Entry, path: RelPath) -> Result<Answer, Denied> {
        let Entry { index, kind, mode, modified, .. } = entry;
        let nothing = Answer::Want { have: 0, hash: ContentHasher::hash(&[]).into() };
        let (start, contents, next) = (None, None, Next::Send);
        let mut announced = Announced { path, size: None, mode, modified, start, contents, next };
        if let Kind::File { size } = kind {
            announced.size = Some(size);
        }
        let admitted = self.limits.admit(self.admitted, announced.size.unwrap_or(0));
        let admitted = admitted.map_err(Denied::Entry)?;
        let path = &announced.path;
        let folder = match &mut self.place {
            Place::Folder(folder) => folder,
            Place::Output { is_used } => {
                let is_file = matches!(kind, Kind::File { .. } | Kind::Stream);
                if !is_file || std::mem::replace(is_used, true) {
                    return Err(Denied::entry("the receiver writes one file to its output"));
                }
                self.admitted = admitted;
                self.announced.insert(index, announced);
                return Ok(nothing);
            }
        };
        let answer = match kind {
            Kind::Folder => {
                let made = folder.make_folder(path, mode)?;
                self.outcome.folders += 1;
                self.folders.enter(Unfinished { path: announced.path, mode, modified, made });
                return Ok(Answer::Made);
            }
            Kind::Link { target } => {
                check_target(path, &target).map_err(|why| Denied::entry(why.to_string()))?;
                folder.make_link(path, &target, modified)?;
                self.outcome.links += 1;
                return Ok(Answer::Made);
            }
            Kind::Stream => {
                folder.check_free(path)?;
                nothing
            }
            Kind::File { size } => {
                if size >= LONG {
                    self.tally.say(format!("checking what is there of {path}"));
                }
                match folder.look(path, (size, modified), &self.presence)? {
                    ExistingFile::Nothing => nothing,
                    ExistingFile::Taken => {
                        announced.next = Next::Compare;
                        Answer::There
                    }
                    ExistingFile::Start { have, hash } => {
                        announced.start = Some((have, hash));
                        Answer::Want { have, hash: hash.into() }
                    }
                }
            }
        };
        self.admitted = admitted;
        self.announced.insert(index, announced);
        Ok(answer)
    }

    /// What was announced by that number, if its turn may be now.
    fn due(&mut self, index: u64) -> Result<Announced, Failure> {
        let between = self.open.is_none();
        let announced = self.announced.remove(&index).filter(|_| between);
        announced.ok_or_else(|| Failure::nonsense(NOT_ANNOUNCED))
    }

    /// The same, if its contents may come.
    fn wanted(&mut self, index: u64) -> Result<Announced, Failure> {
        let announced = self.due(index)?;
        if announced.next == Next::Send {
            Ok(announced)
        } else {
            Err(Failure::nonsense("contents for a name that is taken"))
        }
    }

    /// The sender shows what the contents hash to whose name is taken.
    fn compare(&mut self, index: u64, hash: [u8; 32]) -> Result<(), Failure> {
        let mut announced = self.due(index)?;
        let (Next::Compare, Some(size), Place::Folder(folder)) =
            (announced.next, announced.size, &mut self.place)
        else {
            return Err(Failure::nonsense("a hash that nobody asked for"));
        };
        if size >= LONG {
            self.tally.say(format!("comparing {}", announced.path));
        }
        let (may_replace, wanted) = (folder.may_replace(), (size, Hash::from_bytes(hash)));
        let is_same = match folder.is_same(&announced.path, wanted, &self.presence) {
            Ok(is_same) => is_same,
            Err(Denied::Entry(_)) => false,
            Err(Denied::Fatal(why)) => return Err(Failure::Ours(why)),
        };
        if self.presence.is_over() {
            return Err(Failure::Elsewhere);
        }
        if is_same {
            self.give_back(size);
            self.outcome.same += 1;
            self.outcome.bytes_there = self.outcome.bytes_there.saturating_add(size);
            self.tally.bytes.fetch_add(size, Ordering::Relaxed);
            self.tally.files.fetch_add(1, Ordering::Relaxed);
            return self.answer(index, Answer::Same);
        }
        if may_replace {
            announced.next = Next::Send;
            self.announced.insert(index, announced);
        } else {
            self.give_back(size);
            self.tally.files.fetch_add(1, Ordering::Relaxed);
            self.outcome.refuse(&announced.path.to_string(), TAKEN);
        }
        self.answer(index, Answer::Other { may_replace })
    }

    /// So much of what was announced does not come.
    const fn give_back(&mut self, bytes: u64) {
        self.admitted = self.admitted.saturating_sub(bytes);
    }

    fn small(&mut self, index: u64, hash: [u8; 32], bytes: &[u8]) -> Result<(), Failure> {
        let announced = self.wanted(index)?;
        let len = bytes.len() as u64;
        if announced.size != Some(len) {
            return Err(Failure::nonsense("contents of another length than was announced"));
        }
        self.tally.files.fetch_add(1, Ordering::Relaxed);
        self.tally.add_moved(len);
        let path = announced.path.to_string();
        if ContentHasher::hash(bytes) != Hash::from_bytes(hash) {
            return self.refuse(index, &path, DAMAGED.into());
        }
        match self.write_small(&announced, bytes) {
            Ok(()) => {
                self.outcome.sent(len);
                Ok(())
            }
            Err(Denied::Entry(why)) => self.refuse(index, &path, why),
            Err(Denied::Fatal(why)) => Err(Failure::Ours(why)),
        }
    }

    fn write_small(&mut self, announced: &Announced, bytes: &[u8]) -> Result<(), Denied> {
        match &mut self.place {
            Place::Folder(folder) => {
                let mut partial = folder.begin(&announced.path, None, (0, None))?;
                partial.write(bytes)?;
                folder.commit(partial, announced.mode, Some(announced.modified))
            }
            Place::Output { .. } => print(bytes).and_then(|()| flush_output()),
        }
    }

    fn begin(&mut self, index: u64, from: u64) -> Result<(), Failure> {
        let mut announced = self.wanted(index)?;
        self.tally.say(announced.path.to_string());
        let start = announced.start.take();
        let chain = match start {
            _ if from == 0 => Chain::new(),
            Some((have, hash)) if have == from => Chain::behind(&hash),
            _ => return Err(Failure::nonsense("a start that was not offered")),
        };
        let opened = match &mut self.place {
            Place::Output { .. } => Ok(None),
            Place::Folder(folder) => {
                let journal = announced.size.filter(|size| *size > SMALL).map(|size| Journal {
                    path: announced.path.clone(),
                    size,
                    modified: announced.modified,
                });
                let begin = (from, announced.contents);
                folder.begin(&announced.path, journal.as_ref(), begin).map(Some)
            }
        };
        let (partial, failed) = match opened {
            Ok(partial) => (partial, None),
            Err(Denied::Entry(why)) => (None, Some(why)),
            Err(Denied::Fatal(why)) => return Err(self.stopped(why)),
        };
        if from > 0 {
            self.outcome.resumed += 1;
            self.outcome.bytes_there = self.outcome.bytes_there.saturating_add(from);
            self.tally.bytes.fetch_add(from, Ordering::Relaxed);
        }
        self.open = Some(Open { index, announced, came: from, moved: 0, chain, partial, failed });
        Ok(())
    }

    fn piece(&mut self, piece: &Piece) -> Result<(), Failure> {
        let len = piece.len() as u64;
        self.comes(None, len)?;
        self.tally.add_moved(len);
        let Some(open) = &mut self.open else { return Ok(()) };
        open.moved += len;
        open.chain.piece(piece.digest());
        let written = match (&mut open.partial, &self.place) {
            (Some(partial), _) => partial.write(piece),
            (None, Place::Output { .. }) => print(piece),
            (None, Place::Folder(_)) => Ok(()),
        };
        match written {
            Ok(()) => Ok(()),
            // With a file that is too large nothing is gained by taking the rest of it.
            Err(Denied::Entry(why) | Denied::Fatal(why)) => Err(self.stopped(why)),
        }
    }

    /// So much of the file that is open comes next: of that one, where a number is given.
    fn comes(&mut self, index: Option<u64>, len: u64) -> Result<(), Failure> {
        let is_meant = |open: &&mut Open| index.is_none_or(|index| index == open.index);
        let Some(open) = self.open.as_mut().filter(is_meant) else {
            return Err(Failure::nonsense("contents of nothing"));
        };
        let room = open.announced.size.map_or(u64::MAX, |size| size - open.came);
        if len == 0 || len > room {
            return Err(Failure::nonsense("more contents than were announced"));
        }
        if open.announced.size.is_none() {
            // Of what nobody knew the length of, nothing is kept.
            self.admitted = self.limits.admit(self.admitted, len).map_err(Failure::Ours)?;
        }
        open.came += len;
        Ok(())
    }

    fn hole(&mut self, index: u64, len: u64) -> Result<(), Failure> {
        self.comes(Some(index), len)?;
        let Some(open) = self.open.as_mut().filter(|open| open.announced.size.is_some()) else {
            return Err(Failure::nonsense("a hole in a stream"));
        };
        let written = match (&mut open.partial, &self.place) {
            (Some(partial), _) => partial.skip(len),
            (None, Place::Output { .. }) => print_zeros(len, &self.presence),
            (None, Place::Folder(_)) => Ok(()),
        };
        open.chain.hole(len);
        self.tally.bytes.fetch_add(len, Ordering::Relaxed);
        match written {
            Ok(()) => Ok(()),
            Err(Denied::Entry(why) | Denied::Fatal(why)) => Err(self.stopped(why)),
        }
    }

    fn end(&mut self, index: u64, len: u64, hash: [u8; 32]) -> Result<(), Failure> {
        let open = self.open.take().filter(|open| open.index == index && open.came == len);
        let Some(open) = open else {
            return Err(Failure::nonsense("an end that does not fit what came"));
        };
        if open.announced.size.is_some_and(|size| size != len) {
            return Err(Failure::nonsense("an end before all came"));
        }
        let path = open.announced.path.to_string();
        self.tally.files.fetch_add(1, Ordering::Relaxed);
        if let Some(why) = open.failed {
            return self.refuse(index, &path, why);
        }
        if open.chain.finalize() != Hash::from_bytes(hash) {
            if let Some(partial) = open.partial {
                partial.discard();
            }
            return self.refuse(index, &path, DAMAGED.into());
        }
        let moved = open.moved;
        let Announced { mode, modified, size, .. } = open.announced;
        let done = match (open.partial, &self.place) {
            (Some(partial), Place::Folder(folder)) => {
                folder.commit(partial, mode, size.map(|_| modified))
            }
            _ => flush_output(),
        };
        match done {
            Ok(()) => {
                self.outcome.sent(moved);
                Ok(())
            }
            Err(Denied::Entry(why)) => self.refuse(index, &path, why),
            Err(Denied::Fatal(why)) => Err(Failure::Ours(why)),
        }
    }

    /// The sender does not send something after all, or not the rest of it.
    fn leave(&mut self, index: u64, why: &str) -> Result<(), Failure> {
        let announced = match self.open.take() {
            Some(open) if open.index == index => {
                if let Some(partial) = open.partial {
                    partial.discard();
                }
                open.announced
            }
            None => self.due(index)?,
            Some(_) => return Err(Failure::nonsense("an end of something else")),
        };
        self.give_back(announced.size.unwrap_or(0));
        self.tally.files.fetch_add(1, Ordering::Relaxed);
        self.outcome.refuse(&announced.path.to_string(), why);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Failure> {
        if self.open.is_some() || !self.announced.is_empty() {
            return Err(Failure::nonsense("an end before all was dealt with"));
        }
        self.folders.leave_all(self.next);
        self.complete_folders()?;
        self.outcome.links_used = self.outlet.links();
        let (files, bytes) = (self.outcome.files, self.outcome.bytes_moved);
        self.answers.push_to_sender(&ToSender::Finished { files, bytes });
        self.flush()?;
        match self.outlet.drain() {
            // The sender closes once it has heard the last word, which may have been sent twice.
            Err(Broken::Lost(error)) if error.is_graceful_close() => Ok(()),
            drained => Ok(drained?),
        }
    }

    /// Nothing more can be written: says what is left of the file that was open.
    fn stopped(&self, why: String) -> Failure {
        let kept = self.open.as_ref().and_then(|open| {
            let partial = open.partial.as_ref().filter(|partial| partial.can_resume())?;
            let (path, len) = (&open.announced.path, crate::style::bytes(partial.len()));
            Some(format!(
                "; {len} of {path} are kept: make room there and send again, and only the rest is \
                 sent"
            ))
        });
        Failure::Ours(why + kept.as_deref().unwrap_or_default())
    }
}

const DAMAGED: &str = "it did not arrive as it was sent (BLAKE3 differs): send it again";

const NOT_ANNOUNCED: &str = "contents that were not announced";
