//! Cookies for one peer alone: over networks, where a peer is a host that has proven who it is, and
//! between processes, where it is a process.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use landfall::clan::network::{
    Aperture, Builder, Identity, KnownPeers, Node, Peer, Reason, Transport, Window, WordFunction,
};
use landfall::clan::shared::{SharedConfig, SharedNode};
use landfall::clan::{
    Access, Cookie, Error, Fabric, Local, Remote, Rights, Stage, Threads, Tripwire,
};
use landfall_placement::Refusal;
use landfall_testkit::TemporaryFolder;

use super::{builder, channel_pair, host, linked, loopback, noise, soon, udp_pair, until};

fn keyed(number: u16) -> Builder {
    let identity = Identity::generate().unwrap();
    let builder = builder(number).path(loopback()).encrypt_loopback();
    builder.identity(identity).known_peers(KnownPeers::in_memory())
}

/// One that has memory, one that gets cookies, and one that gets hold of them.
fn three() -> [Node; 3] {
    let [owner, friend, thief] = [1, 2, 3].map(|number| keyed(number).open().unwrap());
    let (owner, friend) = linked((owner, friend), None);
    let (owner, thief) = linked((owner, thief), None);
    [owner, friend, thief]
}

/// Waits until what was written is refused or has arrived, and gives what came of it.
fn delivered(window: &mut impl Remote) -> Result<(), Error> {
    window.commit()?;
    window.wait_for(Stage::Delivered, soon())?;
    window.check()
}

fn is_refused<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Refused(Reason::BadKey) | Error::StaleCookie))
}

/// Everything that a window can do, and whether all of it was refused as with an unknown key.
fn is_refused_everything(node: &Node, cookie: &Cookie) -> bool {
    let window = || node.map(cookie).unwrap();
    let (source, _) = node.expose(4_096, Rights::ReadWrite).unwrap();
    let write = |write: &dyn Fn(&mut Window) -> Result<(), Error>| {
        let mut window = window();
        let written = write(&mut window);
        is_refused(&written.and_then(|()| delivered(&mut window)))
    };
    let mut read = [7; 64];
    let all = [
        write(&|window| window.store(0, 1)),
        write(&|window| window.write(13, b"a few bytes")),
        write(&|window| window.write(100, &noise(3, 2_000))),
        write(&|window| window.write_from(1_024, &source, 0..2_048).map(drop)),
        is_refused(&window().read(0, &mut read, soon())),
        is_refused(&window().wait_change(0, WordFunction::Add(1), soon())),
        is_refused(&node.wait_for(window().read_into(0, &source, 0..64), soon()).unwrap().unwrap()),
    ];
    assert!(read == [7; 64] || !all[4], "nothing was read");
    assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
    all[0]
}

fn refused(node: &Node) -> u64 {
    node.stats().refusals.of(Refusal::WrongKey)
}

#[test]
fn a_cookie_for_one_host_is_no_cookie_for_another() {
    let [owner, friend, thief] = three();
    let (memory, _) = owner.expose(1 << 14, Rights::ReadWrite).unwrap();
    memory.copy_in(0, &noise(1, 1 << 14)).unwrap();
    let contents = |memory: &Aperture| {
        let mut bytes = vec![0; 1 << 14];
        memory.copy_out(0, &mut bytes).unwrap();
        bytes
    };
    let before = contents(&memory);
    let cookie = memory.cookie_for(Rights::ReadWrite, friend.host()).unwrap();
    let tripwire = owner.watch(&memory, 0..1 << 14, Access::Both, None).unwrap();
    tripwire.arm();
    // The friend has passed all 32 bytes on.
    assert!(is_refused_everything(&thief, &cookie));
    assert!(refused(&owner) > 0, "as with an unknown key");
    assert!(contents(&memory) == before && !tripwire.has_fired());
    // What is said between hosts has no key: it arrives, and opens nothing.
    assert!(!is_refused_everything(&friend, &cookie));
    assert!(contents(&memory) != before && tripwire.has_fired());
}

