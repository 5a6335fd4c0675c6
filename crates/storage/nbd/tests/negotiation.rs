//! Options and their answers, byte by byte, as the protocol's document has them.

use landfall_nbd::server::{Config, Negotiation, Step, Tls};
use landfall_nbd::{BlockSizes, Export, Features, ProtocolError, Replies};

const ACK: u32 = 1;
const SERVER: u32 = 2;
const INFO: u32 = 3;
const META: u32 = 4;
const ERROR: u32 = 1 << 31;

/// A server, and a client that is a test.
struct Client {
    server: Negotiation,
    exports: Vec<Export>,
}

impl Client {
    fn new(config: Config) -> Self {
        let mut blocks = Export::new("blocks", 8192);
        blocks.blocks = BlockSizes { minimum: 4096, preferred: 4096, maximum: 1 << 20 };
        let hidden = Export { tls_only: true, ..Export::new("hidden", 1) };
        let exports = vec![Export::new("disk", 4096), blocks, hidden];
        let mut server = Negotiation::new(config);
        let greeting = server.poll_output().unwrap();
        assert_eq!(greeting, b"NBDMAGICIHAVEOPT\0\x03", "18 bytes, both flags");
        Self { server, exports }
    }

    fn fixed(config: Config) -> Self {
        let mut client = Self::new(config);
        assert_eq!(client.server.handle(&[0, 0, 0, 3], &client.exports).unwrap().0, 4);
        client
    }

    fn try_ask(&mut self, option: u32, data: &[u8]) -> Result<Step, ProtocolError> {
        let mut bytes = b"IHAVEOPT".to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        // Not before all of it is there.
        let (used, step) = self.server.handle(&bytes[..bytes.len() - 1], &self.exports)?;
        if used > 0 {
            return Ok(step);
        }
        let (used, step) = self.server.handle(&bytes, &self.exports)?;
        assert_eq!(used, bytes.len());
        Ok(step)
    }

    fn ask(&mut self, option: u32, data: &[u8]) -> (Step, Vec<(u32, Vec<u8>)>) {
        let step = self.try_ask(option, data).unwrap();
        (step, self.replies(option))
    }

    fn replies(&mut self, option: u32) -> Vec<(u32, Vec<u8>)> {
        let output = self.server.poll_output().unwrap_or_default();
        let (mut rest, mut replies) = (&output[..], Vec::new());
        while !rest.is_empty() {
            let number = |at: usize| u32::from_be_bytes(rest[at..at + 4].try_into().unwrap());
            assert_eq!(rest[..8], 0x0003_e889_0455_65a9u64.to_be_bytes());
            assert_eq!(number(8), option);
            let (kind, len) = (number(12), number(16) as usize);
            replies.push((kind, rest[20..20 + len].to_vec()));
            rest = &rest[20 + len..];
        }
        replies
    }

    fn kinds(&mut self, option: u32, data: &[u8]) -> Vec<u32> {
        self.ask(option, data).1.into_iter().map(|(kind, _)| kind).collect()
    }
}

fn name(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}

/// `GO` or `INFO` for an export, with what is asked for.
fn info(text: &str, asked: &[u16]) -> Vec<u8> {
    let count = (asked.len() as u16).to_be_bytes();
    let asked: Vec<u8> = asked.iter().flat_map(|kind| kind.to_be_bytes()).collect();
    [&name(text)[..], &count, &asked].concat()
}

fn contexts(text: &str, queries: &[&str]) -> Vec<u8> {
    let count = (queries.len() as u32).to_be_bytes();
    let queries: Vec<u8> = queries.iter().flat_map(|query| name(query)).collect();
    [&name(text)[..], &count, &queries].concat()
}

#[test]
fn the_old_option_leads_to_an_export_with_its_zeroes() {
    for (flags, len) in [(3, 10), (1, 134)] {
        let mut client = Client::new(Config::default());
        client.server.handle(&[0, 0, 0, flags], &client.exports).unwrap();
        let step = client.try_ask(1, b"disk").unwrap();
        assert!(matches!(step, Step::Transmission(_)));
        let output = client.server.poll_output().unwrap();
        assert_eq!((output.len(), &output[..8]), (len, &4096u64.to_be_bytes()[..]));
    }
    let mut client = Client::fixed(Config::default());
    assert!(client.try_ask(1, b"none").is_err(), "it has no other way to say so");
}

