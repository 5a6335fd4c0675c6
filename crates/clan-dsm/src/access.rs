//! What may be done with an aperture, and what was done with it.

/// What the holder of a cookie may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Rights {
    /// Read.
    Read = 1,
    /// Write.
    Write = 2,
    /// Both, and read-modify-write of words.
    ReadWrite = 3,
}

impl Rights {
    /// Every combination there is.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::ReadWrite];

    /// From its number.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            1 => Some(Self::Read),
            2 => Some(Self::Write),
            3 => Some(Self::ReadWrite),
            _ => None,
        }
    }

    /// Do these allow all that `needed` asks for?
    #[must_use]
    pub const fn allow(self, needed: Self) -> bool {
        self as u8 & needed as u8 == needed as u8
    }
}

/// How memory is touched; what a tripwire waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// It is read.
    Read,
    /// It is written.
    Write,
    /// Either.
    Both,
}

impl Access {
    /// Does a tripwire for this hear of that?
    #[must_use]
    pub const fn hears(self, touched: Self) -> bool {
        matches!(
            (self, touched),
            (Self::Both, _)
                | (_, Self::Both)
                | (Self::Read, Self::Read)
                | (Self::Write, Self::Write)
        )
    }
}
