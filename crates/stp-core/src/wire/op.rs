//! The operations and their flags.

use core::fmt;

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $words:literal;)+) => {
        /// What a packet asks for or answers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Op { $($(#[$doc])* $name = $number,)+ }

        impl Op {
            /// Every operation there is.
            pub const ALL: [Self; [$($number),+].len()] = [$(Self::$name),+];

            /// The operation with this number.
            #[inline]
            #[must_use]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$name),)+ _ => None }
            }

            /// Its name in the standard.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $words,)+ }
            }
        }
    };
}

operations! {
    /// Wants a connection.
    RequestConnection = 1, "Request_Connection";
    /// Returns one, or refuses.
    ConnectionAnswer = 2, "Connection_Answer";
    /// Wants to end a connection.
    RequestDisconnect = 3, "Request_Disconnect";
    /// Has nothing more to say either.
    DisconnectAnswer = 4, "Disconnect_Answer";
    /// Has heard that, and forgets the connection.
    DisconnectComplete = 5, "Disconnect_Complete";
    /// Has a Transfer to send.
    RequestToSend = 6, "Request_To_Send";
    /// Answers a Request_To_Send or Request_To_Receive that gets no grant (yet).
    RequestAnswer = 7, "Request_Answer";
    /// Wants to be sent a Transfer.
    RequestToReceive = 8, "Request_To_Receive";
    /// Grants STUs of a Block.
    ClearToSend = 9, "Clear_To_Send";
    /// Carries one STU.
    Data = 10, "Data";
    /// Wants access to memory.
    RequestMemoryRegion = 11, "Request_Memory_Region";
    /// Returns it, or refuses.
    MemoryRegionAvailable = 12, "Memory_Region_Available";
    /// Writes to a region.
    Put = 13, "Put";
    /// Reads from a region.
    Get = 14, "Get";
    /// Reads and modifies a word of a region.
    FetchOp = 15, "FetchOp";
    /// Has the old value; it need not be remembered any longer.
    FetchOpComplete = 16, "FetchOp_Complete";
    /// Asks how things stand.
    RequestState = 17, "Request_State";
    /// Says how things stand.
    RequestStateResponse = 18, "Request_State_Response";
    /// Ends a Transfer early.
    End = 19, "End";
    /// Has heard that.
    EndAck = 20, "End_Ack";
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The flags of an operation. Most say something for some operations only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// None.
    pub const NONE: Self = Self(0);
    /// The rejected form of an answer: the reason is in `param`. On Put: the
    /// write was refused before, and only keeps its number.
    pub const REJECTED: Self = Self(0x01);
    /// Clear_To_Send: only the STUs named by a bitmap, again.
    pub const RESEND: Self = Self(0x02);
    /// Data: the last STU of its Block. Put: answer now. State response: complete.
    /// Request_To_Send: all of the Transfer is right behind it.
    pub const LAST: Self = Self(0x04);
    /// The packet has a checksum.
    pub const SUM: Self = Self(0x08);
    /// The receiver takes less than was offered.
    pub const LIMITED: Self = Self(0x10);
    /// Request_To_Send: in answer to a Request_To_Receive. End and End_Ack: the
    /// receiver of the Transfer ends it. Request_Answer: answers a Request_To_Receive.
    pub const ANSWER: Self = Self(0x20);
    /// Put: tell the user at the other side.
    pub const NOTIFY: Self = Self(0x40);
    /// Request_State: this link belongs to the connection too. Its answer: prove
    /// that you hear me there.
    pub const LINK: Self = Self(0x80);

    /// All flags of both.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These flags, and `other` where the condition holds.
    #[inline]
    #[must_use]
    pub const fn with_if(self, condition: bool, other: Self) -> Self {
        if condition { self.with(other) } else { self }
    }

    /// Are all flags of `other` set?
    #[inline]
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Is any flag set besides those of `allowed`?
    #[inline]
    #[must_use]
    pub const fn has_besides(self, allowed: Self) -> bool {
        self.0 & !allowed.0 != 0
    }
}
