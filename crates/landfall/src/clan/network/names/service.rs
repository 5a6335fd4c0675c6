//! What a node answers to those who ask for names: under its lock, as messages come.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use clan_dsm::{Body, ConnectRequest, EndpointId, HostId, Notice, Reason};
use landfall_placement::Instant;
use landfall_seal::{Fingerprint, PeerIdentity};

use super::{NAME_PORT, fingerprint_of};
use crate::clan::Error;
use crate::clan::names::{Greeting, MAX_GREETING, MAX_NAME, Name};
use crate::clan::network::builder::refused;
use crate::clan::network::state::{DeferredWork, NodeState};
use crate::runtime::locked;

/// The version of the conversation.
pub(super) const VERSION: u8 = 1;
/// Bytes of a message.
pub(super) const BODY: usize = size_of::<Body>();

/// The most conversations at a time, and with one host; more are refused.
const MOST: usize = 512;
const MOST_OF_ONE_HOST: usize = 64;

/// Those who have asked for a name and wait for an answer; more are refused.
const MOST_WAITING: usize = 128;

/// Somebody who has asked for a name, and waits for an answer.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) conversation: EndpointId,
    /// The engine that has the conversation.
    pub(super) nth: usize,
    pub(super) host: HostId,
    pub(super) identity: Option<PeerIdentity>,
    pub(super) greeting: Greeting,
}

/// What those who offer a name and the node share.
#[derive(Debug)]
pub(super) struct OfferState {
    /// Who may ask; none: everybody.
    keys: Option<Vec<Fingerprint>>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    asked: VecDeque<PendingRequest>,
    waker: Option<Waker>,
    is_over: bool,
}