#[test]
fn what_is_taken_from_one_host_is_the_others_still() {
    let [owner, friend, other] = three();
    let (memory, _) = owner.expose(4_096, Rights::ReadWrite).unwrap();
    let cookies = [&friend, &other].map(|node| memory.cookie_for(Rights::Write, node.host()));
    let [one, two] = cookies.map(Result::unwrap);
    assert_ne!(one, two);
    let (mut to_friend, mut to_other) = (friend.map(&one).unwrap(), other.map(&two).unwrap());
    for (window, word) in [(&mut to_friend, 1), (&mut to_other, 2)] {
        window.store(8 * word, word).unwrap();
        delivered(window).unwrap();
    }
    memory.revoke_from(friend.host());
    to_friend.store(8, 77).unwrap();
    assert!(is_refused(&delivered(&mut to_friend)));
    to_other.store(16, 22).unwrap();
    delivered(&mut to_other).unwrap();
    let words = [8, 16].map(|at| memory.load(at).unwrap());
    assert_eq!(words, [1, 22]);
    // A new one is another, and the old one stays invalid.
    let again = memory.cookie_for(Rights::Write, friend.host()).unwrap();
    assert_ne!(again, one);
    let mut to_friend = friend.map(&again).unwrap();
    to_friend.store(8, 3).unwrap();
    delivered(&mut to_friend).unwrap();
    let mut with_old = friend.map(&one).unwrap();
    with_old.store(8, 78).unwrap();
    assert!(is_refused(&delivered(&mut with_old)));
    assert_eq!(memory.load(8).unwrap(), 3);
    memory.revoke();
    let error = memory.cookie_for(Rights::Write, friend.host()).unwrap_err();
    assert!(matches!(error, Error::StaleCookie), "{error}");
}

/// A host that comes back with its key has what it was given; who takes its number has not, for it
/// gets no link.
#[test]
fn a_host_that_comes_back_has_its_cookie_still() {
    let identity = Identity::generate().unwrap();
    let owner = keyed(1).open().unwrap();
    let open = |identity: &Identity| keyed(2).identity(identity.clone()).open().unwrap();
    let (friend, owner) = linked((open(&identity), owner), None);
    let (memory, _) = owner.expose(64, Rights::Write).unwrap();
    let cookie = memory.cookie_for(Rights::Write, host(2)).unwrap();
    let closing = friend.clone().close();
    friend.wait_for(closing, soon()).unwrap();
    drop(friend);
    until(&owner, || owner.link_to(host(2)).is_none());
    let error = memory.cookie_for(Rights::Write, host(2)).unwrap_err();
    assert!(matches!(error, Error::NoRoute), "{error}");
    let thief = open(&Identity::generate().unwrap());
    let link = thief.link(owner.local().unwrap()).unwrap();
    assert!(matches!(link.wait_up(soon()), Err(Error::Refused(Reason::Refused))));
    let (friend, _owner) = linked((open(&identity), owner), None);
    let mut window = friend.map(&cookie).unwrap();
    window.store(8, 5).unwrap();
    delivered(&mut window).unwrap();
    assert_eq!(memory.load(8).unwrap(), 5);
}

/// Where anybody can say to be any host, nothing is for one of them: the error says what to do.
#[test]
fn who_has_not_proven_who_it_is_gets_no_cookie_for_itself_alone() {
    let shared = |number| {
        let builder = builder(number).path(loopback()).preshared_key([1; 32]);
        builder.encrypt_loopback().open().unwrap()
    };
    let pairs = [udp_pair(), channel_pair(), linked((shared(1), shared(2)), None)];
    for (here, there) in pairs {
        let (memory, _) = here.expose(64, Rights::Write).unwrap();
        let error = memory.cookie_for(Rights::Write, there.host()).unwrap_err();
        assert!(matches!(error, Error::NotProven { .. }), "{error}");
        assert!(error.to_string().contains("encrypt_loopback()"), "{error}");
        let error = memory.cookie_for(Rights::Write, host(9)).unwrap_err();
        assert!(matches!(error, Error::NoRoute), "{error}");
    }
    let (one, two) = Threads::pair().unwrap();
    let (memory, cookie) = one.expose(64, Rights::Write).unwrap();
    let (theirs, _) = two.expose(64, Rights::Write).unwrap();
    let remote = two.map(&cookie).unwrap();
    assert!(matches!(two.cookie_for(&theirs, &remote), Err(Error::BadConfig(_))));
    drop(memory);
}

/// One that encrypts what leaves the host, and talks in clear to who is on it: there a process may
/// say to be a host that has proven itself over the network. It is not believed.
#[test]
fn a_process_in_clear_does_not_get_the_number_of_a_host_that_has_proven_it() {
    let any = "0.0.0.0:0".parse().unwrap();
    let friend = Identity::generate().unwrap();
    let owner = builder(1)
        .path(Transport::udp(any))
        .identity(Identity::generate().unwrap())
        .known_peers(KnownPeers::in_memory())
        .host_key(host(2), friend.fingerprint())
        .open()
        .unwrap();
    let Some(Peer::Socket(bound)) = owner.local() else { panic!() };
    let at = std::net::SocketAddr::from(([127, 0, 0, 1], bound.port()));
    let link = |number: u16| {
        let node = builder(number).path(loopback()).open().unwrap();
        let up = node.link(at).unwrap().wait_up(soon());
        (node, up)
    };
    let (_thief, up) = link(2);
    assert!(matches!(up, Err(Error::Refused(Reason::Refused))), "{up:?}");
    let (_neighbour, up) = link(3);
    assert_eq!(up.unwrap(), owner.host());
    let (memory, _) = owner.expose(64, Rights::Write).unwrap();
    let error = memory.cookie_for(Rights::Write, host(3)).unwrap_err();
    assert!(matches!(error, Error::NotProven { .. }), "{error}");
}

