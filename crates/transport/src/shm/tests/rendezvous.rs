//! Meeting, handing over, hanging up.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use socket2::SockRef;

use crate::memory::SharedMemory;
use crate::shm::rendezvous::{Admit, Channel, Listener, MAX_BODY, MAX_FDS, RendezvousError};

/// More than any of these takes.
const LONG: Duration = Duration::from_secs(60);

/// A folder that goes with its test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("landfall-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn messages_come_whole_in_order_and_with_their_descriptors() {
    let folder = Folder::new("meet");
    let listener = Listener::bind(&folder.socket(), Admit::SameUser).unwrap();
    let theirs = Channel::connect(&folder.socket(), &Admit::SameUser).unwrap();
    let ours = listener.accept(LONG).unwrap().unwrap();
    assert_eq!(ours.peer().pid, std::process::id() as i32);
    let memory = SharedMemory::create("passed", 4096).unwrap();
    memory.copy_in(0, b"hello").unwrap();
    ours.send(1, b"", &[]).unwrap();
    ours.send(2, &[7; MAX_BODY], &[memory.fd(); MAX_FDS]).unwrap();
    let first = theirs.receive(LONG).unwrap().unwrap();
    assert_eq!((first.kind, first.body.len(), first.fds.len()), (1, 0, 0));
    let second = theirs.receive(LONG).unwrap().unwrap();
    assert_eq!((second.kind, &second.body[..]), (2, &[7; MAX_BODY][..]));
    assert_eq!(second.fds.len(), MAX_FDS);
    for fd in second.fds {
        // SAFETY: an open descriptor.
        let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) };
        assert_ne!(flags & libc::FD_CLOEXEC, 0);
        let mut bytes = [0; 5];
        SharedMemory::from_fd(fd).unwrap().copy_out(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"hello");
    }
    assert!(theirs.receive(Duration::ZERO).unwrap().is_none());
}

#[test]
fn what_is_too_much_is_refused_on_both_sides() {
    let (ours, theirs) = Channel::pair().unwrap();
    let memory = SharedMemory::create("much", 4096).unwrap();
    let too_much = |result| matches!(result, Err(RendezvousError::TooMuch { .. }));
    assert!(too_much(ours.send(1, &[0; MAX_BODY + 1], &[])));
    assert!(too_much(ours.send(1, &[], &[memory.fd(); MAX_FDS + 1])));
    // One that keeps to nothing: too long, too short, and too many descriptors.
    for len in [1, MAX_BODY + 3] {
        // SAFETY: a live buffer of that length.
        let sent =
            unsafe { libc::send(ours.as_fd().as_raw_fd(), vec![0u8; len].as_ptr().cast(), len, 0) };
        assert_eq!(sent, len as isize);
        assert!(matches!(theirs.receive(LONG), Err(RendezvousError::NoMessage)));
    }
    ours.send(3, b"still here", &[]).unwrap();
    assert_eq!(theirs.receive(LONG).unwrap().unwrap().kind, 3);
}

#[test]
fn a_channel_that_nobody_reads_is_full_and_never_blocks() {
    let (ours, _theirs) = Channel::pair().unwrap();
    let mut sent = 0;
    while ours.send(1, &[0; MAX_BODY], &[]).is_ok() {
        sent += 1;
        assert!(sent < 1_000_000, "it is full some time");
    }
    assert!(matches!(ours.send(1, &[0; MAX_BODY], &[]), Err(RendezvousError::Full)));
}

#[test]
fn who_hangs_up_is_gone_but_its_last_words_are_heard() {
    let (ours, theirs) = Channel::pair().unwrap();
    assert!(!theirs.is_gone());
    ours.send(1, b"bye", &[]).unwrap();
    drop(ours);
    assert!(theirs.is_gone());
    assert_eq!(&theirs.receive(LONG).unwrap().unwrap().body[..], b"bye");
    assert!(matches!(theirs.receive(LONG), Err(RendezvousError::Gone)));
    assert!(matches!(theirs.send(1, b"", &[]), Err(RendezvousError::Gone)));
}

#[test]
fn a_path_has_one_listener_and_what_a_dead_one_left_is_replaced() {
    let folder = Folder::new("path");
    let path = folder.socket();
    let nobody = |result| matches!(result, Err(RendezvousError::Nobody(_)));
    assert!(nobody(Channel::connect(&path, &Admit::SameUser)));
    let first = Listener::bind(&path, Admit::SameUser).unwrap();
    let second = Listener::bind(&path, Admit::SameUser);
    assert!(matches!(second, Err(RendezvousError::InUse(_))));
    drop(first);
    assert!(!path.exists());
    // As a process that was killed leaves it.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(nobody(Channel::connect(&path, &Admit::SameUser)));
    let again = Listener::bind(&path, Admit::SameUser).unwrap();
    let channel = Channel::connect(&path, &Admit::SameUser).unwrap();
    assert!(again.accept(LONG).unwrap().is_some());
    drop(channel);
}

