//! A hostile sender, which knows the code: whatever it says, nothing leaves the folder,
//! nothing half-written has a name, and the receiver goes on or ends with a reason.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use landfall::stp::blocking::{Connection, Endpoint};
use landfall_seal::{Keys, Role, Secret};
use landfall_testkit::TemporaryFolder;

use super::admission::Limits;
use super::code::Code;
use super::folder::Folder;
use super::greet::{self, Greeted};
use super::meter::Tally;
use super::outcome::{Failure, Outcome};
use super::path::RelPath;
use super::pipe::{Frame, Inlet, Outlet, Unsealed};
use super::receive::converse;
use super::seals::{SUITE, Seals};
use super::send::{OpenConnection, greet_and_send};
use super::sink::Place;
use super::walk::Roots;
use super::ways::{self, Choice, Local};
use super::wire::{
    Answer, Entry, FileTime, Greeting, Kind, MOST_ANNOUNCED, MOST_ANSWERS, MOST_PIECE, Refusal,
    SERVICE, ToReceiver, ToSender, TransferMessages, VERSION,
};

mod bounds;
mod greeting;

/// Nothing of a test takes so long.
const IDLE: Duration = Duration::from_secs(240);

/// A folder within one that nobody may touch.
struct PrivateFolder(TemporaryFolder);

impl PrivateFolder {
    fn new(name: &str) -> Self {
        let folder = TemporaryFolder::new(name);
        fs::create_dir(folder.join("in")).unwrap();
        Self(folder)
    }

    fn inside(&self) -> PathBuf {
        self.0.join("in")
    }

    /// Every name in the folder; outside of it there is nothing.
    fn names(&self) -> Vec<String> {
        assert_eq!(fs::read_dir(self.0.path()).unwrap().count(), 1, "something is outside");
        let entries = fs::read_dir(self.inside()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn choice() -> Choice {
    let locals = vec![Local::Address([127, 0, 0, 1].into(), Some(0))];
    Choice { locals, patience: Duration::from_secs(10) }
}

fn code() -> Code {
    Code::given("a code of the tests").unwrap()
}

/// The receiver's part of a greeting.
fn greeted(endpoint: &Endpoint, connection: &Connection) -> anyhow::Result<Seals> {
    let port = ways::addresses_of(endpoint)[0].port();
    let connection = connection.as_async();
    endpoint.wait(async {
        match greet::as_receiver(connection, &code(), port, || true).await? {
            Greeted::Knows(proven) => proven.welcome(connection).await,
            Greeted::Wrong | Greeted::Later => anyhow::bail!("it knows the code"),
        }
    })
}

/// Runs a receiver of this folder against a sender that does as it likes.
fn against(
    yard: &PrivateFolder,
    hostile: impl FnOnce(&Endpoint, &Connection, Seals) + Send,
) -> (Outcome, Option<Failure>) {
    patiently_against(yard, IDLE, hostile)
}

/// The same, where the sender may be idle for so long.
fn patiently_against(
    yard: &PrivateFolder,
    idle: Duration,
    hostile: impl FnOnce(&Endpoint, &Connection, Seals) + Send,
) -> (Outcome, Option<Failure>) {
    let folder = Folder::open(&yard.inside(), false, false).unwrap();
    set_up_against((folder, Limits::default()), idle, hostile)
}

/// The same, with the receiver set up so.
fn set_up_against(
    (folder, limits): (Folder, Limits),
    idle: Duration,
    hostile: impl FnOnce(&Endpoint, &Connection, Seals) + Send,
) -> (Outcome, Option<Failure>) {
    let endpoint = ways::open_receiver(&choice()).unwrap();
    let listener = endpoint.listen(SERVICE).unwrap();
    let to = ways::addresses_of(&endpoint)[0];
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let endpoint = ways::open_sender(&choice(), to).unwrap();
            let connection = ways::connect(&endpoint, to).unwrap();
            let seals = greet::as_sender(&connection, &code(), to.port(), &mut 0).unwrap();
            hostile(&endpoint, &connection, seals);
            // Its last words are heard; then it is gone.
            let _ = connection.close();
        });
        let connection = listener.accept().unwrap();
        let seals = greeted(&endpoint, &connection).unwrap();
        let place = (Place::Folder(folder), limits, idle);
        let tally = std::sync::Arc::new(Tally::default());
        let (outcome, failure, _) = converse(&endpoint, &connection, seals, place, &tally).unwrap();
        (outcome, failure)
    })
}

