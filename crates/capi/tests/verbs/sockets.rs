//! Streams and datagrams of QPIP: between two adapters, and with sockets of a kernel, which are
//! played here.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use landfall_testbed::{Namespace, VethConfig, VethPair, require_namespaces};
use landfall_testkit::TemporaryFolder;

use crate::languages::{CProgram, Language, Other, c_command, compiled, patience};

const LIMIT: Duration = Duration::from_secs(60);
const PORT: u16 = 9000;
const TOTAL: usize = 400_000;

/// A kernel, and beside it an interface that an adapter of another language's program shares
/// with a second kernel.
struct Neighbours {
    cable: VethPair,
    /// Of the adapter and of the kernel, in both versions of IP.
    addresses: [(IpAddr, IpAddr); 2],
}

impl Neighbours {
    fn new() -> Self {
        let cable = VethPair::new(VethConfig::default()).unwrap();
        let (mut v4, mut v6) = (cable.a.ipv4.octets(), cable.a.ipv6.octets());
        (v4[3], v6[15]) = (100, 100);
        let addresses =
            [(v4.into(), cable.b.ipv4.into()), (Ipv6Addr::from(v6).into(), cable.b.ipv6.into())];
        Self { cable, addresses }
    }

    fn kernel(&self) -> &Namespace {
        &self.cable.b.namespace
    }

    /// Starts what a program does at this address; none where the machine lacks the language.
    fn start(
        &self,
        (language, what): (Language, &str),
        ours: IpAddr,
        place: SocketAddr,
    ) -> Option<Other> {
        self.start_saying((language, what), ours, place, Stdio::inherit())
    }

    /// The same, where what it says goes there.
    fn start_saying(
        &self,
        (language, what): (Language, &str),
        ours: IpAddr,
        place: SocketAddr,
        says: Stdio,
    ) -> Option<Other> {
        static BUILT: CProgram = OnceLock::new();
        let mut command = language.command(&BUILT, "examples/sockets")?;
        command.stderr(says);
        let bits = if ours.is_ipv4() { 24 } else { 64 };
        command.arg(language.task(what)).arg(format!("packet:{}", self.cable.a.name));
        command.arg(format!("{ours}/{bits}")).arg(place.to_string());
        let child = self.cable.a.namespace.enter(move || command.spawn()).unwrap();
        Some(Other(child.unwrap()))
    }
}

fn complement(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| !byte).collect()
}

/// A client of the kernel's: it sends until it has sent all, and receives the same, complemented,
/// until the other side has.
fn ask(mut stream: TcpStream) -> io::Result<()> {
    let bytes: Vec<u8> = (0..TOTAL).map(|i| ((i * i) >> 7) as u8).collect();
    let (sent, mut sender) = (bytes.clone(), stream.try_clone()?);
    let sending = std::thread::spawn(move || {
        // Three bytes by themselves: they come as a part of a room.
        sender.write_all(&sent[..3])?;
        sender.write_all(&sent[3..])?;
        sender.shutdown(Shutdown::Write)
    });
    let mut back = Vec::new();
    stream.read_to_end(&mut back)?;
    sending.join().expect("no panic")?;
    assert!(back == complement(&bytes), "{} bytes came back", back.len());
    Ok(())
}

/// A server of the kernel's: it answers what comes, until its client has sent all.
fn serve(mut stream: TcpStream) -> io::Result<()> {
    let (mut bytes, mut count) = (vec![0; 10_000], 0);
    loop {
        let len = stream.read(&mut bytes)?;
        if len == 0 {
            assert_eq!(count, TOTAL);
            return Ok(());
        }
        count += len;
        stream.write_all(&complement(&bytes[..len]))?;
    }
}

fn limited(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    Ok(stream)
}

/// Connects to a program that may still have to start.
fn connected(at: SocketAddr) -> io::Result<TcpStream> {
    let deadline = patience();
    loop {
        match TcpStream::connect_timeout(&at, LIMIT) {
            Err(_) if Some(Instant::now()) < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            connected => return limited(connected?),
        }
    }
}

/// The next that connects, if one does.
fn accepted(listener: &TcpListener) -> io::Result<TcpStream> {
    listener.set_nonblocking(true)?;
    let deadline = patience();
    loop {
        match listener.accept() {
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock && Some(Instant::now()) < deadline =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            accepted => {
                let (stream, _) = accepted?;
                stream.set_nonblocking(false)?;
                return limited(stream);
            }
        }
    }
}

