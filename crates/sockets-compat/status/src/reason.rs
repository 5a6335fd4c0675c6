//! How a connection goes, and why: as numbers in a file, as words for people, as labels of
//! metrics.

use std::fmt;

/// How the bytes of a connection go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Transport {
    /// Memory that both ends have.
    Memory = 1,
    /// The kernel's TCP.
    Tcp = 2,
    /// To another host by the Scheduled Transfer Protocol.
    Stp = 3,
    /// To another host by queue pairs.
    Qpip = 4,
}

impl Transport {
    /// All that there are.
    pub const ALL: [Self; 4] = [Self::Memory, Self::Tcp, Self::Stp, Self::Qpip];

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Tcp => "tcp",
            Self::Stp => "stp",
            Self::Qpip => "qpip",
        }
    }

    /// The one of this number.
    #[must_use]
    pub fn of(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|transport| *transport as u32 == number)
    }
}

/// Which end of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Role {
    /// The one that called.
    Connector = 1,
    /// The one that was called.
    Acceptor = 2,
}

/// The reasons, each with its number in files and its label in metrics.
macro_rules! reasons {
    ($($(#[$meta:meta])* $name:ident = $number:literal $label:literal,)*) => {
        /// Why the bytes of a connection go as they do. Numbers are never used again for
        /// another reason: another version of the library may have written them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum Reason {
            $($(#[$meta])* $name = $number,)*
        }

        impl Reason {
            /// All that this version knows.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// One word for metrics.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self {
                    $(Self::$name => $label,)*
                }
            }
        }
    };
}

reasons! {
    /// It is not decided yet: by TCP so far.
    Undecided = 1 "undecided",
    /// Memory.
    BothHere = 2 "both_here",
    /// To another host.
    Carried = 3 "carried",
    /// No carrier runs here; the detail is the transport.
    NoCarrier = 4 "no_carrier",
    /// The carrier of this host has no place left; the detail is the transport, here and below.
    CarrierFull = 5 "carrier_full",
    /// The carrier of this host comes to its end.
    CarrierEnding = 6 "carrier_ending",
    /// No carrier is heard from there.
    CarrierUnreached = 7 "carrier_unreached",
    /// The carrier there does not take it.
    CarrierRefused = 8 "carrier_refused",
    /// The program there has not taken it.
    NotTakenThere = 9 "not_taken_there",
    /// The carrier has ended before both ends had found each other.
    LostCarrier = 10 "lost_carrier",
    /// A rule; the detail is its line.
    Rule = 11 "rule",
    /// A file switches the library off for new connections; the detail is whose it is, and
    /// [`Explanation::OF_HOST`] for the host's.
    SwitchedOff = 12 "switched_off",
    /// The other end is on another host.
    OtherHost = 13 "other_host",
    /// The socket is connected to itself.
    ItselfAtBothEnds = 14 "itself",
    /// No memory; the detail is the number of the error.
    NoMemory = 15 "no_memory",
    /// In place of the folder of this user is something else.
    NoFolder = 16 "no_folder",
    /// The folder belongs to another user, who is the detail.
    FolderOfUser = 17 "folder_of_user",
    /// Others may use the folder; the detail is its mode.
    FolderOpen = 18 "folder_open",
    /// The user has no number of its own in this namespace.
    Nameless = 19 "nameless_user",
    /// The offer belongs to another user.
    OfferOfUser = 20 "offer_of_user",
    /// The offer is open to others.
    OfferOpen = 21 "offer_open",
    /// The offer has this many names.
    OfferNames = 22 "offer_names",
    /// The offer is of another version.
    OfferUnknown = 23 "offer_of_another_version",
    /// The offer is that of another connection.
    OfferOfAnother = 24 "offer_of_another",
    /// The offer cannot be used; the detail is the number of the error.
    OfferUnusable = 25 "offer_unusable",
    /// The kernel does not say who is at the other end; the detail is the number of the error.
    KernelSilent = 26 "kernel_silent",
    /// The other end has gone.
    Gone = 27 "gone",
    /// Another socket is at the other end.
    AnotherSocket = 28 "another_socket",
    /// The other end belongs to another user, who is the detail.
    PeerOfUser = 29 "peer_of_user",
    /// The other end is in another namespace.
    AnotherNamespace = 30 "another_namespace",
    /// The caller offers no memory.
    NoOffer = 31 "no_offer",
    /// Nobody has taken the memory that was offered.
    NoAnswer = 32 "no_answer",
    /// Closed before both ends had found each other.
    TooShort = 33 "too_short",
    /// More or less went by TCP than the library has counted.
    PastUs = 34 "past_the_library",
    /// Two processes have it, and went on by TCP.
    PassedOn = 35 "passed_on",
    /// The offer is being made.
    OfferUnfinished = 36 "offer_unfinished",
    /// The folder of a group is not that group's alone; the detail is its number.
    FolderNotOfGroup = 37 "folder_not_of_group",
    /// The user may not enter the folder of a group; the detail is its number.
    NotInGroup = 38 "not_in_group",
    /// The program uses `io_uring`, and so may send, receive and wait past the library.
    IoUring = 39 "io_uring",
}

impl Reason {
    /// The one of this number.
    #[must_use]
    pub fn of(number: u16) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| *reason as u16 == number)
    }
}

