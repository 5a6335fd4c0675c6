//! What others ask, answer and complain of.

use landfall_placement::{Instant, Refusal};

use super::Nic;
use crate::address::{Address, HostId};
use crate::endpoint::OutOfBand;
use crate::error::{Ended, Reason};
use crate::event::Event;
use crate::ids::LinkId;
use crate::transfer::reads::Asked;
use crate::wire::{Command, ReplyTo};

impl Nic {
    /// A command came, in its turn.
    pub(super) fn command(
        &mut self,
        _now: Instant,
        link: LinkId,
        address: &Address,
        parameters: &[u8],
    ) {
        if let Err(refusal) = self.obey(link, address, parameters) {
            self.refusals.count(refusal);
        }
    }

    pub(super) fn obey(
        &mut self,
        link: LinkId,
        address: &Address,
        parameters: &[u8],
    ) -> Result<(), Refusal> {
        if address.host != self.host {
            return Err(Refusal::WrongAddress);
        }
        let host = self.lines.get(link).and_then(|line| line.host);
        let host = host.ok_or(Refusal::Unexpected)?;
        match Command::parse(address, parameters)? {
            Command::Read { from, len, reply } => {
                let ReplyTo { slot, nonce } = reply;
                let asked = Asked { address: from, len: u64::from(len), slot, nonce };
                self.asked(link, asked);
            }
            Command::ReadRefused { reply: ReplyTo { slot, nonce }, reason } => {
                let over = self.reads.refused(link.index, slot, nonce, reason)?;
                self.read_over(over);
            }
            // Were it allowed, it would have been done on its way.
            Command::WordOp { at, function, reply } => {
                let reason = match self.check_word(&at, function) {
                    Err(refusal) => Reason::from(self.refusals.count(refusal)),
                    Ok(_) => Reason::NoRoom,
                };
                self.answer(link, Command::WordReply { reply, result: Err(reason) });
            }
            Command::WordReply { reply: ReplyTo { slot, nonce }, result } => {
                let operation = self.operations.answered(link.index, slot, nonce)?;
                self.word_over(link, operation, result.map_err(Ended::There));
            }
            Command::OutOfBand(message) => self.message(host, &message)?,
            Command::Exception { address, reason } => {
                let window = self.windows.of(&address);
                let address = Some(address);
                self.events.push(Event::Exception { window, host, reason, address });
            }
            // A link that acknowledges needs none: who asks is told nothing that
            // it does not learn from that.
            Command::Barrier { .. } | Command::BarrierReached { .. } => {
                return Err(Refusal::Unsupported);
            }
        }
        Ok(())
    }

    /// The other side wants to read.
    fn asked(&mut self, link: LinkId, asked: Asked) {
        let most = self.config.reads.min(super::MOST_ASKED);
        let Self { lines, memory, .. } = self;
        let Some(line) = lines.get_mut(link) else { return };
        let is_ours = asked.address.host == self.host;
        let result = match is_ours {
            true => line.serving.ask(memory, asked, most),
            false => Err(Reason::BadKey),
        };
        match result {
            Ok(()) => self.links.wake(link),
            Err(reason) => {
                let reply = ReplyTo { slot: asked.slot, nonce: asked.nonce };
                self.stats.refused += 1;
                self.answer(link, Command::ReadRefused { reply, reason });
            }
        }
    }

    fn message(&mut self, host: HostId, message: &[u8; OutOfBand::LEN]) -> Result<(), Refusal> {
        let message = OutOfBand::from_bytes(message).ok_or(Refusal::Malformed)?;
        let Self { endpoints, events, .. } = self;
        let tell = &mut |endpoint| {
            events.push(Event::OutOfBand { endpoint });
        };
        let lost = endpoints.handle_message(host, &message, tell);
        if lost.is_some() {
            let reason = Reason::NoRoom;
            let (window, address) = (None, None);
            self.events.push(Event::Exception { window, host, reason, address });
        }
        Ok(())
    }
}
