//! The receiver's part of a session: answers what is announced, writes what comes, checks
//! its hash, and gives it its name.
//!
//! | thread | what it does |
//! | --- | --- |
//! | [`take`] | takes transfers in their order |
//! | [`Sink`] | answers, and writes |
//! | [`HashLine`] | hashes meanwhile |
//!
//! A sender that knows the code is still not trusted with more than the folder: whatever
//! it announces is checked, whatever it sends has to fit what it announced.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};

use blake3::{Hash, Hasher};
use landfall::stp::Message;

use super::folder::{Denied, Folder, Partial, Standing};
use super::hashing::HashLine;
use super::journal::Journal;
use super::meter::Tally;
use super::outcome::{Failure, Outcome};
use super::path::{RelPath, check_target, printable};
use super::pipe::{Broken, Frame, Inlet, Outlet};
use super::wire::{
    Answer, Bundle, Entry, FULL_ANSWERS, FileTime, Kind, MOST_ANNOUNCED, SMALL, ToReceiver,
    ToSender,
};

/// Takes transfers in their order until nobody wants them, or the connection ends.
pub(crate) fn take(mut inlet: Inlet, to: &SyncSender<Frame>) -> Result<(), Broken> {
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
    start: Option<(u64, Box<Hasher>)>,
}

/// The file whose pieces come now.
struct Open {
    index: u64,
    announced: Announced,
    came: u64,
    /// Nothing on standard output, and where writing it has failed: the rest is passed over.
    partial: Option<Partial>,
    failed: Option<String>,
}

/// A folder, until all that is in it is there.
struct Unfinished {
    path: RelPath,
    mode: u16,
    modified: FileTime,
}

/// More folders than this do not get their times, rather than fill the memory.
const MOST_FOLDERS: usize = 1 << 20;
/// While so much of what is there is hashed, the sender waits for answers before it.
const LONG: u64 = 4 << 20;

/// See the module.
pub(crate) struct Sink {
    place: Place,
    outlet: Outlet,
    hashing: HashLine,
    tally: Arc<Tally>,
    answers: Bundle,
    announced: HashMap<u64, Announced>,
    next: u64,
    open: Option<Open>,
    folders: Vec<Unfinished>,
    outcome: Outcome,
}