/// Longer than the address of a socket can be: so it goes by the folder.
#[test]
fn a_long_path_is_a_place_to_meet_too() {
    let folder = Folder::new("long");
    let deep = folder.0.join("a".repeat(200)).join("b".repeat(200));
    let path = deep.join("socket");
    let nobody = Channel::connect(&path, &Admit::SameUser);
    assert!(matches!(nobody, Err(RendezvousError::Nobody(_))), "{nobody:?}");
    std::fs::create_dir_all(&deep).unwrap();
    let listener = Listener::bind(&path, Admit::SameUser).unwrap();
    assert!(path.exists());
    let theirs = Channel::connect(&path, &Admit::SameUser).unwrap();
    listener.accept(LONG).unwrap().unwrap().send(1, b"here", &[]).unwrap();
    assert_eq!(&theirs.receive(LONG).unwrap().unwrap().body[..], b"here");
    let second = Listener::bind(&path, Admit::SameUser);
    assert!(matches!(second, Err(RendezvousError::InUse(_))));
    drop(listener);
    assert!(!path.exists());
    let long_name = Listener::bind(&folder.0.join("c".repeat(200)), Admit::SameUser);
    assert!(matches!(long_name, Err(RendezvousError::LongName(_))), "{long_name:?}");
}

/// One that has bound its socket and does not listen yet is not taken for dead.
#[test]
fn of_many_that_come_at_once_one_listens() {
    let folder = Folder::new("race");
    for _ in 0..200 {
        let start = std::sync::Barrier::new(4);
        let bind = || {
            start.wait();
            Listener::bind(&folder.socket(), Admit::SameUser)
        };
        let results = std::thread::scope(|scope| {
            let others: Vec<_> = (0..3).map(|_| scope.spawn(bind)).collect();
            let mut results = vec![bind()];
            results.extend(others.into_iter().map(|other| other.join().unwrap()));
            results
        });
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
        let refused = results.iter().filter(|it| matches!(it, Err(RendezvousError::InUse(_))));
        assert_eq!(refused.count(), 3, "{results:?}");
    }
}

#[test]
fn who_is_not_admitted_is_turned_away_by_either_side() {
    let folder = Folder::new("admit");
    let nobody = Admit::Users(Vec::new());
    let listener = Listener::bind(&folder.socket(), nobody.clone()).unwrap();
    let channel = Channel::connect(&folder.socket(), &Admit::SameUser).unwrap();
    assert!(matches!(listener.accept(LONG), Err(RendezvousError::NotAdmitted(_))));
    assert!(matches!(channel.receive(LONG), Err(RendezvousError::Gone)));
    let refused = Channel::connect(&folder.socket(), &nobody);
    assert!(matches!(refused, Err(RendezvousError::NotAdmitted(_))));
}

/// A socket with something to send that nobody takes, which says that who closes it waits
/// for that: the last one to close it is anyone who gets the message.
#[test]
fn a_descriptor_of_another_kind_is_refused_and_holds_nobody_up() {
    const HOURS: Duration = Duration::from_secs(36_000);
    let (ours, theirs) = Channel::pair().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let never_read = listener.accept().unwrap();
    slow.set_nonblocking(true).unwrap();
    while slow.write(&[0; 65_536]).is_ok() {}
    slow.set_nonblocking(false).unwrap();
    SockRef::from(&slow).set_linger(Some(HOURS)).unwrap();
    theirs.send(1, b"here", &[slow.as_fd()]).unwrap();
    drop(slow);
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let received = ours.receive(LONG);
        let is_refused = matches!(received, Err(RendezvousError::NoMessage));
        drop(received);
        done.send(is_refused).unwrap();
    });
    assert_eq!(is_done.recv_timeout(LONG), Ok(true), "refused, and closed by somebody else");
    drop(never_read);
}

/// Anyone who may change the folder could put a link in the socket's place before its mode is
/// set by its name.
#[test]
fn a_socket_is_for_its_user_only_from_the_beginning() {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    let folder = Folder::new("mode");
    let (path, is_over) = (folder.socket(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut seen = 0;
            while !is_over.load(Ordering::Relaxed) {
                let Ok(file) = std::fs::symlink_metadata(&path) else { continue };
                seen |= file.permissions().mode() & 0o777;
            }
            seen
        });
        for _ in 0..2000 {
            drop(Listener::bind(&path, Admit::SameUser).unwrap());
        }
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(looks.join().unwrap() & !0o600, 0, "others could connect for a moment");
    });
}
