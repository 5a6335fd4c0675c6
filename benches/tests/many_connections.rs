//! A million idle connections on one engine, each from a peer of its own: how
//! much memory they take, and that the engine goes on as before.

mod counting;

use landfall_placement::{
    Ecn, Engine, Instant, PathId, PathLimits, PathState, Peer, Placement, Spans, Unit,
};
use stp_core::wire::message::{Ids, Message, Offer, Question};
use stp_core::wire::proof::{self, Secret, Secrets};
use stp_core::wire::{Envelope, LONGEST_HEAD};
use stp_core::{Admission, Config, Endpoint, Event};

const PATH: PathId = PathId(0);
const PORT: u16 = 7;
const NOW: Instant = Instant::from_millis(1);
const MANY: usize = 1_000_000;
/// What the clients draw for their proofs.
const MINE: Secret = Secret(42);
/// What the project promises for an idle connection.
const MOST_BYTES: i64 = 512;

/// A server, and clients that are no more than the packets they send.
struct Server {
    engine: Endpoint,
    spans: Spans,
}

/// What a client knows of its connection.
#[derive(Clone, Copy, Debug)]
struct Client {
    number: u32,
    /// The key and the secret that the server gave it.
    key: u32,
    secret: Secret,
    id: u16,
}

impl Client {
    const fn envelope(self) -> Envelope {
        Envelope { d_port: PORT, s_port: self.number as u16, d_key: self.key }
    }
}

impl Server {
    fn new() -> Self {
        let config = Config { connections: MANY, links: MANY, ..Config::default() };
        let mut engine = Endpoint::new(config, [1; 32]).unwrap();
        engine.handle_path(NOW, PATH, PathState::Up(PathLimits::plain(1500)));
        engine.listen(PORT, Admission::Open).expect("nobody listens there");
        Self { engine, spans: Spans::new() }
    }

    fn hear(&mut self, client: Client, message: &Message) {
        let mut head = [0; LONGEST_HEAD];
        let len = message.encode(client.envelope(), &mut head).expect("a message");
        let secrets = Secrets { receiver: client.secret, sender: MINE };
        proof::seal(&mut head[..len], secrets);
        self.spans.clear();
        let unit = Unit {
            path: PATH,
            from: Peer::Node(client.number),
            head: &head[..len],
            len: len as u32,
            segment: None,
            ecn: Ecn::NotCapable,
            verified: false,
        };
        let placed = self.engine.place(NOW, &unit, &mut self.spans);
        assert_eq!(placed, Ok(Placement::Consumed), "{message:?}");
    }

    /// What the server says next, and to whom.
    fn say(&mut self) -> Option<(Peer, Message)> {
        let mut head = [0; LONGEST_HEAD];
        self.spans.clear();
        let sent = self.engine.poll_transmit(NOW, PATH, &mut head, &mut self.spans)?;
        self.engine.handle_sent(NOW, sent.ticket);
        let (_, message) = Message::decode(&head[..usize::from(sent.head_len)]).expect("a message");
        Some((sent.to, message))
    }

    /// Request, answer, and the first packet with the key.
    fn admit(&mut self, number: u32) -> Client {
        let offer = Offer {
            version: 3,
            max_stu: 10,
            tail: 0,
            buffer: 21,
            slots: 16,
            s_key: number + 1,
            s_id: number as u16,
            hello: 0,
            secret: MINE,
        };
        let stranger = Client { number, key: 0, secret: Secret::default(), id: 0 };
        self.hear(stranger, &Message::RequestConnection(offer));
        let Some((to, Message::ConnectionAnswer { result: Ok(answer), .. })) = self.say() else {
            panic!("client {number} was not answered");
        };
        assert_eq!(to, Peer::Node(number));
        let (key, secret) = (answer.s_key, answer.secret);
        let client = Client { number, key, secret, id: answer.s_id };
        self.ask_alive(client);
        let told = self.engine.poll_event();
        assert!(matches!(told, Some(Event::Accepted { port: PORT, .. })), "{told:?}");
        client
    }

    fn ask_alive(&mut self, client: Client) {
        let ids = Ids { d_id: client.id, s_id: client.number as u16 };
        let question = Question::Connection { ids, is_link: false, token: 5 };
        self.hear(client, &Message::RequestState(question));
        // It may ask the same of us before.
        let mut said = std::iter::from_fn(|| self.say());
        let is_answer = |(to, message): (Peer, Message)| {
            let is_response = matches!(message, Message::RequestStateResponse(_));
            to == Peer::Node(client.number) && is_response
        };
        assert!(said.any(is_answer), "client {} was not answered", client.number);
    }
}

#[test]
fn a_million_idle_connections_take_at_most_512_bytes_each() {
    let (alone, mut server) = counting::count(Server::new);
    let (counted, clients) = counting::count(|| {
        let mut some = Vec::new();
        for number in 0..MANY as u32 {
            let client = server.admit(number);
            if number % 10_007 == 0 {
                some.push(client);
            }
        }
        some
    });
    assert_eq!(server.engine.connections(), MANY);
    let each = counted.held / MANY as i64;
    eprintln!("{} bytes for the engine alone; {each} for each connection", alone.held);
    assert!(each <= MOST_BYTES, "{each} bytes for each idle connection");
    // Anyone who of them speaks is known, and at the bound the next is turned away.
    for client in clients {
        server.ask_alive(client);
    }
    assert_eq!(server.engine.refusals().total(), 0, "{}", server.engine.refusals());
}
