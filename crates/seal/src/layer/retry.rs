//! Stateless retry: while many handshakes wait that nobody has finished, a caller first has to
//! show that it receives what is sent to its address.
//!
//! It is answered with a cookie, shorter than its question and remembered by nobody, and says its
//! first message again with the cookie in it. Somebody who is not at the address that his
//! packets carry never sees it.

use alloc::string::ToString as _;
use alloc::vec::Vec;
use core::ops::Range;

use landfall_placement::{Duration, Instant, PathId, Peer, Refusal};
use subtle::ConstantTimeEq as _;

use super::association::{Association, MessageHead};
use super::associations::Associations;
use super::unit::RETRY;
use crate::keys::Role;

/// The length of a cookie.
pub(super) const COOKIE_LEN: usize = 16;
/// Where it lies in a first message: behind that of Noise, where zeros are otherwise.
const PLACE: Range<usize> = 64..64 + COOKIE_LEN;
/// In the units of a first message of TLS: where later ones say which chunks came.
#[cfg(feature = "rustls")]
const PLACE_IN_CHUNK: Range<usize> = 16..16 + COOKIE_LEN;
/// A cookie is good for one such time at least, and for two at most.
const TIME: Duration = Duration::from_secs(10);
/// How often a first message is sent again at once; then its timer decides. So forged cookies cause
/// no more bytes than they have.
const MOST_AT_ONCE: u8 = 3;

impl Associations {
    /// Half of the handshakes that may wait for their ends do so.
    pub(super) fn is_crowded(&self) -> bool {
        self.half_open.len() >= (self.config.half_open / 2).max(1)
    }

    fn cookie(&self, time: u64, (path, from): (PathId, Peer), number: u32) -> [u8; COOKIE_LEN] {
        let mut context = Vec::from(time.to_be_bytes());
        context.extend_from_slice(&path.0.to_be_bytes());
        context.extend_from_slice(&number.to_be_bytes());
        context.extend_from_slice(from.to_string().as_bytes());
        let cookie = self.secret.derive("retry", &context);
        cookie.as_bytes().first_chunk().copied().unwrap_or_default()
    }

    /// Has who sent this first message proven its address?
    pub(super) fn is_proven(
        &self,
        now: Instant,
        at: (PathId, Peer),
        head: &MessageHead,
        unit: &[u8],
    ) -> bool {
        #[cfg(feature = "rustls")]
        let place = if head.kind == super::tls_exchange::KIND { PLACE_IN_CHUNK } else { PLACE };
        #[cfg(not(feature = "rustls"))]
        let place = PLACE;
        let Some(shown) = unit.get(place) else { return false };
        let time = time_of(now);
        let is_of = |time| bool::from(self.cookie(time, at, head.from).ct_eq(shown));
        is_of(time) || time.checked_sub(1).is_some_and(is_of)
    }

    /// Tells a caller to come again with a cookie.
    pub(super) fn ask_for_proof(&mut self, now: Instant, at: (PathId, Peer), head: &MessageHead) {
        let cookie = self.cookie(time_of(now), at, head.from);
        let answer = MessageHead { form: RETRY, to: head.from, from: 0, ..*head };
        self.send(at.0, at.1, answer.with(&cookie));
    }

    /// An end that was called wants to see a cookie.
    pub(super) fn handle_retry(
        &mut self,
        head: &MessageHead,
        cookie: &[u8],
    ) -> Result<(), Refusal> {
        let known = self.get_mut(head.to).ok_or(Refusal::UnknownId)?;
        let is_waiting =
            known.role == Role::Initiator && known.to == 0 && known.state.is_handshaking();
        #[cfg(feature = "rustls")]
        if is_waiting && known.exchange.is_some() {
            let at_once = known.retries < MOST_AT_ONCE;
            self.show_cookie(head.to, cookie)?;
            if at_once && let Some(known) = self.get_mut(head.to) {
                known.retries += 1;
                self.send_first_again(head.to);
            }
            return Ok(());
        }
        let Association { last_message, retries, path, remote, .. } = known;
        let place =
            last_message.get_mut(PLACE).filter(|_| is_waiting).ok_or(Refusal::Unexpected)?;
        if place == cookie {
            return Err(Refusal::Duplicate);
        }
        place.copy_from_slice(cookie);
        if *retries < MOST_AT_ONCE {
            *retries += 1;
            let (path, remote, message) = (*path, *remote, last_message.clone());
            self.send(path, remote, message);
        }
        Ok(())
    }
}

const fn time_of(now: Instant) -> u64 {
    now.since(Instant::ZERO).as_nanos() as u64 / TIME.as_nanos() as u64
}
