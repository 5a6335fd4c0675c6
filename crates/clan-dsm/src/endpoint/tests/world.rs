//! Whole runs of three hosts beside a model that sees all of them at once: it
//! knows no messages, no sessions and no answers, only who is connected to whom.

use super::connection::Flow;
use super::*;
use std::collections::BTreeMap;
use std::vec;

const HOSTS: usize = 3;

/// Which endpoint: its host, and its place among those that were ever opened there.
type Name = (usize, usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Listening,
    /// Asks, for the so manieth time.
    Connecting(u32),
    Connected(Name, Flow),
    Over,
}

#[derive(Clone, Debug)]
struct Mirror {
    id: EndpointId,
    port: u32,
    is_open: bool,
    phase: Phase,
    /// To whom it connects, for the end of that host.
    to: usize,
    inbox: VecDeque<(Notice, Option<(Name, u32)>)>,
    more: u64,
    number: u32,
    attempts: u32,
}

impl Mirror {
    fn bounded(&self) -> usize {
        self.inbox.iter().filter(|(notice, _)| !notice.is_of_connection()).count()
    }

    fn has_room(&self) -> bool {
        self.bounded() < MESSAGES
    }

    fn tell(&mut self, notice: Notice) {
        self.inbox.push_back((notice, None));
    }

