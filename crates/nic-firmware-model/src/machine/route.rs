//! [`Route`]: what an adapter puts in front of a frame, for switches that keep no tables.

/// The way of a frame through a network whose switches look it up nowhere: each takes one
/// byte off the front.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Route {
    bytes: [u8; Self::MOST],
    len: u8,
}

impl Route {
    /// The most switches on a way.
    pub const MOST: usize = 8;
    /// Over a link, and through no switch.
    pub const DIRECT: Self = Self { bytes: [0; Self::MOST], len: 0 };

    /// A byte for each switch, the first one's first; nothing where these are too many.
    #[must_use]
    pub fn new(bytes: impl IntoIterator<Item = u8>) -> Option<Self> {
        let mut route = Self::DIRECT;
        for byte in bytes {
            *route.bytes.get_mut(usize::from(route.len))? = byte;
            route.len += 1;
        }
        Some(route)
    }

    /// The bytes that the frame begins with on its first link.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&[])
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    #[test]
    fn a_route_has_a_byte_for_each_switch_and_a_bound() {
        assert_eq!(Route::DIRECT.bytes(), []);
        assert_eq!(Route::new([7, 8, 9]).unwrap().bytes(), [7, 8, 9]);
        assert_eq!(Route::new(0..8).unwrap().bytes().len(), Route::MOST);
        assert_eq!(Route::new(0..9), None);
    }
}