/// Something to put in the outlet.
enum Put {
    Messages(TransferMessages),
    Piece(&'static [u8]),
}

/// Says these things, and hears the answers.
fn say(yard: &PrivateFolder, what: Vec<Put>) -> (Outcome, Option<Failure>) {
    against(yard, |endpoint, connection, seals| {
        // Who does not say that it has finished is not answered that all is in place.
        let finishes = matches!(what.last(), Some(Put::Messages(last)) if last.0.ends_with(&[8]));
        let (sealer, opening) = seals.split();
        let mut inlet = Inlet::open(endpoint, connection, opening, MOST_ANSWERS).unwrap();
        let mut outlet = Outlet::new(connection, sealer, IDLE);
        for put in what {
            // It may be cut off at any time.
            let _ = match put {
                Put::Messages(bundle) => outlet.bundle(bundle),
                Put::Piece(bytes) => outlet.piece(Unsealed::of(bytes)),
            };
        }
        let _ = outlet.drain();
        while finishes && let Ok(Frame::Messages(answers)) = inlet.next() {
            if ToSender::all(&answers).any(|answer| matches!(answer, Ok(ToSender::Finished { .. })))
            {
                break;
            }
        }
    })
}

fn bundle(messages: &[ToReceiver<'_>]) -> Put {
    let mut bundle = TransferMessages::default();
    messages.iter().for_each(|message| bundle.push_to_receiver(message));
    Put::Messages(bundle)
}

fn entry(index: u64, path: &str, kind: Kind) -> ToReceiver<'static> {
    let mode = if matches!(kind, Kind::Folder) { 0o755 } else { 0o644 };
    let modified = FileTime::default();
    let path = RelPath::parse(path.as_bytes());
    ToReceiver::Entry(Entry { index, kind, mode, modified, path })
}

fn file(index: u64, path: &str, size: u64) -> ToReceiver<'static> {
    entry(index, path, Kind::File { size })
}

fn link(index: u64, path: &str, target: &str) -> ToReceiver<'static> {
    entry(index, path, Kind::Link { target: target.into() })
}

/// A name that this program itself would not send.
fn named(index: u64, path: &str) -> Put {
    let honest = "x".repeat(path.len());
    let Put::Messages(mut bundle) = bundle(&[file(index, &honest, 0)]) else { unreachable!() };
    let at = bundle.0.windows(path.len()).position(|part| part == honest.as_bytes()).unwrap();
    bundle.0[at..at + path.len()].copy_from_slice(path.as_bytes());
    Put::Messages(bundle)
}

#[track_caller]
fn is_nonsense((outcome, failure): (Outcome, Option<Failure>)) {
    assert!(matches!(failure, Some(Failure::Nonsense(_))), "{failure:?}");
    assert_eq!(outcome.files, 0);
}

const NONE: [u8; 32] = [0; 32];

#[test]
fn names_that_leave_the_folder_are_refused_each_alone() {
    let yard = PrivateFolder::new("names");
    let bad = ["../x", "/landfall-x", "a/../../x", "..", ".", "a//x", "a/.landfall-x.part"];
    let mut what: Vec<Put> = (0..).zip(bad).map(|(index, path)| named(index, path)).collect();
    let index = bad.len() as u64;
    let hash = blake3::hash(b"fine").into();
    what.push(bundle(&[
        file(index, "fine", 4),
        ToReceiver::Small { index, hash, bytes: b"fine" },
        ToReceiver::Finish,
    ]));
    let (outcome, failure) = say(&yard, what);
    assert_eq!((outcome.refusals, outcome.files, failure), (index, 1, None));
    assert_eq!(yard.names(), ["fine"]);
}

#[test]
fn links_lead_nowhere_outside_and_are_not_followed() {
    let yard = PrivateFolder::new("links");
    // There before: anyone who made it, it is not followed.
    symlink("..", yard.inside().join("up")).unwrap();
    let hash = blake3::hash(b"x").into();
    let (outcome, failure) = say(
        &yard,
        vec![bundle(&[
            link(0, "absolute", "/etc"),
            link(1, "climbs", "../x"),
            link(2, "climbs-later", "up/../x"),
            entry(3, "folder", Kind::Folder),
            file(4, "folder/x", 1),
            link(5, "link", "folder"),
            file(6, "link/x", 1),
            entry(7, "up/folder", Kind::Folder),
            link(8, "up/link", "x"),
            file(9, "up/x", 1),
            ToReceiver::Small { index: 4, hash, bytes: b"x" },
            ToReceiver::Finish,
        ])],
    );
    assert_eq!((outcome.refusals, outcome.files, outcome.links), (7, 1, 1), "{outcome:?}");
    assert_eq!(failure, None);
    assert_eq!(yard.names(), ["folder", "link", "up"]);
    assert_eq!(fs::read(yard.inside().join("folder/x")).unwrap(), b"x");
}