    fn end(&mut self, why: Ended, body: Body) {
        self.phase = Phase::Over;
        self.tell(Notice::Ended { why, body });
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Open(usize, u32),
    Close(usize),
    Listen(usize),
    Connect(usize, usize, u32),
    Accept(usize, usize),
    Refuse(usize),
    Send(usize),
    SendTo(usize, usize, u32),
    Disconnect(usize),
    Abort(usize),
    Poll(usize),
    Gone(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let (any_one, host, port) = (0usize..1000, 0..HOSTS, 0u32..4);
    prop_oneof![
        5 => (host.clone(), port.clone()).prop_map(|(host, port)| Step::Open(host, port)),
        1 => any_one.clone().prop_map(Step::Close),
        3 => any_one.clone().prop_map(Step::Listen),
        6 => (any_one.clone(), host.clone(), port.clone()).prop_map(|(n, h, p)| Step::Connect(n, h, p)),
        6 => (any_one.clone(), any_one.clone()).prop_map(|(n, r)| Step::Accept(n, r)),
        1 => any_one.clone().prop_map(Step::Refuse),
        6 => any_one.clone().prop_map(Step::Send),
        3 => (any_one.clone(), host.clone(), port).prop_map(|(n, h, p)| Step::SendTo(n, h, p)),
        3 => any_one.clone().prop_map(Step::Disconnect),
        1 => any_one.clone().prop_map(Step::Abort),
        10 => any_one.prop_map(Step::Poll),
        1 => (host.clone(), host).prop_map(|(a, b)| Step::Gone(a, b)),
    ]
}

struct World {
    net: Net,
    mirrors: BTreeMap<Name, Mirror>,
    /// Requests that users took and have not answered, and who asks.
    requests: Vec<(usize, ConnectRequest, Name, u32)>,
    said: u32,
}

impl World {
    fn new() -> Self {
        Self { net: Net::new(HOSTS), mirrors: BTreeMap::new(), requests: Vec::new(), said: 0 }
    }

    fn any(&self, n: usize) -> Option<Name> {
        let open: Vec<Name> = self
            .mirrors
            .iter()
            .filter(|(_, mirror)| mirror.is_open)
            .map(|(name, _)| *name)
            .collect();
        (!open.is_empty()).then(|| open[n % open.len()])
    }

    fn at(&self, host: usize, port: u32) -> Option<Name> {
        let is_there = |(name, mirror): &(&Name, &Mirror)| {
            name.0 == host && mirror.is_open && mirror.port == port
        };
        self.mirrors.iter().find(is_there).map(|(name, _)| *name)
    }

    fn mirror(&mut self, name: Name) -> &mut Mirror {
        self.mirrors.get_mut(&name).unwrap()
    }

    fn address(&self, name: Name) -> PortAddress {
        address(name.0, self.mirrors[&name].port)
    }

    fn says(&mut self) -> Body {
        self.said += 1;
        body(self.said)
    }

    fn hand_over(&mut self, from: usize, outgoing: Outgoing) {
        self.net.send(from, outgoing);
        self.net.settle();
    }

    fn open(&mut self, at: usize, port: u32) {
        let open =
            self.mirrors.iter().filter(|(name, mirror)| name.0 == at && mirror.is_open).count();
        let expected = match self.at(at, port) {
            _ if open == LIMIT => Err(Error::NoRoom),
            Some(_) => Err(Error::Taken),
            None => Ok(()),
        };
        let opened = self.net.hosts[at].open(Some(Port(port)));
        assert_eq!(opened.map(|_| ()), expected);
        let Ok(id) = opened else { return };
        let count = self.mirrors.keys().filter(|name| name.0 == at).count();
        let mirror = Mirror {
            id,
            port,
            is_open: true,
            phase: Phase::Idle,
            to: 0,
            inbox: VecDeque::new(),
            more: 0,
            number: 0,
            attempts: 0,
        };
        self.mirrors.insert((at, count), mirror);
    }

    /// The connection of an endpoint breaks off from its own side.
    fn leave(&mut self, name: Name, reason: Reason) {
        if let Phase::Connected(peer, _) = self.mirror(name).phase {
            self.mirror(peer).end(Ended::There(reason), [0; 40]);
        }
        self.mirror(name).end(Ended::Here, [0; 40]);
    }

    fn close(&mut self, name: Name) {
        let id = self.mirror(name).id;
        self.net.hosts[name.0].close(id).unwrap();
        self.net.settle();
        self.leave(name, Reason::NoEndpoint);
        let mirror = self.mirror(name);
        mirror.is_open = false;
        for (_, asks) in core::mem::take(&mut mirror.inbox) {
            if let Some((caller, attempt)) = asks {
                self.refused(caller, attempt, Reason::NoEndpoint, [0; 40]);
            }
        }
    }

    fn refused(&mut self, caller: Name, attempt: u32, reason: Reason, body: Body) {
        let mirror = self.mirror(caller);
        if mirror.is_open && mirror.phase == Phase::Connecting(attempt) {
            mirror.end(Ended::There(reason), body);
        }
    }

    fn connect(&mut self, name: Name, to: PortAddress) {
        let (body, from) = (self.says(), self.address(name));
        let listener = self.at(usize::from(to.host.number()), to.port.0);
        let id = self.mirror(name).id;
        let result = self.net.hosts[name.0].connect(id, to, body);
        let mirror = self.mirror(name);
        if mirror.phase != Phase::Idle {
            assert_eq!(result, Err(Error::Busy));
            return;
        }
        mirror.attempts += 1;
        let attempt = mirror.attempts;
        mirror.phase = Phase::Connecting(attempt);
        mirror.to = usize::from(to.host.number());
        let outgoing = result.unwrap();
        let session = outgoing.message.from_session;
        self.hand_over(name.0, outgoing);
        let reason = match listener.map(|listener| self.mirror(listener)) {
            None => Reason::NoEndpoint,
            Some(listener) if listener.phase != Phase::Listening => Reason::Refused,
            Some(listener) if !listener.has_room() => Reason::NoRoom,
            Some(listener) => {
                let request = ConnectRequest { from, body, session, listener: to.port };
                listener.inbox.push_back((Notice::Request(request), Some((name, attempt))));
                return;
            }
        };
        self.refused(name, attempt, reason, [0; 40]);
    }

    fn accept(&mut self, name: Name, which: usize) {
        let here: Vec<usize> =
            (0..self.requests.len()).filter(|n| self.requests[*n].0 == name.0).collect();
        let Some(which) = here.get(which % here.len().max(1)).copied() else { return };
        let (_, request, caller, attempt) = self.requests[which];
        let body = self.says();
        let id = self.mirror(name).id;
        let result = self.net.hosts[name.0].accept(id, &request, body);
        if self.mirror(name).phase != Phase::Idle {
            assert_eq!(result, Err(Error::Busy));
            return;
        }
        self.requests.remove(which);
        self.hand_over(name.0, result.unwrap());
        self.mirror(name).to = caller.0;
        let by = self.address(name);
        let asks = self.mirror(caller);
        if asks.is_open && asks.phase == Phase::Connecting(attempt) {
            asks.phase = Phase::Connected(name, Flow::Both);
            asks.tell(Notice::Accepted { by, body });
            self.mirror(name).phase = Phase::Connected(caller, Flow::Both);
        } else {
            let is_open = self.at(caller.0, self.mirrors[&caller].port).is_some();
            let reason = if is_open { Reason::Refused } else { Reason::NoEndpoint };
            self.mirror(name).end(Ended::There(reason), [0; 40]);
        }
    }

    fn refuse(&mut self, which: usize) {
        if self.requests.is_empty() {
            return;
        }
        let which = which % self.requests.len();
        let (at, request, caller, attempt) = self.requests.remove(which);
        let body = self.says();
        let no = self.net.hosts[at].refuse(&request, Reason::Forbidden, body);
        self.hand_over(at, no);
        self.refused(caller, attempt, Reason::Forbidden, body);
    }

    fn undelivered(&mut self, name: Name, to: PortAddress, number: u32, reason: Reason) {
        let mirror = self.mirror(name);
        if mirror.has_room() && mirror.more == 0 {
            mirror.tell(Notice::Undelivered { to, number, count: 1, reason });
        } else {
            mirror.more += 1;
        }
    }

    /// A message leaves, and reaches an endpoint or not.
    fn message(&mut self, name: Name, outgoing: Outgoing, to: Option<Name>) {
        let (from, body, number) =
            (self.address(name), outgoing.message.body, outgoing.message.number);
        let address = PortAddress { host: outgoing.host, port: outgoing.message.to };
        assert_eq!(number, self.mirror(name).number);
        self.mirror(name).number += 1;
        self.hand_over(name.0, outgoing);
        match to.map(|to| self.mirror(to)) {
            Some(to) if to.has_room() => to.tell(Notice::Message { from, body }),
            Some(_) => self.undelivered(name, address, number, Reason::NoRoom),
            None => self.undelivered(name, address, number, Reason::NoEndpoint),
        }
    }

    fn send(&mut self, name: Name) {
        let body = self.says();
        let id = self.mirror(name).id;
        let result = self.net.hosts[name.0].send(id, body);
        match self.mirror(name).phase {
            Phase::Connected(peer, Flow::Both | Flow::OursOnly) => {
                self.message(name, result.unwrap(), Some(peer));
            }
            _ => assert_eq!(result, Err(Error::NotOpen)),
        }
    }

    fn disconnect(&mut self, name: Name) {
        let body = self.says();
        let id = self.mirror(name).id;
        let result = self.net.hosts[name.0].disconnect(id, body);
        match self.mirror(name).phase {
            Phase::Connected(peer, Flow::Both) => {
                self.hand_over(name.0, result.unwrap());
                self.mirror(name).phase = Phase::Connected(peer, Flow::TheirsOnly);
                let peer = self.mirror(peer);
                peer.phase = Phase::Connected(name, Flow::OursOnly);
                peer.tell(Notice::Disconnected { body });
            }
            Phase::Connected(peer, Flow::OursOnly) => {
                self.hand_over(name.0, result.unwrap());
                self.mirror(peer).tell(Notice::Disconnected { body });
                for side in [name, peer] {
                    self.mirror(side).phase = Phase::Over;
                    self.mirror(side).tell(Notice::Closed);
                }
            }
            _ => assert_eq!(result, Err(Error::NotOpen)),
        }
    }

    fn abort(&mut self, name: Name) {
        let id = self.mirror(name).id;
        let result = self.net.hosts[name.0].abort(id);
        self.net.settle();
        match self.mirror(name).phase {
            Phase::Connecting(_) | Phase::Connected(..) => {
                assert_eq!(result, Ok(()));
                self.leave(name, Reason::Refused);
            }
            _ => assert_eq!(result, Err(Error::NotOpen)),
        }
    }

    fn poll(&mut self, name: Name) {
        let id = self.mirror(name).id;
        let notice = self.net.hosts[name.0].poll_notice(id);
        let mirror = self.mirror(name);
        let Some((expected, asks)) = mirror.inbox.pop_front() else {
            let count = core::mem::take(&mut mirror.more);
            let more = (count > 0).then_some(Notice::MoreUndelivered { count });
            assert_eq!(notice, more);
            return;
        };
        if expected.is_last() {
            mirror.phase = Phase::Idle;
        }
        assert_eq!(notice, Some(expected));
        if let (Notice::Request(request), Some((caller, attempt))) = (expected, asks) {
            self.requests.push((name.0, request, caller, attempt));
        }
    }

    /// The link between two hosts is lost, and both notice.
    fn gone(&mut self, a: usize, b: usize) {
        if a == b {
            return;
        }
        for (here, there) in [(a, b), (b, a)] {
            let mut told = Vec::new();
            let mut tell = |id| told.push(id);
            self.net.hosts[here].handle_host_gone(host(there), Ended::Silent, &mut tell);
            let mut expected = Vec::new();
            for (name, mirror) in &mut self.mirrors {
                let over_it = name.0 == here && mirror.is_open && mirror.to == there;
                if over_it && matches!(mirror.phase, Phase::Connecting(_) | Phase::Connected(..)) {
                    mirror.end(Ended::Silent, [0; 40]);
                    expected.push(mirror.id);
                }
            }
            told.sort_unstable();
            expected.sort_unstable();
            assert_eq!(told, expected);
        }
        self.net.settle();
    }

    fn play(&mut self, step: Step) {
        match step {
            Step::Open(host, port) => self.open(host, port),
            Step::Refuse(which) => self.refuse(which),
            Step::Gone(a, b) => self.gone(a, b),
            Step::Close(n)
            | Step::Listen(n)
            | Step::Connect(n, ..)
            | Step::Accept(n, _)
            | Step::Send(n)
            | Step::SendTo(n, ..)
            | Step::Disconnect(n)
            | Step::Abort(n)
            | Step::Poll(n) => {
                let Some(name) = self.any(n) else { return };
                self.play_at(name, step);
            }
        }
    }

    fn play_at(&mut self, name: Name, step: Step) {
        match step {
            Step::Close(_) => self.close(name),
            Step::Listen(_) => {
                let id = self.mirror(name).id;
                let result = self.net.hosts[name.0].listen(id);
                let mirror = self.mirror(name);
                let may = matches!(mirror.phase, Phase::Idle | Phase::Listening);
                assert_eq!(result, if may { Ok(()) } else { Err(Error::Busy) });
                if may {
                    mirror.phase = Phase::Listening;
                }
            }
            Step::Connect(_, host, port) => self.connect(name, address(host, port)),
            Step::Accept(_, which) => self.accept(name, which),
            Step::Send(_) => self.send(name),
            Step::SendTo(_, host, port) => {
                let body = self.says();
                let id = self.mirror(name).id;
                let outgoing =
                    self.net.hosts[name.0].send_to(id, address(host, port), body).unwrap();
                let to = self.at(host, port);
                self.message(name, outgoing, to);
            }
            Step::Disconnect(_) => self.disconnect(name),
            Step::Abort(_) => self.abort(name),
            _ => self.poll(name),
        }
    }
}

proptest! {
    /// Connections come about, carry messages, and end as the model says, with one
    /// last notice each; nothing is lost and not told.
    #[test]
    fn endpoints_behave_as_a_model_that_sees_all_hosts(
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let mut world = World::new();
        for step in steps {
            world.play(step);
        }
        while let Some(name) = world.mirrors.iter().find(|(_, mirror)| {
            mirror.is_open && (!mirror.inbox.is_empty() || mirror.more > 0)
        }).map(|(name, _)| *name) {
            world.poll(name);
        }
        for n in 0..1000 {
            if let Some(name) = world.any(n) {
                world.poll(name);
            }
        }
    }

    /// Messages cross on the way in any order of hosts, in order between two: in the
    /// end both sides of each connection agree, and each message of a connection came
    /// once, came back, or the sender knows that the connection broke off.
    #[test]
    fn what_crosses_on_the_way_ends_in_agreement(
        moves in prop::collection::vec((0u8..12, 0usize..2, 0usize..4), 0..300),
    ) {
        let mut net = Net::new(2);
        let mut ids = [Vec::new(), Vec::new()];
        for at in [0, 1] {
            for port in 0..3 {
                ids[at].push(net.hosts[at].open(Some(Port(port))).unwrap());
            }
            net.hosts[at].listen(ids[at][0]).unwrap();
        }
        let mut tally = Tally::default();
        for (n, (what, at, which)) in moves.into_iter().enumerate() {
            let id = ids[at][1 + which % 2];
            let body = body(n as u32);
            let outgoing = match what {
                0 | 1 => net.hosts[at].connect(id, address(1 - at, 0), body).ok(),
                2..=4 => {
                    let sent = net.hosts[at].send(id, body).ok();
                    tally.sent += u64::from(sent.is_some());
                    sent
                }
                5 => net.hosts[at].disconnect(id, body).ok(),
                6 if which == 0 => {
                    let _ = net.hosts[at].abort(id);
                    None
                }
                7 | 8 => {
                    tally.take(&mut net, at, id);
                    None
                }
                9 => match net.hosts[at].poll_notice(ids[at][0]) {
                    Some(Notice::Request(request)) => net.hosts[at].accept(id, &request, body).ok(),
                    _ => None,
                },
                10 => {
                    net.answer(at);
                    None
                }
                _ => {
                    net.deliver(at, 1 - at);
                    None
                }
            };
            if let Some(outgoing) = outgoing {
                net.send(at, outgoing);
            }
        }
        net.settle();
        for (at, id) in [0, 1].into_iter().flat_map(|at| ids[at][1..].iter().map(move |id| (at, *id))) {
            let state = net.hosts[at].state(id).unwrap();
            let mirrored = match state {
                EndpointState::Connected => EndpointState::Connected,
                EndpointState::ClosedHere => EndpointState::ClosedThere,
                EndpointState::ClosedThere => EndpointState::ClosedHere,
                _ => continue,
            };
            let peer = net.hosts[at].peer(id).unwrap();
            let other = ids[1 - at][peer.port.0 as usize];
            prop_assert_eq!(net.hosts[1 - at].state(other), Ok(mirrored));
            prop_assert_eq!(net.hosts[1 - at].peer(other).unwrap().port, net.hosts[at].port(id).unwrap());
        }
        for (at, ids) in ids.iter().enumerate() {
            for id in &ids[1..] {
                while tally.take(&mut net, at, *id) {}
            }
        }
        prop_assert!(tally.came + tally.back <= tally.sent);
        if !tally.broke_off {
            prop_assert_eq!(tally.came + tally.back, tally.sent);
        }
    }
}

#[derive(Default)]
struct Tally {
    sent: u64,
    came: u64,
    back: u64,
    broke_off: bool,
}

impl Tally {
    fn take(&mut self, net: &mut Net, at: usize, id: EndpointId) -> bool {
        match net.hosts[at].poll_notice(id) {
            None => return false,
            Some(Notice::Message { .. }) => self.came += 1,
            Some(Notice::Undelivered { count, .. }) => self.back += u64::from(count),
            Some(Notice::MoreUndelivered { count }) => self.back += count,
            Some(Notice::Ended { .. }) => self.broke_off = true,
            Some(_) => {}
        }
        true
    }
}
