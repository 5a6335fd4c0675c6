//! A peer that speaks another version of the protocol: both ends are told, and no message moves.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};

use landfall::stp::blocking::{Endpoint, Listener};
use landfall::stp::{Ended, Error, PathId, Peer, Reason, Transport};
use landfall_testkit::or_skip;

use crate::cases::{LIMIT, program};
use crate::tools::{finish, provider_folder, text};

/// What the provider calls its ports, and how it greets there: `link::open`.
const PORT: u16 = 0xfab1;
const CONNECTED_PORT: u16 = 0xfab2;
const HELLO: u64 = 0x6c66_6669_0000_0003;

fn endpoint() -> (Endpoint, SocketAddr) {
    let endpoint = Endpoint::bind(Transport::udp((Ipv4Addr::LOCALHOST, 0).into())).unwrap();
    let Some(Peer::Socket(address)) = endpoint.local() else { panic!("it has no address") };
    (endpoint, address)
}

/// A case of the suite in C, whose peer is this test.
fn begin(program: &std::path::Path, case: &str, peer: SocketAddr) -> Child {
    let mut command = Command::new(program);
    command.args(["landfall", case]).env("FI_PROVIDER_PATH", provider_folder());
    command.env("CASES_PEER_PORT", peer.port().to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Refuses the next two that connect: as versions up to 3 of the protocol do, and as this one does.
/// Gives the program back.
fn refuse_two(listener: &Listener, child: Child, said: &mut impl Read) -> Child {
    for reason in [Reason::Cancelled, Reason::Incompatible] {
        let Some(connection) = listener.accept_within(LIMIT).unwrap() else {
            let (output, mut rest) = (finish(child, LIMIT), String::new());
            said.read_to_string(&mut rest).unwrap();
            panic!(
                "it does not connect, not to be refused with {reason:?}: {}{rest}",
                text(&output)
            );
        };
        assert_eq!(connection.as_async().hello(), HELLO);
        connection.as_async().refuse(reason);
    }
    child
}

#[test]
fn a_peer_of_another_version_and_this_one_are_both_told() {
    let program = or_skip!(program());
    let (endpoint, own) = endpoint();
    let listener = endpoint.listen(PORT).unwrap();
    let mut child = begin(program, "other_version", own);
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let Ok(port) = line.trim().parse::<u16>() else { panic!("{}", text(&finish(child, LIMIT))) };
    let provider = SocketAddr::from((Ipv4Addr::LOCALHOST, port));

    // The one before, one to come, and something else.
    for hello in [HELLO - 1, HELLO + 1, 0x0bad] {
        let connecting = endpoint.as_async().connect_over(PathId(0), provider, PORT, hello);
        let why = match endpoint.wait_within(connecting, LIMIT).expect("an answer") {
            Ok(connection) => {
                let over = endpoint.wait_within(connection.closed(), LIMIT);
                over.expect("an end").unwrap_err()
            }
            Err(why) => why,
        };
        let refused = Ended::There(Reason::Incompatible);
        let is_told = match &why {
            Error::NotConnected(why) | Error::Closed { why: Some(why) } => *why == refused,
            _ => false,
        };
        assert!(is_told, "{hello:#x}: {why}");
    }
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let child = refuse_two(&listener, child, &mut said);
    let lines: Vec<String> = [(); 2]
        .map(|()| {
            let mut line = String::new();
            said.read_line(&mut line).unwrap();
            line
        })
        .into();
    let output = finish(child, LIMIT);
    assert!(output.status.success(), "{}", text(&output));
    assert!(lines[1].contains("install the same at both ends"), "{lines:?}");
    // Who was connected to has no operation to fail: it says so, once.
    let warned = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(warned.matches("cannot connect").count(), 1, "{warned}");
    assert!(warned.contains("version 2"), "{warned}");
}

#[test]
fn one_that_connects_to_another_version_is_told() {
    let program = or_skip!(program());
    let (endpoint, own) = endpoint();
    let listener = endpoint.listen(CONNECTED_PORT).unwrap();
    let child = begin(program, "connected_to_other_version", own);
    let child = refuse_two(&listener, child, &mut std::io::empty());
    let output = finish(child, LIMIT);
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("install the same at both ends"), "{}", text(&output));
}
