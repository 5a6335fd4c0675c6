use super::*;
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;

pub(crate) fn name(port: u8) -> Name {
    let mut bytes = [0; Name::LEN];
    bytes[Name::LEN - 1] = port;
    Name::from_bytes(&bytes)
}

/// Memory without a name, mapped twice: as two processes have it.
pub(crate) fn two_mappings() -> (Segment, Segment) {
    let file = scratch_file();
    let first = Segment::create(file.as_raw_fd(), &name(1), Role::Connector, CAPACITY).unwrap();
    (first, another_mapping(&file, Role::Acceptor))
}

/// One more, of a file without a name.
fn another_mapping(file: &File, role: Role) -> Segment {
    let status = kernel::status(file.as_raw_fd()).unwrap();
    Segment::map(file.as_raw_fd(), &status, role).unwrap()
}

pub(crate) fn scratch_file() -> File {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).mode(0o600);
    options.custom_flags(libc::O_TMPFILE).open("/dev/shm").unwrap()
}

/// Who changes a place, or what is done there, gives the layout another number.
#[test]
fn where_things_lie_is_what_the_number_of_the_layout_says() {
    let places = [
        size_of::<Header>(),
        std::mem::offset_of!(Header, ends),
        std::mem::offset_of!(Header, directions),
        std::mem::offset_of!(Header, between),
        std::mem::offset_of!(Header, identity),
        size_of::<Direction>(),
        std::mem::offset_of!(Direction, receiving),
        std::mem::offset_of!(End, network),
        std::mem::offset_of!(Sending, wants_room),
        std::mem::offset_of!(Sending, manner),
        std::mem::offset_of!(Receiving, wishes),
        std::mem::offset_of!(Receiving, waiters),
        std::mem::offset_of!(Receiving, shortcut),
        std::mem::offset_of!(Receiving, word_of_bytes),
        std::mem::offset_of!(BetweenHosts, ended_at),
        std::mem::offset_of!(Identity, name),
        size_of::<EndState>(),
        std::mem::offset_of!(EndState, awaited),
    ];
    let known = (
        *b"landfal8",
        [1024, 64, 256, 768, 896, 256, 128, 24, 28, 36, 16, 32, 48, 64, 64, 24, 768, 264],
    );
    assert_eq!((MAGIC.to_be_bytes(), places), known);
}

fn own_user() -> Owner {
    Owner::User(kernel::user())
}

/// A file with a name, which is removed with it.
struct Named(PathBuf, File);

impl Named {
    fn new(what: &str) -> Self {
        let name = format!("landfall-segment-{}-{what}", std::process::id());
        let path = PathBuf::from("/dev/shm").join(name);
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(&path).unwrap();
        Self(path, file)
    }

