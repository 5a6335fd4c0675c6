//! Byte streams over shared memory, on one host.
#![cfg(feature = "clan")]

mod support;

use std::io::ErrorKind;
use std::sync::{Mutex, OnceLock};

use sockets_compat::{ClanListener, ClanStream};
use support::{Folder, likeness};

static ALONE: Mutex<()> = Mutex::new(());

/// A new connection each time.
fn pair() -> (ClanStream, ClanStream) {
    static LISTENER: OnceLock<(Folder, ClanListener)> = OnceLock::new();
    let (folder, listener) = LISTENER.get_or_init(|| {
        let folder = Folder::new("pairs");
        let listener = ClanListener::bind(folder.address("all")).expect("a name");
        (folder, listener)
    });
    // Of two that connect at a time each shall get its own.
    let _alone = support::locked(&ALONE);
    let client = ClanStream::connect(folder.address("all")).expect("it listens");
    (client, listener.accept().expect("it has connected").0)
}

#[test]
fn streams_are_like_the_kernels() {
    likeness::is_like_the_kernels(pair);
}

#[test]
fn nobody_there_is_refused_and_a_taken_name_says_so() {
    let folder = Folder::new("names");
    let nobody = ClanStream::connect(folder.address("nobody")).unwrap_err();
    assert_eq!(nobody.kind(), ErrorKind::ConnectionRefused);
    let listener = ClanListener::bind(folder.address("mine")).unwrap();
    let taken = ClanListener::bind(folder.address("mine")).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    drop(listener);
    ClanListener::bind(folder.address("mine")).unwrap();
    let wrong = ClanStream::connect("qp://10.0.0.1:7").unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::InvalidInput);
}

#[test]
fn whatever_is_done_nothing_is_lost() {
    support::model::nothing_is_lost(64, pair);
}

#[test]
fn the_model_is_right_about_sockets() {
    support::model::the_model_fits_the_kernel();
}

#[cfg(feature = "tokio")]
#[test]
fn tasks_wait_give_up_and_split() {
    support::tasks::all(pair);
}
