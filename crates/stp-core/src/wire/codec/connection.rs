//! The fields of set-up and tear-down.

use landfall_placement::Refusal;

use super::super::header::{EXTENSION_LEN, Header};
use super::super::message::{Message, Offer};
use super::super::op::Op;
use super::super::proof::Secret;
use super::{fill_ids, fill_rejected, ids, is_rejected, pack_sizes, reason, unpack_sizes};

pub(super) fn fill(
    message: &Message,
    header: &mut Header,
    extension: &mut [u8; EXTENSION_LEN],
) -> Option<()> {
    match *message {
        Message::RequestConnection(offer) => {
            fill_offer(header, &offer)?;
            // No longer than a header: who speaks an older version can refuse it.
            let Secret(secret) = offer.secret;
            header.b_num = ((secret >> 32) as u32).into();
            header.sync = ((secret >> 16) as u16).into();
            header.d_id = (secret as u16).into();
        }
        Message::ConnectionAnswer { d_id, result } => {
            header.d_id = d_id.into();
            match result {
                Ok(offer) => {
                    fill_offer(header, &offer)?;
                    extension[..8].copy_from_slice(&offer.secret.0.to_be_bytes());
                }
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

pub(super) fn parse(op: Op, header: &Header, extension: &[u8]) -> Result<Message, Refusal> {
    let ids = ids(header);
    Ok(match op {
        Op::RequestConnection => {
            let secret = u64::from(header.b_num.get()) << 32
                | u64::from(header.sync.get()) << 16
                | u64::from(ids.d_id);
            Message::RequestConnection(parse_offer(header, Secret(secret))?)
        }
        Op::ConnectionAnswer => {
            let result = if is_rejected(header) {
                Err(reason(header))
            } else {
                let secret = extension.first_chunk().ok_or(Refusal::Truncated)?;
                Ok(parse_offer(header, Secret(u64::from_be_bytes(*secret)))?)
            };
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
    header.offset = (u32::from(offer.tail) << 8 | u32::from(offer.slots)).into();
    header.bufx = offer.s_key.into();
    header.s_id = offer.s_id.into();
    header.t_len = offer.hello.into();
    Some(())
}

fn parse_offer(header: &Header, secret: Secret) -> Result<Offer, Refusal> {
    let (version, max_stu, buffer) = unpack_sizes(header.param.get());
    // Version 2 has the slots in all of it, and takes nothing above 16 bits.
    let small = u16::try_from(header.offset.get()).map_err(|_| Refusal::Malformed)?;
    Ok(Offer {
        version,
        max_stu,
        tail: (small >> 8) as u8,
        buffer,
        slots: small as u8,
        s_key: header.bufx.get(),
        s_id: header.s_id.get(),
        hello: header.t_len.get(),
        secret,
    })
}
