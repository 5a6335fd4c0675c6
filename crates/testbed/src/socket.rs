//! What the kernel knows about one of its TCP sockets.

use std::io;
use std::os::fd::AsFd;

use crate::sys;

/// A state of RFC 9293, 3.3.2, by the numbers of the kernel (`tcp_states.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpState {
    /// Both ways are open.
    Established,
    /// We asked.
    SynSent,
    /// An opening was answered.
    SynReceived,
    /// Our end is said, not acknowledged.
    FinWait1,
    /// Our end is acknowledged.
    FinWait2,
    /// Nothing is left but to wait.
    TimeWait,
    /// Nothing is left.
    Closed,
    /// The other side's end came.
    CloseWait,
    /// The other side's end came, then ours was said.
    LastAck,
    /// It waits for openings.
    Listen,
    /// Both ends are said, ours is not acknowledged.
    Closing,
    /// A number that is not known here.
    Other(u8),
}

/// A TCP socket as its kernel sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpView {
    /// Where the connection is.
    pub state: TcpState,
    /// The congestion window, in segments.
    pub congestion_window: u32,
    /// The slow-start threshold, in segments.
    pub threshold: u32,
    /// Bytes of a full segment, without options.
    pub segment: u32,
    /// Numbers that were given to the kernel and not acknowledged: bytes, and an end.
    pub unacknowledged: u32,
}

/// Looks at a socket.
///
/// # Errors
/// It is not one of TCP.
pub fn view(socket: &impl AsFd) -> io::Result<TcpView> {
    let info = sys::tcp_info(socket.as_fd())?;
    let state = match info.tcpi_state {
        1 => TcpState::Established,
        2 => TcpState::SynSent,
        3 => TcpState::SynReceived,
        4 => TcpState::FinWait1,
        5 => TcpState::FinWait2,
        6 => TcpState::TimeWait,
        7 => TcpState::Closed,
        8 => TcpState::CloseWait,
        9 => TcpState::LastAck,
        10 => TcpState::Listen,
        11 => TcpState::Closing,
        other => TcpState::Other(other),
    };
    Ok(TcpView {
        state,
        congestion_window: info.tcpi_snd_cwnd,
        threshold: info.tcpi_snd_ssthresh,
        segment: info.tcpi_snd_mss,
        unacknowledged: sys::unacknowledged(socket.as_fd())?,
    })
}