const LANGUAGES: [Language; 3] = [Language::C, Language::Python, Language::Asyncio];

/// Each language, over IPv4 and IPv6.
fn each(test: impl Fn(&Neighbours, Language, (IpAddr, IpAddr))) {
    for language in LANGUAGES {
        // Each adapter has a station of its own: a kernel remembers the last one of an address.
        let both = Neighbours::new();
        for addresses in both.addresses {
            println!("{language:?}, {addresses:?}");
            test(&both, language, addresses);
        }
    }
}

#[test]
fn a_client_of_the_kernel_is_served_by_a_stream_in_c_and_python() {
    require_namespaces!();
    each(|both, language, (ours, _)| {
        let at = SocketAddr::new(ours, PORT);
        let Some(mut program) = both.start((language, "echo"), ours, at) else { return };
        both.kernel().enter(|| ask(connected(at)?)).unwrap().unwrap();
        program.ended_well();
    });
}

#[test]
fn a_server_of_the_kernel_is_asked_by_a_stream_in_c_and_python() {
    require_namespaces!();
    each(|both, language, (ours, theirs)| {
        let listener = both.kernel().enter(|| TcpListener::bind((theirs, 0))).unwrap().unwrap();
        let at = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || serve(accepted(&listener)?));
        let Some(mut program) = both.start((language, "ask"), ours, at) else { return };
        program.ended_well();
        server.join().unwrap().unwrap();
    });
}

#[test]
fn a_socket_of_the_kernel_answers_datagrams_of_c_and_python() {
    require_namespaces!();
    each(|both, language, (ours, theirs)| {
        let socket = both.kernel().enter(|| UdpSocket::bind((theirs, 0))).unwrap().unwrap();
        let at = socket.local_addr().unwrap();
        let Some(mut program) = both.start((language, "datagrams"), ours, at) else { return };
        let server = std::thread::spawn(move || answer(&socket, ours));
        program.ended_well();
        // It stops at what is no datagram of the program's.
        let last = both.kernel().enter(|| UdpSocket::bind((theirs, 0))).unwrap().unwrap();
        last.send_to(b"stop", at).unwrap();
        assert!(server.join().unwrap().unwrap() >= 100, "each of the program's was answered");
    });
}

/// Answers datagrams of the adapter, until another one sends; how many.
fn answer(socket: &UdpSocket, adapter: IpAddr) -> io::Result<u32> {
    socket.set_read_timeout(Some(2 * LIMIT))?;
    let (mut bytes, mut count) = ([0; 2_000], 0);
    loop {
        let (len, from) = socket.recv_from(&mut bytes)?;
        if from.ip() != adapter {
            return Ok(count);
        }
        socket.send_to(&complement(&bytes[..len]), from)?;
        count += 1;
    }
}

/// The kernel resets the connection. The program's last word is what became of its rooms.
#[test]
fn a_stream_that_is_reset_is_no_end_of_it() {
    require_namespaces!();
    for language in [Language::C, Language::Python] {
        let both = Neighbours::new();
        let (ours, theirs) = both.addresses[0];
        let listener = both.kernel().enter(|| TcpListener::bind((theirs, 0))).unwrap().unwrap();
        let at = listener.local_addr().unwrap();
        let program = both.start_saying((language, "ask"), ours, at, Stdio::piped());
        let Some(mut program) = program else { continue };
        let mut stream = accepted(&listener).unwrap();
        stream.read_exact(&mut [0]).unwrap();
        // What has come and was not read makes it a reset.
        drop(stream);
        let mut said = String::new();
        program.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(!program.0.wait().unwrap().success(), "{language:?}");
        let wanted = "the other side is gone, or ended the connection";
        assert!(said.contains(wanted), "{language:?} takes it for something else: {said}");
    }
}

/// In C alone: what is refused, who has sent, and how streams end.
#[test]
fn services_of_queue_pairs_keep_to_the_header() {
    static BUILT: CProgram = OnceLock::new();
    let Some(program) = compiled(&BUILT, "tests/c/services") else { return };
    let folder = TemporaryFolder::new("languages");
    let mut command: Command = c_command(program);
    Other(command.arg(folder.path()).spawn().unwrap()).ended_well();
}
