//! What the roles do, a step at a time, and what they insist on at each: all that comes is whole
//! and in order.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use landfall::clan::layer::{Connect, Half, board, multipart, publish, queue, rpc, stream};
use landfall::clan::shared::{Found, NameRequest, SharedNode};
use landfall::clan::{Cookie, Error};

use super::long;

/// How the two found each other.
pub(super) enum Meeting<'a> {
    Offered(NameRequest),
    Found(&'a Found),
}

impl Meeting<'_> {
    fn join<P: Connect<SharedNode>>(self, half: Half<SharedNode, P>) -> P {
        match self {
            Self::Offered(request) => request.join(half),
            Self::Found(found) => found.join(half, long()),
        }
        .unwrap()
    }

    /// Gives the other one this cookie for its own.
    fn exchange(self, mine: &Cookie) -> Cookie {
        let theirs = match self {
            Self::Offered(request) => {
                let theirs = request.greeting().to_vec();
                request.answer(&mine.to_bytes()).unwrap();
                theirs
            }
            Self::Found(found) => found.ask(&mine.to_bytes(), long()).unwrap(),
        };
        Cookie::from_bytes(&theirs.try_into().unwrap()).unwrap()
    }
}

/// Does one thing more, until the deadline: an element, a call, some bytes.
pub(super) type Step = Box<dyn FnMut(Option<Instant>) -> Result<(), Error>>;

pub(super) fn queue_config() -> queue::Config {
    queue::Config::new(64, 8).singly()
}

pub(super) fn step_of(role: &str, node: &SharedNode, meeting: Meeting<'_>) -> Step {
    match role {
        "queue writer" => {
            queue_writer(meeting.join(queue::Sender::open(node, queue_config()).unwrap()))
        }
        "queue reader" => {
            queue_reader(meeting.join(queue::Receiver::open(node, queue_config()).unwrap()))
        }
        "queue taker" => {
            queue_taker(meeting.join(queue::Receiver::open(node, queue_config()).unwrap()))
        }
        "stream writer" => {
            let half = stream::Writer::open(node, stream::Config::new(4096)).unwrap();
            stream_writer(meeting.join(half))
        }
        "stream reader" => {
            let half = stream::Reader::open(node, stream::Config::new(4096)).unwrap();
            stream_reader(meeting.join(half))
        }
        "multipart writer" => {
            let config = multipart::Config::DEFAULT.ring(8192);
            multipart_writer(meeting.join(multipart::Sender::open(node, config).unwrap()))
        }
        "multipart reader" => {
            let config = multipart::Config::DEFAULT.ring(8192);
            multipart_reader(meeting.join(multipart::Receiver::open(node, config).unwrap()))
        }
        "rpc client" => {
            let half = rpc::Client::open(node, rpc::Config::new(64, 64)).unwrap();
            rpc_client(meeting.join(half))
        }
        "rpc server" => {
            let half = rpc::Server::open(node, rpc::Config::new(64, 64)).unwrap();
            rpc_server(meeting.join(half))
        }
        "publisher" => publisher(node, meeting),
        "subscriber" => subscriber(node, meeting),
        "board writer" => board_writer(node, meeting),
        "board reader" => board_reader(node, meeting),
        other => panic!("nobody is a {other}"),
    }
}

fn queue_writer(mut sender: queue::Sender<SharedNode>) -> Step {
    let mut next = 0u64;
    Box::new(move |deadline| {
        let element: Vec<u8> = next.to_le_bytes().repeat(8);
        sender.put(&element, deadline)?;
        next += 1;
        Ok(())
    })
}

fn queue_reader(mut receiver: queue::Receiver<SharedNode>) -> Step {
    let mut next = 0u64;
    Box::new(move |deadline| {
        let mut element = [0; 64];
        receiver.get(&mut element, deadline)?;
        assert_eq!(element.to_vec(), next.to_le_bytes().repeat(8), "whole and in order");
        next += 1;
        Ok(())
    })
}

/// One of several, of which each gets some of the elements.
fn queue_taker(mut receiver: queue::Receiver<SharedNode>) -> Step {
    // What another did not take comes late.
    let mut taken = BTreeSet::new();
    Box::new(move |deadline| {
        let mut element = [0; 64];
        receiver.get(&mut element, deadline)?;
        let number = u64::from_le_bytes(*element.first_chunk().unwrap());
        assert_eq!(element.to_vec(), number.to_le_bytes().repeat(8), "whole");
        assert!(taken.insert(number), "{number} comes twice");
        Ok(())
    })
}

