//! The fields of set-up and tear-down.

use landfall_placement::Refusal;

use super::super::header::Header;
use super::super::message::{Message, Offer};
use super::super::op::Op;
use super::{fill_ids, fill_rejected, ids, is_rejected, pack_sizes, reason, unpack_sizes};

pub(super) fn fill(message: &Message, header: &mut Header) -> Option<()> {
    match *message {
        Message::RequestConnection(offer) => fill_offer(header, &offer)?,
        Message::ConnectionAnswer { d_id, result } => {
            header.d_id = d_id.into();
            match result {
                Ok(offer) => fill_offer(header, &offer)?,
                Err(reason) => fill_rejected(header, reason),
            }
        }
        Message::RequestDisconnect { ids, abort } => {
            fill_ids(header, ids);
            if let Some(reason) = abort {
                fill_rejected(header, reason);
            }
        }
        Message::DisconnectAnswer { ids } | Message::DisconnectComplete { ids } => {
            fill_ids(header, ids);
        }
        _ => {}
    }
    Some(())
}

pub(super) fn parse(op: Op, header: &Header) -> Result<Message, Refusal> {
    let ids = ids(header);
    Ok(match op {
        Op::RequestConnection => Message::RequestConnection(parse_offer(header)?),
        Op::ConnectionAnswer => {
            let result =
                if is_rejected(header) { Err(reason(header)) } else { Ok(parse_offer(header)?) };
            Message::ConnectionAnswer { d_id: ids.d_id, result }
        }
        Op::RequestDisconnect => {
            let abort = is_rejected(header).then(|| reason(header));
            Message::RequestDisconnect { ids, abort }
        }
        Op::DisconnectAnswer => Message::DisconnectAnswer { ids },
        _ => Message::DisconnectComplete { ids },
    })
}

fn fill_offer(header: &mut Header, offer: &Offer) -> Option<()> {
    header.param = pack_sizes(offer.version, offer.max_stu, offer.buffer)?.into();
    header.offset = u32::from(offer.slots).into();
    header.bufx = offer.s_key.into();
    header.s_id = offer.s_id.into();
    header.t_len = offer.hello.into();
    Some(())
}

fn parse_offer(header: &Header) -> Result<Offer, Refusal> {
    let (version, max_stu, buffer) = unpack_sizes(header.param.get());
    Ok(Offer {
        version,
        max_stu,
        buffer,
        slots: u16::try_from(header.offset.get()).map_err(|_| Refusal::Malformed)?,
        s_key: header.bufx.get(),
        s_id: header.s_id.get(),
        hello: header.t_len.get(),
    })
}
