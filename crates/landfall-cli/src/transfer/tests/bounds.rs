//! What a hostile sender makes the receiver reserve, remember, hash and tell: no more than it
//! is worth. And a hostile receiver the sender.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::sync::Arc;

use landfall_testbed::{privileges, skip_unless};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;
use crate::transfer::contents::{Chain, ContentHasher};
use crate::transfer::extents::hash_prefix;
use crate::transfer::{Presence, send};

/// How a receiver is set up, and what a sender says to it.
struct Case {
    may_replace: bool,
    limits: Limits,
}

const USUAL: Case = Case {
    may_replace: false,
    limits: Limits { bytes: u64::MAX, entries: crate::transfer::admission::USUAL_ENTRIES },
};

/// What came of it.
struct SessionRecord {
    answers: Vec<(u64, Answer)>,
    outcome: Outcome,
    failure: Option<Failure>,
}

impl SessionRecord {
    fn answer(&self, wanted: u64) -> &Answer {
        &self.answers.iter().find(|(index, _)| *index == wanted).expect("it is answered").1
    }

    /// Why an entry is refused.
    #[track_caller]
    fn refusal(&self, index: u64) -> &str {
        let Answer::Refused { why } = self.answer(index) else {
            panic!("{:?}", self.answer(index))
        };
        why
    }

    #[track_caller]
    fn is_nonsense(&self) {
        assert!(matches!(self.failure, Some(Failure::Nonsense(_))), "{:?}", self.failure);
    }

    #[track_caller]
    fn is_ours(&self, text: &str) {
        let Some(Failure::Ours(why)) = &self.failure else { panic!("{:?}", self.failure) };
        assert!(why.contains(text), "{why}");
    }
}

/// Says these things, each after the one before was dealt with, and hears all answers.
fn hear(yard: &PrivateFolder, case: &Case, what: Vec<Put>) -> SessionRecord {
    let folder = Folder::open(&yard.inside(), case.may_replace, false).unwrap();
    let mut answers = Vec::new();
    let heard = &mut answers;
    let (outcome, failure) =
        set_up_against((folder, case.limits), IDLE, |endpoint, connection, seals| {
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
            while let Ok(Frame::Messages(bundle)) = inlet.next() {
                for message in ToSender::all(&bundle) {
                    match message.unwrap() {
                        ToSender::Answer { index, answer } => heard.push((index, answer)),
                        ToSender::Finished { .. } | ToSender::Abort { .. } => return,
                        ToSender::Ready { .. } => {}
                    }
                }
            }
        });
    SessionRecord { answers, outcome, failure }
}

fn small(index: u64, bytes: &[u8]) -> ToReceiver<'_> {
    ToReceiver::Small { index, hash: blake3::hash(bytes).into(), bytes }
}

const ENOUGH: fn() -> ToReceiver<'static> = || ToReceiver::Abort { why: "enough".into() };

const BEGIN: ToReceiver<'static> = ToReceiver::Begin { index: 0, from: 0 };

/// All that lies in the folder takes so much of the disk.
fn taken(yard: &PrivateFolder) -> u64 {
    let entries = fs::read_dir(yard.inside()).unwrap();
    entries.map(|entry| entry.unwrap().metadata().unwrap().blocks() * 512).sum()
}

#[test]
fn what_is_only_announced_reserves_nothing() {
    let yard = PrivateFolder::new("reserves");
    let what =
        vec![bundle(&[file(0, "x", 300 << 20), BEGIN]), Put::Piece(b"four"), bundle(&[ENOUGH()])];
    let heard = hear(&yard, &USUAL, what);
    assert_eq!(heard.failure, Some(Failure::Theirs("enough".into())));
    assert_eq!(yard.names().len(), 2, "it is kept for resuming");
    assert!(taken(&yard) < 1 << 20, "{} are taken", taken(&yard));
}