/// The byte at that place of a stream.
const fn byte_at(place: u64) -> u8 {
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn stream_writer(mut writer: stream::Writer<SharedNode>) -> Step {
    let mut place = 0u64;
    Box::new(move |deadline| {
        let bytes: Vec<u8> = (place..place + 1 + place % 300).map(byte_at).collect();
        place += writer.write_some(&bytes, deadline)? as u64;
        Ok(())
    })
}

fn stream_reader(mut reader: stream::Reader<SharedNode>) -> Step {
    let mut place = 0u64;
    Box::new(move |deadline| {
        let mut bytes = [0; 257];
        let count = reader.read_some(&mut bytes, deadline)?;
        if count == 0 {
            return Err(Error::Closed);
        }
        for byte in &bytes[..count] {
            assert_eq!(*byte, byte_at(place), "at {place}");
            place += 1;
        }
        Ok(())
    })
}

fn multipart_writer(mut sender: multipart::Sender<SharedNode>) -> Step {
    let mut next = 0u64;
    Box::new(move |deadline| {
        let body: Vec<u8> = (next..next + next % 900).map(byte_at).collect();
        sender.send(&next.to_le_bytes(), &[&body], deadline)?;
        next += 1;
        Ok(())
    })
}

fn multipart_reader(mut receiver: multipart::Receiver<SharedNode>) -> Step {
    let mut next = 0u64;
    Box::new(move |deadline| {
        let message = receiver.next(deadline)?;
        assert_eq!(message.meta(), next.to_le_bytes(), "in order");
        let body: Vec<u8> = (next..next + next % 900).map(byte_at).collect();
        // Given up at the deadline, it is behind us all the same.
        next += 1;
        assert!(message.parts(deadline)? == [body], "message {} is whole", next - 1);
        Ok(())
    })
}

fn rpc_client(mut client: rpc::Client<SharedNode>) -> Step {
    let mut next = 0u64;
    Box::new(move |deadline| {
        next += 1;
        let reply = client.call(&next.to_le_bytes(), deadline)?;
        assert_eq!(reply, (3 * next).to_le_bytes(), "the reply to this call and no other");
        Ok(())
    })
}

fn rpc_server(mut server: rpc::Server<SharedNode>) -> Step {
    let mut last = 0u64;
    Box::new(move |deadline| {
        server.serve_one(deadline, |request, reply| {
            let number = u64::from_le_bytes(request.try_into().unwrap());
            assert!(number > last, "{number} after {last}");
            last = number;
            reply.extend((3 * number).to_le_bytes());
        })
    })
}

const PUBLISH: publish::Config = publish::Config::new(256, 8);

fn publisher(node: &SharedNode, meeting: Meeting<'_>) -> Step {
    let mut publisher = publish::Publisher::open(node, PUBLISH).unwrap();
    let subscriber = meeting.exchange(&publisher.cookie());
    publisher.add(&subscriber).unwrap();
    let mut next = 0u64;
    Box::new(move |_| {
        publisher.publish(&next.to_le_bytes().repeat(1 + (next % 30) as usize))?;
        next += 1;
        if publisher.subscribers() == 0 { Err(Error::PeerLost) } else { Ok(()) }
    })
}

fn subscriber(node: &SharedNode, meeting: Meeting<'_>) -> Step {
    let half = publish::Subscriber::open(node, PUBLISH).unwrap();
    let publisher = meeting.exchange(&half.cookie());
    let mut subscriber = half.connect(&publisher).unwrap();
    let mut expected = None;
    Box::new(move |deadline| {
        let got = subscriber.next(deadline)?;
        let number = u64::from_le_bytes(got.bytes[..8].try_into().unwrap());
        let whole = number.to_le_bytes().repeat(1 + (number % 30) as usize);
        assert!(got.bytes == whole, "publication {number} is whole");
        // It may have come late to the first.
        let is_next = expected.is_none_or(|expected: u64| expected + got.missed == number);
        assert!(is_next, "{number} after {expected:?}, {} missed", got.missed);
        expected = Some(number + 1);
        Ok(())
    })
}

const BOARD: board::Config = board::Config::new(8, 256);

fn board_writer(node: &SharedNode, meeting: Meeting<'_>) -> Step {
    let mut board = board::Board::open(node, BOARD).unwrap();
    let reader = meeting.exchange(&board.cookie());
    board.add(&reader).unwrap();
    let mut next = 0u64;
    Box::new(move |_| {
        next += 1;
        board.set(7, &next.to_le_bytes().repeat(1 + (next % 30) as usize))?;
        board.flush()?;
        if board.readers() == 0 { Err(Error::PeerLost) } else { Ok(()) }
    })
}

fn board_reader(node: &SharedNode, meeting: Meeting<'_>) -> Step {
    let half = board::Reader::open(node, BOARD).unwrap();
    let board = meeting.exchange(&half.cookie());
    let mut reader = half.connect(&board).unwrap();
    let mut version = 0;
    Box::new(move |deadline| {
        let value = match reader.newer(7, version, deadline) {
            // It is set faster than it can be read.
            Err(Error::Busy) => return Ok(()),
            value => value?,
        };
        assert!(value.version > version, "{} after {version}", value.version);
        version = value.version;
        let whole = version.to_le_bytes().repeat(1 + (version % 30) as usize);
        assert!(value.bytes == whole, "value {version} is none of another");
        Ok(())
    })
}

/// Takes a place or an element, and neither uses it nor gives it back.
pub(super) fn hold_for_ever(role: &str, node: &SharedNode, request: NameRequest) {
    let forever = || std::thread::sleep(Duration::from_secs(600));
    if role == "place holder" {
        let half = queue::Sender::open(node, queue_config()).unwrap();
        let mut sender = request.join(half).unwrap();
        sender.put(&0u64.to_le_bytes().repeat(8), long()).unwrap();
        let mut loan = sender.loan(long()).unwrap();
        loan.write(0, &[1; 32]).unwrap();
        forever();
        // Killed long before.
        loan.publish().unwrap();
    } else {
        let half = queue::Receiver::open(node, queue_config()).unwrap();
        let mut receiver = request.join(half).unwrap();
        let elements = receiver.elements(long()).unwrap();
        forever();
        drop(elements);
    }
}
