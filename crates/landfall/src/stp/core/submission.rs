//! [`Submission`]: what handles ask for without an answer.

use std::sync::Arc;

use landfall_placement::Instant;
use stp_core::wire::Reason;
use stp_core::{AskId, ConnectionId, ExposedId, ReadId, ReceiveId};

use super::{Core, Request, Ticket};
use crate::stp::memory::Held;

/// See the module.
#[derive(Debug)]
pub(crate) enum Submission {
    /// Begin an operation.
    Start {
        connection: ConnectionId,
        request: Request,
        held: Option<Held>,
        ticket: Arc<Ticket>,
    },
    /// Nobody waits for it any more.
    Forget(Arc<Ticket>),
    /// What the other side offered or asked for is not taken after all.
    RefuseOffer(ReceiveId, Reason),
    RefuseRead(ReadId, Reason),
    RefuseRegion(AskId, Reason),
    /// End the use of a region by the other side; its handle is gone, or not.
    Revoke(ExposedId, bool),
    Close(ConnectionId),
    Abort(ConnectionId, Reason),
    /// The last handle of a connection is gone.
    Release(ConnectionId),
    StopListening(u16),
}

impl Core {
    pub(super) fn submitted(&mut self, now: Instant, submission: Submission) {
        match submission {
            Submission::Start { connection, request, held, ticket } => {
                self.start(now, connection, request, held, ticket);
            }
            Submission::Forget(ticket) => self.forget(now, &ticket),
            Submission::RefuseOffer(offer, reason) => self.refuse_offer(now, offer, reason),
            Submission::RefuseRead(read, reason) => self.refuse_read(now, read, reason),
            Submission::RefuseRegion(ask, reason) => {
                // Over already: nobody waits for an answer.
                let _ = self.engine.refuse_region(ask, reason);
            }
            Submission::Revoke(exposed, is_orphan) => self.revoke(now, exposed, is_orphan),
            Submission::Close(connection) => self.close_connection(now, connection),
            Submission::Abort(connection, reason) => self.abort_connection(now, connection, reason),
            Submission::Release(connection) => self.release_connection(now, connection),
            Submission::StopListening(port) => self.stop_listening(now, port),
        }
    }
}