/// The same program over any fabric that tells peers apart: the owner knows its friend by memory of
/// the friend's.
fn mailbox<F: Fabric>(owner: &F, friend: &F) {
    let (_own, address) = friend.expose(64, Rights::Write).unwrap();
    let peer = owner.map(&address).unwrap();
    let (memory, _) = owner.expose(4_096, Rights::ReadWrite).unwrap();
    let cookie = owner.cookie_for(&memory, &peer).unwrap();
    assert_eq!(owner.cookie_for(&memory, &peer).unwrap(), cookie);
    let tripwire = owner.watch(&memory, 0..8, Access::Write, None).unwrap();
    let mut window = friend.map(&cookie).unwrap();
    let put = |window: &mut F::Remote, word: u64| {
        tripwire.arm();
        window.store(0, word)?;
        delivered(window)?;
        while !tripwire.has_fired() {
            owner.wait(&[&tripwire], soon())?;
        }
        assert_eq!(memory.load(0).unwrap(), word);
        Ok::<_, Error>(())
    };
    put(&mut window, 1).unwrap();
    owner.revoke_from(&memory, &peer).unwrap();
    owner.revoke_from(&memory, &peer).unwrap();
    // Between processes it is told, over a network it hears so at its next use.
    let started = Instant::now();
    let error = loop {
        if let Err(error) = window.read(0, &mut [0; 8], soon()) {
            break error;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "it goes on");
        owner.relax();
    };
    assert!(matches!(error, Error::Refused(Reason::BadKey)), "{error}");
    assert!(error.is_gone());
    let stale = friend.map(&cookie).and_then(|mut again| {
        again.store(0, 77)?;
        delivered(&mut again)
    });
    assert!(is_refused(&stale), "{stale:?}");
    assert_eq!(memory.load(0).unwrap(), 1);
    // Given anew it works, though the old window is dropped only then.
    let again = owner.cookie_for(&memory, &peer).unwrap();
    assert_ne!(again, cookie);
    let mut other = friend.map(&again).unwrap();
    put(&mut other, 2).unwrap();
    drop(window);
    put(&mut other, 3).unwrap();
}

#[test]
fn one_program_gives_cookies_for_one_alone_on_a_host_and_over_networks() {
    let folder = TemporaryFolder::new("clan-grants");
    let open = || SharedNode::open(SharedConfig::new(folder.path())).unwrap();
    mailbox(&open(), &open());
    let (owner, friend) = linked((keyed(1).open().unwrap(), keyed(2).open().unwrap()), None);
    mailbox(&owner, &friend);
}

const FOLDER: &str = "LANDFALL_GRANTS_FOLDER";
const COOKIE: &str = "LANDFALL_GRANTS_COOKIE";

/// Not a test but a process that shows a cookie which is for another process alone.
#[test]
fn the_process_with_the_cookie_of_another() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let cookie = std::env::var(COOKIE).unwrap();
    let bytes: Vec<u8> = (0..Cookie::LEN)
        .map(|at| u8::from_str_radix(&cookie[2 * at..2 * at + 2], 16).unwrap())
        .collect();
    let cookie = Cookie::from_bytes(&bytes.try_into().unwrap()).unwrap();
    let node = SharedNode::open(SharedConfig::new(folder.as_ref())).unwrap();
    assert!(matches!(node.map(&cookie), Err(Error::StaleCookie)));
}

#[test]
fn a_cookie_for_one_process_is_no_cookie_for_another() {
    let folder = TemporaryFolder::new("clan-grants");
    let open = || SharedNode::open(SharedConfig::new(folder.path())).unwrap();
    let (one, two) = (open(), open());
    let (_theirs, address) = two.expose(64, Rights::Write).unwrap();
    let peer = one.map(&address).unwrap();
    let (memory, bearer) = one.expose(64, Rights::Write).unwrap();
    let own = one.cookie_for(&memory, &peer).unwrap();
    let show = |cookie: &Cookie| {
        let cookie: String = cookie.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let mut command = Command::new(std::env::current_exe().unwrap());
        let test = "clan::grants::the_process_with_the_cookie_of_another";
        command.args(["--exact", test]).env(FOLDER, folder.path()).env(COOKIE, cookie);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    };
    assert!(show(&own), "it was let in with the cookie of another");
    assert!(!show(&bearer), "one for anyone who has it lets it in");
    drop(two.map(&own).unwrap());
}