#[test]
fn a_file_without_room_is_refused_before_it_comes() {
    let yard = PrivateFolder::new("room");
    const LARGE: u64 = 1 << 61;
    let heard = hear(&yard, &USUAL, vec![bundle(&[file(0, "x", LARGE), BEGIN])]);
    heard.is_ours("the receiver's disk is full: ");
    hear(&yard, &USUAL, vec![bundle(&[file(0, "x", u64::MAX), BEGIN])]).is_ours("larger than");
    assert_eq!(yard.names(), Vec::<String>::new());
    // Holes need no room.
    let sparse = ToReceiver::Sparse { index: 0, bytes: 4 };
    let what = vec![
        bundle(&[file(0, "x", LARGE), sparse, BEGIN]),
        Put::Piece(b"four"),
        bundle(&[ENOUGH()]),
    ];
    assert_eq!(hear(&yard, &USUAL, what).failure, Some(Failure::Theirs("enough".into())));
}

#[test]
fn a_name_that_is_announced_again_is_refused_and_told() {
    let yard = PrivateFolder::new("again");
    let what = vec![bundle(&[
        entry(0, "d", Kind::Folder),
        entry(1, "d", Kind::Folder),
        file(2, "d/x", 1),
        file(3, "d/x", 1),
        file(4, "d", 1),
        file(5, "e", 1),
        file(6, "d/y", 1),
        small(2, b"x"),
        small(5, b"x"),
        ToReceiver::Finish,
    ])];
    let heard = hear(&yard, &USUAL, what);
    assert_eq!((heard.failure.as_ref(), heard.outcome.refusals), (None, 4));
    for again in [1, 3, 4, 6] {
        assert!(heard.refusal(again).contains("announced before"), "{}", heard.refusal(again));
    }
    assert_eq!(yard.names(), ["d", "e"]);
}

/// Folders are answered at once, and their names would be kept until the end.
#[test]
fn no_more_folders_wait_than_entries_may_be_under_way() {
    let yard = PrivateFolder::new("folders");
    let mut entries = vec![file(0, "first", 1)];
    let folder = |nth| entry(nth, &format!("{nth:08}"), Kind::Folder);
    entries.extend((1..MOST_ANNOUNCED as u64).map(folder));
    let mut within = entries.clone();
    within.extend([small(0, b"x"), ToReceiver::Finish]);
    let heard = hear(&yard, &USUAL, vec![bundle(&within)]);
    assert_eq!((heard.failure, heard.outcome.folders), (None, MOST_ANNOUNCED as u64 - 1));
    let yard = PrivateFolder::new("more-folders");
    entries.push(folder(MOST_ANNOUNCED as u64));
    hear(&yard, &USUAL, vec![bundle(&entries)]).is_nonsense();
}

#[test]
fn a_folder_is_finished_as_soon_as_all_that_is_in_it_is_there() {
    let yard = PrivateFolder::new("finished");
    let seconds = 1_000_000_000;
    let modified = FileTime { seconds, nanos: 0 };
    let folder = |index, path: &str| {
        let (path, kind, mode) = (RelPath::parse(path.as_bytes()), Kind::Folder, 0o500);
        ToReceiver::Entry(Entry { index, kind, mode, modified, path })
    };
    let what = vec![bundle(&[
        folder(0, "a"),
        file(1, "a/x", 1),
        folder(2, "b"),
        file(3, "b/x", 1),
        small(1, b"x"),
        ENOUGH(),
    ])];
    hear(&yard, &USUAL, what);
    let stat = |name: &str| fs::metadata(yard.inside().join(name)).unwrap();
    assert_eq!((stat("a").mtime(), stat("a").mode() & 0o7777), (seconds, 0o500));
    assert_eq!(stat("b").mode() & 0o7777, 0o700, "there is more to come into it");
}

