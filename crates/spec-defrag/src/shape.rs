//! The lengths that are speculated on: "the only thing that has to be altered" for
//! another protocol (section 3.2.1 of the paper).

/// How a packet is cut: how many units, and where in each the head ends and the
/// payload does.
///
/// All units but the first have heads of one length, all but the first and the
/// last payloads of one length. A page in three fragments, TCP over IPv4 on
/// Ethernet: heads of 54, 34, 34 bytes, payloads of 1460, 1480 and 1156.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    units: u16,
    head_first: u16,
    head_rest: u16,
    first: u16,
    middle: u16,
    last: u16,
}

/// How long the heads of the units of one packet are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLens {
    /// That of the first unit.
    pub first: u16,
    /// Those of all others.
    pub rest: u16,
}

/// How long the payloads of the units of one packet are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadLens {
    /// That of the first unit.
    pub first: u16,
    /// Those between the first and the last.
    pub middle: u16,
    /// That of the last unit.
    pub last: u16,
}

impl Shape {
    /// The most units of one packet: 64 KiB in pieces of 1024 bytes.
    pub const MOST_UNITS: u16 = 64;
    /// The longest head: so much room a head slot has.
    pub const MOST_HEAD: u16 = 128;

    /// A packet of one unit.
    #[must_use]
    pub const fn single(head: u16, payload: u16) -> Option<Self> {
        Self::new(
            1,
            HeadLens { first: head, rest: head },
            PayloadLens { first: payload, middle: payload, last: payload },
        )
    }

    /// A packet of `units` units with heads and payloads of these lengths. `None` for lengths
    /// that no packet has, or that are beyond the bounds.
    #[must_use]
    pub const fn new(units: u16, heads: HeadLens, payloads: PayloadLens) -> Option<Self> {
        let HeadLens { first: head_first, rest: head_rest } = heads;
        let PayloadLens { first, middle, last } = payloads;
        let is_good = units >= 1
            && units <= Self::MOST_UNITS
            && head_first <= Self::MOST_HEAD
            && head_rest <= Self::MOST_HEAD
            && first > 0
            && middle > 0
            && last > 0;
        if !is_good {
            return None;
        }
        Some(Self { units, head_first, head_rest, first, middle, last })
    }

    /// How many units a packet has.
    #[must_use]
    #[inline]
    pub const fn units(&self) -> u16 {
        self.units
    }

    /// The length of the head of a unit.
    #[must_use]
    #[inline]
    pub const fn head_len(&self, index: u16) -> u16 {
        if index == 0 { self.head_first } else { self.head_rest }
    }

    /// The length of the payload of a unit.
    #[must_use]
    #[inline]
    pub const fn payload_len(&self, index: u16) -> u16 {
        if index == 0 {
            self.first
        } else if index + 1 == self.units {
            self.last
        } else {
            self.middle
        }
    }

    /// Where the payload of a unit belongs in the page.
    #[must_use]
    #[inline]
    pub const fn at(&self, index: u16) -> u32 {
        if index == 0 { 0 } else { self.first as u32 + (index as u32 - 1) * self.middle as u32 }
    }

    /// The length of all payloads together.
    #[must_use]
    #[inline]
    pub const fn body_len(&self) -> u32 {
        let last = self.units - 1;
        self.at(last) + self.payload_len(last) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_the_paper_has_six_descriptors() {
        let tcp = Shape::new(
            3,
            HeadLens { first: 54, rest: 34 },
            PayloadLens { first: 1460, middle: 1480, last: 1156 },
        )
        .unwrap();
        let lens: std::vec::Vec<_> =
            (0..3).map(|n| (tcp.head_len(n), tcp.at(n), tcp.payload_len(n))).collect();
        assert_eq!(lens, [(54, 0, 1460), (34, 1460, 1480), (34, 2940, 1156)]);
        assert_eq!(tcp.body_len(), 4096);
        assert_eq!(Shape::single(42, 100).unwrap().body_len(), 100);
    }

    #[test]
    fn lengths_of_nothing_are_no_shape() {
        assert_eq!(
            Shape::new(
                0,
                HeadLens { first: 1, rest: 1 },
                PayloadLens { first: 1, middle: 1, last: 1 }
            ),
            None
        );
        assert_eq!(
            Shape::new(
                65,
                HeadLens { first: 1, rest: 1 },
                PayloadLens { first: 1, middle: 1, last: 1 }
            ),
            None
        );
        assert_eq!(
            Shape::new(
                2,
                HeadLens { first: 129, rest: 1 },
                PayloadLens { first: 1, middle: 1, last: 1 }
            ),
            None
        );
        assert_eq!(
            Shape::new(
                2,
                HeadLens { first: 34, rest: 34 },
                PayloadLens { first: 8, middle: 8, last: 0 }
            ),
            None
        );
    }
}
