//! What a node asks another: the caller's side of a conversation.

use std::future::poll_fn;
use std::task::Poll;

use clan_dsm::{Body, HostId, Notice, PortAddress, Reason};

use super::NAME_PORT;
use super::service::{BODY, VERSION};
use crate::clan::Error;
use crate::clan::network::builder::ended;
use crate::clan::network::endpoint::Endpoint;
use crate::clan::network::engines::NodeHandle;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// To be told when the name is offered.
    Await = 0,
    /// Who offers it.
    Ask = 1,
}

/// Asks a host about a name, and gives its answer.
pub(super) async fn ask(
    handle: &NodeHandle,
    (host, kind): (HostId, Kind),
    name: &[u8],
    greeting: &[u8],
) -> Result<Vec<u8>, Error> {
    let endpoint = Endpoint::open(handle, None)?;
    let head = [VERSION, kind as u8, name.len() as u8, greeting.len() as u8];
    let said = [&head[..], name, greeting].concat();
    let mut bodies = said.chunks(BODY).map(body);
    let to = PortAddress { host, port: NAME_PORT };
    let first = bodies.next().unwrap_or([0; BODY]);
    when_there_is_room(|| endpoint.connect(to, first)).await?;
    let mut answer = Vec::new();
    loop {
        match endpoint.next().await? {
            Notice::Accepted { .. } => {
                for body in bodies.by_ref() {
                    when_there_is_room(|| endpoint.send(body)).await?;
                }
            }
            Notice::Message { body, .. } => answer.extend(body),
            Notice::Ended { why, .. } => return Err(ended(why)),
            Notice::Undelivered { reason, .. } => return Err(Error::Refused(reason)),
            Notice::MoreUndelivered { .. } => return Err(Error::Refused(Reason::NoRoom)),
            Notice::Disconnected { .. } | Notice::Closed => return Err(Error::PeerLost),
            // Nobody asks this endpoint for a connection.
            _ => {}
        }
        match answer[..] {
            [1, len, ..] if answer.len() >= usize::from(len) + 2 => {
                return Ok(answer[2..usize::from(len) + 2].to_vec());
            }
            [0, ..] => return Err(Error::Refused(Reason::Refused)),
            [1, ..] | [] => {}
            // No node of ours answers so.
            _ => return Err(Error::Refused(Reason::Malformed)),
        }
    }
}

/// Does it again while the way is full: it empties by itself, and the task looks each turn.
async fn when_there_is_room(mut send: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
    poll_fn(|context| match send() {
        Err(Error::Busy) => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
        done => Poll::Ready(done),
    })
    .await
}

fn body(part: &[u8]) -> Body {
    let mut body = [0; BODY];
    body[..part.len()].copy_from_slice(part);
    body
}
