//! [`Family`]: what carries a socket, as a type.

/// What carries a socket: [`Clan`], [`Qp`] or [`Stp`].
pub trait Family: sealed::Sealed + 'static {
    /// What a stream of it is called.
    #[doc(hidden)]
    const STREAM: &'static str;
    /// What a listener of it is called.
    #[doc(hidden)]
    const LISTENER: &'static str;
}

mod sealed {
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
    Stp "StpStream" "StpListener";
}
