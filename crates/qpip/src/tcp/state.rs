//! How far a connection is.

/// How far a connection is (RFC 9293, 3.3.2). One that is not proved has no queue pair yet, and
/// TIME-WAIT has none any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ConnectionState {
    /// We asked.
    SynSent,
    /// Both asked at once, and we answered; or a client that we know asked with data (TCP
    /// Fast Open), and has not proved yet that it hears us.
    SynReceived,
    /// Both ways are open.
    Established,
    /// Our end is said, not acknowledged.
    FinWait1,
    /// Our end is acknowledged.
    FinWait2,
    /// Theirs came.
    CloseWait,
    /// Both are said; ours is not acknowledged.
    Closing,
    /// Theirs came, then ours was said.
    LastAck,
    /// Nothing is left; [`Event::Closed`](crate::Event::Closed) says why.
    #[default]
    Closed,
}

impl ConnectionState {
    /// Do both sides know each other's numbers?
    pub(crate) const fn is_synchronized(self) -> bool {
        !matches!(self, Self::SynSent | Self::SynReceived | Self::Closed)
    }
}
