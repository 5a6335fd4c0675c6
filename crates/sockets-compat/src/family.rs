//! [`Family`]: what carries a socket, and [`Mode`]: who waits for it, as types.

/// What carries a socket: [`Clan`], [`Qp`] or [`Stp`].
pub trait Family: sealed::Sealed + 'static {
    /// What a stream of it is called.
    #[doc(hidden)]
    const STREAM: &'static str;
    /// What a listener of it is called.
    #[doc(hidden)]
    const LISTENER: &'static str;
}

/// A [`Family`] that has sockets for messages:
#[cfg_attr(feature = "clan", doc = "[`Clan`]")]
#[cfg_attr(feature = "stp", doc = "[`Stp`]")]
pub trait Messages: Family {
    /// What a socket for messages of it is called.
    #[doc(hidden)]
    const SEQPACKET: &'static str;
    /// What a listener for such is called.
    #[doc(hidden)]
    const SEQPACKET_LISTENER: &'static str;
}

/// Who waits for a socket: threads ([`Blocking`])
#[cfg_attr(feature = "tokio", doc = "or tasks ([`Tokio`]).")]
#[cfg_attr(not(feature = "tokio"), doc = "or, with the feature `tokio`, tasks.")]
/// A socket of either mode is the same inside, and becomes one of the other.
pub trait Mode: sealed::Sealed + 'static {}

/// Calls wait on their thread, as those of `std::net` do.
#[derive(Debug)]
pub enum Blocking {}

impl sealed::Sealed for Blocking {}
impl Mode for Blocking {}

/// Futures wait on any executor, with tokio's traits.
#[cfg(feature = "tokio")]
#[derive(Debug)]
pub enum Tokio {}

#[cfg(feature = "tokio")]
impl sealed::Sealed for Tokio {}
#[cfg(feature = "tokio")]
impl Mode for Tokio {}

pub(crate) mod sealed {
    pub trait Sealed {}
}

macro_rules! families {
    ($($(#[$meta:meta])* $name:ident $stream:literal $listener:literal;)+) => {$(
        $(#[$meta])*
        #[derive(Debug)]
        pub enum $name {}

        $(#[$meta])*
        impl sealed::Sealed for $name {}

        $(#[$meta])*
        impl Family for $name {
            const STREAM: &'static str = $stream;
            const LISTENER: &'static str = $listener;
        }
    )+};
}

families! {
    /// Shared memory with tripwires, within one host and across hosts.
    #[cfg(feature = "clan")]
    Clan "ClanStream" "ClanListener";
    /// Queue pairs on TCP and UDP.
    #[cfg(feature = "qpip")]
    Qp "QpStream" "QpListener";
    /// The Scheduled Transfer Protocol.
    #[cfg(feature = "stp")]
    Stp "StpStream" "StpStreamListener";
}

#[cfg(feature = "clan")]
impl Messages for Clan {
    const SEQPACKET: &'static str = "ClanSeqPacket";
    const SEQPACKET_LISTENER: &'static str = "ClanSeqPacketListener";
}

#[cfg(feature = "stp")]
impl Messages for Stp {
    const SEQPACKET: &'static str = "StpSeqPacket";
    const SEQPACKET_LISTENER: &'static str = "StpListener";
}