#[test]
fn lengths_that_lie_end_the_session() {
    let yard = PrivateFolder::new("lengths");
    let small = |bytes| ToReceiver::Small { index: 0, hash: blake3::hash(bytes).into(), bytes };
    is_nonsense(say(&yard, vec![bundle(&[file(0, "x", 5), small(b"four")])]));
    let begin = ToReceiver::Begin { index: 0, from: 0 };
    is_nonsense(say(&yard, vec![bundle(&[file(0, "x", 3), begin.clone()]), Put::Piece(b"four")]));
    // An end before all came, and one that counts otherwise.
    for len in [4, 5] {
        let end = ToReceiver::End { index: 0, len, hash: blake3::hash(b"four").into() };
        let what =
            vec![bundle(&[file(0, "x", 5), begin.clone()]), Put::Piece(b"four"), bundle(&[end])];
        is_nonsense(say(&yard, what));
    }
    // From where nothing is.
    let middle = ToReceiver::Begin { index: 0, from: 3 };
    is_nonsense(say(&yard, vec![bundle(&[file(0, "x", 5), middle])]));
    // The length is as large as lengths are: nothing is reserved, nothing overflows.
    let what = vec![bundle(&[file(0, "x", u64::MAX), begin]), Put::Piece(b"four")];
    let (outcome, failure) = say(&yard, what);
    assert!(matches!(failure, Some(Failure::Ours(_))), "{failure:?}");
    assert_eq!(outcome.files, 0);
    let names = yard.names();
    assert!(names.iter().all(|name| name.starts_with(".landfall-")), "{names:?}");
}

#[test]
fn hashes_that_lie_leave_nothing() {
    let yard = PrivateFolder::new("hashes");
    let end = ToReceiver::End { index: 1, len: 4, hash: NONE };
    let (outcome, failure) = say(
        &yard,
        vec![
            bundle(&[
                file(0, "small", 4),
                entry(1, "stream", Kind::Stream),
                ToReceiver::Small { index: 0, hash: NONE, bytes: b"four" },
                ToReceiver::Begin { index: 1, from: 0 },
            ]),
            Put::Piece(b"four"),
            bundle(&[end, ToReceiver::Finish]),
        ],
    );
    assert_eq!((outcome.refusals, outcome.files, failure), (2, 0, None));
    assert_eq!(yard.names(), Vec::<String>::new());
}

#[test]
fn what_is_out_of_turn_ends_the_session() {
    let yard = PrivateFolder::new("turns");
    let begin = ToReceiver::Begin { index: 0, from: 0 };
    let cases: Vec<Vec<Put>> = vec![
        vec![Put::Piece(b"of nothing")],
        vec![bundle(std::slice::from_ref(&begin))],
        vec![bundle(&[file(1, "x", 0)])],
        vec![bundle(&[file(0, "x", 0), file(0, "y", 0)])],
        vec![bundle(&[file(0, "x", 9), begin.clone(), begin.clone()])],
        vec![bundle(&[file(0, "x", 9), begin, ToReceiver::Finish])],
        vec![bundle(&[file(0, "x", 9), ToReceiver::Finish])],
        vec![bundle(&[ToReceiver::Compare { index: 7, hash: NONE }])],
        vec![Put::Messages(TransferMessages(vec![0xee; 100]))],
        vec![bundle(
            &(0..=MOST_ANNOUNCED as u64).map(|n| file(n, &n.to_string(), 1)).collect::<Vec<_>>(),
        )],
    ];
    for case in cases {
        is_nonsense(say(&yard, case));
    }
    assert_eq!(yard.names(), Vec::<String>::new());
}

#[test]
fn what_is_not_sealed_with_the_code_ends_the_session() {
    let yard = PrivateFolder::new("seals");
    let ended = against(&yard, |_, connection, _| {
        let others = Keys::new(Secret::new(NONE), Role::Initiator, SUITE);
        let mut outlet = Outlet::new(connection, Seals::new(others).split().0, IDLE);
        let Put::Messages(bundle) = bundle(&[ToReceiver::Finish]) else { unreachable!() };
        let _ = outlet.bundle(bundle).and_then(|()| outlet.drain());
    });
    is_nonsense(ended);
}