impl OfferState {
    pub(super) fn new(keys: Option<Vec<Fingerprint>>) -> Self {
        Self { keys, waiting: Mutex::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        locked(&self.waiting).asked.is_empty()
    }

    pub(super) fn next(&self) -> Result<Option<PendingRequest>, Error> {
        let mut waiting = locked(&self.waiting);
        match waiting.asked.pop_front() {
            None if waiting.is_over => Err(Error::NodeGone),
            asked => Ok(asked),
        }
    }

    pub(super) fn poll_next(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<Result<PendingRequest, Error>> {
        let mut waiting = locked(&self.waiting);
        match waiting.asked.pop_front() {
            Some(asked) => return Poll::Ready(Ok(asked)),
            None if waiting.is_over => return Poll::Ready(Err(Error::NodeGone)),
            None => {}
        }
        waiting.waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn admits(&self, identity: Option<PeerIdentity>) -> bool {
        let Some(keys) = &self.keys else { return true };
        fingerprint_of(identity).is_some_and(|key| keys.contains(&key))
    }

    /// Leaves it to those who offer the name; false if there is no room.
    fn leave(&self, asked: PendingRequest, after: &mut DeferredWork) -> bool {
        let mut waiting = locked(&self.waiting);
        let has_room = !waiting.is_over && waiting.asked.len() < MOST_WAITING;
        if has_room {
            waiting.asked.push_back(asked);
            after.wake.extend(waiting.waker.take());
        }
        has_room
    }

    /// Nothing comes any more; gives those who wait.
    pub(super) fn end(&self, after: &mut DeferredWork) -> VecDeque<PendingRequest> {
        let mut waiting = locked(&self.waiting);
        waiting.is_over = true;
        after.wake.extend(waiting.waker.take());
        std::mem::take(&mut waiting.asked)
    }
}

/// One who asks.
#[derive(Debug)]
struct Conversation {
    host: HostId,
    /// What has come of the question.
    said: Vec<u8>,
    stage: Stage,
    /// What has still to be sent of the answer.
    answer: VecDeque<Body>,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// The question is not complete.
    Asking,
    /// It waits until the name is offered.
    Awaiting(Name),
    /// Those who offer the name have it, or it is answered.
    Asked,
}

/// What is offered here, and who asks for it.
#[derive(Debug, Default)]
pub(crate) struct NameService {
    listener: Option<EndpointId>,
    offers: BTreeMap<Name, Arc<OfferState>>,
    conversations: BTreeMap<u64, (EndpointId, Conversation)>,
    /// Endpoints of this service that have notices.
    touched: Vec<EndpointId>,
    /// Answers found no room.
    is_blocked: bool,
}

impl NameService {
    /// An endpoint that is none of a user has notices.
    pub(in crate::clan::network) fn touch(&mut self, id: EndpointId) {
        if self.listener == Some(id) || self.conversations.contains_key(&id.raw()) {
            self.touched.push(id);
        }
    }

    /// Some notices were not told of.
    pub(in crate::clan::network) fn touch_all(&mut self) {
        let all = self.conversations.values().map(|(id, _)| *id);
        self.touched = self.listener.into_iter().chain(all).collect();
    }

    fn get_mut(&mut self, id: EndpointId) -> Option<&mut Conversation> {
        self.conversations.get_mut(&id.raw()).map(|(_, conversation)| conversation)
    }
}

/// The question, once all of it has come: what is asked, the name and what is said.
fn question(said: &[u8]) -> Result<Option<(u8, Name, Greeting)>, Reason> {
    let [version, kind, name, greeting, rest @ ..] = said else { return Ok(None) };
    let (name, greeting) = (usize::from(*name), usize::from(*greeting));
    let is_one = *version == VERSION
        && *kind <= 1
        && (1..=MAX_NAME).contains(&name)
        && greeting <= MAX_GREETING;
    if !is_one {
        return Err(Reason::Malformed);
    }
    if rest.len() < name + greeting {
        return Ok(None);
    }
    let malformed = |_| Reason::Malformed;
    let said = rest[name..name + greeting].try_into().map_err(malformed)?;
    Ok(Some((*kind, rest[..name].try_into().map_err(malformed)?, said)))
}

impl NodeState {
    /// From now on this node is asked for names. Where there is no room for an endpoint more it
    /// is when a name is offered.
    pub(in crate::clan::network) fn listen_for_names(&mut self) -> Result<(), Error> {
        if self.names.listener.is_none() {
            let taken = |error| refused(error, "endpoint for names");
            let listener = self.engine.open_endpoint(Some(NAME_PORT)).map_err(taken)?;
            self.engine.listen(listener).map_err(taken)?;
            self.names.listener = Some(listener);
        }
        Ok(())
    }

    pub(super) fn offer_name(
        &mut self,
        now: Instant,
        name: &Name,
        state: &Arc<OfferState>,
    ) -> Result<(), Error> {
        if self.names.offers.contains_key(name) {
            return Err(Error::BadConfig("this node offers that name already"));
        }
        self.listen_for_names()?;
        self.names.offers.insert(name.clone(), Arc::clone(state));
        let awaits = |conversation: &Conversation| matches!(&conversation.stage, Stage::Awaiting(awaited) if awaited == name);
        let all = self.names.conversations.values();
        let told: Vec<_> = all.filter(|(_, one)| awaits(one)).map(|(id, _)| *id).collect();
        for id in told {
            self.tell_offered(now, id, state);
        }
        Ok(())
    }

    /// Nobody who asks from now on finds it.
    pub(super) fn withdraw_name(&mut self, name: &Name) {
        self.names.offers.remove(name);
    }

    /// Answers, or refuses, one who has asked.
    pub(super) fn answer_name(
        &mut self,
        now: Instant,
        id: EndpointId,
        answer: Option<&Greeting>,
    ) -> Result<(), Error> {
        let conversation = self.names.get_mut(id).ok_or(Error::PeerLost)?;
        let said = match answer {
            Some(answer) => [&[1, answer.len() as u8], &answer[..]].concat(),
            None => vec![0],
        };
        for part in said.chunks(BODY) {
            let mut body = [0; BODY];
            body[..part.len()].copy_from_slice(part);
            conversation.answer.push_back(body);
        }
        conversation.stage = Stage::Asked;
        self.send_answer(now, id);
        Ok(())
    }

    /// Sends what there is room for.
    fn send_answer(&mut self, now: Instant, id: EndpointId) {
        let Some(conversation) = self.names.get_mut(id) else { return };
        while let Some(body) = conversation.answer.front() {
            match self.engine.send(id, *body) {
                Ok(()) => drop(conversation.answer.pop_front()),
                Err(clan_dsm::Error::Busy) => {
                    self.names.is_blocked = true;
                    return;
                }
                Err(_) => return self.end_conversation(now, id),
            }
        }
    }

    fn end_conversation(&mut self, now: Instant, id: EndpointId) {
        if self.names.conversations.remove(&id.raw()).is_some() {
            // It is there: nobody else knows it.
            let _ = self.engine.close_endpoint(now, id);
        }
    }

    /// Deals with what has come to the endpoints of this service.
    pub(in crate::clan::network) fn serve_names(&mut self, now: Instant) {
        for id in std::mem::take(&mut self.names.touched) {
            if self.names.listener == Some(id) {
                while let Some(notice) = self.engine.poll_notice(id) {
                    if let Notice::Request(request) = notice {
                        self.begin_conversation(now, &request);
                    }
                }
            } else {
                self.go_on(now, id);
            }
        }
        if std::mem::take(&mut self.names.is_blocked) {
            let all: Vec<_> = self.names.conversations.values().map(|(id, _)| *id).collect();
            all.into_iter().for_each(|id| self.send_answer(now, id));
        }
    }

    fn begin_conversation(&mut self, now: Instant, request: &ConnectRequest) {
        let host = request.from.host;
        let all = self.names.conversations.values();
        let of_host = all.filter(|(_, conversation)| conversation.host == host).count();
        let has_room = self.names.conversations.len() < MOST && of_host < MOST_OF_ONE_HOST;
        let opened = has_room.then(|| self.engine.open_endpoint(None).ok()).flatten();
        let Some(id) = opened else {
            // One that is gone needs no answer.
            let _ = self.engine.refuse(request, Reason::NoRoom, [0; BODY]);
            return;
        };
        if self.engine.accept(id, request, [0; BODY]).is_err() {
            let _ = self.engine.close_endpoint(now, id);
            return;
        }
        let (said, answer) = (request.body.to_vec(), VecDeque::new());
        let conversation = Conversation { host, said, stage: Stage::Asking, answer };
        self.names.conversations.insert(id.raw(), (id, conversation));
        self.look_at_question(now, id);
    }

    fn go_on(&mut self, now: Instant, id: EndpointId) {
        while let Some(notice) = self.engine.poll_notice(id) {
            match notice {
                Notice::Message { body, .. } => {
                    let Some(conversation) = self.names.get_mut(id) else { return };
                    if conversation.stage != Stage::Asking {
                        return self.end_conversation(now, id);
                    }
                    conversation.said.extend(body);
                    self.look_at_question(now, id);
                }
                // It has its answer, has given up, or is gone.
                _ => return self.end_conversation(now, id),
            }
        }
    }

    fn look_at_question(&mut self, now: Instant, id: EndpointId) {
        let Some(conversation) = self.names.get_mut(id) else { return };
        let (kind, name, greeting) = match question(&conversation.said) {
            Ok(Some(question)) => question,
            Ok(None) => return,
            Err(_) => return self.end_conversation(now, id),
        };
        let host = conversation.host;
        let offer = self.names.offers.get(&name).cloned();
        if kind == 0 {
            conversation_awaits(self.names.get_mut(id), name);
            if let Some(offer) = offer {
                self.tell_offered(now, id, &offer);
            }
            return;
        }
        let identity = self.identity_of(host);
        let asked = PendingRequest { conversation: id, nth: self.nth, host, identity, greeting };
        let is_left = offer
            .filter(|offer| offer.admits(identity))
            .is_some_and(|offer| offer.leave(asked, &mut self.after));
        if is_left {
            if let Some(conversation) = self.names.get_mut(id) {
                conversation.stage = Stage::Asked;
            }
        } else {
            // It is there: its question has just come.
            let _ = self.answer_name(now, id, None);
        }
    }

    /// The name is offered. Those who are not admitted go on waiting.
    fn tell_offered(&mut self, now: Instant, id: EndpointId, offer: &OfferState) {
        let host = self.names.get_mut(id).map(|conversation| conversation.host);
        let identity = host.and_then(|host| self.identity_of(host));
        if offer.admits(identity) {
            // It is there: its question has come.
            let _ = self.answer_name(now, id, Some(&Greeting::new()));
        }
    }

    fn identity_of(&mut self, host: HostId) -> Option<PeerIdentity> {
        let neighbour = self.neighbour(host)?;
        neighbour.is_sealed().then(|| self.engine.identity(neighbour.name)).flatten()
    }

    /// The node has ended.
    pub(in crate::clan::network) fn end_names(&mut self) {
        for offer in std::mem::take(&mut self.names.offers).into_values() {
            drop(offer.end(&mut self.after));
        }
    }
}

fn conversation_awaits(conversation: Option<&mut Conversation>, name: Name) {
    if let Some(conversation) = conversation {
        conversation.stage = Stage::Awaiting(name);
    }
}