#[test]
fn flags_that_nobody_offered_end_it() {
    let mut client = Client::new(Config::default());
    let flags = client.server.handle(&[0, 0, 0, 7], &client.exports);
    assert_eq!(flags.unwrap_err(), ProtocolError::Flags(7));
}

#[test]
fn a_list_has_all_that_may_be_seen() {
    let mut client = Client::fixed(Config { tls: Tls::Optional, ..Config::default() });
    let (_, replies) = client.ask(3, &[]);
    let names: Vec<_> = replies.iter().map(|(kind, data)| (*kind, data.as_slice())).collect();
    let expected = [(SERVER, &name("disk")[..]), (SERVER, &name("blocks")), (ACK, &[])];
    assert_eq!(names, expected);
    assert_eq!(client.kinds(3, b"x"), [ERROR + 3], "it has no data");
    assert!(matches!(client.ask(5, &[]).0, Step::StartTls));
    client.server.secured();
    assert_eq!(client.kinds(3, &[]), [SERVER, SERVER, SERVER, ACK]);
}

#[test]
fn info_tells_and_go_begins() {
    let mut client = Client::fixed(Config::default());
    let (step, replies) = client.ask(6, &info("disk", &[1, 3]));
    assert!(matches!(step, Step::More));
    assert_eq!(replies.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [INFO, INFO, INFO, ACK]);
    assert_eq!(replies[0].1, [&[0, 0][..], &4096u64.to_be_bytes(), &[0, 3]].concat());
    assert_eq!(replies[1].1, b"\0\x01disk");
    let (step, _) = client.ask(7, &info("disk", &[]));
    assert!(matches!(step, Step::Transmission(_)));
}

#[test]
fn what_is_wrong_with_an_option_is_said() {
    let mut client = Client::fixed(Config::default());
    assert_eq!(client.kinds(7, &info("none", &[])), [ERROR + 6]);
    assert_eq!(client.kinds(7, &[0, 0, 0, 9, b'x']), [ERROR + 3]);
    assert_eq!(client.kinds(7, &info("hidden", &[])), [ERROR + 5]);
    assert_eq!(client.kinds(7, &info("blocks", &[])), [ERROR + 8], "its blocks are to be kept to");
    assert_eq!(client.kinds(6, &info("blocks", &[3])), [INFO, INFO, ACK]);
    assert_eq!(client.kinds(4, b"anything"), [ERROR + 1]);
    assert_eq!(client.kinds(77, &[]), [ERROR + 1]);
    // None of this ends anything.
    assert!(matches!(client.ask(2, &[]).0, Step::Ended));
}

#[test]
fn an_option_that_is_too_long_is_skipped() {
    let mut client = Client::fixed(Config::default());
    client.try_ask(7, &vec![0; 100_000]).unwrap();
    assert_eq!(client.replies(7)[0].0, ERROR + 9);
    let mut left = 100_000;
    while left > 0 {
        let (used, _) = client.server.handle(&vec![0; left.min(7_777)], &client.exports).unwrap();
        left -= used;
    }
    assert_eq!(client.kinds(3, &[]), [SERVER, SERVER, ACK]);
    let mut bytes = b"IHAVEOPT\0\0\0\x07".to_vec();
    bytes.extend([0xff; 4]);
    let error = client.server.handle(&bytes, &client.exports).unwrap_err();
    assert_eq!(error, ProtocolError::TooLong(u32::MAX.into()));
}