/// It knows the code, its machine answers, and it says no more: in the middle of a file,
/// before the first word, and where it takes no answers.
#[test]
fn a_sender_that_does_not_go_on_holds_nobody_for_ever() {
    const SHORT: Duration = Duration::from_secs(1);
    let begin = ToReceiver::Begin { index: 0, from: 0 };
    let said = [bundle(&[file(0, "x", 8), begin]), bundle(&[])];
    for (nth, said) in said.into_iter().enumerate() {
        let yard = PrivateFolder::new(&format!("stalls-{nth}"));
        let Put::Messages(said) = said else { unreachable!() };
        let (outcome, failure) = patiently_against(&yard, SHORT, |endpoint, connection, seals| {
            let mut outlet = Outlet::new(connection, seals.split().0, IDLE);
            let _ = outlet.bundle(said).and_then(|()| outlet.drain());
            // Its machine goes on answering until it hears that the connection is over.
            let memory = endpoint.memory(MOST_ANSWERS).unwrap();
            let _ready = connection.receive(memory).wait_for(IDLE);
            let memory = endpoint.memory(MOST_ANSWERS).unwrap();
            let mut heard = connection.receive(memory).wait_for(IDLE);
            while let Ok(Ok(_answer)) = heard {
                let memory = endpoint.memory(MOST_ANSWERS).unwrap();
                heard = connection.receive(memory).wait_for(IDLE);
            }
            assert!(matches!(heard, Ok(Err(_))), "the receiver did not let go");
        });
        let Some(Failure::Lost(why)) = failure else { panic!("{failure:?}") };
        assert!(why.contains("does not go on"), "{why}");
        assert_eq!(outcome.files, 0);
    }
}

/// It sends and never makes room for an answer.
#[test]
fn a_sender_that_takes_no_answers_holds_nobody_for_ever() {
    const SHORT: Duration = Duration::from_secs(1);
    let yard = PrivateFolder::new("deaf");
    let (_, failure) = patiently_against(&yard, SHORT, |_, connection, seals| {
        let mut outlet = Outlet::new(connection, seals.split().0, IDLE);
        // One answer each, and more of them than may be under way.
        for index in 0..MOST_ANNOUNCED as u64 {
            let Put::Messages(more) = bundle(&[file(index, &index.to_string(), 1)]) else {
                unreachable!()
            };
            if outlet.bundle(more).and_then(|()| outlet.drain()).is_err() {
                return;
            }
        }
        panic!("the receiver goes on without being heard");
    });
    assert!(matches!(failure, Some(Failure::Lost(_))), "{failure:?}");
}

/// It knows the code, and what it says commands a terminal.
#[test]
fn what_a_receiver_says_is_safe_to_print() {
    let yard = PrivateFolder::new("terminal");
    let paths = ["early", "late"].map(|name| yard.inside().join(name));
    paths.iter().for_each(|path| fs::write(path, b"contents").unwrap());
    let why = "\x1b]0;owned\x07\u{9b}2J\u{202e}no".to_owned();
    let endpoint = ways::open_receiver(&choice()).unwrap();
    let listener = endpoint.listen(SERVICE).unwrap();
    let to = ways::addresses_of(&endpoint)[0];
    let session = std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            let endpoint = ways::open_sender(&choice(), to).unwrap();
            let (roots, tally) = (Roots::new(&paths, "stdin").unwrap(), Arc::default());
            let limits = (&roots, (None, IDLE));
            greet_and_send(&endpoint, &code(), to, limits, (&tally, &OpenConnection::default()))
        });
        let connection = listener.accept().unwrap();
        let seals = greeted(&endpoint, &connection).unwrap();
        let (sealer, opening) = seals.split();
        let mut inlet = Inlet::open(&endpoint, &connection, opening, MOST_PIECE).unwrap();
        let mut outlet = Outlet::new(&connection, sealer, IDLE);
        let mut say = |messages: &[ToSender]| {
            let mut bundle = TransferMessages::default();
            messages.iter().for_each(|message| bundle.push_to_sender(message));
            outlet.bundle(bundle).unwrap();
        };
        say(&[ToSender::Ready { ways: Vec::new() }]);
        let _announced = inlet.next().unwrap();
        say(&[
            ToSender::Answer { index: 0, answer: Answer::Refused { why: why.clone() } },
            ToSender::Answer { index: 1, answer: Answer::Want { have: 0, hash: NONE } },
        ]);
        let _contents = inlet.next().unwrap();
        say(&[
            // About what has come.
            ToSender::Answer { index: 1, answer: Answer::Refused { why } },
            ToSender::Finished { files: 0, bytes: 0 },
        ]);
        outlet.drain().unwrap();
        sender.join().unwrap().unwrap()
    });
    assert_eq!(session.failure, None);
    assert_eq!(session.outcome.refused.len(), 2);
    for refused in session.outcome.refused {
        assert_eq!(refused.why, "\\u{1b}]0;owned\\u{7}\\u{9b}2J\\u{202e}no");
    }
}