impl Sink {
    pub(crate) fn new(
        place: Place,
        outlet: Outlet,
        tally: &Arc<Tally>,
        ready: &ToSender,
    ) -> io::Result<Self> {
        let mut answers = Bundle::default();
        answers.push_to_sender(ready);
        Ok(Self {
            place,
            outlet,
            hashing: HashLine::start()?,
            tally: Arc::clone(tally),
            answers,
            announced: HashMap::new(),
            next: 0,
            open: None,
            folders: Vec::new(),
            outcome: Outcome::default(),
        })
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
                Frame::Piece(piece) => self.piece(piece)?,
                Frame::Bundle(bundle) => {
                    for message in ToReceiver::all(&bundle) {
                        if self.hear(message?)? {
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

    /// Gives whether that was the last word.
    fn hear(&mut self, message: ToReceiver<'_>) -> Result<bool, Failure> {
        match message {
            ToReceiver::Plan { files, bytes } => {
                self.tally.total_files.store(files, Ordering::Relaxed);
                self.tally.total_bytes.store(bytes, Ordering::Relaxed);
            }
            ToReceiver::Entry(entry) => self.announce(entry)?,
            ToReceiver::Small { index, hash, bytes } => self.small(index, hash, bytes)?,
            ToReceiver::Begin { index, from } => self.begin(index, from)?,
            ToReceiver::End { index, len, hash } => self.end(index, len, hash)?,
            ToReceiver::Same { index } => {
                let there = self.due(index)?.size.unwrap_or(0);
                self.outcome.same += 1;
                self.outcome.bytes_there += there;
                self.tally.bytes.fetch_add(there, Ordering::Relaxed);
                self.tally.files.fetch_add(1, Ordering::Relaxed);
            }
            ToReceiver::Leave { index, why } => self.leave(index, &printable(&why))?,
            ToReceiver::Finish => {
                self.finish()?;
                return Ok(true);
            }
            ToReceiver::Abort { why } => return Err(Failure::Theirs(printable(&why))),
        }
        Ok(false)
    }

    fn announce(&mut self, entry: Entry) -> Result<(), Failure> {
        let index = entry.index;
        if index != self.next || self.announced.len() >= MOST_ANNOUNCED {
            return Err(Failure::nonsense("an announcement that is out of turn"));
        }
        self.next += 1;
        let path = match &entry.path {
            Ok(path) => path.clone(),
            Err(why) => return self.refuse(index, "a name", why.to_string()),
        };
        match self.look(entry, path.clone()) {
            Ok(answer) => self.answer(index, answer),
            Err(Denied::Entry(why)) => self.refuse(index, &path.to_string(), why),
            Err(Denied::Fatal(why)) => Err(Failure::Ours(why)),
        }
    }

    fn look(&mut self, entry: Entry, path: RelPath) -> Result<Answer, Denied> {
        let Entry { index, kind, mode, modified, .. } = entry;
        let nothing = Answer::Want { have: 0, hash: Hasher::new().finalize().into() };
        let mut announced = Announced { path, size: None, mode, modified, start: None };
        if let Kind::File { size } = kind {
            announced.size = Some(size);
        }
        let path = &announced.path;
        let folder = match &mut self.place {
            Place::Folder(folder) => folder,
            Place::Output { is_used } => {
                let is_file = matches!(kind, Kind::File { .. } | Kind::Stream);
                if !is_file || std::mem::replace(is_used, true) {
                    return Err(Denied::entry("the receiver writes one file to its output"));
                }
                self.announced.insert(index, announced);
                return Ok(nothing);
            }
        };
        let answer = match kind {
            Kind::Folder => {
                folder.make_folder(path, mode)?;
                self.outcome.folders += 1;
                if self.folders.len() < MOST_FOLDERS {
                    self.folders.push(Unfinished { path: path.clone(), mode, modified });
                }
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
                match folder.look(path, size, modified)? {
                    Standing::Nothing => nothing,
                    Standing::SameLength(hash) => {
                        Answer::There { hash: hash.into(), may_replace: folder.may_replace() }
                    }
                    Standing::Start { have, hasher } => {
                        let hash = hasher.finalize().into();
                        announced.start = Some((have, hasher));
                        Answer::Want { have, hash }
                    }
                }
            }
        };
        self.announced.insert(index, announced);
        Ok(answer)
    }

    /// What was announced by that number, if its turn may be now.
    fn due(&mut self, index: u64) -> Result<Announced, Failure> {
        let between = self.open.is_none();
        let announced = self.announced.remove(&index).filter(|_| between);
        announced.ok_or_else(|| Failure::nonsense("contents that were not announced"))
    }

    fn small(&mut self, index: u64, hash: [u8; 32], bytes: &[u8]) -> Result<(), Failure> {
        let announced = self.due(index)?;
        let len = bytes.len() as u64;
        if announced.size != Some(len) {
            return Err(Failure::nonsense("contents of another length than was announced"));
        }
        self.tally.files.fetch_add(1, Ordering::Relaxed);
        self.tally.add_moved(len);
        let path = announced.path.to_string();
        if blake3::hash(bytes) != Hash::from_bytes(hash) {
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
                let mut partial = folder.begin(&announced.path, None, 0)?;
                partial.write(bytes)?;
                folder.commit(partial, announced.mode, Some(announced.modified))
            }
            Place::Output { .. } => print(bytes).and_then(|()| flush_output()),
        }
    }

    fn begin(&mut self, index: u64, from: u64) -> Result<(), Failure> {
        let mut announced = self.due(index)?;
        self.tally.say(announced.path.to_string());
        let start = announced.start.take();
        let hasher = match start {
            _ if from == 0 => Box::new(Hasher::new()),
            Some((have, hasher)) if have == from => hasher,
            _ => return Err(Failure::nonsense("a start that was not offered")),
        };
        self.hashing.begin(hasher);
        let opened = match &mut self.place {
            Place::Output { .. } => Ok(None),
            Place::Folder(folder) => {
                let journal = announced.size.filter(|size| *size > SMALL).map(|size| Journal {
                    path: announced.path.clone(),
                    size,
                    modified: announced.modified,
                });
                folder.begin(&announced.path, journal.as_ref(), from).map(Some)
            }
        };
        let (partial, failed) = match opened {
            Ok(partial) => (partial, None),
            Err(Denied::Entry(why)) => (None, Some(why)),
            Err(Denied::Fatal(why)) => return Err(self.stopped(why)),
        };
        if from > 0 {
            self.outcome.resumed += 1;
            self.outcome.bytes_there += from;
            self.tally.bytes.fetch_add(from, Ordering::Relaxed);
        }
        self.open = Some(Open { index, announced, came: from, partial, failed });
        Ok(())
    }

    fn piece(&mut self, piece: Message) -> Result<(), Failure> {
        let len = piece.len() as u64;
        let Some(open) = &mut self.open else {
            return Err(Failure::nonsense("contents of nothing"));
        };
        let room = open.announced.size.map_or(u64::MAX, |size| size - open.came);
        if len == 0 || len > room {
            return Err(Failure::nonsense("more contents than were announced"));
        }
        open.came += len;
        self.tally.add_moved(len);
        let piece = Arc::new(piece);
        self.hashing.piece(Arc::clone(&piece));
        let written = match (&mut open.partial, &self.place) {
            (Some(partial), _) => partial.write(&piece),
            (None, Place::Output { .. }) => print(&piece),
            (None, Place::Folder(_)) => Ok(()),
        };
        match written {
            Ok(()) => Ok(()),
            // With a file that is too large nothing is gained by taking the rest of it.
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
        if self.hashing.finish() != Some(Hash::from_bytes(hash)) {
            if let Some(partial) = open.partial {
                partial.discard();
            }
            return self.refuse(index, &path, DAMAGED.into());
        }
        let Announced { mode, modified, size, .. } = open.announced;
        let done = match (open.partial, &self.place) {
            (Some(partial), Place::Folder(folder)) => {
                folder.commit(partial, mode, size.map(|_| modified))
            }
            _ => flush_output(),
        };
        match done {
            Ok(()) => {
                self.outcome.sent(len);
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
        self.tally.files.fetch_add(1, Ordering::Relaxed);
        self.outcome.refuse(&announced.path.to_string(), why);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Failure> {
        if self.open.is_some() || !self.announced.is_empty() {
            return Err(Failure::nonsense("an end before all was dealt with"));
        }
        // What is within a folder changes its time: the innermost first.
        while let Some(Unfinished { path, mode, modified }) = self.folders.pop() {
            let Place::Folder(folder) = &mut self.place else { break };
            match folder.finish_folder(&path, mode, modified) {
                Ok(()) => {}
                Err(Denied::Entry(why)) => self.outcome.refuse(&path.to_string(), &why),
                Err(Denied::Fatal(why)) => return Err(Failure::Ours(why)),
            }
        }
        self.outcome.links_used = self.outlet.links();
        let (files, bytes) = (self.outcome.files, self.outcome.bytes_moved);
        self.answers.push_to_sender(&ToSender::Finished { files, bytes });
        self.flush()?;
        Ok(self.outlet.drain()?)
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

fn print(bytes: &[u8]) -> Result<(), Denied> {
    io::stdout().lock().write_all(bytes).map_err(|error| output_denied(&error))
}

fn flush_output() -> Result<(), Denied> {
    io::stdout().lock().flush().map_err(|error| output_denied(&error))
}

fn output_denied(error: &io::Error) -> Denied {
    Denied::Fatal(format!("the receiver's standard output: {error}"))
}