/// A reason and what belongs to it: a line, a user, the number of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Explanation {
    /// Why.
    pub reason: Reason,
    /// What the reason says that it is; zero where it says nothing.
    pub detail: u32,
}

/// While it is there, new connections of this host stay TCP.
pub const HOST_SWITCH: &str = "/run/landfall/sockets-off";
/// What the same for one user is called, with the user's number behind it.
pub const USER_SWITCH: &str = "/dev/shm/landfall-sockets-off-";

impl Explanation {
    /// Whose a switch is that is not a user's.
    pub const OF_HOST: u32 = u32::MAX;
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let detail = self.detail;
        let transport = Transport::of(detail).map_or("another way", Transport::word);
        let by_carrier = |f: &mut fmt::Formatter<'_>, why| write!(f, "not by {transport}: {why}");
        match self.reason {
            Reason::Undecided => f.write_str("both ends look for each other"),
            Reason::BothHere => f.write_str("both ends have the library"),
            Reason::Carried => f.write_str("both hosts have a carrier, both ends the library"),
            Reason::NoCarrier => {
                write!(f, "no carrier on this host (landfall carry --over {transport})")
            }
            Reason::CarrierFull => by_carrier(f, "this host's carrier has no place left"),
            Reason::CarrierEnding => by_carrier(f, "this host's carrier comes to its end"),
            Reason::CarrierUnreached => by_carrier(f, "no carrier is heard from there"),
            Reason::CarrierRefused => by_carrier(f, "the carrier there does not take it"),
            Reason::NotTakenThere => by_carrier(f, "the program there has not taken it"),
            Reason::LostCarrier => write!(f, "the carrier for {transport} has ended"),
            Reason::Rule => write!(f, "rule in line {detail}"),
            Reason::SwitchedOff if detail == Self::OF_HOST => {
                write!(f, "{HOST_SWITCH} switches the library off")
            }
            Reason::SwitchedOff => write!(f, "{USER_SWITCH}{detail} switches the library off"),
            Reason::OtherHost => f.write_str("the other end is on another host"),
            Reason::ItselfAtBothEnds => f.write_str("the socket is connected to itself"),
            Reason::NoMemory => write!(f, "no memory to share (errno {detail})"),
            Reason::NoFolder => f.write_str("in place of the folder is something else: remove it"),
            Reason::FolderOfUser => write!(f, "the folder belongs to user {detail}: remove it"),
            Reason::FolderOpen => {
                write!(f, "the folder is open to others (mode {detail:04o}): remove it")
            }
            Reason::Nameless => f.write_str("this user has no number of its own in this namespace"),
            Reason::OfferOfUser => write!(f, "the offer belongs to user {detail}"),
            Reason::OfferOpen => write!(f, "the offer is open to others (mode {detail:o})"),
            Reason::OfferNames => write!(f, "the offer has {detail} names"),
            Reason::OfferUnknown => f.write_str("the offer is of another version"),
            Reason::OfferOfAnother => f.write_str("the offer is that of another connection"),
            Reason::OfferUnusable => write!(f, "the offer cannot be used (errno {detail})"),
            Reason::KernelSilent => {
                write!(f, "the kernel does not say who is at the other end (errno {detail})")
            }
            Reason::Gone => f.write_str("the other end has gone"),
            Reason::AnotherSocket => f.write_str("another socket is at the other end"),
            Reason::PeerOfUser => write!(f, "the other end belongs to user {detail}"),
            Reason::AnotherNamespace => f.write_str("the other end is in another namespace"),
            Reason::NoOffer => f.write_str("the caller offers no memory"),
            Reason::NoAnswer => f.write_str("nobody has taken the memory that was offered"),
            Reason::TooShort => f.write_str("closed before both ends had found each other"),
            Reason::PastUs => f.write_str("bytes go past the library"),
            Reason::PassedOn => f.write_str("another process got it before it was memory"),
            Reason::OfferUnfinished => f.write_str("the offer is being made"),
            Reason::IoUring => f.write_str("the program uses io_uring"),
            Reason::FolderNotOfGroup => {
                write!(f, "the folder is not of group {detail} alone: remove it")
            }
            Reason::NotInGroup => {
                write!(f, "the folder of group {detail} cannot be used: is this user in it?")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_reason_has_a_number_a_label_and_words_of_its_own() {
        let of = |what: fn(Reason) -> String| {
            Reason::ALL.iter().map(|reason| what(*reason)).collect::<BTreeSet<_>>().len()
        };
        assert_eq!(of(|reason| (reason as u16).to_string()), Reason::ALL.len());
        assert_eq!(of(|reason| reason.label().to_owned()), Reason::ALL.len());
        let words = |reason| Explanation { reason, detail: 3 }.to_string();
        assert_eq!(of(words), Reason::ALL.len());
        for reason in Reason::ALL {
            assert_eq!(Reason::of(*reason as u16), Some(*reason));
        }
        assert_eq!((Reason::of(0), Reason::of(u16::MAX)), (None, None));
    }
}