    /// Whether it can be taken up as memory of this connection.
    fn opened(&self, name: &Name) -> Result<(), Unusable> {
        let segment = Segment::open(self.1.as_raw_fd(), own_user(), name, Role::Acceptor)?;
        // SAFETY: nobody knows of it.
        unsafe { segment.unmap() };
        Ok(())
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn both_see_the_same() {
    let (first, second) = two_mappings();
    first.direction_from(Role::Acceptor).sending.head.store(7, Ordering::Relaxed);
    assert_eq!(second.direction_from(Role::Acceptor).sending.head.load(Ordering::Relaxed), 7);
    assert!(second.direction_from(Role::Connector).receiving.wishes.are_any());
}

#[test]
fn an_end_has_what_the_other_does_not_see() {
    let file = scratch_file();
    let connector = Segment::create(file.as_raw_fd(), &name(1), Role::Connector, CAPACITY).unwrap();
    let [acceptor, sibling] = [Role::Acceptor; 2].map(|role| another_mapping(&file, role));
    acceptor.own().sending.lock.store(7, Ordering::Relaxed);
    assert_eq!(sibling.own().sending.lock.load(Ordering::Relaxed), 7);
    assert_eq!(connector.own().sending.lock.load(Ordering::Relaxed), 0);
    // All that one end has mapped is nothing of the other's.
    // SAFETY: mapped so.
    unsafe { connector.base().write_bytes(0xFF, mapped_len(CAPACITY)) };
    assert_eq!(acceptor.own().sending.lock.load(Ordering::Relaxed), 7);
}

#[test]
fn what_is_something_else_is_not_mapped() {
    let file = Named::new("nothing");
    assert_eq!(file.opened(&name(1)), Err(Unusable::Unfinished));
    kernel::set_len(file.1.as_raw_fd(), 8192).unwrap();
    assert_eq!(file.opened(&name(1)), Err(Unusable::Unknown));
    kernel::set_len(file.1.as_raw_fd(), file_len(CAPACITY) as u64).unwrap();
    assert_eq!(file.opened(&name(1)), Err(Unusable::Unfinished));
    Segment::create(file.1.as_raw_fd(), &name(1), Role::Connector, CAPACITY)
        .unwrap()
        .header()
        .magic
        .store(MAGIC + 1, Ordering::Relaxed);
    assert_eq!(file.opened(&name(1)), Err(Unusable::Unknown));
}

#[test]
fn rings_are_as_long_as_they_were_made() {
    for capacity in [CAPACITY, CARRIED_CAPACITY] {
        let file = Named::new("capacity");
        let made =
            Segment::create(file.1.as_raw_fd(), &name(1), Role::Connector, capacity).unwrap();
        let opened =
            Segment::open(file.1.as_raw_fd(), own_user(), &name(1), Role::Acceptor).unwrap();
        assert_eq!((made.capacity(), opened.capacity()), (capacity, capacity));
        for role in [Role::Connector, Role::Acceptor] {
            // The last byte of a ring is the same for both.
            // SAFETY: mapped so, and nobody else's.
            unsafe { made.bytes_from(role).add(capacity as usize - 1).write(role as u8 + 7) };
            // SAFETY: as above.
            let seen = unsafe { opened.bytes_from(role).add(capacity as usize - 1).read() };
            assert_eq!(seen, role as u8 + 7);
        }
        // SAFETY: nobody knows of them.
        unsafe { (made.unmap(), opened.unmap()) };
    }
}

#[test]
fn memory_is_that_of_its_own_connection_only() {
    let file = Named::new("own");
    Segment::create(file.1.as_raw_fd(), &name(1), Role::Connector, CAPACITY).unwrap();
    assert_eq!(file.opened(&name(1)), Ok(()));
    assert_eq!(file.opened(&name(2)), Err(Unusable::OfAnother));
    assert_eq!(file.opened(&name(1).turned()), Err(Unusable::OfAnother));
}

#[test]
fn a_copy_of_memory_is_not_it() {
    let (file, copy) = (Named::new("original"), Named::new("copy"));
    Segment::create(file.1.as_raw_fd(), &name(1), Role::Connector, CAPACITY).unwrap();
    fs::copy(&file.0, &copy.0).unwrap();
    assert_eq!(copy.opened(&name(1)), Err(Unusable::OfAnother));
}

#[test]
fn memory_with_a_second_name_or_none_is_refused() {
    let file = Named::new("names");
    Segment::create(file.1.as_raw_fd(), &name(1), Role::Connector, CAPACITY).unwrap();
    let link = file.0.with_extension("link");
    fs::hard_link(&file.0, &link).unwrap();
    assert_eq!(file.opened(&name(1)), Err(Unusable::Names(2)));
    fs::remove_file(&file.0).unwrap();
    assert_eq!(file.opened(&name(1)), Ok(()));
    fs::remove_file(&link).unwrap();
    assert_eq!(file.opened(&name(1)), Err(Unusable::Names(0)));
}

#[test]
fn memory_that_others_may_open_is_refused() {
    let file = Named::new("mode");
    Segment::create(file.1.as_raw_fd(), &name(1), Role::Connector, CAPACITY).unwrap();
    for mode in [0o606, 0o660, 0o640, 0o604] {
        fs::set_permissions(&file.0, Permissions::from_mode(mode)).unwrap();
        assert_eq!(file.opened(&name(1)), Err(Unusable::OpenToOthers(libc::S_IFREG | mode)));
    }
}