#[test]
fn of_what_is_there_nothing_is_told_but_whether_it_is_the_same() {
    let yard = PrivateFolder::new("told");
    for (name, mode) in [("a", 0o600), ("b", 0o644), ("c", 0o400)] {
        let path = yard.inside().join(name);
        fs::write(&path, b"secret").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    let hash: [u8; 32] = blake3::hash(b"secret").into();
    let compare = |index, hash| ToReceiver::Compare { index, hash };
    let what = vec![bundle(&[
        // Of the same length, and of others.
        file(0, "a", 6),
        file(1, "b", 7),
        file(2, "c", 1 << 40),
        compare(0, hash),
        compare(1, hash),
        compare(2, NONE),
        ToReceiver::Finish,
    ])];
    let heard = hear(&yard, &USUAL, what);
    let of = |wanted: u64| -> Vec<&Answer> {
        heard
            .answers
            .iter()
            .filter(|(index, _)| *index == wanted)
            .map(|(_, answer)| answer)
            .collect()
    };
    let other = Answer::Other { may_replace: false };
    assert_eq!(of(0), [&Answer::There, &Answer::Same]);
    assert_eq!(of(1), [&Answer::There, &other]);
    assert_eq!(of(2), [&Answer::There, &other]);
    assert_eq!((heard.failure, heard.outcome.same, heard.outcome.refusals), (None, 1, 2));
}

#[test]
fn files_of_others_that_not_everybody_may_read_are_not_compared() {
    skip_unless!((!privileges::is_root()).then(|| "needs root".to_owned()));
    let yard = PrivateFolder::new("others");
    let path = yard.inside().join("x");
    fs::write(&path, b"secret").unwrap();
    chown(&path, Some(65_534), Some(65_534)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    for size in [6, 7] {
        let what = vec![bundle(&[file(0, "x", size), ToReceiver::Finish])];
        let heard = hear(&yard, &USUAL, what);
        assert!(heard.refusal(0).contains("--overwrite"), "{}", heard.refusal(0));
    }
    // One that may be replaced is, whatever is in it.
    let case = Case { may_replace: true, ..USUAL };
    let said = [file(0, "x", 6), small(0, b"theirs"), ToReceiver::Finish];
    assert_eq!(hear(&yard, &case, vec![bundle(&said)]).outcome.files, 1);
    assert_eq!(fs::read(&path).unwrap(), b"theirs");
    assert_eq!(fs::metadata(&path).unwrap().uid(), 0);
}

#[test]
fn a_taken_name_is_compared_before_anything_is_sent() {
    let yard = PrivateFolder::new("compared");
    fs::write(yard.inside().join("x"), b"there").unwrap();
    let wrong = ToReceiver::Compare { index: 0, hash: NONE };
    let there = || file(0, "x", 5);
    for case in [USUAL, Case { may_replace: true, ..USUAL }] {
        hear(&yard, &case, vec![bundle(&[there(), small(0, b"other")])]).is_nonsense();
        hear(&yard, &case, vec![bundle(&[there(), BEGIN])]).is_nonsense();
        hear(&yard, &case, vec![bundle(&[there(), wrong.clone(), wrong.clone()])]).is_nonsense();
        let unasked = [file(0, "new", 5), wrong.clone()];
        hear(&yard, &case, vec![bundle(&unasked)]).is_nonsense();
        assert_eq!(fs::read(yard.inside().join("x")).unwrap(), b"there");
    }
    let said = [there(), wrong, small(0, b"other"), ToReceiver::Finish];
    hear(&yard, &USUAL, vec![bundle(&said)]).is_nonsense();
    let heard = hear(&yard, &Case { may_replace: true, ..USUAL }, vec![bundle(&said)]);
    assert_eq!((heard.failure, heard.outcome.files), (None, 1));
    assert_eq!(fs::read(yard.inside().join("x")).unwrap(), b"other");
}

#[test]
fn hashing_ends_with_the_session() {
    let yard = PrivateFolder::new("hashing");
    let path = yard.inside().join("x");
    fs::write(&path, vec![7; 3 << 20]).unwrap();
    let file = File::open(&path).unwrap();
    against(&yard, |_, connection, _| {
        let presence = Presence::of(connection);
        let mut hasher = ContentHasher::new();
        hash_prefix(&file, 3 << 20, &mut hasher, &presence).unwrap();
        connection.abort();
        let _ = connection.closed();
        assert!(presence.is_over());
        hash_prefix(&file, 3 << 20, &mut ContentHasher::new(), &presence).unwrap_err();
    });
}

#[test]
fn holes_that_do_not_fit_what_was_announced_end_the_session() {
    let yard = PrivateFolder::new("holes");
    let hole = |index, len| ToReceiver::Hole { index, len };
    let cases = [
        vec![file(0, "x", 100_000), hole(0, 5)],
        vec![file(0, "x", 100_000), BEGIN, hole(0, 0)],
        vec![file(0, "x", 100_000), BEGIN, hole(0, 100_001)],
        vec![file(0, "x", 100_000), BEGIN, hole(0, 60_000), hole(0, u64::MAX)],
        vec![file(0, "x", 100_000), file(1, "y", 100_000), BEGIN, hole(1, 5)],
        vec![entry(0, "x", Kind::Stream), BEGIN, hole(0, 5)],
        vec![entry(0, "x", Kind::Stream), ToReceiver::Sparse { index: 0, bytes: 0 }],
        vec![ToReceiver::Sparse { index: 0, bytes: 0 }],
    ];
    for case in cases {
        hear(&yard, &USUAL, vec![bundle(&case)]).is_nonsense();
        for name in yard.names() {
            fs::remove_file(yard.inside().join(name)).unwrap();
        }
    }
}

/// Written or hashed byte by byte it would take hours.
#[test]
fn a_hole_of_a_terabyte_costs_nothing() {
    let yard = PrivateFolder::new("terabyte");
    let size = 1 << 40;
    let mut hasher = ContentHasher::new();
    hasher.zeros(size);
    let mut chain = Chain::new();
    chain.hole(size);
    let end = ToReceiver::End { index: 0, len: size, hash: chain.finalize().into() };
    let said = [
        file(0, "x", size),
        ToReceiver::Sparse { index: 0, bytes: 0 },
        BEGIN,
        ToReceiver::Hole { index: 0, len: size },
        end,
        ToReceiver::Finish,
    ];
    let heard = hear(&yard, &USUAL, vec![bundle(&said)]);
    if let Some(Failure::Ours(why)) = &heard.failure {
        assert!(why.contains("larger than"), "{why}");
        return;
    }
    assert_eq!((heard.failure, heard.outcome.files, heard.outcome.bytes_moved), (None, 1, 0));
    let there = fs::metadata(yard.inside().join("x")).unwrap();
    assert_eq!(there.len(), size);
    assert!(there.blocks() * 512 < 1 << 20);
    // And to find that it is the same.
    let compare = ToReceiver::Compare { index: 0, hash: hasher.finalize().into() };
    let said = [file(0, "x", size), compare, ToReceiver::Finish];
    assert_eq!(hear(&yard, &USUAL, vec![bundle(&said)]).outcome.same, 1);
}

#[test]
fn what_comes_behind_the_end_ends_the_session() {
    let yard = PrivateFolder::new("behind");
    let said = [ToReceiver::Finish, file(0, "x", 0)];
    hear(&yard, &USUAL, vec![bundle(&said)]).is_nonsense();
}

#[test]
fn times_that_no_calendar_has_do_not_keep_files_from_arriving() {
    let yard = PrivateFolder::new("times");
    let mut said = Vec::new();
    for (nth, seconds) in (0..).zip([i64::MIN, -1, i64::MAX, 1 << 40]) {
        let modified = FileTime { seconds, nanos: 999_999_999 };
        for (index, kind) in [(2 * nth, Kind::Folder), (2 * nth + 1, Kind::File { size: 1 })] {
            let path = RelPath::parse(format!("{index}").as_bytes());
            said.push(ToReceiver::Entry(Entry { index, kind, mode: 0o755, modified, path }));
        }
        said.push(small(2 * nth + 1, b"x"));
    }
    said.push(ToReceiver::Finish);
    let heard = hear(&yard, &USUAL, vec![bundle(&said)]);
    assert_eq!((heard.failure, heard.outcome.refusals, heard.outcome.files), (None, 0, 4));
    assert_eq!(yard.names().len(), 8);
}

/// A pipe where the partial file or its journal belongs is not opened, and not in the way.
#[test]
fn pipes_in_the_way_of_partial_files_do_no_harm() {
    let yard = PrivateFolder::new("pipes");
    let stem = format!(".landfall-{}", &blake3::hash(b"x").to_hex()[..24]);
    for end in ["part", "journal"] {
        let path = yard.inside().join(format!("{stem}.{end}"));
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    }
    let bytes: &[u8] = &[7; 70_000];
    let mut chain = Chain::new();
    chain.piece(&blake3::hash(bytes));
    let hash = chain.finalize().into();
    let what = vec![
        bundle(&[file(0, "x", 70_000), BEGIN]),
        Put::Piece(&[7; 70_000]),
        bundle(&[ToReceiver::End { index: 0, len: 70_000, hash }, ToReceiver::Finish]),
    ];
    let heard = hear(&yard, &USUAL, what);
    assert_eq!((heard.failure, heard.outcome.refusals, heard.outcome.files), (None, 0, 1));
    assert_eq!(fs::read(yard.inside().join("x")).unwrap(), bytes);
}

/// The partial file may be one that another name leads to as well: nothing is written there.
#[test]
fn a_partial_file_with_another_name_is_not_resumed() {
    let yard = PrivateFolder::new("hard");
    assert_eq!(offered(&yard), 0);
    assert_eq!(offered(&yard), 5);
    let part = yard.names().into_iter().find(|name| name.ends_with(".part")).unwrap();
    let part = yard.inside().join(part);
    fs::hard_link(&part, yard.inside().join("precious")).unwrap();
    assert_eq!(offered(&yard), 0);
    assert_eq!(fs::read(yard.inside().join("precious")).unwrap(), b"start");
    fs::remove_file(yard.inside().join("precious")).unwrap();
    assert_eq!(offered(&yard), 5);
    // Nor one that others could have written to.
    fs::set_permissions(&part, Permissions::from_mode(0o666)).unwrap();
    assert_eq!(offered(&yard), 0);
}

/// Announces a file, sends the start of it, and says of how much of it the receiver had.
fn offered(yard: &PrivateFolder) -> u64 {
    let mut offered = None;
    against(yard, |endpoint, connection, seals| {
        let (sealer, opening) = seals.split();
        let mut inlet = Inlet::open(endpoint, connection, opening, MOST_ANSWERS).unwrap();
        let mut outlet = Outlet::new(connection, sealer, IDLE);
        let Put::Messages(announced) = bundle(&[file(0, "x", 70_000)]) else { unreachable!() };
        outlet.bundle(announced).unwrap();
        while offered.is_none() {
            let Frame::Messages(answers) = inlet.next().unwrap() else { panic!("contents") };
            for message in ToSender::all(&answers) {
                if let Ok(ToSender::Answer { answer: Answer::Want { have, .. }, .. }) = message {
                    offered = Some(have);
                }
            }
        }
        let Put::Messages(begin) = bundle(&[BEGIN]) else { unreachable!() };
        outlet.bundle(begin).unwrap();
        outlet.piece(Unsealed::of(b"start")).unwrap();
        let Put::Messages(enough) = bundle(&[ENOUGH()]) else { unreachable!() };
        let _ = outlet.bundle(enough).and_then(|()| outlet.drain());
    });
    offered.unwrap()
}

#[test]
fn more_entries_and_bytes_than_allowed_are_told() {
    let yard = PrivateFolder::new("limits");
    let case = Case { limits: Limits { bytes: 10, entries: 3 }, ..USUAL };
    let said = [file(0, "a", 8), file(1, "b", 3), file(2, "c", 2), file(3, "d", 0)];
    let heard = hear(&yard, &case, vec![bundle(&said)]);
    heard.is_ours("--max-entries");
    let said = [
        file(0, "a", 8),
        file(1, "b", 3),
        ToReceiver::Leave { index: 0, why: "it went away".into() },
        file(2, "c", 10),
        small(2, b"0123456789"),
        ToReceiver::Finish,
    ];
    let heard = hear(&yard, &case, vec![bundle(&said)]);
    assert!(heard.refusal(1).contains("--max-size"), "{}", heard.refusal(1));
    assert_eq!((heard.failure, heard.outcome.files), (None, 1));
}

/// A sender of one file against a receiver that does as it likes.
fn sending(hostile: impl FnOnce(&mut Outlet) + Send) -> (Outcome, Option<Failure>) {
    let yard = PrivateFolder::new("sending");
    let path = yard.inside().join("x");
    let file = File::create(&path).unwrap();
    file.write_all_at(b"contents", 0).unwrap();
    let roots = Roots::new(&[path], "stdin").unwrap();
    let endpoint = ways::open_receiver(&choice()).unwrap();
    let listener = endpoint.listen(SERVICE).unwrap();
    let to = ways::addresses_of(&endpoint)[0];
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let connection = listener.accept().unwrap();
            let seals = greeted(&endpoint, &connection).unwrap();
            let (sealer, opening) = seals.split();
            let _inlet = Inlet::open(&endpoint, &connection, opening, 1 << 20);
            let mut outlet = Outlet::new(&connection, sealer, IDLE);
            hostile(&mut outlet);
            let _ = outlet.drain();
            let _ = connection.closed();
        });
        let endpoint = ways::open_sender(&choice(), to).unwrap();
        let connection = ways::connect(&endpoint, to).unwrap();
        let seals = greet::as_sender(&connection, &code(), to.port(), &mut 0).unwrap();
        let limits = (None, IDLE);
        let tally = Arc::new(Tally::default());
        let session =
            send::converse(&endpoint, connection, seals, to, (roots, (1, 8), limits), &tally);
        let session = session.unwrap();
        (session.outcome, session.failure)
    })
}