#[test]
fn replies_grow_and_never_shrink() {
    let mut client = Client::fixed(Config::default());
    assert_eq!(client.kinds(8, &[]), [ACK]);
    assert_eq!(client.kinds(8, &[]), [ERROR + 3], "it is agreed on");
    assert_eq!(client.kinds(11, &[]), [ACK]);
    assert_eq!(client.kinds(8, &[]), [ERROR + 10], "extended headers have it");
    let Step::Transmission(session) = client.ask(7, &info("disk", &[])).0 else { panic!() };
    assert_eq!(session.replies(), Replies::Extended);
    assert!(session.export().features.has(Features::DONT_FRAGMENT));
    let mut client = Client::fixed(Config { replies: Replies::Simple, ..Config::default() });
    assert_eq!((client.kinds(8, &[]), client.kinds(11, &[])), (vec![ERROR + 1], vec![ERROR + 1]));
}

#[test]
fn contexts_need_structured_replies_and_are_those_of_their_export() {
    let mut client = Client::fixed(Config::default());
    let wanted = contexts("disk", &["base:allocation"]);
    assert_eq!(client.kinds(10, &wanted), [ERROR + 3]);
    client.ask(8, &[]);
    let (_, replies) = client.ask(10, &wanted);
    assert_eq!(replies[0], (META, b"\0\0\0\x01base:allocation".to_vec()));
    assert_eq!(client.kinds(9, &contexts("disk", &[])), [META, ACK], "all there are");
    assert_eq!(client.kinds(9, &contexts("disk", &["base:"])), [META, ACK]);
    assert_eq!(client.kinds(10, &contexts("disk", &["qemu:dirty-bitmap:x"])), [ACK]);
    assert_eq!(client.kinds(10, &contexts("none", &[])), [ERROR + 6]);
    client.ask(10, &wanted);
    let Step::Transmission(session) = client.ask(7, &info("disk", &[])).0 else { panic!() };
    let mut head = vec![0x25, 0x60, 0x95, 0x13, 0, 0, 0, 7];
    head.extend([0; 18]);
    head.extend([2, 0]);
    assert!(session.request(&head, 4096).unwrap().command.is_ok());
    // Chosen for one export, it is nothing for another.
    let mut client = Client::fixed(Config::default());
    client.ask(8, &[]);
    client.ask(10, &wanted);
    let Step::Transmission(session) = client.ask(7, &info("blocks", &[3])).0 else { panic!() };
    assert!(session.request(&head, 8192).unwrap().command.is_err());
}

#[test]
fn without_tls_nothing_is_to_be_had_where_it_is_required() {
    let mut client = Client::fixed(Config { tls: Tls::Required, ..Config::default() });
    for option in [3, 6, 7, 8, 9, 10, 11, 77] {
        assert_eq!(client.kinds(option, &[]), [ERROR + 5], "option {option}");
    }
    assert!(matches!(client.ask(5, &[]).0, Step::StartTls));
    client.server.secured();
    assert_eq!(client.kinds(5, &[]), [ERROR + 3], "it is there");
    assert_eq!(client.kinds(8, &[]), [ACK]);
    let mut client = Client::fixed(Config { tls: Tls::Required, ..Config::default() });
    assert!(client.try_ask(1, b"disk").is_err());
    let mut client = Client::fixed(Config::default());
    assert_eq!(client.kinds(5, &[]), [ERROR + 2], "there is none");
}

/// What was agreed on in the open may have been somebody else's.
#[test]
fn tls_begins_with_nothing_agreed_on() {
    let mut client = Client::fixed(Config { tls: Tls::Optional, ..Config::default() });
    client.ask(8, &[]);
    client.ask(5, &[]);
    client.server.secured();
    let Step::Transmission(session) = client.ask(7, &info("hidden", &[])).0 else { panic!() };
    assert_eq!(session.replies(), Replies::Simple);
}

#[test]
fn more_options_than_a_server_hears_end_the_connection() {
    let mut client = Client::fixed(Config { options: 10, ..Config::default() });
    for _ in 0..10 {
        assert!(matches!(client.ask(3, &[]).0, Step::More), "it is answered");
    }
    let refused = client.try_ask(3, &[]);
    assert!(matches!(refused, Err(ProtocolError::Malformed("more options than anybody needs"))));
}