#[test]
fn a_receiver_that_answers_what_nobody_asked_ends_the_session() {
    let answers = |answers: &[Answer]| {
        let (mut ready, mut bundle) = (TransferMessages::default(), TransferMessages::default());
        ready.push_to_sender(&ToSender::Ready { ways: Vec::new() });
        for answer in answers {
            bundle.push_to_sender(&ToSender::Answer { index: 0, answer: answer.clone() });
        }
        sending(|outlet| drop(outlet.bundle(ready).and_then(|()| outlet.bundle(bundle))))
    };
    let want = Answer::Want { have: 0, hash: NONE };
    let refused = Answer::Refused { why: "damaged".into() };
    let other = Answer::Other { may_replace: true };
    let cases = [
        // It refuses one file again and again.
        vec![want.clone(), refused.clone(), refused.clone()],
        vec![want.clone(), Answer::Same],
        vec![Answer::There, Answer::Same, Answer::Same],
        vec![Answer::There, Answer::There],
        vec![Answer::There, other.clone(), other],
        vec![Answer::Made],
        vec![Answer::Want { have: 9, hash: NONE }],
    ];
    for case in cases {
        let (_, failure) = answers(&case);
        assert!(matches!(failure, Some(Failure::Nonsense(_))), "{case:?}: {failure:?}");
    }
}
